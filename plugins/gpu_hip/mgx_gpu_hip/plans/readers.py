"""The layouts in which the readers of a result need no copy of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mgx_core import Instruction, Operation, Shape, TupleShape
from mgx_core.ops.concat import Concat
from mgx_core.ops.control import FusedReduce, GetTupleElem, Group, PointwiseGroup
from mgx_core.ops.convolution import Convolution
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.linear import Dot
from mgx_core.ops.movement import Transpose
from mgx_core.ops.quantized_product import QuantDot
from mgx_core.ops.reshape import Reshape
from mgx_core.targets.kernel import op_of
from mgx_core.targets.values import channels_last, packed_strides

from ..codegen.geometry import uniform_step
from ..emitter import GpuEmitter
from ..join_concats import CONCAT

__all__ = ["image_strides", "is_convolution", "readable_strides"]

PRODUCTS: Final = (Dot, QuantDot)
ANY_ORDER: Final = (Pointwise, PointwiseGroup, FusedReduce, Concat)  # read images in any order


def readable_strides(e: GpuEmitter, shape: Shape, number: int = 0) -> list[int] | None:
    """Returns the strides in which no reader of the current instruction's result copies it; None to keep those of `shape`.

    Readers may be transposed.  Reshapes read row-major order, or an image with its channels innermost; batched products read
    matrices at one distance; results of the program that pointwise work computes are row-major.  The innermost axis stays the
    same, except for images and results.  number: of the result, if there are several.
    """
    wanted = [_copied_strides(e, reader, order, shape) for reader, order in _readers(e, shape, number)]
    strides = wanted[0] if wanted else None
    if strides is None or any(w != strides for w in wanted):
        return None
    e.uncacheable()  # depends on the readers
    return strides


def _readers(e: GpuEmitter, shape: Shape, number: int) -> list[tuple[Instruction, tuple[int, ...]]]:
    """Returns the readers of a result of the current instruction, with the order in which they see its axes.

    None of a member of a group, or of symbolic extents.
    """
    if e.current is None:
        return []
    result, users = e.current.result, list(e.current.users)
    if isinstance(result, TupleShape):
        result = result.items[number]
        items, users = users, []
        for item in items:
            op = op_of(item)
            if not isinstance(op, GetTupleElem):
                users.append(item)
            elif op.index == number:
                users += item.users
    if result != Shape(shape.dtype, shape.lens()):
        return []
    straight = tuple(range(shape.rank))
    found = []
    for user in users:
        op = op_of(user)
        if isinstance(op, Transpose) and user.users:
            found += [(reader, op.order(shape.rank)) for reader in user.users]
        else:
            found.append((user, straight))
    return found


def _copied_strides(e: GpuEmitter, reader: Instruction, order: Sequence[int], shape: Shape) -> list[int] | None:
    """Returns the strides that a reader of the axes in some order needs; None if it would not copy the value, or any would do."""
    op, lens, strides = op_of(reader), shape.lens(), shape.strides()
    if reader.is_return:
        return packed_strides(lens, order) if _is_pointwise(e.current) else None
    seen = Shape(shape.dtype, [lens[a] for a in order], [strides[a] for a in order])
    if op.reshapes and op.view is not None and op.view(seen) is None:
        image = image_strides(e, reader, seen)
        if image is not None:
            return [image[list(order).index(a)] for a in range(shape.rank)]
        found = packed_strides(lens, order)
    # libraries step through a batch by one stride
    elif _is_product(op) and uniform_step(seen.lens()[:-2], seen.strides()[:-2]) is None:
        found = packed_strides(lens, [*order[:-2], *sorted(order[-2:], key=lambda a: -strides[a])])
    else:
        return None
    return found if any(p == q == 1 < n for n, p, q in zip(lens, strides, found, strict=True)) else None


def _is_pointwise(ins: Instruction | None) -> bool:
    """Returns True for pointwise work, alone or at the end of a group."""
    if ins is None:
        return False
    ops = [o.op for o in ins.modules[0].outputs] if isinstance(op_of(ins), Group) else [op_of(ins)]
    return all(isinstance(op, (Pointwise, PointwiseGroup)) for op in ops)


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
    if not images and not any(p == q == 1 < n for n, p, q in zip(lens, x.strides(), strides, strict=True)):
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
