"""Replaces a concatenation of slices, each repeated a run-time number of times, by one gather."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ..ir.instruction import Instruction
from ..ir.ordering import near
from ..ir.symbols import learn_symbols
from ..named_tuples import NamedTuple
from ..ops.broadcast import BroadcastWithDims
from ..ops.reshape import Flatten, Reshape, Squeeze, Unsqueeze
from ..ops.slice import Slice
from ..types.dim import Dim, Sym, fresh
from ..types.shape import AnyShape, Shape
from .builder import InstructionBuilder
from .filling import repeated_places
from .known import Known

__all__ = ["Cut", "joined_repeats", "repeat_of"]

VIEWS: Final = (Reshape, Squeeze, Unsqueeze, Flatten)
NEAR: Final = 64  # longest chain of views between extents and their count


class Cut(NamedTuple):
    """The tensor and axis that an instruction is a slice of."""

    x: Instruction
    axis: int


class Repeat(NamedTuple):
    """One slice of a tensor, repeated.

    x, axis: the tensor and the axis that it is cut along; counts: how often each slice is repeated; place: of the repeated axis
    among those of the slice; dims, at: of the result, and its repeated axis.
    """

    x: Instruction
    axis: int
    counts: Instruction
    place: int
    dims: tuple[Dim, ...]
    at: int

    def covers(self, slices: Dim) -> bool:
        """Returns True if `number` is the number of all slices and of all counts."""
        return bool(self.x.shape.dims[self.axis] == slices and self.counts.shape.dims[0] == slices)

    def alike(self, other: Repeat) -> bool:
        """Returns True if another slice is repeated in the same way."""
        kept, others = ((*r.dims[: r.at], *r.dims[r.at + 1 :]) for r in (self, other))
        return self._replace(dims=()) == other._replace(dims=()) and kept == others

    def gathered(self, n: InstructionBuilder) -> Instruction:
        """Returns all repeated slices, concatenated along the repeated axis."""
        long = n.add("gather", self.x, repeated_places(n, self.counts), axis=self.axis)
        order = [a for a in range(self.x.shape.rank) if a != self.axis]
        order.insert(self.place, self.axis)
        dims = (*self.dims[: self.at], long.shape.dims[self.axis], *self.dims[self.at + 1 :])
        return n.reshape(n.transpose(long, order), dims)


def joined_repeats(n: InstructionBuilder, items: Sequence[Instruction], axis: int) -> Instruction | None:
    """Returns the gather equivalent to a concatenation of all slices of a tensor, each repeated; None for others."""
    if not isinstance(_through_views(items[0])[1].op, BroadcastWithDims):
        return None
    first: Repeat | None = None
    for k, item in enumerate(items):
        found = repeat_of(item, lambda ins, k=k: _cut_at(ins, k))  # type: ignore[misc]
        if found is None or (first is not None and not found.alike(first)):
            return None
        first = first or found
    if first is None or not first.covers(len(items)) or n.axes([axis], len(first.dims))[0] != first.at:
        return None
    return first.gathered(n)


def _cut_at(ins: Instruction, place: int) -> Cut | None:
    """Returns the tensor and axis if an instruction is its slice at index `place`."""
    op = ins.op
    if not isinstance(op, Slice) or len(ins.inputs) > 1 or not ins.inputs[0].shape.ranked or len(op.axes) != 1:
        return None
    exact = op.starts == (place,) and op.ends == (place + 1,) and op.steps in ((), (1,))
    return Cut(ins.inputs[0], op.axes[0] % ins.inputs[0].shape.rank) if exact else None


def repeat_of(item: Instruction, cut: Callable[[Instruction], Cut | None]) -> Repeat | None:
    """Returns the slice that an item is, repeated along one axis by a number out of a vector at the slice's place; else None.

    cut: returns the tensor that an instruction is a slice of.
    """
    chain, spread = _through_views(item)
    if not isinstance(spread.op, BroadcastWithDims):
        return None
    row, wanted = spread.inputs
    whole = next((c for i in _steps(row) if (c := cut(i)) is not None), None)
    if whole is None:
        return None
    known, counts = Known(), dict[Dim, Instruction]()
    for ins in near(wanted, NEAR):
        vector = cut(ins)
        if vector is not None and ins.shape.dtype.is_integer and vector.x.shape.rank == 1:
            counts[known.suppose(ins, fresh("count", 0))] = vector.x
    asked = known.extents(wanted)
    dims = None if asked is None else _broadcast(row.shape.dims, list(asked.reshape(-1)), counts)
    if dims is None:
        return None
    (count,) = (d for d in dims if d in counts)
    shape: AnyShape = Shape.of(item.shape.dtype, dims)
    symbols: dict[str, Dim] = {}
    learn_symbols(spread.result, shape, symbols)
    for view in reversed(chain):
        shape = view.op.substitute(symbols).infer(shape)
    assert isinstance(shape, Shape)
    before, after = _around(dims, count)
    rest = [d for a, d in enumerate(whole.x.shape.dims) if a != whole.axis]
    places = [k for k in range(len(rest) + 1) if (_long(rest[:k]), _long(rest[k:])) == (before, after)]
    if not places or shape.dims.count(count) != 1 or _around(shape.dims, count) != (before, after):
        return None
    return Repeat(*whole, counts[count], places[0], shape.dims, shape.dims.index(count))


def _through_views(ins: Instruction) -> tuple[list[Instruction], Instruction]:
    *chain, viewed = _steps(ins)
    return chain, viewed


def _steps(ins: Instruction) -> Iterator[Instruction]:
    """Yields a chain of views, last first, and the viewed instruction."""
    while isinstance(ins.op, VIEWS) and len(ins.inputs) == 1:
        yield ins
        ins = ins.inputs[0]
    yield ins


def _broadcast(dims: Sequence[Dim], wanted: list[Dim], counts: dict[Dim, Instruction]) -> list[Dim] | None:
    """Returns the extents of a slice that is only broadcast along one axis of extent 1; None for others."""
    missing = len(wanted) - len(dims)
    out: list[Dim] = []
    for have, want in zip([1] * missing + list(dims), [1] * -missing + wanted, strict=True):
        if want in counts and have == 1:
            out.append(want)
        elif want == have or want == 1:
            out.append(have)
        else:
            return None
    return out if sum(d in counts for d in out) == 1 else None


def _around(dims: Sequence[Dim], at: Dim) -> tuple[list[Dim], list[Dim]]:
    """Returns the extents other than 1 before and after an axis."""
    place = list(dims).index(at)
    return _long(dims[:place]), _long(dims[place + 1 :])


def _long(dims: Sequence[Dim]) -> list[Dim]:
    return [d for d in dims if isinstance(d, Sym) or d != 1]
