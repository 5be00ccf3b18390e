"""Library plans made in parallel: libraries compile kernels for many of them, a fraction of a second each."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from mgx_core import No

from .library.vendor import Libraries
from .runtime import Device

__all__ = ["PlanBuilders", "Question"]

MOST: Final = 12  # threads: concurrent calls are limited by the libraries' own locks


class Question(NamedTuple):
    """A problem and how libraries are asked for plans of it.

    many: for plans to time against each other.
    """

    problem: Any
    many: Callable[[Libraries], Sequence[Any] | No]
    fall_back: bool = True  # ask for one where there are not several

    def plans(self, libraries: Libraries) -> Sequence[Any] | No:
        several = self.many(libraries)
        if several and not isinstance(several, No):
            return several
        single = libraries.plan(self.problem) if self.fall_back else No("no ready-made kernel")
        return single if isinstance(single, No) else [single]


class _Local(threading.local):
    libraries: Libraries | None = None


class PlanBuilders:
    """Threads that ask libraries through handles of their own, which vendors require for concurrent calls.

    libraries: made by each thread once (the handles live as long as the plans made with them).
    """

    def __init__(self, device: Device, libraries: Callable[[], Libraries]) -> None:
        self.device = device
        self._make = libraries
        self._local = _Local()
        self._pool: ThreadPoolExecutor | None = None

    def answers(self, questions: Iterable[Question]) -> list[Callable[[], Sequence[Any] | No]]:
        """Starts all questions; returns for each one a call that waits for its plans, and raises what asking for them raised."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(max(1, min(len(os.sched_getaffinity(0)), MOST)), "mgx-plans")
        return [self._pool.submit(self._plans, q).result for q in questions]

    def _plans(self, question: Question) -> Sequence[Any] | No:
        if self._local.libraries is None:
            self.device.activate()
            self._local.libraries = self._make()
        return question.plans(self._local.libraries)
