"""The layouts and the memory in which the readers of a result need no copy of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from mgx_core import Instruction, Operation, Shape, TupleShape
from mgx_core.ops.axes import normalize
from mgx_core.ops.concat import Concat
from mgx_core.ops.control import FusedReduce, GetTupleElem, Group, PointwiseGroup
from mgx_core.ops.convolution import Convolution
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.linear import Dot
from mgx_core.ops.movement import Transpose
from mgx_core.ops.quantized_product import QuantDot
from mgx_core.ops.reshape import Reshape, Unsqueeze
from mgx_core.targets.kernel import op_of
from mgx_core.targets.values import Value, channels_last, packed_strides

from ..codegen.geometry import memory_order, uniform_step
from ..emitter import GpuEmitter
from ..join_concats import CONCAT

__all__ = ["concat_part", "image_strides", "is_convolution", "readable_strides"]

PRODUCTS: Final = (Dot, QuantDot)
VECTOR: Final = 16  # bytes that a thread moves at once
ANY_ORDER: Final = (Pointwise, PointwiseGroup, FusedReduce, Concat)  # read images in any order


def readable_strides(e: GpuEmitter, shape: Shape, number: int | None = None, free: bool = False) -> list[int] | None:
    """Returns the strides in which no reader of the current instruction's result copies it; None to keep those of `shape`.

    Readers may be transposed; pointwise work, reductions and concatenations read any order.  Reshapes read row-major
    order, or an image with its channels innermost; batched products read matrices at one distance.  The innermost axis stays
    the same, except for images.
    number: of the result; None for the only one, or that of a member of a group.
    free: the kernel writes any order as fast: results of the program are row-major, and what convolutions read has the
    channels innermost.
    """
    if e.current is None or (number is None and isinstance(e.current.result, TupleShape)):
        return None
    readers = _readers(e.current, shape, number or 0)
    strict = [(reader, order) for reader, order in readers if not isinstance(op_of(reader), ANY_ORDER)]
    wanted = [_copied_strides(e, reader, order, shape, free) for reader, order in strict]
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
    return None if e.current is None else _part(e, e.current, shape, number)


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
        wanted = [_copied_strides(e, reader, axes, laid) for reader, axes in _readers(concat, laid, 0)]
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
        op = op_of(user)
        if isinstance(op, Transpose) and axes is not None:
            found += _reads(user, [axes[a] for a in op.order(len(axes))])
        elif isinstance(op, Unsqueeze) and axes is not None:
            rank, old = user.shape.rank, iter(axes)
            new = [normalize(a, rank) for a in op.axes]
            found += _reads(user, [None if a in new else next(old) for a in range(rank)])
        elif op.view is not None and not op.reshapes and not user.is_return:
            found += _reads(user, None)
        else:
            found.append(_Read(user, ins, None if axes is None else tuple(axes)))
    return found


def _results(ins: Instruction) -> dict[int, list[Instruction]]:
    """Returns the instructions that stand for each result of an instruction: itself, or the items of its tuple."""
    if not isinstance(ins.result, TupleShape):
        return {0: [ins]}
    found: dict[int, list[Instruction]] = {}
    for item in ins.users:
        op = op_of(item)
        if not isinstance(op, GetTupleElem):
            return {}
        found.setdefault(op.index, []).append(item)
    return found


def _readers(ins: Instruction, shape: Shape, number: int) -> list[tuple[Instruction, tuple[int, ...]]]:
    """Returns the readers of a result of an instruction, with the order in which they see its axes.

    None of a member of a group with another type, or of symbolic extents.
    """
    straight = tuple(range(shape.rank))
    found = []
    for result in _results(ins).get(number, []):
        if result.result != Shape(shape.dtype, shape.lens()):
            return []
        for user in result.users:
            op = op_of(user)
            if isinstance(op, Transpose) and user.users:
                found += [(reader, op.order(shape.rank)) for reader in user.users]
            else:
                found.append((user, straight))
    return found


def _copied_strides(
    e: GpuEmitter, reader: Instruction, order: Sequence[int], shape: Shape, free: bool = False
) -> list[int] | None:
    """Returns the strides that a reader of the axes in some order needs; None if it would not copy the value, or any would do."""
    op, lens, strides = op_of(reader), shape.lens(), shape.strides()
    if reader.is_return:
        return packed_strides(lens, order) if free else None
    seen = Shape(shape.dtype, [lens[a] for a in order], [strides[a] for a in order])
    if _reads_channels_last(e, reader, seen):
        found = packed_strides(lens, [order[0], *order[2:], order[1]])
        return found if found != strides and free else None
    if op.reshapes and op.view is not None and len(reader.inputs) == 1:  # others have extents of run time
        copied = op.view(seen) is None
        turned = copied or (free and _is_read_channels_last(e, reader))
        image = image_strides(e, reader, seen) if turned else None
        if image is not None:
            found = [image[list(order).index(a)] for a in range(shape.rank)]
            return None if found == strides else found
        if not copied:
            return None
        found = packed_strides(lens, order)
    # libraries step through a batch by one stride
    elif _is_product(op) and uniform_step(seen.lens()[:-2], seen.strides()[:-2]) is None:
        found = packed_strides(lens, [*order[:-2], *sorted(order[-2:], key=lambda a: -strides[a])])
    else:
        return None
    return found if _same_inside(lens, strides, found) else None


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
    return isinstance(reader, ANY_ORDER) or (isinstance(reader, Group) and reader.tag == CONCAT)
