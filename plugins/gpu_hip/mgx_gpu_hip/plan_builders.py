"""Builds library plans in parallel: many require the library to compile a kernel, a fraction of a second each."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple

from mgx_core import No

from .library.vendor import Libraries
from .runtime import Device

__all__ = ["PlanBuilders", "PlanRequest", "Shares"]

MAX_THREADS: Final = 12  # threads; the libraries' own locks limit concurrency


class Shares(NamedTuple):
    """Engines that compile kernels: each of `parts` calls of `request` builds the plans of its share, by its number."""

    parts: int
    request: Callable[[Libraries, int], Sequence[Any] | No]


class PlanRequest(NamedTuple):
    """A problem, and how to request plans for it from the libraries.

    many: requests several plans to time against each other, or returns how several threads request them.
    """

    problem: Any
    many: Callable[[Libraries], Sequence[Any] | Shares | No]
    fall_back: bool = True  # request a single plan if there are not several

    def or_single(self, libraries: Libraries, several: Sequence[Any] | No) -> Sequence[Any] | No:
        if several and not isinstance(several, No):
            return several
        single = libraries.plan(self.problem) if self.fall_back else No("no prebuilt kernel")
        return single if isinstance(single, No) else [single]


class _Started(NamedTuple):
    """Shares that threads are working on."""

    shares: Sequence[Future[Any]]

    def joined(self) -> Sequence[Any] | No:
        """Waits for all shares and returns their plans, each once; a refusal if there are none."""
        plans: dict[str, Any] = {}
        refused = []
        for share in self.shares:
            found = share.result()
            if isinstance(found, No):
                refused.append(found)
            else:
                plans |= {repr(plan.choice): plan for plan in found if repr(plan.choice) not in plans}
        return list(plans.values()) or refused[0]


class _Local(threading.local):
    libraries: Libraries | None = None


class PlanBuilders:
    """Thread pool that builds library plans, with library handles per thread, as vendors require for concurrent calls.

    libraries: called once per thread (handles live as long as the plans built with them).
    threads: 0: as many as the machine has cores, at most `MAX_THREADS`.
    """

    def __init__(self, device: Device, libraries: Callable[[], Libraries], threads: int = 0) -> None:
        self.device = device
        self.threads = threads or max(1, min(len(os.sched_getaffinity(0)), MAX_THREADS))
        self._make = libraries
        self._local = _Local()
        self._pool: ThreadPoolExecutor | None = None

    def submit(self, requests: Iterable[PlanRequest]) -> list[Callable[[], Sequence[Any] | No]]:
        """Starts all requests; returns for each a call that waits for its plans, and re-raises the error of building them."""
        return [partial(self._wait, self._threads().submit(self._start, q), q) for q in requests]

    def plans(self, request: PlanRequest, libraries: Libraries) -> Sequence[Any] | No:
        """Returns the plans of one request by these libraries, or by threads if several share it."""
        several = request.many(libraries)
        if isinstance(several, Shares):
            several = self._started(several).joined()
        return request.or_single(libraries, several)

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads, "mgx-plans")
        return self._pool

    def _start(self, request: PlanRequest) -> Sequence[Any] | _Started | No:
        """Requests plans in a thread of the pool; the shares of several threads are started, not waited for."""
        several = request.many(self._libraries())
        return self._started(several) if isinstance(several, Shares) else request.or_single(self._libraries(), several)

    def _started(self, shares: Shares) -> _Started:
        return _Started([self._threads().submit(self._share, shares, n) for n in range(shares.parts)])

    def _share(self, shares: Shares, number: int) -> Sequence[Any] | No:
        return shares.request(self._libraries(), number)

    def _wait(self, made: Future[Sequence[Any] | _Started | No], request: PlanRequest) -> Sequence[Any] | No:
        found = made.result()
        if not isinstance(found, _Started):
            return found
        several = found.joined()
        return self._threads().submit(lambda: request.or_single(self._libraries(), several)).result()

    def _libraries(self) -> Libraries:
        """Returns the libraries of this thread."""
        if self._local.libraries is None:
            self.device.activate()
            self._local.libraries = self._make()
        return self._local.libraries
