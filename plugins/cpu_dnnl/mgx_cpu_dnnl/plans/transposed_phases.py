"""Transposed convolutions of traced extents: a convolution for each place within the strides, and a pixel shuffle."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from mgx_core import Shape
from mgx_core.errors import Refused
from mgx_core.ops.convolution import Convolution
from mgx_core.rules.transposed_convolutions import phase_axis, phase_kernels
from mgx_core.targets.values import Value, channels_last
from mgx_core.types.traced_int import TracedInt

from ..emitter import CpuEmitter
from .native_loops import emit_op

__all__ = ["transposed_by_phases"]


def transposed_by_phases(e: CpuEmitter, op: Any, x: Value, w: Value, lens: Sequence[int]) -> Value:
    """Emits the transposed convolution of x [n, c, ..] with constant w [c, o / group, ..]; lens: of the result.

    Errors: Refused if the weights are not constant, or windows would be filled up with zeros without `fast_math`.
    """
    weights, window = e.constant(w), w.lens[2:]
    if weights is None:
        raise Refused("constant weights are required")
    strides, dilations, begins, _, _ = op.plan(len(window), window)
    axes = []
    for n, out, *numbers in zip(x.lens[2:], lens[2:], window, strides, dilations, begins, strict=True):
        axis = phase_axis(n, out, 1, *numbers)
        if axis is None or type(axis.padding) is TracedInt:
            raise Refused("the extents of the result do not follow from those of x")
        axes.append(axis)
    if prod(a.taps * a.stride for a in axes) > prod(window) and not e.fast_math:
        raise Refused("zeros would fill up windows and turn infinities into NaN, which requires fast_math")
    steps, padding = [a.stride for a in axes], tuple(a.padding for a in axes)
    key = ("phases", op.group, *((a.taps, a.stride) for a in axes), *dilations)
    [kernels] = e.derived_literals([weights], key, lambda: [phase_kernels(weights, op.group, axes, dilations)])
    made = emit_op(e, Convolution(padding=(*padding, *padding), group=op.group), x, kernels)
    whole = made
    if prod(steps) > 1:
        full = [*lens[:2], *(n * s for n, s in zip(made.lens[2:], steps, strict=True))]
        whole = e.allocate(made.shape.dtype, full, channels_last(full))
        _shuffle(e, op.group, steps, made, whole)
    start = sum(a.begin * s for a, s in zip(axes, whole.strides[2:], strict=True))
    return whole.view_at(start, Shape(whole.shape.dtype, lens, whole.strides))


def _shuffle(e: CpuEmitter, group: int, steps: Sequence[int], made: Value, out: Value) -> None:
    """Emits copies of channels [n, group * steps * o, ..] to their places within the steps of an image [n, group * o, ..]."""
    per, image = out.lens[1] // group, made.lens[2:]
    lens = [made.lens[0], group, *steps, per, *image]
    inner = made.strides[1] * per
    places = [inner * prod(steps[n + 1 :]) for n in range(len(steps))]
    first = [made.strides[0], inner * prod(steps), *places, made.strides[1], *made.strides[2:]]
    onward = [s * step for s, step in zip(out.strides[2:], steps, strict=True)]
    last = [out.strides[0], out.strides[1] * per, *out.strides[2:], out.strides[1], *onward]
    dtype = out.shape.dtype
    e.copy_into(made.view_at(0, Shape(dtype, lens, first)), out.view_at(0, Shape(dtype, lens, last)))
