"""Iteration spaces: which axes a loop runs over, in what order, and the steps of its operands along each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from .code import Code, V, i64

__all__ = ["Args", "Axis", "axes_of", "items", "loop_mode", "loop_width", "merged", "unrolled"]


class Axis(NamedTuple):
    """One loop: its extent, each operand's step in elements, and the class of axes that it may be merged within."""

    extent: int
    steps: tuple[int, ...]
    reduced: bool = False


def axes_of(dims: Sequence[int], steps: Sequence[Sequence[int]], reduced: frozenset[int] = frozenset()) -> list[Axis]:
    """Returns the axes with more than one index; `steps`: by operand, then by axis."""
    return [Axis(n, tuple(s[i] for s in steps), i in reduced) for i, n in enumerate(dims) if n != 1]


def merged(axes: Sequence[Axis]) -> list[Axis]:
    """Returns neighbours that every operand walks as one axis, joined."""
    out: list[Axis] = []
    for axis in axes:
        last = out[-1] if out else None
        if (
            last is not None
            and last.reduced == axis.reduced
            and all(a == b * axis.extent for a, b in zip(last.steps, axis.steps, strict=True))
        ):
            out[-1] = Axis(last.extent * axis.extent, axis.steps, axis.reduced)
        else:
            out.append(axis)
    return out


def loop_width(cost: int) -> int:
    """Returns vectors that one trip of a loop works on: several where the work is light."""
    return 4 if cost <= 6 else 2 if cost <= 14 else 1


def loop_mode(extent: int, lanes: int) -> int:
    """Returns the divisibility that code may rely on: the largest of 4, 2, 1 vectors' lanes that divides an extent, else 1.

    -1: none does, but the extent is so long that masks pay only at its end.
    """
    found = next((k for k in (4 * lanes, 2 * lanes, lanes) if extent % k == 0), 1)
    return -1 if found == 1 and extent >= 12 * lanes else found


class Args:
    """Run-time numbers of a kernel: given a value when the kernel is made, an SSA value when its code is.

    places: those of the numbers that have a name.
    """

    def __init__(self) -> None:
        self.values: list[int] = []
        self.places: dict[str, int] = {}

    def add(self, value: int) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def enter(self, numbers: Mapping[str, int]) -> None:
        """Adds numbers with their names."""
        for name, value in numbers.items():
            self.places[name] = self.add(value)

    def load(self, c: Code) -> list[V]:
        """Loads of all numbers; to be called at the start of the function."""
        args = V("%args", "ptr", 0)
        return [c.load(c.gep(args, i, "i64"), "i64", 0) for i in range(len(self.values))]


def items(c: Code, extents: Sequence[V], body: Callable[[list[V], V], None]) -> None:
    """The loop over work items: `body` gets the indices along each extent (the last runs fastest) and the item's number."""
    begin, end = V("%begin", "i64", 0), V("%end", "i64", 0)
    zero, one = i64(0), i64(1)
    first: list[V] = []
    rest = begin
    for extent in reversed(extents[1:]):
        first.insert(0, c.op("urem", rest, extent))
        rest = c.op("udiv", rest, extent)
    if extents:
        first.insert(0, rest)

    def step(number: V, index: list[V]) -> list[V]:
        body(list(index), number)
        out: list[V] = []
        carry = one
        for at, extent in zip(reversed(index), reversed(extents), strict=True):
            up = c.op("add", at, carry)
            full = c.compare("eq", up, extent)
            out.insert(0, c.select(full, zero, up))
            carry = c.select(full, one, zero)
        return out

    c.loop(begin, end, 1, step, first)


def unrolled(c: Code, end: V, trip: Callable[[V, list[V], int], list[V]], start: Sequence[V]) -> list[V]:
    """Returns sums over 0 .. end, four terms a trip, then those that are left one by one.

    trip: given the first term's number, the sums so far and how many terms to add, returns the sums.
    """
    at, *totals = c.loop(i64(0), end, 4, lambda i, t: trip(i, t, 4), start, ahead=3)
    return c.loop(at, end, 1, lambda i, t: trip(i, t, 1), totals)[1:]
