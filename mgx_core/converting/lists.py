"""Lists of tensors that loops fill: joined tensors in place of sequences, where all that is done to a list is to append."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ir.symbols import introduced, learn_symbols
from ..ops.broadcast import BroadcastWithDims
from ..ops.index import Gather
from ..ops.reshape import Flatten, Reshape, Squeeze, Unsqueeze
from ..ops.sequence import SequenceConstruct, SequenceEmpty, SequenceInsert, SplitToSequence
from ..types.dim import Dim, Sym, fresh, product
from ..types.shape import AnyShape, SequenceShape, Shape, symbols_in
from .builder import InstructionBuilder
from .filling import repeated_places
from .known import Known

__all__ = ["Lists", "item_of", "joined", "length_of", "parts_of", "without_lists"]

VIEWS = (Reshape, Squeeze, Unsqueeze, Flatten)


def parts_of(
    n: InstructionBuilder, x: Instruction, split: Instruction | None, axis: int, keepdims: bool
) -> Instruction:
    """Returns the parts of a tensor along an axis as a sequence; parts that all have length 1 as those of no given lengths."""
    if split is not None and split.shape.ranked and split.shape.rank == 1:
        known = n.dims(split)
        if _all_ones(n, split) or (known is not None and known and all(d == 1 for d in known)):
            split, keepdims = None, True
    return n.add("split_to_sequence", x, split, axis=axis, keepdims=keepdims)


def _all_ones(n: InstructionBuilder, x: Instruction) -> bool:
    while x.literal is None and x.op.aligns and len(x.inputs) == 1:
        x = x.inputs[0]
    value = n.constant(x)
    return value is not None and value.size > 0 and bool((value == 1).all())


def item_of(n: InstructionBuilder, sequence: Instruction, position: Instruction) -> Instruction:
    """Returns the item of a sequence at a position: a slice of the tensor that it is the parts of, where their length is 1."""
    whole = _unit_parts(sequence)
    if whole is None or not position.shape.ranked:
        return n.add("sequence_at", sequence, position)
    x, (axis,) = whole, n.axes([_split(sequence).axis], whole.shape.rank)
    found = n.add("gather", x, n.reshape(position, ()), axis=axis)
    return n.unsqueeze(found, [axis]) if _split(sequence).keepdims else found


def joined(n: InstructionBuilder, sequence: Instruction, axis: int, new_axis: bool) -> Instruction:
    """Returns the items of a sequence in one tensor: the one that they are parts of, if they are, with its axes in order."""
    op = sequence.op
    x = sequence.inputs[0] if isinstance(op, SplitToSequence) else None
    if x is None or not isinstance(op, SplitToSequence) or not x.shape.ranked:
        return n.add("concat_from_sequence", sequence, axis=axis, new_axis=new_axis)
    rank = x.shape.rank
    (cut,) = n.axes([op.axis], rank)
    if len(sequence.inputs) > 1 or op.keepdims:
        if new_axis or n.axes([axis], rank)[0] != cut:
            return n.add("concat_from_sequence", sequence, axis=axis, new_axis=new_axis)
        return x
    (at,) = n.axes([axis], rank - 1 + new_axis)
    order = [a for a in range(rank) if a != cut]
    order.insert(at, cut)
    found = n.transpose(x, order)
    if new_axis:
        return found
    dims = found.shape.dims
    return n.reshape(found, (*dims[:at], product(dims[at : at + 2]), *dims[at + 2 :]))


def _split(sequence: Instruction) -> SplitToSequence:
    assert isinstance(sequence.op, SplitToSequence)
    return sequence.op


def _unit_parts(sequence: Instruction) -> Instruction | None:
    """Returns the tensor whose parts of length 1 a sequence is."""
    if not isinstance(sequence.op, SplitToSequence) or len(sequence.inputs) > 1:
        return None
    return sequence.inputs[0] if sequence.inputs[0].shape.ranked else None


def length_of(n: InstructionBuilder, sequence: Instruction) -> Instruction:
    """Returns the number of items of a sequence: an extent of the tensor that it is the parts of, where their length is 1."""
    whole = _unit_parts(sequence)
    if whole is None:
        return n.add("sequence_length", sequence)
    (axis,) = n.axes([_split(sequence).axis], whole.shape.rank)
    return n.reshape(n.add("dimensions_of", whole, start=axis, end=axis + 1), ())


class Lists(NamedTuple):
    """A loop without the lists that it fills.

    body: rows of `rows` follow its own; made: sequences that are known without the loop; rows: the lists, by the number of the
    state, whose items are rows of the loop now, in order.
    """

    body: Module
    made: dict[int, Instruction]
    rows: list[int]

    def sequence(self, n: InstructionBuilder, first: Instruction, rows: Instruction) -> Instruction:
        """Returns the list of a state as the parts of the items that it began with and of the loop's rows."""
        items = [n.unsqueeze(i, [0]) for i in first.inputs]
        whole = n.add("concat", *items, rows, axis=0) if items else rows
        return n.add("split_to_sequence", whole, axis=0, keepdims=False)


