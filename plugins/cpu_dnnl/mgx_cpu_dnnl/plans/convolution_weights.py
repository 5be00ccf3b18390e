"""Gradients of convolutions' weights through oneDNN: operands channels last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Kernels, Module
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.convolution import ConvolutionWeights
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value

from ..emitter import CpuEmitter
from ..layout import as_channels_last, descriptor
from ..native_library import native
from .convolution import as_image, with_group_axis
from .offer import offer, only
from .precision import narrowed, widened

__all__ = ["PLANS"]

PLANS = Kernels("cpu")


@offer(PLANS, ConvolutionWeights, when=only(frozenset({dt.float32, dt.bfloat16, dt.float16})), name="onednn")
def emit_gradient(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    """Emits the gradient of weights in the layout that oneDNN chooses, and a conversion of it.

    For narrow floats oneDNN has few implementations: groups are computed in float32, a single one as a convolution.
    """
    x, gradient = args
    narrow = x.shape.dtype
    if narrow is not dt.float32:
        if op.group == 1:
            raise Refused("a convolution by the gradient is computed in the narrow type")
        x, gradient = widened(e, x), widened(e, gradient)
    out = e.allocate(x.shape.dtype, op.infer(x.shape, gradient.shape).lens())
    if 0 in (*x.lens, *gradient.lens, *out.lens):
        raise Refused("an extent is 0")
    _native = native()
    strides, dilations, begin, end = op.sliding(len(op.lengths))
    x, gradient, weights = as_channels_last(e, x), as_channels_last(e, gradient), out
    if len(op.lengths) == 1:  # oneDNN has depthwise kernels only for images
        x, gradient, weights = as_image(x), as_image(gradient), as_image(out)
        strides, dilations, begin, end = (1, *strides), (1, *dilations), (0, *begin), (0, *end)
    weights = with_group_axis(weights, op.group)
    plain = descriptor(weights)
    made = e.made(
        "convolution_weights",
        descriptor(x),
        _native.MemoryDesc(list(plain.dims), plain.dtype, "any"),
        descriptor(gradient),
        strides=strides,
        dilations=dilations,
        padding_begin=begin,
        padding_end=end,
    )
    if made.single() is None:
        raise Refused("oneDNN has no implementation for one thread, which runs if other threads are busy")
    chosen = made.md(_native.ARG_DIFF_WEIGHTS)
    direct = chosen == plain
    target = weights if direct else e.allocate(dt.float32, [-(-chosen.nbytes // dt.float32.size)])
    bound = {_native.ARG_SRC: x, _native.ARG_DIFF_WEIGHTS: target, _native.ARG_DIFF_DST: gradient}
    flops = 2 * out.shape.elements() * (gradient.shape.elements() // gradient.lens[1])
    e.primitive(f"conv weights {made.impl}", made, bound, flops, {_native.ARG_DIFF_WEIGHTS})
    if not direct:
        e.primitive("reorder", _native.reorder(chosen, plain), {_native.ARG_SRC: target, _native.ARG_DST: weights})
    return out if narrow is dt.float32 else narrowed(e, out, narrow)
