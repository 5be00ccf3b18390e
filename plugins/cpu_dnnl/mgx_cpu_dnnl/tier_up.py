"""Tiered execution: interpreted loops are compiled in the background once a program has run often enough."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from mgx_core import MgxError

from .jit.deferred import Deferred

__all__ = ["TierUp", "compiled_later", "due_after"]

# nanoseconds lost to interpretation after which a loop is compiled: in a program that runs often, and in any
MAX_LOST: Final = 1_000_000
COMPILING: Final = 20_000_000  # about what compiling the loop takes
_lock = threading.Lock()  # held briefly: guards the queues of loops and the start of threads
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
MIN_RUNS: Final = 8  # runs before a program counts as running often: most processes run one only a few times


class TierUp:
    """Counts the runs of a program and compiles its interpreted loops on a background thread.

    Compiled loops replace bytecode while the program keeps running; both compute bit-identical results.
    tasks: what compiles and replaces loops, each with the number of runs after which it is due.
    """

    def __init__(self, tasks: Iterable[tuple[int, Callable[[], object]]]) -> None:
        self._queue = tuple(sorted(tasks, key=lambda task: task[0]))
        self._runs = 0
        self._thread: threading.Thread | None = None

    @property
    def pending(self) -> bool:
        """Returns True if a loop is still interpreted."""
        return bool(self._queue)

    def count(self) -> None:
        """Counts a run and starts to compile the loops that are due."""
        self._runs += 1
        pending = self._queue
        if pending and self._runs >= pending[0][0]:
            with _lock, suppress(RuntimeError):  # the interpreter cannot start threads during shutdown
                if self._thread is None or not self._thread.is_alive():
                    self._thread = threading.Thread(target=self._compile, args=(self._runs,), name="mgx loops")
                    self._thread.start()

    def finish(self) -> None:
        """Compiles all remaining loops and waits for the background thread."""
        self._compile(max((due for due, *_ in self._queue), default=0))
        thread = self._thread
        if thread is not None:
            thread.join()

    def _compile(self, runs: int) -> None:
        while (task := self._next(runs)) is not None:
            with suppress(MgxError):  # the loop stays interpreted
                task()

    def _next(self, runs: int) -> Callable[[], object] | None:
        """Dequeues a task that is due after `runs` runs; None if there is none."""
        with _lock:
            if not self._queue or self._queue[0][0] > runs:
                return None
            (_, found), *rest = self._queue
            self._queue = tuple(rest)
            return found


def due_after(excess: int) -> int:
    """Returns the number of runs after which loops are compiled that lose this many nanoseconds in each."""
    return min(max(MIN_RUNS, MAX_LOST // max(1, excess)), max(1, COMPILING // max(1, excess)))


def compiled_later(program: Any) -> list[tuple[int, Callable[[], object]]]:
    """Returns tasks that compile the interpreted loops of a native program, see `TierUp`."""
    return [
        (due_after(Deferred(*deferred).excess), partial(_compile, program, step, deferred))
        for step, deferred in program.deferred_loops()
    ]


def _compile(program: Any, step: int, deferred: Any) -> None:
    """Compiles a loop and replaces its bytecode."""
    from .jit.compile_deferred import compile_deferred
    from .shared import shared

    kernel = compile_deferred(deferred, shared().engine)
    if not kernel.after and not kernel.workspace_bytes:
        program.replace_loop(step, kernel.address, kernel.args, kernel.work, kernel.grain, kernel.scratch_bytes)
