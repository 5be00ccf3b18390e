"""Fake quantization, and quantization to integers and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.converting.arithmetic import fake_quantized
from mgx_core.ops.reduce import ReduceMax, ReduceMin

from ..converter import converts
from ..node import Node

__all__: list[str] = []


@converts("FakeQuantWithMinMaxArgs")
def fake_quant_args(n: Node, x: Instruction) -> Instruction:
    low, high = (np.asarray(n.float(w, v), np.float32) for w, v in (("min", -6.0), ("max", 6.0)))
    return _fake_quant(n, x, low, high)


@converts("FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel")
def fake_quant(n: Node, x: Instruction, low: Instruction, high: Instruction) -> Instruction:
    return _fake_quant(n, x, n.require(low, "the range"), n.require(high, "the range"))


def _fake_quant(n: Node, x: Instruction, low: np.ndarray, high: np.ndarray) -> Instruction:
    low, high = np.asarray(low, np.float32), np.asarray(high, np.float32)
    return fake_quantized(n, x, low, high, n.int("num_bits", 8), n.flag("narrow_range"))


@converts("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4")
def round_trip(n: Node, x: Instruction, low: Instruction, high: Instruction) -> Instruction:
    return _round_trip(n, x, low, high, n.int("num_bits", 8))


@converts("QuantizeAndDequantizeV3")
def round_trip_v3(n: Node, x: Instruction, low: Instruction, high: Instruction, bits: Instruction) -> Instruction:
    return _round_trip(n, x, low, high, n.whole(bits, "the number of bits")[0])


def _round_trip(n: Node, x: Instruction, low: Instruction, high: Instruction, bits: int) -> Instruction:
    """Quantizes and dequantizes x with the scale of the larger side of zero."""
    if not 1 <= bits < 63:
        n.fail(f"the number of bits must lie in 1..62, got {bits}")
    signed, given, axis = n.flag("signed_input", True), n.flag("range_given"), n.int("axis", -1)
    least = -(1 << (bits - 1)) + n.flag("narrow_range") if signed else 0
    most = (1 << (bits - 1 if signed else bits)) - 1
    dtype, rank = x.shape.dtype, x.shape.rank
    kept = [] if axis < 0 else [axis]
    if given:
        dims = [x.shape.dims[a] if a in kept else 1 for a in range(rank)]
        low, high = (n.reshape(v, dims) for v in (low, high))
    else:
        others = [a for a in range(rank) if a not in kept]
        low, high = n.along_axes(ReduceMin, x, others), n.along_axes(ReduceMax, x, others)
    one, none = n.literal(1, dtype), n.literal(dtype.highest, dtype)

    def steps(bound: int, edge: Instruction) -> Instruction:
        """Returns the scale that maps an edge to a bound; the largest number if the edge is zero or on the other side of zero."""
        over = n.literal(bound, dtype)
        reaches = n.pointwise("greater", n.pointwise("mul", over, edge), n.literal(0, dtype))
        return n.pointwise("where", reaches, n.pointwise("div", over, n.pointwise("where", reaches, edge, one)), none)

    below, above = steps(least, low), steps(most, high)
    by_low = n.pointwise("less", below, above)
    scale = n.pointwise("where", by_low, below, above)
    edge = n.pointwise("where", by_low, low, high)
    bound = n.pointwise("where", by_low, n.literal(least, dtype), n.literal(most, dtype))
    nothing = n.pointwise("equal", bound, n.literal(0, dtype))
    step = n.pointwise("div", edge, n.pointwise("where", nothing, one, bound))
    if given:
        least_value = n.pointwise("where", by_low, low, n.pointwise("mul", n.literal(least, dtype), step))
        most_value = n.pointwise("where", by_low, n.pointwise("mul", n.literal(most, dtype), step), high)
        x = n.pointwise("max", n.pointwise("min", x, most_value), least_value)
    places = n.pointwise("mul", x, scale)
    if n.string("round_mode", "HALF_TO_EVEN") == "HALF_UP":
        places = n.pointwise("floor", n.pointwise("add", places, n.literal(0.5, dtype)))
    else:
        places = n.pointwise("nearbyint", places)
    if not given:
        places = n.pointwise("min", places, n.literal(most, dtype))
    return n.pointwise("mul", places, step)


def _combined(n: Node, kind: Any) -> tuple[float, float]:
    """Returns the number of steps of an integer type and the offset of its zero; only mode `MIN_COMBINED` is supported."""
    mode = n.string("mode", "MIN_COMBINED")
    if mode != "MIN_COMBINED" or n.int("axis", -1) != -1:
        n.unsupported(f"quantization in mode {mode} or along an axis")
    span = float(kind.highest) - float(kind.lowest)
    return span, (span + 1) / 2 if kind.is_signed else 0.0


@converts("QuantizeV2")
def quantize(n: Node, x: Instruction, low: Instruction, high: Instruction) -> Any:
    kind = n.dtype("T")
    span, middle = _combined(n, kind)
    a, b = (float(n.require(v, "the range").reshape(())) for v in (low, high))
    room = max(1.0, abs(a), abs(b)) * n.float("ensure_minimum_range", 0.01)
    first = np.float32(min(0.0, a))
    last = np.float32(max(0.0, b, float(first) + room))
    scale = np.float32(span / (float(last) - float(first)))
    inside = n.pointwise("clip", x, n.literal(first), n.literal(last))
    places = n.pointwise("mul", n.pointwise("sub", inside, n.literal(first)), n.literal(scale))
    places = n.pointwise("sub", places, n.literal(np.float32(middle)))
    if n.string("round_mode", "HALF_AWAY_FROM_ZERO") == "HALF_TO_EVEN":
        rounded = n.pointwise("nearbyint", places)
    else:
        away = n.pointwise("floor", n.pointwise("add", n.pointwise("abs", places), n.literal(np.float32(0.5))))
        rounded = n.pointwise("mul", n.pointwise("sign", places), away)
    return n.convert(rounded, kind), n.literal(first), n.literal(last)


@converts("Dequantize")
def dequantize(n: Node, x: Instruction, low: Instruction, high: Instruction) -> Instruction:
    span, middle = _combined(n, x.shape.dtype)
    first, last = (np.float32(n.require(v, "the range").reshape(())) for v in (low, high))
    scale = np.float32((last - first) / np.float32(span))
    places = n.pointwise("add", n.convert(x, dt.float32), n.literal(np.float32(middle)))
    made = n.pointwise("add", n.pointwise("mul", places, n.literal(scale)), n.literal(first))
    return n.convert(made, n.dtype("dtype", dt.float32))
