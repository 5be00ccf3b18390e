"""Pooling through oneDNN, channels last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mgx_core import DeviceError, Kernels, Module, No, Operation, Shape, UnsupportedError
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.pooling import Pooling
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value, channels_last
from mgx_core.types.shape import AnyShape

from ..emitter import CpuEmitter
from ..layout import as_channels_last, descriptor
from .offer import FLOATS, offer

__all__ = ["PLANS"]

PLANS = Kernels("cpu")
BYTES: Final = frozenset({dt.int8, dt.uint8})


def supported(op: Operation, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    x = inputs[0]
    if not isinstance(x, Shape) or x.dtype not in FLOATS | BYTES:
        return No(f"pooling of {x}")
    if getattr(op, "mode", "") == "lpnorm":
        return No("oneDNN has no norm pooling")
    return None


@offer(PLANS, Pooling, when=supported, name="onednn")
def emit_pooling(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    from ..native_library import native

    _native = native()

    x = args[0]
    assert x is not None
    result = op.infer(Shape(x.shape.dtype, x.lens))
    lens, spatial = result.lens(), x.lens[2:]
    if 0 in lens:
        raise Refused("an extent is 0")
    x = as_channels_last(e, x)
    if op.dyn_global:
        lengths, strides, dilations = tuple(spatial), (1,) * len(spatial), (1,) * len(spatial)
        begin: Sequence[int] = (0,) * len(spatial)
        end: Sequence[int] = begin
        over: Sequence[int] = begin
    else:
        lengths, strides, dilations = op.numbers(len(spatial))
        begin, end, over = op.around(spatial, lens[2:])
    mode = "max"
    if op.mode == "average":
        mode = "average_with_padding" if op.count_include_pad else "average"
        if op.count_include_pad and any(over):
            raise Refused("windows that hang over the padding are averaged over other counts")
    out = e.allocate(x.shape.dtype, lens, channels_last(lens))
    ends = [a + b for a, b in zip(end, over, strict=True)]
    try:
        made = _native.pooling(
            descriptor(x),
            descriptor(out),
            mode=mode,
            kernel=lengths,
            strides=strides,
            dilations=dilations,
            padding_begin=begin,
            padding_end=ends,
        )
    except (UnsupportedError, DeviceError) as error:
        raise Refused(f"oneDNN: {error}") from None
    if made.is_reference:
        raise Refused("oneDNN has only its reference pooling")
    e.primitive(f"pool {made.impl}", made, {_native.ARG_SRC: x, _native.ARG_DST: out})
    return out
