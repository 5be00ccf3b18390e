"""Views: aliases of memory under another shape, or a copy where the strides do not allow it; and tuple elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mgx_core import Kernels, Module, No, Shape
from mgx_core.ops.control import GetTupleElem
from mgx_core.ops.fill import Fill
from mgx_core.ops.movement import Layout
from mgx_core.ops.reshape import Flatten, Reshape, ReshapeLazy
from mgx_core.ops.slice import Slice
from mgx_core.targets.kernel import op_of
from mgx_core.targets.kernel_emission import Results, emit_view
from mgx_core.targets.values import Value, packed_strides
from mgx_core.targets.view_steps import VIEWS, emit_item

from ..codegen import movement
from ..codegen.generators import static
from ..codegen.geometry import memory_order
from ..emitter import GpuEmitter
from .offer import generated, offer
from .readers import image_strides

__all__ = ["PLANS"]

PLANS = Kernels("gpu")


RESHAPES: Final = (Reshape, ReshapeLazy, Flatten)


@offer(PLANS, *RESHAPES, name="view")
def emit_reshape(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results | No:
    """Returns a view, if necessary of a copy: in the memory order of the axes if that suffices, otherwise in row-major order.

    Broadcast operands (keys of grouped heads) are copied in memory order too: the copy kernel then accesses adjacent elements,
    and the consumers find contiguous rows.  Images are copied to channels last if their readers profit.
    """
    x = args[0]
    if isinstance(x, Value) and len(args) == 1 and e.view_of(op, x) is None:
        reshape = e.current if e.current is not None and op_of(e.current) is op else None
        image = None if reshape is None else image_strides(e, reshape, x.shape)
        seen = None if image is None else e.view_of(op, e.copy(x, image))
        if seen is not None:
            return seen
        order = _order(x.strides, x.lens)
        strides = packed_strides(x.lens, order)
        if order != sorted(order) and op.view(Shape(x.shape.dtype, x.lens, strides)) is not None:
            seen = e.view_of(op, e.copy(x, strides))
            if seen is not None:
                return seen
    return emit_view(e, op, modules, args)


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
