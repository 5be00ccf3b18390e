"""Convolutions whose weights exceed the L2 cache, as matrix products of windows (im2col) and weights.

oneDNN reads all weights of a panel of outputs for every image row.  If they exceed the L2 cache, they are fetched from farther
away each time; a matrix product blocked along the depth reads them once for many pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from mgx_core import Kernels, Module, No, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.control import Group
from mgx_core.ops.convolution import Convolution
from mgx_core.ops.window import Moves
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value, channels_last
from mgx_core.types.argument import Array
from mgx_core.types.traced_int import usual

from ..emitter import CpuEmitter, is_traced
from ..layout import as_channels_last
from ..native_library import native
from ..packing import Derived
from .anchors import float32_only, floats_around
from .convolution import padded_image
from .offer import offer
from .packed_products import EmitFused, Panels, group_of_product, product_with_panels

__all__ = ["PLANS", "copied_windows"]

PLANS = Kernels("cpu")
PANEL: Final = 32  # outputs computed together by oneDNN


@float32_only
def fits(op: Any, x: Shape, w: Shape) -> No | None:
    if op.group != 1 or x.dynamic() or w.dynamic():
        return No(f"one group and static extents are required, got {op.group} groups, {x} and {w}")
    if prod(w.lens()[2:]) == 1:
        return No("the window has one element")
    if not is_traced(x) and not _exceeds_cache(w.lens()):
        return No(f"the weights {w.lens()[1:]} of {PANEL} outputs fit in the L2 cache")
    return None


def _exceeds_cache(weights: Sequence[int]) -> bool:
    """Returns True if the weights of a panel, of [o, c, ..], exceed half the L2 cache, which inputs also occupy."""
    size: int = native().cache_sizes().get("l2", 0)
    return 4 * PANEL * prod(weights[1:]) > size // 2


@offer(PLANS, Convolution, when=fits, name="windows")
def emit_convolution(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    x, w = args
    weights, rows = _matrices(e, op, x, w)
    lens = [x.lens[0], w.lens[0], *rows.lens[1:-1]]
    (found,) = product_with_panels(e, rows, weights, None, 0, (), -1)
    return found.view_at(0, Shape(found.shape.dtype, lens, channels_last(lens)))


@offer(PLANS, Group, when=floats_around(Convolution, fits), name="windows")
def emit_group(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    def prepared(e: CpuEmitter, op: Any, operands: Sequence[Value | None]) -> EmitFused:
        x, w = operands
        assert x is not None and w is not None
        weights, rows = _matrices(e, op, x, w)
        return lambda body, at, extra: product_with_panels(e, rows, weights, body, at, extra, 1)

    return group_of_product(e, modules[0], [a for a in args if a is not None], (Convolution,), prepared)


def _matrices(e: CpuEmitter, op: Any, x: Value, w: Value) -> tuple[Panels, Value]:
    """Returns the panels of weights and the copied windows, both without the taps that read only padding.  Errors: Refused."""
    window = w.lens[2:]
    moves = op.sliding(x.lens[2:], window)
    places = moves.counts(x.lens[2:], window)
    if usual(x.lens[0] * prod(places)) > w.lens[0]:
        raise Refused(f"copies of {prod(places)} windows of {x.lens[0]} images would exceed the weights")
    if min(*moves.begins, *moves.ends) < 0:
        raise Refused("negative padding is not supported")
    e.replaced |= is_traced(x.shape)
    found = None if is_traced(x.shape) else moves.meeting(x.lens[2:], window)
    if found is not None:
        moves, kept = found
        first = sum(a * s for (a, _), s in zip(kept, w.strides[2:], strict=True))
        lens = [*w.lens[:2], *(end - begin for begin, end in kept)]
        w = w.view_at(first, Shape(w.shape.dtype, lens, w.strides))
    return _pack(e, w), copied_windows(e, moves, x, w, places)


def copied_windows(e: CpuEmitter, moves: Moves, x: Value, w: Value, places: Sequence[int], filler: int = 0) -> Value:
    """Copies the windows of x [n, c, ..] at these places to [n, .., window * c]; filler: the value of the padding."""
    x = as_channels_last(e, x)
    if any((*moves.begins, *moves.ends)):
        x = padded_image(e, x, moves.begins, moves.ends, filler)
    first, _, *steps = x.strides
    onward = [a * b for a, b in zip(steps, moves.stride, strict=True)]
    within = [a * b for a, b in zip(steps, moves.dilation, strict=True)]
    seen = Shape(x.shape.dtype, [x.lens[0], *places, *w.lens[2:], x.lens[1]], [first, *onward, *within, 1])
    depth = prod(w.lens[1:])
    return e.row_major(x.view_at(0, seen)).view_at(0, Shape(x.shape.dtype, [x.lens[0], *places, depth]))


def _pack(e: CpuEmitter, w: Value) -> Panels:
    """Returns constant weights [o, c, ..] as panels of a matrix [window * c, o].  Errors: Refused."""
    from ..jit.gemm_plan import panel_width

    if not e.is_constant(w):
        raise Refused("the weights are not constant")
    width = panel_width(e.engine)
    full, rest = divmod(w.lens[0], width)
    if not full:
        raise Refused(f"{w.lens[0]} outputs do not fill a panel")

    def make() -> list[Value]:
        (by_result, *steps), depth = w.strides, [*w.lens[2:], w.lens[1]]
        wanted = [full, *depth, width]
        desc = native().MemoryDesc
        plain = desc(wanted, "f32", [width * by_result, *steps[1:], steps[0], by_result])
        panels = [e.packed(w, plain, desc(wanted, "f32", Shape(dt.float32, wanted).strides()))]
        if rest:

            def padded(array: Array) -> Derived:
                last = np.zeros((*depth, width), np.float32)
                last[..., :rest] = np.moveaxis(array[full * width :], (0, 1), (-1, -2))
                return Derived([array], last)

            panels.append(e.made_of(w, ("last panel of windows", width), padded))
        return panels

    return Panels(prod(w.lens[1:]), w.lens[0], dt.float32, make)
