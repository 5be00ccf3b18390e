"""The request queue of one model, in execution order."""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Sequence

from .batch import Request, by_priority

__all__ = ["RequestQueue"]


class RequestQueue:
    """A queue of requests: by priority, then first in, first out.  One thread adds, several may take.

    most: maximum rows of a batch; requests_to_run: returns how many requests of a batch, from the first on, to run together.
    """

    def __init__(self, most: int, requests_to_run: Callable[[Sequence[Request]], int] = len) -> None:
        self._most, self._requests_to_run = most, requests_to_run
        self._requests: list[Request] = []  # mutated in place by the adding thread, replaced by taking threads

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: Request) -> None:
        bisect.insort(self._requests, request, key=by_priority)

    def remove_disconnected(self) -> list[Request]:
        """Removes and returns the requests whose clients have disconnected."""
        disconnected = [r for r in self._requests if r.done.done()]
        self._requests = [r for r in self._requests if not r.done.done()]
        return disconnected

    def rows(self) -> int:
        return sum([r.rows for r in self._requests])

    def fills_batch(self) -> bool:
        """Returns True if the requests batchable with the first one fill a batch."""
        requests = self._requests
        if not requests or requests[0].key is None:
            return False
        key = requests[0].key
        return sum([r.rows for r in requests if r.key == key]) >= self._most

    def oldest(self) -> float:
        """Returns the arrival time of the oldest request.  Errors: ValueError if the queue is empty."""
        return min([r.arrived for r in self._requests])

    def first(self) -> Request | None:
        """Returns the request to run next; None if the queue is empty."""
        requests = self._requests
        return requests[0] if requests else None

    def requests(self) -> Sequence[Request]:
        """Returns all requests, in order."""
        return self._requests

    def take(self) -> tuple[list[Request], Sequence[Request]]:
        """Removes and returns the next batch: the first request and those batchable with it.

        Also returns removed requests that must not run: cancelled or timed out.
        """
        now = time.monotonic()
        batch: list[Request] = []
        others: list[Request] = []
        dropped: list[Request] = []
        rows = seen = 0
        for request in self._requests:
            seen += 1
            if request.deadline <= now or request.done.done():
                dropped.append(request)
            elif not batch or (request.key == batch[0].key and rows + request.rows <= self._most):
                batch.append(request)
                rows += request.rows
                if request.key is None or rows >= self._most:
                    break
            else:
                others.append(request)
        count = self._requests_to_run(batch)
        if count < len(batch):
            out = {id(request) for request in (*batch[:count], *dropped)}
            others = [request for request in self._requests[:seen] if id(request) not in out]
            del batch[count:]
        self._requests = others + self._requests[seen:]
        return batch, dropped