def without_lists(
    n: InstructionBuilder, body: Module, states: Sequence[Instruction], trips: Dim | None
) -> Lists | None:
    """Returns a loop's body without the lists that each trip appends one item to; None if there are none.

    Lists begin empty or with items that are named.

    body: (iteration, condition, *states) -> (condition, *states, *rows); trips: how many there are, if that is known.
    """
    parameters = list(body.parameters.values())
    made: dict[int, Instruction] = {}
    rows: dict[int, Instruction] = {}
    for k, (state, parameter) in enumerate(zip(states, parameters[2:], strict=True)):
        item = _appended(state, parameter, body.outputs[1 + k], body)
        if item is None:
            continue
        known = None if trips is None or state.inputs else _repeated(n, body, item, trips)
        own = symbols_in(item.result) & set(_own_symbols(body, states))
        if known is not None:
            made[k] = known
        elif not own and all(i.result == item.result for i in state.inputs):
            rows[k] = item
    if not made and not rows:
        return None
    return Lists(_rebuilt(body, states, {*made, *rows}, list(rows.values())), made, list(rows))


def _appended(state: Instruction, parameter: Instruction, after: Instruction, body: Module) -> Instruction | None:
    """Returns what each trip appends to a list, if it is all that is done to it."""
    if not isinstance(state.op, (SequenceEmpty, SequenceConstruct)) or not isinstance(after.op, SequenceInsert):
        return None
    sequence, item, *position = after.inputs
    ends = all(u.is_return for u in after.users) and body.outputs.count(after) == 1
    if (
        sequence is not parameter
        or list(parameter.users) != [after]
        or not ends
        or any(not p.is_absent for p in position)
    ):
        return None
    shape = item.result
    element = state.result.element if isinstance(state.result, SequenceShape) else None
    fits = isinstance(shape, Shape) and isinstance(element, Shape) and shape.ranked and shape.dtype is element.dtype
    return item if fits else None


def _own_symbols(body: Module, states: Sequence[Instruction]) -> Iterator[str]:
    """Returns the extents that may be others in each trip."""
    around = set().union(*(symbols_in(s.result) for s in states))
    for ins in body:
        yield from (symbols_in(ins.result) - around if ins.is_param else introduced(ins))


def _rebuilt(body: Module, states: Sequence[Instruction], gone: set[int], items: Sequence[Instruction]) -> Module:
    """Returns the body without some of its states, and with items as further rows."""
    outputs = body.outputs
    kept = [o for k, o in enumerate(outputs) if not 1 <= k <= len(states) or k - 1 not in gone]
    body.replace_return([*kept, *items])
    body.sweep()  # of what read the lists
    made = Module(body.name)
    given: list[Instruction] = []
    for k, (name, p) in enumerate(body.parameters.items()):
        lost = k - 2 in gone
        given.append(made.add_absent() if lost else made.add_parameter(name, p.result))
    made.add_return(made.inline(body, given))
    body.clear()
    made.sweep()
    return made


