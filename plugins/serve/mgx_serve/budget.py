"""Bounds the memory of requests in flight."""

from __future__ import annotations

from .errors import Busy, TooLarge

__all__ = ["JSON_COST", "NUMBER_COST", "SMALL", "TENSOR_COST", "Budget", "Share"]

JSON_COST = 24  # bytes of Python objects for one byte of JSON: a number of two characters is an object and a reference
NUMBER_COST = 64  # bytes of an object, its place in a list, and its text
SMALL = 1 << 16  # maximum bytes of a request without tensors
TENSOR_COST = 2  # the message, and its copy in a batch


class Budget:
    """The bytes that all requests in flight may hold; requests beyond it are rejected."""

    def __init__(self, limit: int) -> None:
        self.limit, self.taken = limit, 0


class Share:
    """One request's reservation; released when the context exits.

    Errors: `take` raises TooLarge if the request exceeds the whole budget, Busy if it does not fit at present.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget, self._taken = budget, 0

    def __enter__(self) -> Share:
        return self

    def __exit__(self, *error: object) -> None:
        self.give_back()

    def give_back(self) -> None:
        self._budget.taken -= self._taken
        self._taken = 0

    def take(self, size: int) -> None:
        budget = self._budget
        if self._taken + size > budget.limit:
            raise TooLarge(
                f"the request would take {self._taken + size} bytes of memory, the server has {budget.limit} for all of them; "
                "numbers take less as binary tensors"
            )
        if budget.taken + size > budget.limit:
            raise Busy("the memory for requests is in use; try again later", 1.0)
        budget.taken += size
        self._taken += size
