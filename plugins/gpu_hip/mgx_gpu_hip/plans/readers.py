"""The layouts in which the readers of a result need no copy of it."""

from __future__ import annotations

from typing import Any, Final

from mgx_core import Instruction, Operation, Shape
from mgx_core.ops.concat import Concat
from mgx_core.ops.control import FusedReduce, Group, PointwiseGroup
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


def readable_strides(e: GpuEmitter, shape: Shape) -> list[int] | None:
    """Returns the strides in which no reader of the current instruction copies its result; None to keep those of `shape`.

    Reshapes read it in row-major order, or as an image with its channels innermost; batched products read matrices at one
    distance.  The innermost axis stays the same, except for images.
    """
    if e.current is None or not e.current.users or e.current.result != Shape(shape.dtype, shape.lens()):
        return None  # a member of a group, or symbolic
    lens, strides, readers = shape.lens(), shape.strides(), e.current.users
    rank = len(lens)
    found: list[int] | None = None
    if all(op.reshapes and op.view is not None and op.view(shape) is None for op in map(op_of, readers)):
        e.uncacheable()  # depends on the readers
        found = image_strides(e, readers[0], shape) if len(readers) == 1 else None
        if found is not None:
            return found
        found = packed_strides(lens, range(rank))
    # libraries step through a batch by one stride
    elif uniform_step(lens[:-2], strides[:-2]) is None and all(map(_is_multiplied, readers)):
        e.uncacheable()
        matrix = sorted((rank - 2, rank - 1), key=lambda a: -strides[a])
        found = packed_strides(lens, [*range(rank - 2), *matrix])
    if found is None or not any(p == q == 1 < n for n, p, q in zip(lens, strides, found, strict=True)):
        return None
    return found


def _is_multiplied(reader: Instruction) -> bool:
    """Returns True if an instruction is a product, or only products read its transposed matrices."""
    op = op_of(reader)
    if isinstance(op, Transpose) and reader.users:
        rank = reader.shape.rank
        turned = op.order(rank) == (*range(rank - 2), rank - 1, rank - 2)
        return turned and all(_is_product(op_of(u)) for u in reader.users)
    return _is_product(op)


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