class _Repeat(NamedTuple):
    """An item that is one slice of a tensor, repeated.

    x, axis: the tensor and the axis that it is cut along; counts: how often each slice is repeated; place: of the repeated axis
    among those of the slice; dims, at: of the item, and its repeated axis.
    """

    x: Instruction
    axis: int
    counts: Instruction
    place: int
    dims: tuple[Dim, ...]
    at: int


def _repeated(n: InstructionBuilder, body: Module, item: Instruction, trips: Dim) -> Instruction | None:
    """Returns the list of a tensor's slices, each repeated by a count of its own, if a loop's items are that."""
    found = _repeat(body, item)
    if found is None:
        return None
    x, axis, counts = found.x, found.axis, found.counts
    if x.shape.dims[axis] != trips or counts.shape.dims[0] != trips:
        return None
    long = n.add("gather", x, repeated_places(n, counts), axis=axis)
    order = [a for a in range(x.shape.rank) if a != axis]
    order.insert(found.place, axis)
    dims = (*found.dims[: found.at], long.shape.dims[axis], *found.dims[found.at + 1 :])
    whole = n.reshape(n.transpose(long, order), dims)
    return n.add("split_to_sequence", whole, counts, axis=found.at, keepdims=True)


def _repeat(body: Module, item: Instruction) -> _Repeat | None:
    iteration = next(iter(body.parameters.values()))
    chain, spread = _through_views(item)
    if not isinstance(spread.op, BroadcastWithDims) or spread.parent is not body:
        return None
    row, wanted = spread.inputs
    _, cut = _through_views(row)
    if not _is_slice(cut, iteration, body) or not cut.inputs[0].shape.ranked:
        return None
    known, counts = Known(), dict[Dim, Instruction]()
    for ins in body:
        if _is_slice(ins, iteration, body) and ins.shape.dtype.is_integer and ins.inputs[0].shape.rank == 1:
            counts[known.suppose(ins, fresh("count", 0))] = ins.inputs[0]
    asked = known.extents(wanted)
    if asked is None:
        return None
    dims = _broadcast(row.shape.dims, list(asked.reshape(-1)), counts)
    if dims is None:
        return None
    (count,) = (d for d in dims if d in counts)
    shape: AnyShape = Shape.of(item.shape.dtype, dims)
    symbols: dict[str, Dim] = {}
    learn_symbols(spread.result, shape, symbols)
    for view in reversed(chain):
        shape = view.op.substitute(symbols).infer(shape)
    assert isinstance(shape, Shape) and isinstance(cut.op, Gather)
    x = cut.inputs[0]
    axis = cut.op.axis % x.shape.rank
    before, after = _around(dims, count)
    rest = [d for a, d in enumerate(x.shape.dims) if a != axis]
    places = [k for k in range(len(rest) + 1) if (_long(rest[:k]), _long(rest[k:])) == (before, after)]
    if not places or shape.dims.count(count) != 1 or _around(shape.dims, count) != (before, after):
        return None
    return _Repeat(x, axis, counts[count], places[0], shape.dims, shape.dims.index(count))


def _is_slice(ins: Instruction, iteration: Instruction, body: Module) -> bool:
    """Returns True for the slice of a tensor from around the loop that has the number of the trip."""
    if not isinstance(ins.op, Gather) or ins.parent is not body:
        return False
    x, index = ins.inputs
    return x.parent is not body and index is iteration and index.shape.ranked and index.shape.rank == 0


def _through_views(ins: Instruction) -> tuple[list[Instruction], Instruction]:
    chain: list[Instruction] = []
    while isinstance(ins.op, VIEWS) and len(ins.inputs) == 1:
        chain.append(ins)
        ins = ins.inputs[0]
    return chain, ins


def _broadcast(dims: Sequence[Dim], wanted: list[Dim], counts: dict[Dim, Instruction]) -> list[Dim] | None:
    """Returns the extents of a slice repeated along one axis of extent 1; None if more than that is done to it."""
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
    """Returns the extents other than 1 on both sides of one."""
    place = list(dims).index(at)
    return _long(dims[:place]), _long(dims[place + 1 :])


def _long(dims: Sequence[Dim]) -> list[Dim]:
    return [d for d in dims if isinstance(d, Sym) or d != 1]
