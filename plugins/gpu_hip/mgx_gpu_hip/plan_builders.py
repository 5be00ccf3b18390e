"""Builds library plans in parallel: many require the library to compile a kernel, a fraction of a second each."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from mgx_core import No

from .library.vendor import Libraries
from .runtime import Device

__all__ = ["PlanBuilders", "PlanRequest"]

MAX_THREADS: Final = 12  # threads; the libraries' own locks limit concurrency


class PlanRequest(NamedTuple):
    """A problem, and how to request plans for it from the libraries.

    many: requests several plans to time against each other.
    """

    problem: Any
    many: Callable[[Libraries], Sequence[Any] | No]
    fall_back: bool = True  # request a single plan if there are not several

    def plans(self, libraries: Libraries) -> Sequence[Any] | No:
        several = self.many(libraries)
        if several and not isinstance(several, No):
            return several
        single = libraries.plan(self.problem) if self.fall_back else No("no prebuilt kernel")
        return single if isinstance(single, No) else [single]


class _Local(threading.local):
    libraries: Libraries | None = None


class PlanBuilders:
    """Thread pool that builds library plans, with library handles per thread, as vendors require for concurrent calls.

    libraries: called once per thread (handles live as long as the plans built with them).
    """

    def __init__(self, device: Device, libraries: Callable[[], Libraries]) -> None:
        self.device = device
        self._make = libraries
        self._local = _Local()
        self._pool: ThreadPoolExecutor | None = None

    def submit(self, requests: Iterable[PlanRequest]) -> list[Callable[[], Sequence[Any] | No]]:
        """Starts all requests; returns for each a call that waits for its plans, and re-raises the error of building them."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(max(1, min(len(os.sched_getaffinity(0)), MAX_THREADS)), "mgx-plans")
        return [self._pool.submit(self._plans, q).result for q in requests]

    def _plans(self, request: PlanRequest) -> Sequence[Any] | No:
        if self._local.libraries is None:
            self.device.activate()
            self._local.libraries = self._make()
        return request.plans(self._local.libraries)
