"""Converts lists and tensors that a loop only appends to into stacked loop outputs, so that no iteration copies them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ir.symbols import introduced, mentioned
from ..named_tuples import NamedTuple
from ..ops.concat import Concat
from ..ops.index import Gather
from ..ops.sequence import SequenceConstruct, SequenceEmpty, SequenceInsert, SplitToSequence
from ..types.dim import Dim, Sym, product
from ..types.shape import SequenceShape, Shape, symbols_in
from .builder import InstructionBuilder
from .repeats import Cut, repeat_of

__all__ = ["Lists", "item_of", "joined", "length_of", "parts_of", "without_lists"]


def parts_of(
    n: InstructionBuilder, x: Instruction, split: Instruction | None, axis: int, keepdims: bool
) -> Instruction:
    """Splits a tensor along an axis into a sequence; lengths that are all 1 become a split without lengths."""
    if split is not None and split.shape.ranked and split.shape.rank == 1:
        known = n.dims(split)
        ones = _all_ones(n, split) or (known is not None and known and all(d == 1 for d in known))
        length = x.shape.dims[n.axes([axis], x.shape.rank)[0]] if x.shape.ranked else None
        given = n.constant(split)
        if given is not None and isinstance(length, int) and int(given.sum()) != length:
            n.fail(f"the parts must be as long as axis {axis} together, {length}, got {given.tolist()}")
        if ones and split.shape.dims[0] == length:
            split, keepdims = None, True
    return n.add("split_to_sequence", x, split, axis=axis, keepdims=keepdims)


def _all_ones(n: InstructionBuilder, x: Instruction) -> bool:
    while x.literal is None and x.op.aligns and len(x.inputs) == 1:
        x = x.inputs[0]
    value = n.constant(x)
    return value is not None and value.size > 0 and bool((value == 1).all())


def item_of(n: InstructionBuilder, sequence: Instruction, position: Instruction) -> Instruction:
    """Returns the item of a sequence at an index; a slice of the split tensor if all parts have length 1."""
    whole = _unit_parts(sequence)
    if whole is None or not position.shape.ranked:
        return n.add("sequence_at", sequence, position)
    x, (axis,) = whole, n.axes([_split(sequence).axis], whole.shape.rank)
    found = n.add("gather", x, n.reshape(position, ()), axis=axis)
    return n.unsqueeze(found, [axis]) if _split(sequence).keepdims else found


def joined(n: InstructionBuilder, sequence: Instruction, axis: int, new_axis: bool) -> Instruction:
    """Returns a sequence's items concatenated or stacked; the split tensor itself, transposed, if they are its parts."""
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
    """Returns the tensor and axis if a sequence is its split into parts of length 1."""
    if not isinstance(sequence.op, SplitToSequence) or len(sequence.inputs) > 1:
        return None
    return sequence.inputs[0] if sequence.inputs[0].shape.ranked else None


def length_of(n: InstructionBuilder, sequence: Instruction) -> Instruction:
    """Returns a sequence's length; the extent of the split tensor if all parts have length 1."""
    whole = _unit_parts(sequence)
    if whole is None:
        return n.add("sequence_length", sequence)
    (axis,) = n.axes([_split(sequence).axis], whole.shape.rank)
    return n.reshape(n.add("dimensions_of", whole, start=axis, end=axis + 1), ())


class Lists(NamedTuple):
    """A loop whose lists became stacked outputs.

    body: rows of `rows` follow its own; made: sequences that are known without the loop; rows: the lists and tensors, by the
    number of the state, whose items are rows of the loop now, in order, and the axis along which a tensor is extended.
    """

    body: Module
    made: dict[int, Instruction]
    rows: dict[int, int]

    def filled(self, n: InstructionBuilder, state: int, first: Instruction, rows: Instruction) -> Instruction:
        """Returns a state's value after the loop, from its initial value and the loop's stacked rows."""
        if isinstance(first.result, Shape):
            return _extended(n, first, rows, self.rows[state])
        items = [n.unsqueeze(i, [0]) for i in first.inputs]
        whole = n.add("concat", *items, rows, axis=0) if items else rows
        return n.add("split_to_sequence", whole, axis=0, keepdims=False)


def without_lists(
    n: InstructionBuilder, body: Module, states: Sequence[Instruction], trips: Dim | None
) -> Lists | None:
    """Returns a loop's body without the lists and tensors that it appends one item to per iteration; None if there are none.

    Lists start empty or with known items; items appended to a tensor have the same length in every iteration.

    body: (iteration, condition, *states) -> (condition, *states, *rows); trips: how many there are, if that is known.
    """
    parameters = list(body.parameters.values())
    made: dict[int, Instruction] = {}
    rows: dict[int, Instruction] = {}
    axes: dict[int, int] = {}
    for k, (state, parameter) in enumerate(zip(states, parameters[2:], strict=True)):
        after = body.outputs[1 + k]
        grown = _grown(parameter, after, body)
        if grown is not None:
            rows[k], axes[k] = _with_known_dims(body, after, grown), grown
            continue
        item = _appended(state, parameter, after, body)
        if item is None:
            continue
        known = None if trips is None or state.inputs else _repeated(n, body, item, trips)
        own = symbols_in(item.result) & set(_own_symbols(body, states))
        if known is not None:
            made[k] = known
        elif not own and all(i.result == item.result for i in state.inputs):
            rows[k], axes[k] = item, 0
    if not made and not rows:
        return None
    return Lists(_rebuilt(body, states, {*made, *rows}, list(rows.values())), made, axes)


