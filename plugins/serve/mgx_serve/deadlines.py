"""Request timeouts: one timer per model, because requests rarely time out."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any, Protocol

from .errors import DeadlinePassed

__all__ = ["Deadlines", "Limited"]


class Limited(Protocol):
    """A request with a deadline.  deadline, arrived: of `time.monotonic`; done: a future or equivalent."""

    deadline: float
    arrived: float
    done: Any


class Deadlines:
    """Fails the requests of one model whose deadline has passed; bound to the running event loop.

    model: name for the error message.
    """

    def __init__(self, model: str) -> None:
        self._model, self._loop = model, asyncio.get_running_loop()
        self._open: set[Limited] = set()
        self._next = math.inf  # when the timer fires; its request may have been completed meanwhile
        self._timer: asyncio.TimerHandle | None = None

    def add(self, request: Limited) -> None:
        self._open.add(request)
        if request.deadline < self._next:
            self._expect(request.deadline)

    def discard(self, request: Limited) -> None:
        self._open.discard(request)

    def close(self) -> None:
        """Cancels the timer; no request may be waiting."""
        self._expect(math.inf)

    def _expect(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = deadline
        self._timer = None if deadline == math.inf else self._loop.call_at(deadline, self._due)

    def _due(self) -> None:
        now = time.monotonic()
        for request in self._open:
            if request.deadline <= now and not request.done.done():
                limit = request.deadline - request.arrived
                request.done.set_exception(DeadlinePassed(f"model {self._model!r} did not answer within {limit:g} s"))
        self._expect(min((r.deadline for r in self._open if not r.done.done()), default=math.inf))
