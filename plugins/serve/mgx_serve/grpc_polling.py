"""Which of its threads gRPC reads sockets in."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["direct_polling"]

VARIABLE: Final = "GRPC_EXPERIMENTS"
CHOICE: Final = "-event_engine_listener"


@contextmanager
def direct_polling() -> Iterator[None]:
    """Has a server's gRPC, where it is imported inside for the first time, read sockets in the thread that takes requests.

    By default threads of an event engine read them and hand on what came: ten context switches a request in the place of six,
    and as many waits for a processor.  gRPC reads its environment when it is imported, and here alone can it be told.  The
    environment is then as it was, for other processes and for libraries with a gRPC of their own; a choice of the user's stays.
    """
    if VARIABLE in os.environ or "grpc" in sys.modules:
        yield
        return
    os.environ[VARIABLE] = CHOICE
    try:
        yield
    finally:
        del os.environ[VARIABLE]