def _grown(parameter: Instruction, after: Instruction, body: Module) -> int | None:
    """Returns the axis along which a tensor is only extended, by items of equal length; None for others."""
    if not isinstance(after.op, Concat) or len(after.inputs) != 2 or not _is_all(parameter, after, body):
        return None
    item, rank = after.inputs[1], after.shape.rank
    axis = after.op.axis % rank
    if after.inputs[0] is not parameter or not isinstance(item.shape.dims[axis], int):
        return None
    off = Shape.of(after.shape.dtype, (d for a, d in enumerate(after.shape.dims) if a != axis))
    own = symbols_in(parameter.result)
    told = mentioned(i for i in body if i is not parameter and i is not after)
    return None if own & told or own & symbols_in(off) else axis


def _with_known_dims(body: Module, after: Instruction, axis: int) -> Instruction:
    """Returns the appended item with the tensor's extents on the other axes."""
    item, dims = after.inputs[1], after.shape.dims
    wanted = [item.shape.dims[axis] if a == axis else d for a, d in enumerate(dims)]
    if list(item.shape.dims) == wanted or any(isinstance(d, Sym) for d in wanted):
        return item
    none = np.zeros([0 if a == axis else d for a, d in enumerate(wanted)], after.shape.dtype.numpy)
    return body.add(after.op, body.add_literal(none, before=after), item, sources=after.sources, before=after)


def _extended(n: InstructionBuilder, first: Instruction, rows: Instruction, axis: int) -> Instruction:
    """Returns a tensor with a loop's rows appended along an axis."""
    rank = rows.shape.rank
    order = [*range(1, axis + 1), 0, *range(axis + 1, rank)]
    moved = n.transpose(rows, order)
    dims = moved.shape.dims
    return n.add(
        "concat", first, n.reshape(moved, (*dims[:axis], dims[axis] * dims[axis + 1], *dims[axis + 2 :])), axis=axis
    )


def _is_all(parameter: Instruction, after: Instruction, body: Module) -> bool:
    """Returns True if a state's only use is its next value, which the body does not read."""
    ends = all(u.is_return for u in after.users) and body.outputs.count(after) == 1
    return list(parameter.users) == [after] and ends and after.inputs.count(parameter) == 1


def _appended(state: Instruction, parameter: Instruction, after: Instruction, body: Module) -> Instruction | None:
    """Returns the item that each iteration appends to a list that is only appended to, else None."""
    if not isinstance(state.op, (SequenceEmpty, SequenceConstruct)) or not isinstance(after.op, SequenceInsert):
        return None
    sequence, item, *position = after.inputs
    if sequence is not parameter or not _is_all(parameter, after, body) or any(not p.is_absent for p in position):
        return None
    shape = item.result
    element = state.result.element if isinstance(state.result, SequenceShape) else None
    fits = isinstance(shape, Shape) and isinstance(element, Shape) and shape.ranked and shape.dtype is element.dtype
    return item if fits else None


def _own_symbols(body: Module, states: Sequence[Instruction]) -> Iterator[str]:
    """Yields the symbols of extents that may vary between iterations."""
    around = set().union(*(symbols_in(s.result) for s in states))
    for ins in body:
        yield from (symbols_in(ins.result) - around if ins.is_param else introduced(ins))


def _rebuilt(body: Module, states: Sequence[Instruction], removed: set[int], items: Sequence[Instruction]) -> Module:
    """Returns the body without some states and with items as additional stacked outputs."""
    outputs = body.outputs
    kept = [o for k, o in enumerate(outputs) if not 1 <= k <= len(states) or k - 1 not in removed]
    body.replace_return([*kept, *items])
    body.sweep()  # of what read the lists
    made = Module(body.name)
    given: list[Instruction] = []
    for k, (name, p) in enumerate(body.parameters.items()):
        lost = k - 2 in removed
        given.append(made.add_absent() if lost else made.add_parameter(name, p.result))
    made.add_return(made.inline(body, given))
    body.clear()
    made.sweep()
    return made


def _repeated(n: InstructionBuilder, body: Module, item: Instruction, trips: Dim) -> Instruction | None:
    """Returns the list of a tensor's slices, each repeated by its own count, if a loop's items form one; else None."""
    iteration = next(iter(body.parameters.values()))

    def cut(ins: Instruction) -> Cut | None:
        """Returns the outer tensor if an instruction is its slice at the iteration number."""
        if not isinstance(ins.op, Gather) or ins.parent is not body or ins.inputs[1] is not iteration:
            return None
        x = ins.inputs[0]
        whole = x.parent is not body and x.shape.ranked and iteration.shape.ranked and iteration.shape.rank == 0
        return Cut(x, ins.op.axis % x.shape.rank) if whole else None

    found = repeat_of(item, cut)
    if found is None or not found.covers(trips):
        return None
    return n.add("split_to_sequence", found.gathered(n), found.counts, axis=found.at, keepdims=True)
