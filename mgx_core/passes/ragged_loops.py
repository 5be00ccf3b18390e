"""Vectorizes loops that reduce slices of different lengths: all slices are reduced by one op."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import numpy as np

from ..errors import MgxError, No, Refused
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ir.ordering import reads
from ..ir.symbols import learn_symbols
from ..ops.broadcast import Multibroadcast
from ..ops.compare import Less, Not
from ..ops.concat import Concat
from ..ops.control import GetTupleElem, If, Loop, Scan, never_ends
from ..ops.convert import Convert
from ..ops.elementwise import Pointwise
from ..ops.fill import DimensionsOf, DynamicRange
from ..ops.index import Gather
from ..ops.movement import Transpose
from ..ops.operation import Operation
from ..ops.pointwise import Add, Div, Max, Mod, Sub, Where
from ..ops.ragged import REDUCTIONS, ReduceSlices
from ..ops.reduce import Reduce
from ..ops.reshape import Reshape, Squeeze, Unsqueeze
from ..ops.scan import PrefixScanSum
from ..ops.scatter import ScatterNone
from ..ops.sequence import SequenceEmpty, SequenceInsert, SplitToSequence
from ..ops.slice import Slice
from ..records import dataclass
from ..rules.constants import aligned, whole
from ..rules.known_extents import extents
from ..types import dtype as dt
from ..types.dim import Dim, Sym, bounds, compare, maximum, substitute
from ..types.shape import SequenceShape, Shape
from .iterations import MOST, counted, step
from .listing_loops import Listing, listing

__all__ = ["vectorized"]

ROOM: Final = 1 << 24  # the most elements of a value in the body, for all iterations, that are not counted by a symbol
_VIEWS: Final = (Squeeze, Unsqueeze)


@dataclass(frozen=True)
class Rows:
    """One value per iteration.

    made: the values, stacked along the first axis; offset: of a counter, its difference to the iteration number.
    """

    made: Instruction
    offset: int | None = None


@dataclass(frozen=True)
class Ragged:
    """One slice per iteration: x[starts[i]:ends[i]]; starts and ends are int64 vectors."""

    x: Instruction
    starts: Instruction
    ends: Instruction

    def like(self, x: Instruction) -> Ragged:
        """Returns the same slices of another tensor."""
        return Ragged(x, self.starts, self.ends)

    def alike(self, other: object) -> bool:
        """Returns True for slices with the same bounds."""
        return isinstance(other, Ragged) and other.starts is self.starts and other.ends is self.ends


Value: TypeAlias = "Instruction | Rows | Ragged | tuple[Instruction | Rows | Ragged, ...]"


def vectorized(module: Module, loop: Instruction) -> list[Instruction] | No:
    """Inserts the results of a loop that reduces slices whose bounds differ by iteration; returns why it cannot, if so.

    Such loops are EmbeddingBags with offsets as torch's exporters write them.  Slices are kept as the sliced tensor with
    bounds: gathers and pointwise work are done on the whole tensor, and a reduction of the sliced axis reduces all slices.
    A list of the positions at which a condition holds is a slice of all such positions.
    """
    there = set(module)
    try:
        return _Iterations(module, loop).results()
    except (Refused, MgxError) as error:
        for ins in reversed([i for i in module if i not in there]):
            module.remove(ins)
        return error.no if isinstance(error, Refused) else No(f"its iterations cannot be joined: {error.message}")


class _Iterations:
    """Computes the body of a loop for all iterations at once, before the loop."""

    def __init__(self, module: Module, loop: Instruction) -> None:
        self.module, self.loop = module, loop
        (self.body,) = loop.modules
        self.values: dict[Instruction, Value] = {}
        self.extents: dict[str, Dim] = {}  # of values in the body
        self.ragged: dict[str, Ragged] = {}  # by the symbol of the slices' length
        self.symbols: dict[str, Sym] = {}  # of lengths, by name
        self.vectors: dict[Instruction, Instruction] = {}  # bounds and conditions as vectors over the iterations
        self.appended: set[Instruction] = set()  # the lists after an iteration
        self.positions: dict[Instruction, Dim] = {}  # vectors of positions along an axis, by its extent
        self.inside_branch = False
        self.length: Dim = 0

    def results(self) -> list[Instruction]:
        """Returns the loop's results.  Errors: Refused."""
        states = self._begin_scan() if isinstance(self.loop.op, Scan) else self._begin_loop()
        if counted((self.length,)) > MOST or not bounds(self.length)[1]:
            raise Refused("it has very many iterations, or none")
        self._compute(self.body)
        results = self.body.outputs[isinstance(self.loop.op, Loop) :]
        lists = [isinstance(s.result, SequenceShape) for s in states]
        found = [self._list(o) if n else s for s, o, n in zip(states, results, lists, strict=False)]
        return [*found, *(self._stacked(n, self._value(o)) for n, o in enumerate(results[len(states) :]))]

    def _list(self, after: Instruction) -> Instruction:
        """Returns a list to which each iteration appends an item."""
        rows = self._rows(self._value(after.inputs[1]))
        return self._add(SplitToSequence(axis=0, keepdims=False), rows)

    def _begin_scan(self) -> list[Instruction]:
        """Sets the parameters of a scan's body; returns the last states."""
        op, parameters, inputs = self.loop.op, list(self.body.parameters.values()), self.loop.inputs
        assert isinstance(op, Scan)
        if any(op.input_axes) or any(op.input_directions):
            raise Refused("it does not run along the first axis")
        for p, x in zip(parameters[op.states :], inputs[op.states :], strict=True):
            counts = isinstance(x.op, DynamicRange) and whole(x.inputs[0]) == 0 and whole(x.inputs[2]) == 1
            self.values[p] = Rows(x, 0 if counts else None)
            self.length = x.shape.dims[0]
        last: list[Instruction] = []
        for state, p, after in zip(inputs, parameters[: op.states], self.body.outputs, strict=False):
            self.values[p], final = (state, state) if after is p else self._counter(state, p, after, self._count(op))
            last.append(final)
        return last

    def _count(self, op: Scan) -> Instruction:
        """Returns the number of iterations of a scan."""
        return self._number(self.length) if isinstance(self.length, int) else self._extent(self.loop.inputs[op.states])

    def _extent(self, x: Instruction) -> Instruction:
        """Returns the first extent of a tensor as a number."""
        return self._add(Squeeze(axes=(0,)), self._add(DimensionsOf(start=0, end=1), x))

    def _counter(
        self, state: Instruction, p: Instruction, after: Instruction, trips: Instruction
    ) -> tuple[Rows, Instruction]:
        """Returns the values of a state that counts iterations, and the last one."""
        start = whole(state) if isinstance(state.result, Shape) else None
        if start is None or step(p, after) != 1 or p.shape.rank or p.shape.dtype is not dt.int64:
            raise Refused("an iteration changes the states")
        first, count = self._number(start), self._counted(trips)
        last = self._add(Add(), first, trips)
        return Rows(self._add(Add(), count, self._spread(first)) if start else count, start), last

    def _begin_loop(self) -> list[Instruction]:
        """Sets the parameters of a loop's body; returns the last states, and the first ones of lists."""
        op, body = self.loop.op, self.body
        assert isinstance(op, Loop)
        trips, condition, *states = self.loop.inputs
        number = None if trips.is_absent else extents(trips)
        sure = condition.is_absent or ((known := aligned(condition)) is not None and bool(known.all()))
        if number is None or not sure or not never_ends(body) or any(op.scan_output_directions):
            raise Refused("the number of trips is known only at run time")
        self.length = maximum(number[0], 0)
        if isinstance(self.length, int) and self.length > op.max_iterations:
            raise Refused("there are more trips than its iteration limit")
        iteration, going, *inner = body.parameters.values()
        self.values[going] = self.module.add_literal(np.asarray(True), before=self.loop)
        self.values[iteration] = Rows(self._counted(trips), 0)
        last: list[Instruction] = []
        for state, p, after in zip(states, inner, body.outputs[1:], strict=False):
            last.append(state)
            if after is p:
                self.values[p] = state
            elif isinstance(after.op, SequenceInsert):
                alone = list(p.users) == [after] and list(after.users) == [body.returned]
                alone &= body.outputs.count(after) == 1 and after.inputs[0] is p
                if not isinstance(state.op, SequenceEmpty) or not alone or len(after.inputs) > 2:
                    raise Refused("a list is used in an iteration")
                self.appended.add(after)
            elif bounds(number[0])[0] < 0:
                raise Refused("an iteration changes the states")
            else:
                self.values[p], last[-1] = self._counter(state, p, after, trips)
        return last

    def _counted(self, trips: Instruction) -> Instruction:
        """Returns the iteration numbers."""
        if isinstance(self.length, int):
            return self.module.add_literal(np.arange(self.length, dtype=np.int64), before=self.loop)
        return self._add(DynamicRange(length=self.length), self._number(0), trips, self._number(1))

    def _number(self, n: int) -> Instruction:
        return self.module.add_literal(np.asarray(n, np.int64), before=self.loop)

    def _one(self, n: int) -> Instruction:
        """Returns a vector of one number."""
        return self.module.add_literal(np.asarray([n], np.int64), before=self.loop)

    def _add(self, op: Operation, *inputs: Instruction, like: Instruction | None = None) -> Instruction:
        return self.module.add(op, *inputs, before=self.loop, sources=(like or self.loop).sources)

    def _compute(self, instructions: Iterable[Instruction]) -> None:
        """Computes values for all iterations."""
        for ins in instructions:
            if ins.is_literal:
                assert ins.literal is not None
                self.values[ins] = self.module.add_literal(ins.literal, before=self.loop)
            elif not (ins.is_param or ins.is_return or ins.is_absent or ins in self.appended):
                self.values[ins] = value = self._computed(ins)
                if not isinstance(value, tuple):
                    self._learn(ins, value)

    def _value(self, ins: Instruction) -> Instruction | Rows | Ragged:
        found = self.values.get(ins, ins)
        if isinstance(found, tuple):
            raise Refused("a tuple is used as a whole")
        return found

    def _learn(self, ins: Instruction, value: Instruction | Rows | Ragged) -> None:
        """Learns the extents of a value in the body."""
        if not isinstance(ins.result, Shape) or not ins.result.ranked:
            raise Refused(f"the rank of {ins.op.name} in its body depends on data")
        dims = value.made.shape.dims[1:] if isinstance(value, Rows) else None
        if isinstance(value, Ragged):
            first = ins.shape.dims[0]
            if isinstance(first, Sym) and first.symbol is not None:
                first = self._length_of(value, first)
            dims = (first, *value.x.shape.dims[1:])
        if dims is not None:
            learn_symbols(ins.result, Shape.of(ins.shape.dtype, dims), self.extents)

    def _length_of(self, value: Ragged, own: Sym) -> Dim:
        """Returns the symbol of the length of slices, which is the same for slices of equally long tensors with equal bounds."""
        for known, other in self.ragged.items():
            if value.alike(other) and value.x.shape.dims[0] == other.x.shape.dims[0]:
                return self.symbols[known]
        assert own.symbol is not None
        self.ragged[own.symbol.name] = value
        self.symbols[own.symbol.name] = own
        return own

    def _computed(self, ins: Instruction) -> Value:
        op = ins.op
        if isinstance(op, GetTupleElem):
            items = self.values[ins.inputs[0]]
            assert isinstance(items, tuple)
            return items[op.index]
        if isinstance(op, If):
            return self._chosen(ins)
        listed = listing(ins) if isinstance(op, Loop) and not self.inside_branch else None
        if listed is not None:
            return self._listed(ins, listed)
        if ins.modules or op.random or op.effect:
            raise Refused(f"{op.name} in its body is not vectorized")
        inputs = [None if i.is_absent else self._value(i) for i in ins.inputs]
        if isinstance(op, Slice) and len(inputs) > 1:
            return self._sliced(ins, op, inputs)
        if isinstance(op, Multibroadcast) and len(inputs) == 1:
            return self._broadcast(ins, inputs[0])
        given = [i for i in inputs if i is not None]
        if len(given) < len(inputs):
            raise Refused(f"{op.name} in its body is not vectorized")
        if all(isinstance(i, Instruction) for i in given):
            return self._outside(ins, op)
        made = self._pointwise(ins, given) if isinstance(op, Pointwise) else self._moved(ins, op, given)
        if made is None:
            raise Refused(f"{op.name} in its body is not vectorized")
        return made

    def _outside(self, ins: Instruction, op: Operation) -> Instruction:
        """Returns a value that is the same in all iterations."""
        if self.inside_branch and not isinstance(op, Pointwise) and not op.aligns:
            raise Refused(f"{op.name} in a branch is not computed in all iterations")
        given = [self._value(i) for i in ins.inputs]
        return self._add(op.substitute(self.extents), *(i for i in given if isinstance(i, Instruction)), like=ins)

    def _listed(self, loop: Instruction, found: Listing) -> tuple[Rows | Ragged, ...]:
        """Returns the positions from start to end at which a condition holds, as slices of all positions at which it does."""
        table = self._visited(found)
        length = table.shape.dims[0]
        extent = self._extent(table)
        places = self._add(DynamicRange(length=length), self._number(0), extent, self._number(1))
        fits = self._condition(loop, found, Rows(places, 0), length)
        counts = self._add(PrefixScanSum(), self._add(Convert(target_type=dt.int64), fits))
        ranks = self._add(Concat(axis=0), self._one(0), counts)
        before = self._add(Slice(axes=(0,), starts=(0,), ends=(length,)), ranks)
        past = self._add(Multibroadcast(out_lens=(length,)), extent)  # target of the positions that are not listed
        targets = self._add(Where(), fits, before, past)
        empty = self._add(Multibroadcast(out_lens=(length + 1,)), self._one(0))
        moved = self._add(ScatterNone(axis=0), empty, targets, places)
        kept = self._add(Slice(axes=(0,), starts=(0,), ends=(length,)), moved)
        self.positions[kept] = length
        starts, ends = (self._ranked(ranks, self._vector(self._value(b)), extent) for b in (found.start, found.end))
        count = Rows(starts)  # of the position after the loop, which has no user
        return (count, Ragged(kept, starts, ends)) if found.item else (Ragged(kept, starts, ends), count)

    def _ranked(self, ranks: Instruction, bound: Instruction, extent: Instruction) -> Instruction:
        """Returns how many listed positions lie before each bound.  Negative ones and those past the axis raise an error."""
        zero, past = self._spread(self._number(0)), self._spread(self._add(Add(), extent, self._number(1)))
        return self._add(Gather(axis=0), ranks, self._add(Where(), self._add(Less(), bound, zero), past, bound))

    def _visited(self, found: Listing) -> Instruction:
        """Returns a tensor from which a loop gathers at each of its positions, so that they are those along its first axis."""
        always = (i for i in found.position.users if i.parent is found.position.parent)  # not in a branch
        gathers = (i for i in always if isinstance(i.op, Gather) and i.op.axis == 0)
        table = next((self._value(i.inputs[0]) for i in gathers), None)
        if not isinstance(table, Instruction):
            raise Refused("the positions that a loop lists have no bound")
        return table

    def _condition(self, loop: Instruction, found: Listing, places: Rows, length: Dim) -> Instruction:
        """Returns for each position along an axis whether a loop would list it."""
        body, wanted = loop.modules[0], {found.condition}
        for ins in reversed(list(body)):
            if ins in wanted and ins is not found.position:
                wanted.update(reads(ins))
        inside = {i for i in body if i in wanted}
        outside = {i: self._value(i) for i in wanted - inside}
        changing = any(not isinstance(v, Instruction) for v in outside.values())
        if changing or any(i.is_param for i in inside - {found.position}):
            raise Refused("the positions that are listed depend on the iteration")
        one = _Iterations(self.module, self.loop)
        one.length, one.inside_branch = length, True  # at positions that no iteration visits, too
        one.values = {**outside, found.position: places}
        one.positions[places.made] = length
        one._compute([i for i in body if i in inside])
        holds = one._vector(one._value(found.condition))
        return holds if found.holds else self._add(Not(), holds)

    def _chosen(self, ins: Instruction) -> tuple[Instruction | Rows | Ragged, ...]:
        """Returns the results of a branch: both modules' results, selected by its condition."""
        condition = self._value(ins.inputs[0])
        if not isinstance(condition, Rows):
            raise Refused("a branch does not depend on the iteration")
        before, self.inside_branch = self.inside_branch, True
        for module in ins.modules:
            self._compute(module)
        self.inside_branch = before
        flat = self._vector(condition)
        then, other = ([self._value(o) for o in m.outputs] for m in ins.modules)
        return tuple(self._either(flat, a, b) for a, b in zip(then, other, strict=True))

    def _either(
        self, condition: Instruction, a: Instruction | Rows | Ragged, b: Instruction | Rows | Ragged
    ) -> Rows | Ragged:
        if isinstance(a, Ragged) or isinstance(b, Ragged):
            if not isinstance(a, Ragged) or not isinstance(b, Ragged) or a.x is not b.x:
                raise Refused("a branch returns slices of different tensors")
            starts = self._add(Where(), condition, a.starts, b.starts)
            return Ragged(a.x, starts, self._add(Where(), condition, a.ends, b.ends))
        x, y = self._rows(a), self._rows(b)
        dims = x.shape.dims
        apart = self._add(Unsqueeze(axes=tuple(range(1, len(dims)))), condition) if len(dims) > 1 else condition
        return Rows(self._add(Where(), self._add(Multibroadcast(out_lens=dims), apart), x, y))

    def _sliced(
        self, ins: Instruction, op: Slice, inputs: Sequence[Instruction | Rows | Ragged | tuple[()] | None]
    ) -> Rows | Ragged:
        """Returns slices of a tensor with computed bounds along the first axis."""
        x, starts, ends, axes, steps = [*inputs, None, None][:5]
        plain = op.axes in ((), (0,)) and (axes is None or (isinstance(axes, Instruction) and whole(axes) == 0))
        plain &= not any(s != 1 for s in op.steps) and (
            steps is None or (isinstance(steps, Instruction) and whole(steps) == 1)
        )
        if not plain or not isinstance(x, Instruction) or starts is None or ends is None or not x.shape.rank:
            raise Refused("a slice does not select from the first axis of a tensor from outside")
        assert not isinstance(starts, tuple) and not isinstance(ends, tuple)
        if isinstance(starts, Rows) and isinstance(ends, Rows) and starts.offset is not None:
            first = starts.offset
            last = self.length + first
            if ends.offset == first + 1 and first >= 0 and compare(last, "<=", x.shape.dims[0]):
                cut = self._add(Slice(axes=(0,), starts=(first,), ends=(last,)), x, like=ins)
                return Rows(self._add(Unsqueeze(axes=(1,)), cut, like=ins))
        return Ragged(x, self._vector(starts), self._vector(ends))

    def _vector(self, value: Instruction | Rows | Ragged) -> Instruction:
        """Returns values of one element as a vector over the iterations; integers as int64."""
        made = self._rows(value)
        found = self.vectors.get(made)
        if found is not None:
            return found
        if any(d != 1 for d in made.shape.dims[1:]):
            raise Refused("a slice has several bounds, or a branch several conditions")
        flat = made if made.shape.rank == 1 else self._add(Squeeze(axes=tuple(range(1, made.shape.rank))), made)
        exact = flat.shape.dtype in (dt.int64, dt.bool_)
        self.vectors[made] = flat if exact else self._add(Convert(target_type=dt.int64), flat)
        return self.vectors[made]

    def _rows(self, value: Instruction | Rows | Ragged) -> Instruction:
        """Returns a value for all iterations, stacked."""
        if isinstance(value, Ragged):
            raise Refused("slices of different lengths are used as a whole")
        return value.made if isinstance(value, Rows) else self._spread(value)

    def _spread(self, x: Instruction) -> Instruction:
        """Returns a value that is the same in all iterations, repeated for each."""
        apart = self._add(Unsqueeze(axes=(0,)), x)
        return self._add(Multibroadcast(out_lens=(self.length, *x.shape.dims)), apart)

    def _broadcast(self, ins: Instruction, x: Instruction | Rows | Ragged | None) -> Value:
        dims = [substitute(d, self.extents) for d in ins.shape.dims]
        first = dims[0] if dims else 1
        slices = self.ragged.get(first.symbol.name) if isinstance(first, Sym) and first.symbol is not None else None
        if x is None or (isinstance(x, Ragged) and slices is None):
            raise Refused("slices of different lengths are broadcast")
        if isinstance(x, Rows):
            if slices is not None:
                raise Refused("a row is broadcast to a slice")
            new = ins.shape.rank - ins.inputs[0].shape.rank
            made = self._add(Unsqueeze(axes=tuple(range(1, 1 + new))), x.made, like=ins) if new else x.made
            spread = self._add(Multibroadcast(out_lens=(self.length, *dims)), made, like=ins)
            self._limit(spread)
            return Rows(spread, x.offset)
        if slices is None:
            assert isinstance(x, Instruction)
            return self._add(Multibroadcast(out_lens=tuple(dims)), x, like=ins)
        inner = (slices.x.shape.dims[0], *dims[1:])
        if isinstance(x, Ragged) and not slices.alike(x):
            raise Refused("slices of different lengths are combined")
        return slices.like(self._add(Multibroadcast(out_lens=inner), x.x if isinstance(x, Ragged) else x, like=ins))

    def _limit(self, made: Instruction) -> None:
        if counted(made.shape.dims) > ROOM:
            raise Refused("the values of all iterations together may be too large")

    def _pointwise(self, ins: Instruction, inputs: Sequence[Instruction | Rows | Ragged]) -> Value:
        op = ins.op
        if self.inside_branch and isinstance(op, (Div, Mod)) and not ins.shape.dtype.is_float:
            raise Refused(f"{op.name} in a branch may fail in other iterations")
        slices = next((i for i in inputs if isinstance(i, Ragged)), None)
        if slices is not None:
            whole_tensors = [i.x for i in inputs if isinstance(i, Ragged) and slices.alike(i)]
            if len(whole_tensors) < len(inputs) or any(x.shape.dims != slices.x.shape.dims for x in whole_tensors):
                raise Refused("slices of different lengths are combined")
            return slices.like(self._add(op, *whole_tensors, like=ins))
        made = self._add(op, *map(self._rows, inputs), like=ins)
        self._limit(made)
        return Rows(made, self._offset(ins, inputs))

    def _offset(self, ins: Instruction, inputs: Sequence[Instruction | Rows | Ragged]) -> int | None:
        """Returns the difference of a counter to the iteration number, None for other values."""
        if isinstance(ins.op, Convert):
            x = inputs[0]
            return x.offset if isinstance(x, Rows) and ins.shape.dtype is dt.int64 else None
        if not isinstance(ins.op, Add):
            return None
        found = [(x.offset, whole(i)) for x, i in zip(inputs, reversed(ins.inputs), strict=True) if isinstance(x, Rows)]
        ((offset, more),) = found if len(found) == 1 else ((None, None),)
        return None if offset is None or more is None else offset + more

    def _moved(self, ins: Instruction, op: Operation, inputs: Sequence[Instruction | Rows | Ragged]) -> Value | None:
        """Returns the value of an op that moves or reduces elements; None for others."""
        x = inputs[0]
        if isinstance(op, Gather):
            return self._gathered(ins, op, inputs)
        if len(inputs) > 1 or isinstance(x, Instruction):
            return None
        rank = ins.inputs[0].shape.rank
        if isinstance(op, DimensionsOf) and isinstance(x, Ragged) and x.x in self.positions and rank == 1:
            lengths = self._add(Max(), self._add(Sub(), x.ends, x.starts), self._spread(self._number(0)))
            return Rows(self._add(Unsqueeze(axes=(1,)), lengths, like=ins))
        if isinstance(op, Reduce):
            return self._reduced(ins, op, x, op.reduced_axes(rank))
        if isinstance(x, Ragged):
            kept = isinstance(op, _VIEWS) and op.axes and 0 not in op.axes and min(op.axes) > 0
            return x.like(self._add(op, x.x, like=ins)) if kept else None
        if isinstance(op, Reshape):
            dims = (self.length, *(substitute(d, self.extents) for d in ins.shape.dims))
            return Rows(self._add(Reshape(dims=dims), x.made, like=ins), x.offset)
        if isinstance(op, _VIEWS) and op.axes and min(op.axes) >= 0:
            return Rows(self._add(op.replace(axes=tuple(a + 1 for a in op.axes)), x.made, like=ins), x.offset)
        if isinstance(op, Transpose):
            return Rows(self._add(Transpose(permutation=(0, *(a + 1 for a in op.permutation))), x.made, like=ins))
        return None

    def _gathered(self, ins: Instruction, op: Gather, inputs: Sequence[Instruction | Rows | Ragged]) -> Value | None:
        table, places = inputs
        if not isinstance(table, Instruction) or op.axis % table.shape.rank:
            return None
        made = places.x if isinstance(places, Ragged) else self._rows(places)
        inside = made in self.positions and self.positions[made] == table.shape.dims[0]
        if self.inside_branch and not inside:
            return None
        if isinstance(places, Ragged):
            return places.like(self._add(op, table, places.x, like=ins))
        assert isinstance(places, Rows)
        made = self._add(op, table, places.made, like=ins)
        self._limit(made)
        return Rows(made)

    def _reduced(self, ins: Instruction, op: Reduce, x: Rows | Ragged, axes: Sequence[int]) -> Value | None:
        if isinstance(x, Rows):
            # no axes would be all, the iterations included
            return Rows(self._add(op.replace(axes=tuple(a + 1 for a in axes)), x.made, like=ins)) if axes else None
        if 0 not in axes:
            return x.like(self._add(op.replace(axes=tuple(axes)), x.x, like=ins))
        name = next((n for n, cls in REDUCTIONS.items() if cls is type(op)), None)
        if name is None or list(axes) != [0] or not x.x.shape.dtype.is_float:
            return None
        rows = self._add(ReduceSlices(reduction=name), x.x, x.starts, x.ends, like=ins)  # type: ignore[arg-type]
        return Rows(self._add(Unsqueeze(axes=(1,)), rows, like=ins))

    def _stacked(self, n: int, value: Instruction | Rows | Ragged) -> Instruction:
        """Returns the n-th stacked result: the iterations are where the loop stacks them."""
        op, made = self.loop.op, self._rows(value)
        axes = op.output_axes if isinstance(op, Scan) else ()
        if isinstance(op, Scan) and n < len(op.output_directions) and op.output_directions[n]:
            raise Refused("its rows are stacked backwards")
        axis = Scan.axis_of(axes, n, made.shape.rank)
        order = [*range(1, axis + 1), 0, *range(axis + 1, made.shape.rank)]
        return self._add(Transpose(permutation=tuple(order)), made) if axis else made
