"""The layouts and the memory in which the readers of a result need no copy of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from mgx_core import Instruction, Operation, Shape, TupleShape
from mgx_core.ops.axes import normalize, normalize_all
from mgx_core.ops.concat import Concat
from mgx_core.ops.control import FusedReduce, GetTupleElem, Group, PointwiseGroup
from mgx_core.ops.convolution import Convolution
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.linear import Dot
from mgx_core.ops.movement import Transpose
from mgx_core.ops.quantized_product import QuantDot
from mgx_core.ops.reshape import Reshape, Squeeze, Unsqueeze
from mgx_core.ops.slice import Slice
from mgx_core.targets.kernel import op_of
from mgx_core.targets.values import Value, channels_last, packed_strides

from ..codegen.geometry import memory_order, uniform_step
from ..emitter import GpuEmitter
from ..join_concats import CONCAT
from ..join_launches import HORIZONTAL

__all__ = ["allocating", "concat_part", "image_strides", "is_convolution", "readable_strides"]

PRODUCTS: Final = (Dot, QuantDot)
VECTOR: Final = 16  # bytes that a thread moves at once
ANY_ORDER: Final = (Pointwise, PointwiseGroup, FusedReduce, Concat)  # read images in any order


def readable_strides(e: GpuEmitter, shape: Shape, number: int | None = None, free: bool = False) -> list[int] | None:
    """Returns the strides in which no reader of the current instruction's result copies it; None to keep those of `shape`.

    Readers may be transposed; pointwise work, reductions and concatenations read any order.  Reshapes read row-major
    order, or an image with its channels innermost; batched products, also of slices, read matrices at one distance.  The
    innermost axis stays the same, except for images.
    number: of the result; None for the only one, or that of a member of a group.
    free: the kernel writes any order as fast: results of the program are row-major, and what convolutions read has the
    channels innermost.
    """
    ins = allocating(e)
    if ins is None or (number is None and isinstance(ins.result, TupleShape)):
        return None
    group = None if ins is e.current else e.current
    readers = _readers(_results(ins, group).get(number or 0, []), shape)
    strict = [read for read in readers if not _in_any_order(op_of(read.reader))]
    wanted = [_copied_strides(e, read, shape, free) for read in strict]
    strides = wanted[0] if wanted else None
    if strides is None or any(w != strides for w in wanted):
        return None
    if len(strict) < len(readers) and not _same_inside(shape.lens(), shape.strides(), strides):
        return None
    e.uncacheable()  # depends on the readers
    return strides


def _same_inside(lens: Sequence[int], strides: Sequence[int], others: Sequence[int]) -> bool:
    """Returns True if the same axis is innermost."""
    return any(p == q == 1 < n for n, p, q in zip(lens, strides, others, strict=True))


def concat_part(e: GpuEmitter, shape: Shape, number: int) -> Value | None:
    """Allocates the current instruction's result as a part of the concatenation that reads it; None if it has other readers.

    These may be pointwise work and reductions, also through views.  The concatenation has the memory order of its first part
    that is computed, unless its own readers would copy it.  number: of the result.
    """
    ins = allocating(e)
    if ins is None or ins is not e.current:
        return None  # launches side by side write buffers of their own
    return _part(e, ins, shape, number)


def _part(e: GpuEmitter, ins: Instruction, shape: Shape, number: int) -> Value | None:
    """Allocates a result of an instruction as a part of a concatenation, which may be a part of another one."""
    results = _results(ins).get(number, [])
    if len(results) != 1 or results[0].result != Shape(shape.dtype, shape.lens()):
        return None
    reads = _reads(results[0], range(shape.rank))
    concats = {r.reader for r in reads if isinstance(op_of(r.reader), Concat)}
    if len(concats) != 1 or not all(r.reader in concats or isinstance(op_of(r.reader), ANY_ORDER) for r in reads):
        return None
    (concat,) = concats
    read = next((r for r in reads if r.reader is concat and r.axes is not None), None)
    op, whole, lens = op_of(concat), concat.result, shape.lens()
    assert isinstance(op, Concat) and isinstance(whole, Shape)
    if read is None or read.axes is None or concat not in e.static or whole.dynamic() or 0 in whole.lens():
        return None
    if not all(type(n) is int for n in (*lens, *whole.lens())):  # comparisons restrict symbols
        return None
    axis, places = normalize(op.axis, whole.rank), [read.axes.index(a) for a in range(shape.rank)]
    begin = sum(x.shape.lens()[axis] for x in concat.inputs[: concat.inputs.index(read.value)])
    e.uncacheable()  # depends on the readers
    joint = e.concatenated.get(concat)
    if joint is None:
        order = [places[a] for a in memory_order(shape.strides(), lens)]
        order[1:1] = [a for a in range(whole.rank) if a not in places]  # of a stack
        laid = Shape(shape.dtype, whole.lens(), packed_strides(whole.lens(), order))
        wanted = [_copied_strides(e, read, laid) for read in _readers([concat], laid)]
        if any(w not in (None, laid.strides()) for w in wanted):
            return None
        joint = _part(e, concat, laid, 0) or e.allocate_as(laid)
    step, strides = joint.strides[axis], [joint.strides[p] for p in places]
    other = any((p == 1) != (q == 1) for n, p, q in zip(lens, strides, shape.strides(), strict=True) if n != 1)
    count = whole.lens()[axis], read.value.shape.lens()[axis]
    if other or any(n * step * shape.dtype.size % VECTOR for n in (begin, *count)):
        return None  # another axis is innermost, or rows do not begin at whole vectors
    e.concatenated[concat] = joint
    return joint.view_at(begin * step, Shape(shape.dtype, lens, strides))


class _Read(NamedTuple):
    """A read of a value through views, as `value`.

    axes: the axes of the value itself, None for a new one; None if the views move or leave out elements.
    """

    reader: Instruction
    value: Instruction
    axes: tuple[int | None, ...] | None


def _reads(ins: Instruction, axes: Sequence[int | None] | None) -> list[_Read]:
    """Returns the readers of a value, directly or through views."""
    found: list[_Read] = []
    for user in ins.users:
        op, behind = op_of(user), None if axes is None else _axes_behind(user, axes)
        if behind is not None:
            found += _reads(user, behind)
        elif op.view is not None and not op.reshapes and not user.is_return:
            found += _reads(user, None)
        else:
            found.append(_Read(user, ins, None if axes is None else tuple(axes)))
    return found


def _axes_behind(view: Instruction, axes: Sequence[int | None]) -> tuple[int | None, ...] | None:
    """Returns the axes behind a view that reorders or inserts axes, None for a new one; None for another view."""
    op = op_of(view)
    if isinstance(op, Transpose):
        return tuple(axes[a] for a in op.order(len(axes)))
    if isinstance(op, Unsqueeze) and len(view.inputs) == 1:  # others insert axes of run time
        rank, old = view.shape.rank, iter(axes)
        new = normalize_all(op.axes, rank)
        return tuple(None if a in new else next(old) for a in range(rank))
    return None


def allocating(e: GpuEmitter) -> Instruction | None:
    """Returns the instruction whose results are being allocated: the current one, or a member that it runs side by side."""
    group, ins = e.current, e.emitted
    if group is None or ins is None or not group.modules or ins.parent is not group.modules[0]:
        return group
    op = op_of(group)
    return ins if isinstance(op, Group) and op.tag == HORIZONTAL else group


def _results(ins: Instruction, group: Instruction | None = None) -> dict[int, list[Instruction]]:
    """Returns the instructions that stand for each result of an instruction: itself, or the items of its tuple.

    group: of which it is a member, and whose items stand for its results.
    """
    found: dict[int, list[Instruction]] = {}
    if not isinstance(ins.result, TupleShape):
        found[0] = [ins]
    else:
        for item in ins.users:
            op = op_of(item)
            if not isinstance(op, GetTupleElem):
                return {}
            found.setdefault(op.index, []).append(item)
    if group is None:
        return found
    items, outputs = _results(group), group.modules[0].outputs
    return {n: [i for k, o in enumerate(outputs) if o in own for i in items.get(k, [])] for n, own in found.items()}


class _Seen(NamedTuple):
    """A reader of a value or of a slice of it.

    axes: the axes of the value in the order that the reader sees them, None for a new one; lens: their extents.
    """

    reader: Instruction
    axes: tuple[int | None, ...]
    lens: tuple[int, ...]


def _readers(results: Sequence[Instruction], shape: Shape) -> list[_Seen]:
    """Returns the readers of instructions that stand for a result.

    None of a member of a group with another type, or of symbolic extents.
    """
    straight, lens = tuple(range(shape.rank)), tuple(shape.lens())
    found = []
    for result in results:
        if result.result != Shape(shape.dtype, lens):
            return []
        for user in result.users:
            op = op_of(user)
            if isinstance(op, Transpose) and user.users:
                order = op.order(shape.rank)
                found += [_Seen(reader, order, tuple(lens[a] for a in order)) for reader in user.users]
            elif isinstance(op, Slice):
                behind = _readers_of_slice(_Seen(user, straight, lens))
                found += [_Seen(user, straight, lens)] if behind is None else behind
            else:
                found.append(_Seen(user, straight, lens))
    return found


def _readers_of_slice(seen: _Seen) -> list[_Seen] | None:
    """Returns the readers behind a slice and the views after it; None for other steps than 1 and for values of run time."""
    view, axes = seen.reader, seen.axes
    op, shape = op_of(view), view.result
    if not isinstance(op, (Slice, Squeeze, Transpose, Unsqueeze)):
        return [seen]
    if not isinstance(shape, Shape) or shape.dynamic() or len(view.inputs) > 1:
        return None
    if isinstance(op, Slice) and set(op.steps) - {1}:
        return None
    if isinstance(op, Squeeze):
        gone = normalize_all(op.axes, len(axes)) or [k for k, n in enumerate(seen.lens) if n == 1]
        axes = tuple(a for k, a in enumerate(axes) if k not in gone)
    else:
        axes = _axes_behind(view, axes) or axes  # those of a slice stay
    found = []
    for user in view.users:
        reads = _readers_of_slice(_Seen(user, axes, tuple(shape.lens())))
        if reads is None:
            return None
        found += reads
    return found


def _copied_strides(e: GpuEmitter, read: _Seen, shape: Shape, free: bool = False) -> list[int] | None:
    """Returns the strides that a reader needs; None if it would not copy the value, or any would do."""
    reader, axes, lens, strides = read.reader, read.axes, shape.lens(), shape.strides()
    op = op_of(reader)
    seen = Shape(shape.dtype, read.lens, [0 if a is None else strides[a] for a in axes])
    # libraries step through a batch by one stride
    if _is_product(op) and uniform_step(seen.lens()[:-2], seen.strides()[:-2]) is None:
        inner = sorted((a for a in axes[-2:] if a is not None), key=lambda a: -strides[a])
        outer = [a for a in axes[:-2] if a is not None]
        left = [a for a in range(shape.rank) if a not in axes]
        found = packed_strides(lens, [*outer, *left, *inner])
        return found if _same_inside(lens, strides, found) else None
    order = [a for a in axes if a is not None]
    if read.lens != tuple(lens[a] for a in order) or len(order) != shape.rank:
        return None  # a slice
    if reader.is_return:
        return packed_strides(lens, order) if free else None
    if _reads_channels_last(e, reader, seen):
        found = packed_strides(lens, [order[0], *order[2:], order[1]])
        return found if found != strides and free else None
    if op.reshapes and op.view is not None and len(reader.inputs) == 1:  # others have extents of run time
        copied = op.view(seen) is None
        turned = copied or (free and _is_read_channels_last(e, reader))
        image = image_strides(e, reader, seen) if turned else None
        if image is not None:
            found = [image[order.index(a)] for a in range(shape.rank)]
            return None if found == strides else found
        if copied:
            found = packed_strides(lens, order)
            return found if _same_inside(lens, strides, found) else None
    return None


def _reads_channels_last(e: GpuEmitter, reader: Instruction, x: Shape) -> bool:
    """Returns True if an instruction is a library's convolution, which reads images of whole vectors of channels that way."""
    op = op_of(reader)
    if e.context.libraries is None or not is_convolution(op) or not all(type(n) is int for n in x.lens()):
        return False
    members = [op] if isinstance(op, Convolution) else [i.op for i in reader.modules[0]]
    ungrouped = all(o.group == 1 for o in members if isinstance(o, Convolution))
    return ungrouped and x.lens()[1] * x.dtype.size % VECTOR == 0


