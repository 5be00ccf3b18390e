"""Trees of arguments and results as torch describes them, copied without the warning that torch has about its own."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["leaves_are_copied"]

LOCK = threading.RLock()  # filters are of the process: of two threads, the second to come would restore the first's


@contextmanager
def leaves_are_copied() -> Iterator[None]:
    """While it lasts, torch's descriptions of leaves are copied in silence.

    torch itself copies and unpickles objects of the class `LeafSpec`, and warns its users of that class (2.13).
    """
    with LOCK, warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)`", FutureWarning)
        yield
