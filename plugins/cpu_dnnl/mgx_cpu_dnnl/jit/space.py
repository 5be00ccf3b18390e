"""Iteration spaces: the axes of a loop nest, and the operands' strides along each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mgx_core.named_tuples import NamedTuple
from mgx_core.types.traced_int import divides, usual

from .code import Code, V, i64

__all__ = ["Args", "Axis", "axes_of", "items", "loop_mode", "loop_width", "merged", "unrolled"]


class Axis(NamedTuple):
    """One axis: its extent, each operand's stride in elements, and its class; only axes of one class are merged."""

    extent: int
    steps: tuple[int, ...]
    reduced: bool = False


def axes_of(dims: Sequence[int], steps: Sequence[Sequence[int]], reduced: frozenset[int] = frozenset()) -> list[Axis]:
    """Returns the axes with an extent above 1; `steps`: by operand, then by axis."""
    return [Axis(n, tuple(s[i] for s in steps), i in reduced) for i, n in enumerate(dims) if n != 1]


def merged(axes: Sequence[Axis]) -> list[Axis]:
    """Merges adjacent axes that are contiguous with each other for every operand."""
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
    """Returns the unroll factor of a vector loop: above 1 if the body is cheap."""
    return 4 if cost <= 6 else 2 if cost <= 14 else 1


def loop_mode(extent: int, lanes: int) -> int:
    """Returns the divisor of an extent that code is specialized for: the largest of 4, 2, 1 vectors' lanes, else 1.

    -1: none divides it, but the extent is so long that only the tail should be masked.
    """
    found = next((k for k in (4 * lanes, 2 * lanes, lanes) if divides(k, extent)), 1)
    return -1 if found == 1 and usual(extent) >= 12 * lanes else found


class Args:
    """Run-time arguments of a kernel: integers when the kernel is built, SSA values when its code is generated.

    places: indices of the named arguments; first: others that they begin with.
    """

    def __init__(self, first: Args | None = None) -> None:
        self.values: list[int] = [] if first is None else list(first.values)
        self.places: dict[str, int] = {} if first is None else dict(first.places)

    def add(self, value: int) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def enter(self, numbers: Mapping[str, int]) -> None:
        """Appends named arguments."""
        for name, value in numbers.items():
            self.places[name] = self.add(value)

    def load(self, c: Code) -> list[V]:
        """Emits loads of all arguments; must be called at the start of the function."""
        args = V("%args", "ptr", 0)
        return [c.load(c.gep(args, i, "i64"), "i64", 0) for i in range(len(self.values))]


def items(c: Code, extents: Sequence[V], body: Callable[[list[V], V], None]) -> None:
    """Emits the loop over work items; `body` receives the indices (the last varies fastest) and the item number."""
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
    """Emits sums over 0 .. end, unrolled by four with a remainder loop; returns the sums.

    trip: given the first term's number, the sums so far and how many terms to add, returns the sums.
    """
    at, *totals = c.loop(i64(0), end, 4, lambda i, t: trip(i, t, 4), start, ahead=3)
    return c.loop(at, end, 1, lambda i, t: trip(i, t, 1), totals)[1:]
