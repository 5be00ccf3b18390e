"""Depthwise int8 convolutions with constant weights, on processors with VNNI."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mgx_core import Kernels, Module, No, Shape
from mgx_core.errors import Refused
from mgx_core.ops.quantized_product import QuantConvolution
from mgx_core.targets.values import Value
from mgx_core.types.argument import Array
from mgx_core.types.shape import AnyShape

from ..emitter import CpuEmitter
from ..int8_depthwise import has_avx512_vnni, is_depthwise
from ..layout import as_channels_last
from .byte_pairs import moves_of, windows_of
from .byte_products import offer_bytes, with_epilogue
from .integer_epilogues import BYTES
from .packed_products import EmitFused

__all__ = ["PLANS"]

if TYPE_CHECKING:
    from ..jit.byte_channels import Fours
    from ..jit.gemm_epilogue import Product
    from ..jit.kernel import JitKernel

PLANS = Kernels("cpu")

FOUR: Final = 4  # taps per dot-product instruction


def fits(op: Any, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    x, w = inputs[:2]
    if not isinstance(x, Shape) or not isinstance(w, Shape) or not {x.dtype, w.dtype} <= BYTES:
        return No(f"8-bit operands are required, got {x} and {w}")
    if not isinstance(op, QuantConvolution):
        return No("the op is not a convolution")
    if not is_depthwise(op, w):
        return No(f"a depthwise convolution is required, got {op.group} groups and weights {w}")
    return None


def prepare(e: CpuEmitter, op: Any, operands: Sequence[Value | None]) -> EmitFused:
    """Returns the function that emits a convolution with a pointwise body.  Errors: Refused."""
    from ..jit.byte_channels import compile_fours

    x, w, x_zero, w_zero = (*operands, None, None)[:4]
    assert x is not None and w is not None
    if not has_avx512_vnni() or not e.engine.wide:
        raise Refused("the processor has no AVX-512 VNNI")
    lens = op.infer(Shape(x.shape.dtype, x.lens), Shape(w.shape.dtype, w.lens)).lens()
    weights, points = _constant_weights(e, w, w_zero)
    if 0 in lens:
        raise Refused("an extent is 0")
    zero = e.literal(np.zeros(1, x.shape.dtype.numpy)) if x_zero is None else x_zero
    if prod(zero.lens) != 1 or zero.shape.dtype is not x.shape.dtype:
        raise Refused(f"a scalar zero point of type {x.shape.dtype} is required, got {zero.shape}")
    moves = moves_of(op, x, w)
    x = as_channels_last(e, x)
    if x.strides[1] != 1:
        raise Refused("the channels are not contiguous")
    windows = windows_of(x, w, lens, moves, w.lens[0])
    step = moves.stride[-2] if len(moves.stride) == 2 and moves.dilation[-2] == 1 else 0
    packed, totals, fours = pack_taps(e, weights, points, step)
    rows = Shape(x.shape.dtype, [prod(lens) // lens[1], w.lens[0]])

    def compiled(made: Product) -> JitKernel | No:
        return compile_fours(made, e.engine, windows, fours, e.fast_math)

    about = "fours", windows, fours
    return with_epilogue(e, rows, [x, packed, totals, zero], lens, 1, about, compiled, "conv fours")


def _constant_weights(e: CpuEmitter, w: Value, zero: Value | None) -> tuple[Array, Array | None]:
    """Returns constant weights and their zero points (None, one, or one per channel).  Errors: Refused if not constant."""
    weights, points = e.constant(w), None
    if weights is None:
        raise Refused("the weights are not constant")
    if zero is not None:
        points = e.constant(zero)
        if points is None or points.size not in (1, w.lens[0]):
            raise Refused("the weights' zero points must be constant, one or one per channel")
    return weights, points


def pack_taps(e: CpuEmitter, array: Array, points: Array | None, step: int) -> tuple[Value, Value, Fours]:
    """Packs weights minus zero points for `byte_channels.h`; returns them, their sums per channel, and how taps are grouped.

    step: vertical stride in rows of the input; 0 if windows are dilated vertically or not two-dimensional.
    """
    from ..jit.byte_channels import Fours

    channels, _, *window = array.shape
    lines, across = prod(window[:-1]), window[-1]
    tall, sides = -(-lines // FOUR), -(-across // FOUR)
    upright = tall * across <= lines * sides and lines > 1
    shared = (FOUR * tall - lines) // step + 1 if upright and step else 1

    def pack() -> list[Array]:
        wide = array.astype(np.int32).reshape(channels, lines, across)
        if points is not None:
            wide = wide - points.astype(np.int32).reshape(-1, 1, 1)
        parts = [np.clip(wide, -128, 127)]
        while (rest := wide - sum(parts)).any():
            parts.append(np.clip(rest, -128, 127))
        height, width = (FOUR * tall, across) if upright else (lines, FOUR * sides)
        whole = np.zeros((shared, len(parts), channels, height, width), np.int8)
        for line in range(shared):
            whole[line, :, :, line * step : line * step + lines, :across] = parts
        if upright:
            made = whole.reshape(*whole.shape[:3], tall, FOUR, across).transpose(0, 1, 3, 5, 2, 4)
        else:
            made = whole.reshape(*whole.shape[:3], lines, sides, FOUR).transpose(0, 1, 3, 4, 2, 5)
        return [np.ascontiguousarray(made), wide.sum((1, 2), dtype=np.int32)]

    packed, totals = e.derived_literals([array, points], ("fours of channels", shared, step), pack)
    _, passes, groups, taps, _, _ = packed.lens
    return packed, totals, Fours(upright, groups, taps, passes, shared)


offer_bytes(PLANS, "fours", fits, prepare)
