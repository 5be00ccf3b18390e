"""Rules on quantized tensors: module text before and after, equal results, and reasons for refusals."""

from __future__ import annotations

import pytest

from mgx_core.ir.text.parser import parse_module
from mgx_core.ops import STANDARD
from mgx_core.rules.engine import Rewriter
from mgx_core.rules.quantization import QUANTIZATION

TURNS = [
    (
        "move-narrow-values",
        """\
  %q = @param["q"] -> int8[1, 2, 3, 3]
  %s = @literal(0.1) -> float32[]
  %1 = dequantizelinear(%q, %s)
  %2 = resize[scales=[1.0, 1.0, 2.0, 2.0], mode="nearest"](%1)
  @return(%2)""",
        """\
  %q = @param["q"] -> int8[1, 2, 3, 3]
  %1 = @literal(0.1) -> float32[]
  %2 = resize[scales=[1.0, 1.0, 2.0, 2.0], sizes=[], nearest_mode="floor", mode="nearest", coordinate_transformation_mode="half_pixel", \
cubic_coeff_a=-0.75, exclude_outside=false, extrapolation_value=0.0, antialias=false, roi=[], axes=[], \
keep_aspect_ratio_policy="stretch"](%q) -> int8[1, 2, 6, 6]
  %3 = dequantizelinear[axis=1, block_size=0, out_type=none](%2, %1) -> float32[1, 2, 6, 6]
  @return(%3)""",
    ),
    (
        "quantize-before-movement",
        """\
  %x = @param["x"] -> float32[1, 2, 3, 3]
  %s = @literal(0.1) -> float32[]
  %z = @literal(3) -> int8[]
  %1 = resize[scales=[1.0, 1.0, 2.0, 2.0], mode="nearest"](%x)
  %2 = quantizelinear(%1, %s, %z)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[1, 2, 3, 3]
  %1 = @literal(0.1) -> float32[]
  %2 = @literal(3) -> int8[]
  %3 = quantizelinear[axis=1, block_size=0, out_type=none, saturate=true, precision=none](%x, %1, %2) -> int8[1, 2, 3, 3]
  %4 = resize[scales=[1.0, 1.0, 2.0, 2.0], sizes=[], nearest_mode="floor", mode="nearest", coordinate_transformation_mode="half_pixel", \
cubic_coeff_a=-0.75, exclude_outside=false, extrapolation_value=0.0, antialias=false, roi=[], axes=[], \
keep_aspect_ratio_policy="stretch"](%3) -> int8[1, 2, 6, 6]
  @return(%4)""",
    ),
    (
        "move-narrow-values",
        """\
  %q = @param["q"] -> int8[4, 3]
  %s = @literal(0.1, 0.2, 0.3) -> float32[3]
  %1 = dequantizelinear[axis=1](%q, %s)
  %2 = multibroadcast[out_lens=[2, 4, 3]](%1)
  @return(%2)""",
        """\
  %q = @param["q"] -> int8[4, 3]
  %1 = @literal(0.1, 0.2, 0.3) -> float32[3]
  %2 = multibroadcast[out_lens=[2, 4, 3]](%q) -> int8[2, 4, 3]
  %3 = dequantizelinear[axis=2, block_size=0, out_type=none](%2, %1) -> float32[2, 4, 3]
  @return(%3)""",
    ),
    (
        "drop-bounds-before-quantization",
        """\
  %x = @param["x"] -> float32[4, 5]
  %s = @literal(0.05) -> float32[]
  %z = @literal(0) -> uint8[]
  %1 = relu(%x)
  %2 = quantizelinear(%1, %s, %z)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[4, 5]
  %1 = @literal(0.05) -> float32[]
  %2 = @literal(0) -> uint8[]
  %3 = quantizelinear[axis=1, block_size=0, out_type=none, saturate=true, precision=none](%x, %1, %2) -> uint8[4, 5]
  @return(%3)""",
    ),
    (
        "move-narrow-values",
        """\
  %q = @param["q"] -> int8[4, 6]
  %s = @literal(0.1, 0.2, 0.3, 0.4) -> float32[4]
  %1 = dequantizelinear[axis=0](%q, %s)
  %2 = transpose[permutation=[1, 0]](%1)
  @return(%2)""",
        """\
  %q = @param["q"] -> int8[4, 6]
  %1 = @literal(0.1, 0.2, 0.3, 0.4) -> float32[4]
  %2 = transpose[permutation=[1, 0]](%q) -> int8[6, 4]
  %3 = dequantizelinear[axis=1, block_size=0, out_type=none](%2, %1) -> float32[6, 4]
  @return(%3)""",
    ),
    (
        "quantize-before-concat",
        """\
  %p = @param["p"] -> float32[4, 2]
  %q = @param["q"] -> float32[4, 3]
  %s = @literal(0.05) -> float32[]
  %z = @literal(3) -> int8[]
  %1 = concat[axis=1](%p, %q)
  %2 = quantizelinear(%1, %s, %z)
  @return(%2)""",
        """\
  %p = @param["p"] -> float32[4, 2]
  %q = @param["q"] -> float32[4, 3]
  %1 = @literal(0.05) -> float32[]
  %2 = @literal(3) -> int8[]
  %3 = quantizelinear[axis=1, block_size=0, out_type=none, saturate=true, precision=none](%p, %1, %2) -> int8[4, 2]
  %4 = quantizelinear[axis=1, block_size=0, out_type=none, saturate=true, precision=none](%q, %1, %2) -> int8[4, 3]
  %5 = concat[axis=1](%3, %4) -> int8[4, 5]
  @return(%5)""",
    ),
    (
        "quantize-before-movement",
        """\
  %x = @param["x"] -> float32[4, 6]
  %s = @literal(0.05) -> float32[]
  %z = @literal(3) -> int8[]
  %1 = transpose[permutation=[1, 0]](%x)
  %2 = quantizelinear(%1, %s, %z)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[4, 6]
  %1 = @literal(0.05) -> float32[]
  %2 = @literal(3) -> int8[]
  %3 = quantizelinear[axis=1, block_size=0, out_type=none, saturate=true, precision=none](%x, %1, %2) -> int8[4, 6]
  %4 = transpose[permutation=[1, 0]](%3) -> int8[6, 4]
  @return(%4)""",
    ),
    (
        "quantize-before-pooling",
        """\
  %x = @param["x"] -> float32[1, 2, 4, 4]
  %s = @literal(0.05) -> float32[]
  %z = @literal(3) -> int8[]
  %1 = pooling[mode="max", lengths=[2, 2], stride=[2, 2]](%x)
  %2 = quantizelinear(%1, %s, %z)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[1, 2, 4, 4]
  %1 = @literal(0.05) -> float32[]
  %2 = @literal(3) -> int8[]
  %3 = quantizelinear[axis=1, block_size=0, out_type=none, saturate=true, precision=none](%x, %1, %2) -> int8[1, 2, 4, 4]
  %4 = pooling[mode="max", padding=[], padding_mode="default", stride=[2, 2], lengths=[2, 2], dilations=[], ceil_mode=false, count_include_pad=false, lp_order=2, dyn_global=false](%3) -> int8[1, 2, 2, 2]
  @return(%4)""",
    ),
    (
        "quantize-before-pooling",
        """\
  %x = @param["x"] -> float32[1, 2, 4, 4]
  %s = @literal(0.05) -> float32[]
  %1 = pooling[mode="max", lengths=[2, 2], stride=[2, 2]](%x)
  %2 = quantizelinear[out_type=float8_e4m3fn](%1, %s)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[1, 2, 4, 4]
  %1 = @literal(0.05) -> float32[]
  %2 = quantizelinear[axis=1, block_size=0, out_type=float8_e4m3fn, saturate=true, precision=none](%x, %1) -> float8_e4m3fn[1, 2, 4, 4]
  %3 = pooling[mode="max", padding=[], padding_mode="default", stride=[2, 2], lengths=[2, 2], dilations=[], ceil_mode=false, count_include_pad=false, lp_order=2, dyn_global=false](%2) -> float8_e4m3fn[1, 2, 2, 2]
  @return(%3)""",
    ),
    (
        "quantize-before-pooling",
        """\
  %x = @param["x"] -> float32[1, 2, 4, 4]
  %s = @literal(0.05) -> float32[]
  %1 = pooling[mode="max", lengths=[3, 2], stride=[2, 2], padding=[2, 1], dilations=[2, 1]](%x)
  %2 = quantizelinear[out_type=float8_e4m3fn](%1, %s)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[1, 2, 4, 4]
  %1 = @literal(0.05) -> float32[]
  %2 = quantizelinear[axis=1, block_size=0, out_type=float8_e4m3fn, saturate=true, precision=none](%x, %1) -> float8_e4m3fn[1, 2, 4, 4]
  %3 = pooling[mode="max", padding=[2, 1], padding_mode="default", stride=[2, 2], lengths=[3, 2], dilations=[2, 1], ceil_mode=false, count_include_pad=false, lp_order=2, dyn_global=false](%2) -> float8_e4m3fn[1, 2, 2, 3]
  @return(%3)""",
    ),
    (
        "concat-narrow-values",
        """\
  %p = @param["p"] -> uint8[4, 2]
  %q = @param["q"] -> uint8[4, 3]
  %s = @literal(0.05) -> float32[]
  %z = @literal(3) -> uint8[]
  %1 = dequantizelinear(%p, %s, %z)
  %2 = dequantizelinear(%q, %s, %z)
  %3 = concat[axis=1](%1, %2)
  @return(%3)""",
        """\
  %p = @param["p"] -> uint8[4, 2]
  %q = @param["q"] -> uint8[4, 3]
  %1 = @literal(0.05) -> float32[]
  %2 = @literal(3) -> uint8[]
  %3 = concat[axis=1](%p, %q) -> uint8[4, 5]
  %4 = dequantizelinear[axis=1, block_size=0, out_type=none](%3, %1, %2) -> float32[4, 5]
  @return(%4)""",
    ),
    (
        "pool-narrow-values",
        """\
  %q = @param["q"] -> uint8[1, 2, 4, 4]
  %s = @literal(0.05) -> float32[]
  %z = @literal(3) -> uint8[]
  %1 = dequantizelinear(%q, %s, %z)
  %2 = pooling[mode="max", lengths=[2, 2], stride=[2, 2]](%1)
  @return(%2)""",
        """\
  %q = @param["q"] -> uint8[1, 2, 4, 4]
  %1 = @literal(0.05) -> float32[]
  %2 = @literal(3) -> uint8[]
  %3 = pooling[mode="max", padding=[], padding_mode="default", stride=[2, 2], lengths=[2, 2], dilations=[], ceil_mode=false, count_include_pad=false, lp_order=2, dyn_global=false](%q) -> uint8[1, 2, 2, 2]
  %4 = dequantizelinear[axis=1, block_size=0, out_type=none](%3, %1, %2) -> float32[1, 2, 2, 2]
  @return(%4)""",
    ),
    (
        "integer-dot",
        """\
  %p = @param["p"] -> uint8[4, 6]
  %q = @param["q"] -> int8[6, 3]
  %s = @literal(0.05) -> float32[]
  %y = @literal(3) -> uint8[]
  %t = @literal(0.1, 0.2, 0.3) -> float32[3]
  %1 = dequantizelinear(%p, %s, %y)
  %2 = dequantizelinear[axis=1](%q, %t)
  %3 = dot(%1, %2)
  @return(%3)""",
        """\
  %p = @param["p"] -> uint8[4, 6]
  %q = @param["q"] -> int8[6, 3]
  %1 = @literal(3) -> uint8[]
  %2 = quant_dot(%p, %q, %1) -> int32[4, 3]
  %3 = @literal(0.0050000004, 0.010000001, 0.015000001) -> float32[3]
  %4 = multibroadcast[out_lens=[4, 3]](%3) -> float32[4, 3]
  %5 = convert[target_type=float32, saturate=true, round_mode="up"](%2) -> float32[4, 3]
  %6 = mul(%5, %4) -> float32[4, 3]
  @return(%6)""",
    ),
    (
        "narrow-float-dot",
        """\
  %p = @param["p"] -> float8_e4m3fn[4, 6]
  %q = @param["q"] -> float8_e5m2[6, 3]
  %s = @literal(0.5) -> float32[]
  %t = @literal(0.25, 0.5, 1.0) -> float32[3]
  %1 = dequantizelinear(%p, %s)
  %2 = dequantizelinear[axis=1](%q, %t)
  %3 = dot(%1, %2)
  @return(%3)""",
        """\
  %p = @param["p"] -> float8_e4m3fn[4, 6]
  %q = @param["q"] -> float8_e5m2[6, 3]
  %1 = quant_dot(%p, %q) -> float32[4, 3]
  %2 = @literal(0.125, 0.25, 0.5) -> float32[3]
  %3 = multibroadcast[out_lens=[4, 3]](%2) -> float32[4, 3]
  %4 = mul(%1, %3) -> float32[4, 3]
  @return(%4)""",
    ),
    (
        "narrow-float-convolution",
        """\
  %p = @param["p"] -> float8_e4m3fn[1, 2, 5, 5]
  %q = @param["q"] -> float8_e4m3fn[3, 2, 3, 3]
  %s = @literal(0.5) -> float32[]
  %t = @literal(0.25, 0.5, 1.0) -> float32[3]
  %1 = dequantizelinear(%p, %s)
  %2 = dequantizelinear[axis=0](%q, %t)
  %3 = convolution[padding=[1, 1]](%1, %2)
  @return(%3)""",
        """\
  %p = @param["p"] -> float8_e4m3fn[1, 2, 5, 5]
  %q = @param["q"] -> float8_e4m3fn[3, 2, 3, 3]
  %1 = quant_convolution[padding=[1, 1], stride=[], dilation=[], group=1, padding_mode="default"](%p, %q) -> float32[1, 3, 5, 5]
  %2 = @literal(0.125, 0.25, 0.5) -> float32[3, 1, 1]
  %3 = multibroadcast[out_lens=[1, 3, 5, 5]](%2) -> float32[1, 3, 5, 5]
  %4 = mul(%1, %3) -> float32[1, 3, 5, 5]
  @return(%4)""",
    ),
    (
        "integer-convolution",
        """\
  %p = @param["p"] -> uint8[1, 2, 5, 5]
  %q = @param["q"] -> int8[3, 2, 3, 3]
  %s = @literal(0.05) -> float32[]
  %y = @literal(3) -> uint8[]
  %t = @literal(0.1, 0.2, 0.3) -> float32[3]
  %1 = dequantizelinear(%p, %s, %y)
  %2 = dequantizelinear[axis=0](%q, %t)
  %3 = convolution[padding=[1, 1]](%1, %2)
  @return(%3)""",
        """\
  %p = @param["p"] -> uint8[1, 2, 5, 5]
  %q = @param["q"] -> int8[3, 2, 3, 3]
  %1 = @literal(3) -> uint8[]
  %2 = quant_convolution[padding=[1, 1], stride=[], dilation=[], group=1, padding_mode="default"](%p, %q, %1) -> int32[1, 3, 5, 5]
  %3 = @literal(0.0050000004, 0.010000001, 0.015000001) -> float32[3, 1, 1]
  %4 = multibroadcast[out_lens=[1, 3, 5, 5]](%3) -> float32[1, 3, 5, 5]
  %5 = convert[target_type=float32, saturate=true, round_mode="up"](%2) -> float32[1, 3, 5, 5]
  %6 = mul(%5, %4) -> float32[1, 3, 5, 5]
  @return(%6)""",
    ),
    (
        "signed-weights",
        """\
  %p = @param["p"] -> uint8[4, 2]
  %q = @literal(0, 255, 128, 5) -> uint8[2, 2]
  %y = @literal(3) -> uint8[]
  %z = @literal(130) -> uint8[]
  %1 = quant_dot(%p, %q, %y, %z)
  @return(%1)""",
        """\
  %p = @param["p"] -> uint8[4, 2]
  %1 = @literal(3) -> uint8[]
  %2 = @literal(-128, 127, 0, -123) -> int8[2, 2]
  %3 = @literal(2) -> int8[]
  %4 = quant_dot(%p, %2, %1, %3) -> int32[4, 2]
  @return(%4)""",
    ),
    (
        "signed-weights",
        """\
  %p = @param["p"] -> uint8[4, 2]
  %q = @literal(0, 127, 12, 5) -> uint8[2, 2]
  %y = @literal(3) -> uint8[]
  %1 = quant_dot(%p, %q, %y)
  @return(%1)""",
        """\
  %p = @param["p"] -> uint8[4, 2]
  %1 = @literal(3) -> uint8[]
  %2 = @literal(0, 127, 12, 5) -> int8[2, 2]
  %3 = quant_dot(%p, %2, %1) -> int32[4, 2]
  @return(%3)""",
    ),
    (
        "drop-zero-points-of-zero",
        """\
  %p = @param["p"] -> uint8[4, 2]
  %q = @param["q"] -> int8[2, 2]
  %y = @literal(3) -> uint8[]
  %z = @literal(0) -> int8[]
  %1 = quant_dot(%p, %q, %y, %z)
  @return(%1)""",
        """\
  %p = @param["p"] -> uint8[4, 2]
  %q = @param["q"] -> int8[2, 2]
  %1 = @literal(3) -> uint8[]
  %2 = quant_dot(%p, %q, %1) -> int32[4, 2]
  @return(%2)""",
    ),
    (
        "bias-after-factor",
        """\
  %p = @param["p"] -> uint8[4, 2]
  %q = @param["q"] -> int8[2, 3]
  %y = @literal(3, 4, 5) -> int32[3]
  %1 = quant_dot(%p, %q)
  %2 = multibroadcast[out_lens=[4, 3]](%y)
  %3 = add(%1, %2)
  %4 = convert[target_type=float32](%3)
  @return(%4)""",
        """\
  %p = @param["p"] -> uint8[4, 2]
  %q = @param["q"] -> int8[2, 3]
  %1 = quant_dot(%p, %q) -> int32[4, 3]
  %2 = @literal(3.0, 4.0, 5.0) -> float32[3]
  %3 = multibroadcast[out_lens=[4, 3]](%2) -> float32[4, 3]
  %4 = convert[target_type=float32, saturate=true, round_mode="up"](%1) -> float32[4, 3]
  %5 = add(%4, %3) -> float32[4, 3]
  @return(%5)""",
    ),
]

