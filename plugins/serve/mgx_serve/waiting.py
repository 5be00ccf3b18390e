"""The queue of one model: requests in the order in which they are run."""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Sequence

from .batch import Request, first_come

__all__ = ["Waiting"]


class Waiting:
    """Requests that wait, first come, first served within a priority.  One thread adds to them, several may take.

    most: rows of a batch; worth: returns how many of the requests of one are to be run together, from the first on.
    """

    def __init__(self, most: int, worth: Callable[[Sequence[Request]], int] = len) -> None:
        self._most, self._worth = most, worth
        self._requests: list[Request] = []  # changed in place by the thread that adds, and replaced by those that take

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: Request) -> None:
        bisect.insort(self._requests, request, key=first_come)

    def without_left(self) -> list[Request]:
        """Takes out the requests whose clients have left, and returns them."""
        left = [r for r in self._requests if r.done.done()]
        self._requests = [r for r in self._requests if not r.done.done()]
        return left

    def rows(self) -> int:
        return sum([r.rows for r in self._requests])

    def whole(self) -> bool:
        """Returns True if the requests that can join the first one fill a batch."""
        requests = self._requests
        if not requests or requests[0].key is None:
            return False
        key = requests[0].key
        return sum([r.rows for r in requests if r.key == key]) >= self._most

    def oldest(self) -> float:
        """Returns when the oldest request came.  Errors: ValueError if there is none."""
        return min([r.arrived for r in self._requests])

    def first(self) -> Request | None:
        """Returns the request that is run next; None if there is none."""
        requests = self._requests
        return requests[0] if requests else None

    def all_of_them(self) -> Sequence[Request]:
        """Returns all of them, in their order."""
        return self._requests

    def take(self) -> tuple[list[Request], Sequence[Request]]:
        """Takes out the next batch: the first request and those that can join it.

        Returns, too, requests that were taken out and are not to be run: their clients have left, or their time has passed.
        """
        now = time.monotonic()
        batch: list[Request] = []
        others: list[Request] = []
        gone: list[Request] = []
        rows = seen = 0
        for request in self._requests:
            seen += 1
            if request.deadline <= now or request.done.done():
                gone.append(request)
            elif not batch or (request.key == batch[0].key and rows + request.rows <= self._most):
                batch.append(request)
                rows += request.rows
                if request.key is None or rows >= self._most:
                    break
            else:
                others.append(request)
        count = self._worth(batch)
        if count < len(batch):
            out = {id(request) for request in (*batch[:count], *gone)}
            others = [request for request in self._requests[:seen] if id(request) not in out]
            del batch[count:]
        self._requests = others + self._requests[seen:]
        return batch, gone
