"""Values that the pieces of one run pass to each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..types.argument import Value

__all__ = ["Passing"]


class Passing:
    """The values of one run by number: those of the parameters have the first ones."""

    def __init__(self, args: Sequence[Value], count: int) -> None:
        self._values: list[Value] = [*args, *[None] * (count - len(args))]

    def taken(self, numbers: Iterable[int]) -> list[Value]:
        """Returns values wherever they lie."""
        return [self._values[n] for n in numbers]

    def on_host(self, numbers: Iterable[int], reads: Iterable[bool]) -> list[Value]:
        """Returns values in host memory; of those that are not read only the type counts."""
        return self.taken(numbers)

    def on_target(self, numbers: Iterable[int]) -> list[Value]:
        """Returns values in the memory of the target."""
        return self.taken(numbers)

    def places(self, numbers: Sequence[int]) -> Mapping[int, Value]:
        """Returns memory for results that come next, by their place in `numbers`."""
        return {}

    def give(self, numbers: Iterable[int], values: Iterable[Value]) -> None:
        """Takes the results of a piece."""
        for n, value in zip(numbers, values, strict=True):
            self._values[n] = value

    def drop(self, numbers: Iterable[int]) -> None:
        """Forgets values that nothing reads any more."""
        for n in numbers:
            self._values[n] = None

    def results(self, numbers: Iterable[int]) -> list[Value]:
        """Returns the results of the run."""
        return self.taken(numbers)