REFUSALS = [
    (
        "integer-dot",
        """\
  %p = @param["p"] -> uint8[4, 6]
  %q = @param["q"] -> int8[6, 3]
  %s = @literal(0.05) -> float32[]
  %t = @literal(1, 1, 1, 1, 1, 1) -> float32[6]
  %1 = dequantizelinear(%p, %s)
  %2 = dequantizelinear[axis=0](%q, %t)
  %3 = dot(%1, %2)
  @return(%3)""",
        "the scale does not vary along axis 1 alone",
    ),
    (
        "integer-dot",
        """\
  %p = @param["p"] -> uint8[1, 70000]
  %q = @param["q"] -> int8[70000, 1]
  %s = @literal(0.05) -> float32[]
  %1 = dequantizelinear(%p, %s)
  %2 = dequantizelinear(%q, %s)
  %3 = dot(%1, %2)
  @return(%3)""",
        "sums of 70000 products of up to 32640 may exceed int32",
    ),
    (
        "integer-dot",
        """\
  %p = @param["p"] -> uint16[4, 6]
  %q = @param["q"] -> int8[6, 3]
  %s = @literal(0.05) -> float32[]
  %1 = dequantizelinear(%p, %s)
  %2 = dequantizelinear(%q, %s)
  %3 = dot(%1, %2)
  @return(%3)""",
        "numbers of type uint16 are not multiplied as integers",
    ),
    (
        "drop-bounds-before-quantization",
        """\
  %x = @param["x"] -> float32[4, 5]
  %s = @literal(0.05) -> float32[]
  %z = @literal(7) -> uint8[]
  %1 = relu(%x)
  %2 = quantizelinear(%1, %s, %z)
  @return(%2)""",
        "the bounds are narrower than the range of the quantized type",
    ),
    (
        "quantize-before-concat",
        """\
  %p = @param["p"] -> float32[4, 2]
  %q = @param["q"] -> float32[4, 3]
  %s = @literal(0.05) -> float32[]
  %1 = concat[axis=1](%p, %q)
  %2 = quantizelinear(%1, %s)
  %3 = relu(%1)
  @return(%2, %3)""",
        "the concatenation has other users",
    ),
    (
        "concat-narrow-values",
        """\
  %p = @param["p"] -> uint8[4, 2]
  %q = @param["q"] -> uint8[4, 3]
  %s = @literal(0.05) -> float32[]
  %t = @literal(0.06) -> float32[]
  %1 = dequantizelinear(%p, %s)
  %2 = dequantizelinear(%q, %t)
  %3 = concat[axis=1](%1, %2)
  @return(%3)""",
        "the scales or zero points differ",
    ),
    (
        "move-narrow-values",
        """\
  %x = @param["x"] -> float32[4, 3]
  %q = @literal(1, -2, 3) -> int8[3]
  %s = @literal(0.1) -> float32[]
  %1 = dequantizelinear(%q, %s)
  %2 = multibroadcast[out_lens=[4, 3]](%1)
  %3 = mul(%x, %2)
  @return(%3)""",
        "the broadcast constant is an operand of pointwise ops and is folded in its wide form",
    ),
    (
        "move-narrow-values",
        """\
  %q = @param["q"] -> int8[2, 3]
  %s = @literal(0.1, 0.2, 0.3) -> float32[3]
  %1 = dequantizelinear[axis=1](%q, %s)
  %2 = slice[axes=[1], starts=[-1], ends=[-9], steps=[-1]](%1)
  @return(%2)""",
        "the scale varies along an axis that is not kept",
    ),
    (
        "quantize-before-pooling",
        """\
  %x = @param["x"] -> float32[1, 2, 4, 4]
  %s = @literal(0.05) -> float32[]
  %1 = pooling[mode="max", lengths=[2, 2], stride=[2, 2]](%x)
  %2 = quantizelinear[out_type=float8_e4m3fn, saturate=false](%1, %s)
  @return(%2)""",
        "numbers below the range become NaN, which is greater than others",
    ),
    *(
        (
            "quantize-before-pooling",
            f"""\
  %x = @param["x"] -> float32[1, 2, {extent}, 4]
  %s = @literal(0.05) -> float32[]
  %1 = pooling[mode="max", lengths=[2, 1], {attributes}](%x)
  %2 = quantizelinear[out_type=float8_e4m3fn](%1, %s)
  @return(%2)""",
            "a window may have no elements",
        )
        for extent, attributes in (
            (1, "padding=[1, 0], dilations=[2, 1]"),
            (4, "padding=[0, 0, 2, 0]"),
            (1, 'padding_mode="same_upper", dilations=[3, 1]'),
        )
    ),
    (
        "pool-narrow-values",
        """\
  %q = @param["q"] -> float8_e4m3fn[1, 2, 1, 4]
  %s = @literal(0.05) -> float32[]
  %1 = dequantizelinear(%q, %s)
  %2 = pooling[mode="max", lengths=[2, 1], padding=[1, 0], dilations=[2, 1]](%1)
  @return(%2)""",
        "a window may have no elements",
    ),
]