def _is_read_channels_last(e: GpuEmitter, ins: Instruction) -> bool:
    """Returns True if only convolutions of a library read an instruction's result."""
    image = ins.result
    fixed = bool(ins.users) and isinstance(image, Shape) and not image.dynamic() and image.rank > 2
    return fixed and all(_reads_channels_last(e, u, ins.shape) for u in ins.users)


def _is_product(op: Operation) -> bool:
    """Returns True for a product, alone or with its epilogue."""
    return isinstance(op, PRODUCTS) or (isinstance(op, Group) and op.tag in (Dot.name, QuantDot.name))


def image_strides(e: GpuEmitter, reshape: Instruction, x: Shape) -> list[int] | None:
    """Returns strides of x in which `reshape` makes a channels-last image of it; None if the readers of that would not profit.

    They do if all are convolutions, or pointwise work, reductions and concatenations that convolutions read; or if any of
    these read an image whose channels are innermost already.
    """
    lens, shape = x.lens(), reshape.result
    if not reshape.users or not isinstance(shape, Shape) or shape.dynamic() or shape.rank < 3:
        return None
    if not x.elements() or not all(type(n) is int for n in lens):  # comparisons restrict symbols
        return None
    if not all(is_convolution(op_of(u)) or _in_any_order(op_of(u)) for u in reshape.users):
        return None
    e.uncacheable()  # depends on the readers
    laid = Shape(shape.dtype, shape.lens(), channels_last(shape.lens()))
    back = Reshape(dims=tuple(lens)).view(laid)
    if back is None:
        return None
    strides = back[1].strides()
    images = all(map(_becomes_image, reshape.users))
    if not images and not _same_inside(lens, x.strides(), strides):
        return None
    return strides


def _becomes_image(reader: Instruction) -> bool:
    """Returns True if an instruction is a convolution, or a convolution reads its result."""
    return is_convolution(op_of(reader)) or any(is_convolution(op_of(u)) for u in reader.users)


def is_convolution(op: Operation) -> bool:
    """Returns True for a convolution, alone or with its epilogue."""
    return isinstance(op, Convolution) or (isinstance(op, Group) and op.tag == Convolution.name)


def _in_any_order(reader: Any) -> bool:
    return isinstance(reader, ANY_ORDER) or (isinstance(reader, Group) and reader.tag in (CONCAT, HORIZONTAL))
