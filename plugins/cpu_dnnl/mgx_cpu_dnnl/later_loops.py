"""Loops that the machine runs at first, and that are compiled once a program has run often enough."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any, Final

from mgx_core import DeviceError

from .jit.spare import excess_of

__all__ = ["LaterLoops"]

ENOUGH: Final = (
    1_000_000  # nanoseconds lost to the machine by which a loop is compiled, which takes twenty times as long
)
FEWEST: Final = 8  # runs before any is: most processes that run a program once run it a few times only


class LaterLoops:
    """Counts the runs of a native program, and compiles its loops in a thread of its own when they are due.

    It runs while the program does: a loop that is compiled takes the machine's place with equal results.
    """

    def __init__(self, program: Any) -> None:
        self._program = program
        found = ((_due(spare), step, spare) for step, spare in program.spares())
        self._left = tuple(sorted(found, key=lambda x: x[:2]))
        self._runs = 0
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def left(self) -> bool:
        """Returns True if the machine runs a loop yet."""
        return bool(self._left)

    def count(self) -> None:
        """Notes a run, and starts to compile what is due."""
        self._runs += 1
        left = self._left
        if left and self._runs >= left[0][0]:
            with self._lock, suppress(RuntimeError):  # a process that ends starts no threads
                if self._thread is None or not self._thread.is_alive():
                    self._thread = threading.Thread(target=self._compile, args=(self._runs,), name="mgx loops")
                    self._thread.start()

    def finish(self) -> None:
        """Compiles all loops now."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()
        self._compile(max((due for due, *_ in self._left), default=0))

    def _compile(self, runs: int) -> None:
        from .jit.compiled_spare import compiled_spare
        from .shared import shared

        while self._left and self._left[0][0] <= runs:
            (_, step, spare), *rest = self._left
            self._left = tuple(rest)
            with suppress(DeviceError):  # the machine goes on
                kernel = compiled_spare(spare, shared().engine)
                self._program.replace_loop(step, kernel.address, kernel.args)


def _due(spare: Any) -> int:
    """Returns the run before which a loop is compiled."""
    return max(FEWEST, ENOUGH // max(1, excess_of(spare)))