@pytest.mark.parametrize(("name", "before", "after"), TURNS, ids=[f"{n}-{t[0]}" for n, t in enumerate(TURNS)])
def test_turn(rule_turns, name: str, before: str, after: str) -> None:
    rule_turns(name, before, after)


@pytest.mark.parametrize(("name", "before", "why"), REFUSALS, ids=[f"{n}-{r[0]}" for n, r in enumerate(REFUSALS)])
def test_refusal(rule_refuses, name: str, before: str, why: str) -> None:
    rule_refuses(name, before, why)


@pytest.mark.parametrize(("extent", "before"), [(8, True), (4, True), (2, False)])
def test_images_are_quantized_before_they_are_enlarged_but_not_before_they_are_reduced(
    extent: int, before: bool
) -> None:
    """Quantizing first the elements that a smaller image leaves out would be in vain."""
    module = parse_module(
        f"""\
module main
  %x = @param["x"] -> float32[1, 1, 4]
  %s = @literal(0.5) -> float32[]
  %1 = resize[sizes=[1, 1, {extent}], mode="nearest"](%x)
  %2 = quantizelinear[out_type=int8](%1, %s)
  @return(%2)""",
        STANDARD,
    )
    Rewriter(QUANTIZATION).apply(module)
    names = [i.op.name for i in module if i.op.name in ("quantizelinear", "resize")]
    assert names == (["quantizelinear", "resize"] if before else ["resize", "quantizelinear"])
