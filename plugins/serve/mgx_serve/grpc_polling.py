"""Selects the thread in which gRPC reads sockets."""

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
    """Makes gRPC read sockets in the server's own thread; effective if gRPC is first imported inside this context.

    By default, event-engine threads read the sockets and hand the data over: ten context switches per request instead of six.
    gRPC can be configured only through its environment variable, which it reads on import.  The environment is restored
    afterwards, for child processes and libraries that bundle their own gRPC; a value set by the user is respected.
    """
    if VARIABLE in os.environ or "grpc" in sys.modules:
        yield
        return
    os.environ[VARIABLE] = CHOICE
    try:
        yield
    finally:
        del os.environ[VARIABLE]
