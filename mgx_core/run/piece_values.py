"""Values passed between the pieces of one run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..types.argument import Value

__all__ = ["PieceValues"]


class PieceValues:
    """The values of one run by index; the parameters come first."""

    def __init__(self, args: Sequence[Value], count: int) -> None:
        self._values: list[Value] = [*args, *[None] * (count - len(args))]

    def get(self, numbers: Iterable[int]) -> list[Value]:
        """Returns values in the memory where they are."""
        return [self._values[n] for n in numbers]

    def on_host(self, numbers: Iterable[int], reads: Iterable[bool]) -> list[Value]:
        """Returns values in host memory; for those that are not read, any value of the type."""
        return self.get(numbers)

    def on_target(self, numbers: Iterable[int]) -> list[Value]:
        """Returns values in the target's memory."""
        return self.get(numbers)

    def places(self, numbers: Sequence[int]) -> Mapping[int, Value]:
        """Returns preallocated memory for results, by position in `numbers`."""
        return {}

    def store(self, numbers: Iterable[int], values: Iterable[Value]) -> None:
        """Stores the results of a piece."""
        for n, value in zip(numbers, values, strict=True):
            self._values[n] = value

    def drop(self, numbers: Iterable[int]) -> None:
        """Releases values that are no longer read."""
        for n in numbers:
            self._values[n] = None

    def results(self, numbers: Iterable[int]) -> list[Value]:
        """Returns the results of the run."""
        return self.get(numbers)
