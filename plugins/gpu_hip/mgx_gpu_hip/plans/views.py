"""Views: aliases of memory under another shape, or a copy where the strides do not allow it; and tuple elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mgx_core import Kernels, Module, No, Shape
from mgx_core.ops.concat import Concat
from mgx_core.ops.control import FusedReduce, GetTupleElem, Group, PointwiseGroup
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.fill import Fill
from mgx_core.ops.movement import Layout
from mgx_core.ops.reshape import Flatten, Reshape, ReshapeLazy
from mgx_core.ops.slice import Slice
from mgx_core.targets.kernel import op_of
from mgx_core.targets.kernel_emission import Results, emit_view
from mgx_core.targets.values import Value, channels_last, packed_strides
from mgx_core.targets.view_steps import VIEWS, emit_item

from ..codegen import movement
from ..codegen.generators import static
from ..codegen.geometry import memory_order
from ..emitter import GpuEmitter
from ..join_concats import CONCAT
from .offer import generated, is_convolution, offer

__all__ = ["PLANS"]

PLANS = Kernels("gpu")


RESHAPES: Final = (Reshape, ReshapeLazy, Flatten)
ANY_ORDER: Final = (Pointwise, PointwiseGroup, FusedReduce, Concat)  # read images in any order


@offer(PLANS, *RESHAPES, name="view")
def emit_reshape(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results | No:
    """Returns a view, if necessary of a copy: in the memory order of the axes if that suffices, otherwise in row-major order.

    Broadcast operands (keys of grouped heads) are copied in memory order too: the copy kernel then accesses adjacent elements,
    and the consumers find contiguous rows.  Images are copied to channels last if only convolutions read them, or if only
    convolutions, pointwise work, reductions and concatenations do and the channels are innermost already.
    """
    x = args[0]
    if isinstance(x, Value) and len(args) == 1 and e.view_of(op, x) is None:
        image = _image(e, op, x)
        if image is not None:
            return image
        order = _order(x.strides, x.lens)
        strides = packed_strides(x.lens, order)
        if order != sorted(order) and op.view(Shape(x.shape.dtype, x.lens, strides)) is not None:
            seen = e.view_of(op, e.copy(x, strides))
            if seen is not None:
                return seen
    return emit_view(e, op, modules, args)


def _image(e: GpuEmitter, op: Any, x: Value) -> Value | None:
    """Returns a copy of x whose reshape is an image in channels-last order; None if its readers would not profit."""
    if e.current is None or not e.current.users or op_of(e.current) is not op:
        return None
    if not x.shape.elements() or not all(type(n) is int for n in x.lens):  # comparisons restrict symbols
        return None
    readers = [op_of(u) for u in e.current.users]
    images = all(map(is_convolution, readers))
    if not images and not all(is_convolution(r) or _in_any_order(r) for r in readers):
        return None
    e.uncacheable()  # depends on the readers
    shape = e.current.result
    if not isinstance(shape, Shape) or shape.dynamic() or shape.rank < 4:
        return None
    laid = Shape(shape.dtype, shape.lens(), channels_last(shape.lens()))
    back = Reshape(dims=tuple(x.lens)).view(laid)
    if back is None:
        return None
    strides = back[1].strides()
    if not images and not any(p == q == 1 < n for n, p, q in zip(x.lens, x.strides, strides, strict=True)):
        return None
    copied = e.allocate_as(back[1])
    e.copy_into(x, copied)
    return e.view_of(op, copied)


def _in_any_order(reader: Any) -> bool:
    return isinstance(reader, ANY_ORDER) or (isinstance(reader, Group) and reader.tag == CONCAT)


def _order(strides: Sequence[int], lens: Sequence[int]) -> list[int]:
    """Returns axes by decreasing stride; a broadcast axis follows the axis before it, with which it may be merged."""
    kept = [a for a in range(len(lens)) if strides[a] or lens[a] == 1]
    order = [kept[a] for a in memory_order([strides[a] for a in kept], [lens[a] for a in kept])]
    for axis in range(len(lens)):
        if axis not in kept:
            order.insert(order.index(axis - 1) + 1 if axis else 0, axis)
    return order


offer(PLANS, *(op for op in VIEWS if op not in RESHAPES), name="view")(emit_view)
generated(PLANS, movement.window, *(op for op in VIEWS if op is not Slice))
generated(PLANS, static(1, movement.slices), Slice)
generated(PLANS, movement.window, Layout, Fill)


offer(PLANS, GetTupleElem, name="item")(emit_item)
