"""Refusals: each case matches a rule's pattern except for one property, without which the rewrite would change the result."""

from __future__ import annotations

import pytest

from mgx_core.rules.engine import Rules
from mgx_core.rules.integer_products import NARROW_FLOAT_PRODUCTS
from mgx_core.rules.quantized_weights import CODED_WEIGHTS
from mgx_core.rules.transposed_convolutions import transposed_convolutions
from mgx_core.rules.weight_arithmetic import WEIGHT_ARITHMETIC

TRANSPOSED = transposed_convolutions("transposed")

CASES = [
    (
        "gelu-from-tanh",
        """\
  %x = @param["x"] -> float32[8]
  %cube = @literal(0.05) -> float32[]
  %slope = @literal(0.7978845608) -> float32[]
  %one = @literal(1.0) -> float32[]
  %half = @literal(0.5) -> float32[]
  %1 = multibroadcast[out_lens=[8]](%cube)
  %2 = multibroadcast[out_lens=[8]](%slope)
  %3 = multibroadcast[out_lens=[8]](%one)
  %4 = multibroadcast[out_lens=[8]](%half)
  %5 = mul(%x, %x)
  %6 = mul(%5, %x)
  %7 = mul(%6, %1)
  %8 = add(%x, %7)
  %9 = mul(%8, %2)
  %10 = tanh(%9)
  %11 = add(%10, %3)
  %12 = mul(%x, %11)
  %13 = mul(%12, %4)
  @return(%13)""",
        "the argument of tanh is neither x + 0.044715 * x^3 nor x * (1 + 0.044715 * x^2)",
    ),
    (
        "hard-sigmoid-from-clip",
        """\
  %x = @param["x"] -> float32[2]
  %three = @literal(3.0) -> float32[]
  %zero = @literal(0.0) -> float32[]
  %five = @literal(5.0) -> float32[]
  %six = @literal(6.0) -> float32[]
  %1 = multibroadcast[out_lens=[2]](%three)
  %2 = add(%x, %1)
  %3 = multibroadcast[out_lens=[2]](%zero)
  %4 = multibroadcast[out_lens=[2]](%five)
  %5 = clip(%2, %3, %4)
  %6 = multibroadcast[out_lens=[2]](%six)
  %7 = div(%5, %6)
  @return(%7)""",
        "the bounds and the factor do not clip to 0 and 1",
    ),
    (
        "hard-swish-from-hard-sigmoid",
        """\
  %x = @param["x"] -> float32[2]
  %two = @literal(2.0, 2.0) -> float32[2]
  %low = @literal(0.0, 0.0) -> float32[2]
  %six = @literal(6.0, 6.0) -> float32[2]
  %1 = add(%x, %two)
  %2 = clip(%1, %low, %six)
  %3 = mul(%x, %2)
  %4 = div(%3, %six)
  @return(%4)""",
        "the constants are not those of hard_swish",
    ),
    (
        "leaky-relu-from-where",
        """\
  %x = @param["x"] -> float32[2]
  %slope = @param["slope"] -> float32[2]
  %zero = @literal(0.0) -> float32[]
  %0 = multibroadcast[out_lens=[2]](%zero)
  %1 = greater(%x, %0)
  %2 = mul(%slope, %x)
  %3 = where(%1, %x, %2)
  @return(%3)""",
        "the slope is not constant",
    ),
    (
        "join-clips",
        """\
  %x = @param["x"] -> float32[2]
  %low = @param["low"] -> float32[2]
  %high = @literal(6.0, 6.0) -> float32[2]
  %1 = clip(%x, %low, %high)
  %2 = clip(%1, %high, %high)
  @return(%2)""",
        "the bounds are not known",
    ),
    (
        "relu-of-clip",
        """\
  %x = @param["x"] -> float32[2]
  %low = @param["low"] -> float32[2]
  %high = @literal(6.0, 6.0) -> float32[2]
  %1 = clip(%x, %low, %high)
  %2 = relu(%1)
  @return(%2)""",
        "the bounds are not known",
    ),
    (
        "relu-of-clip",
        """\
  %x = @param["x"] -> float32[2]
  %low = @literal(-1.0, -1.0) -> float32[2]
  %high = @literal(-2.0, -2.0) -> float32[2]
  %1 = clip(%x, %low, %high)
  %2 = relu(%1)
  @return(%2)""",
        "the clip has other users, or its bounds cross",
    ),
    (
        "relu-out-of-mul",
        """\
  %x = @param["x"] -> float32[2, 2]
  %w = @literal(1.0, -2.0, 3.0, 4.0) -> float32[2, 2]
  %c = @literal(2.0, 2.0, 2.0, 2.0) -> float32[2, 2]
  %1 = dot(%x, %w)
  %b = @literal(1.0, 1.0, 1.0, 1.0) -> float32[2, 2]
  %2 = add(%1, %b)
  %3 = relu(%2)
  %4 = mul(%3, %c)
  @return(%4, %2)""",
        "x is not a product with constant weights that is read here alone",
    ),
    (
        "factor-into-sum",
        """\
  %x = @param["x"] -> float32[2, 2]
  %w = @literal(1.0, -2.0, 3.0, 4.0) -> float32[2, 2]
  %b = @literal(1.0, 1.0, 1.0, 1.0) -> float32[2, 2]
  %c = @literal(2.0, 2.0, 2.0, 2.0) -> float32[2, 2]
  %1 = dot(%x, %w)
  %2 = add(%1, %b)
  %3 = mul(%2, %c)
  @return(%3, %2)""",
        "the sum has other users",
    ),
    (
        "gather-added-constants",
        """\
  %x = @param["x"] -> float32[2]
  %y = @param["y"] -> float32[2]
  %c = @literal(1.0, 2.0) -> float32[2]
  %1 = add(%x, %c)
  %2 = add(%y, %c)
  %3 = add(%1, %2)
  @return(%3, %1)""",
        "a sum inside has other users, or is of integers",
    ),
    (
        "join-added-constants",
        """\
  %x = @param["x"] -> float32[1]
  %c = @literal(3e38) -> float32[1]
  %1 = add(%x, %c)
  %2 = add(%1, %c)
  @return(%2)""",
        "the constants' sum is not finite",
    ),
    (
        "input-factor-into-dot",
        """\
  %x = @param["x"] -> float32[2, 2]
  %s = @literal(1.0, 2.0, 3.0, 4.0) -> float32[2, 2]
  %w = @literal(1.0, -2.0, 3.0, 4.0) -> float32[2, 2]
  %1 = mul(%x, %s)
  %2 = dot(%1, %w)
  @return(%2)""",
        "the constant differs within a channel or column, or the product has other users",
    ),
    (
        "wide-norm-into-product",
        """\
  %x = @param["x"] -> float16[2, 2]
  %w = @literal(1.0, -2.0, 3.0, 4.0) -> float16[2, 2]
  %s = @literal(1.0, 2.0, 3.0, 4.0) -> float32[2, 2]
  %1 = dot(%x, %w)
  %2 = convert[target_type=float32](%1)
  %3 = mul(%2, %s)
  %4 = convert[target_type=float16](%3)
  @return(%4)""",
        "the norm differs within a channel",
    ),
    (
        "add-of-convolutions",
        """\
  %x = @param["x"] -> float32[1, 1, 3, 3]
  %w = @literal(1.0) -> float32[1, 1, 1, 1]
  %v = @literal(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0) -> float32[1, 1, 3, 3]
  %1 = convolution(%x, %w)
  %2 = convolution[padding=[1, 1]](%x, %v)
  %3 = add(%1, %2)
  @return(%3)""",
        "the windows differ, or there are groups",
    ),
    (
        "factor-of-slice-into-convolution",
        """\
  %x = @param["x"] -> float32[1, 1, 2, 2]
  %w = @literal(1.0, 2.0) -> float32[2, 1, 1, 1]
  %s = @literal(1.0, 2.0, 3.0, 4.0) -> float32[1, 1, 2, 2]
  %1 = convolution(%x, %w)
  %2 = slice[axes=[1], starts=[0], ends=[1]](%1)
  %3 = mul(%2, %s)
  @return(%3)""",
        "the factor differs within a channel, or a bound is known only at run time",
    ),
    (
        "layernorm-from-parts",
        """\
  %x = @param["x"] -> float32[2, 5]
  %y = @param["y"] -> float32[2, 5]
  %e = @literal(0.001) -> float32[]
  %1 = reduce_mean[axes=[1]](%x)
  %2 = multibroadcast[out_lens=[2, 5]](%1)
  %3 = sub(%x, %2)
  %4 = reduce_mean[axes=[1]](%y)
  %5 = multibroadcast[out_lens=[2, 5]](%4)
  %6 = sqdiff(%y, %5)
  %7 = reduce_mean[axes=[1]](%6)
  %8 = multibroadcast[out_lens=[2, 1]](%e)
  %9 = add(%7, %8)
  %10 = rsqrt(%9)
  %11 = multibroadcast[out_lens=[2, 5]](%10)
  %12 = mul(%3, %11)
  @return(%12)""",
        "the subtracted mean is not the variance's",
    ),
    (
        "group-norm-from-instances",
        """\
  %x = @param["x"] -> float32[2, 4, 3]
  %1 = reshape[dims=[1, 4, 6]](%x)
  %2 = instancenorm(%1)
  %3 = reshape[dims=[2, 4, 3]](%2)
  @return(%3)""",
        "the result's extents differ from the normalized tensor's, or batches are merged",
    ),
    (
        "group-norm-from-instances",
        """\
  %x = @param["x"] -> float32[2, 4, 3]
  %1 = reshape[dims=[2, 3, 4]](%x)
  %2 = instancenorm(%1)
  %3 = reshape[dims=[2, 4, 3]](%2)
  @return(%3)""",
        "the channels do not divide into the groups",
    ),
    (
        "group-norm-from-instances",
        """\
  %x = @param["x"] -> float32[2, 4, 3]
  %g = @literal(1.0, 2.0) -> float32[2]
  %b = @literal(0.0, 0.0) -> float32[2]
  %1 = reshape[dims=[2, 2, 6]](%x)
  %2 = instancenorm(%1, %g, %b)
  %3 = reshape[dims=[2, 4, 3]](%2)
  @return(%3)""",
        "the factors differ between groups",
    ),
    (
        "join-pads",
        """\
  %x = @param["x"] -> float32[4]
  %1 = pad[pads=[-1, 0]](%x)
  %2 = pad[pads=[1, 0]](%1)
  @return(%2)""",
        "a width is negative",
    ),
    (
        "pad-into-convolution",
        """\
  %x = @param["x"] -> float32[1, 1, 4]
  %w = @literal(1.0, 2.0, 3.0) -> float32[1, 1, 3]
  %1 = pad[pads=[0, 0, 1, 0, 0, 1]](%x)
  %2 = convolution[padding_mode="same_upper"](%1, %w)
  @return(%2)""",
        "the convolution's padding follows from the extents",
    ),
    (
        "moved-pad-into-convolution",
        """\
  %x = @param["x"] -> float32[1, 4, 1]
  %w = @literal(1.0, 2.0, 3.0) -> float32[1, 1, 3]
  %1 = pad[pads=[0, 1, 0, 0, 1, 0]](%x)
  %2 = transpose[permutation=[0, 2, 1]](%1)
  %3 = convolution[padding_mode="same_upper"](%2, %w)
  @return(%3)""",
        "the convolution's padding follows from the extents",
    ),
    (
        "pad-into-transform",
        """\
  %x = @param["x"] -> float32[2, 30, 1]
  %1 = pad[pads=[0, 2, 0, 0, 30, 0]](%x)
  %2 = dft[axis=1](%1)
  @return(%2)""",
        "the zeros are not only after the signal",
    ),
    (
        "pad-into-transform",
        """\
  %x = @param["x"] -> float32[2, 30, 1]
  %1 = pad[pads=[0, 0, 0, 0, 30, 0], value=1.0](%x)
  %2 = dft[axis=1](%1)
  @return(%2)""",
        "the border is not of zeros of known width",
    ),
    (
        "pad-into-pooling",
        """\
  %x = @param["x"] -> float32[1, 1, 4]
  %1 = pad[pads=[0, 0, 1, 0, 0, 1]](%x)
  %2 = pooling[mode="average", lengths=[2], stride=[1], ceil_mode=true](%1)
  @return(%2)""",
        "the windows follow from the extents",
    ),
    (
        "pad-into-pooling",
        """\
  %x = @param["x"] -> float32[1, 1, 4]
  %1 = pad[pads=[0, 0, 1, 0, 0, 1], value=2.0](%x)
  %2 = pooling[mode="average", lengths=[2], stride=[1], count_include_pad=true](%1)
  @return(%2)""",
        "the border is not 0, or is excluded from the average",
    ),
    (
        "scale-before-square",
        """\
  %x = @param["x"] -> float16[2]
  %c = @literal(0.5, 0.5) -> float16[2]
  %1 = mul(%x, %x)
  %2 = div(%1, %c)
  @return(%2)""",
        "the other operand is not a constant that makes it smaller",
    ),
    (
        "quantize-what-was-quantized",
        """\
  %q = @param["q"] -> int8[2]
  %s = @literal(0.5) -> float32[]
  %z = @literal(0) -> uint8[]
  %1 = dequantizelinear(%q, %s)
  %2 = quantizelinear[out_type=uint8](%1, %s, %z)
  @return(%2)""",
        "the types differ, or represent numbers that would be rounded",
    ),
    (
        "quantize-what-was-quantized",
        """\
  %q = @param["q"] -> int8[2, 2]
  %s = @literal(0.5, 0.25) -> float32[2]
  %1 = dequantizelinear[axis=0](%q, %s)
  %2 = quantizelinear[axis=1, out_type=int8](%1, %s)
  @return(%2)""",
        "the scales are along different axes",
    ),
    (
        "quantize-what-was-quantized",
        """\
  %q = @param["q"] -> int8[2]
  %s = @literal(1e-35) -> float32[]
  %1 = dequantizelinear(%q, %s)
  %2 = quantizelinear[out_type=int8](%1, %s)
  @return(%2)""",
        "the scale is not a constant far enough from 0",
    ),
    (
        "drop-bounds-before-quantization",
        """\
  %x = @param["x"] -> float32[2]
  %s = @param["s"] -> float32[]
  %z = @literal(0) -> uint8[]
  %1 = relu(%x)
  %2 = quantizelinear[out_type=uint8](%1, %s, %z)
  @return(%2)""",
        "the bounds, the scale or the zero point are not one constant each",
    ),
    (
        "drop-bounds-before-quantization",
        """\
  %x = @param["x"] -> float32[2]
  %s = @literal(-0.5) -> float32[]
  %z = @literal(0) -> uint8[]
  %1 = relu(%x)
  %2 = quantizelinear[out_type=uint8](%1, %s, %z)
  @return(%2)""",
        "the result is not an integer, or the scale not a positive number",
    ),
    (
        "quantize-before-movement",
        """\
  %x = @param["x"] -> float32[2, 3]
  %s = @literal(0.5, 0.25) -> float32[2]
  %1 = transpose[permutation=[1, 0]](%x)
  %2 = quantizelinear[axis=1, out_type=int8](%1, %s)
  @return(%2)""",
        "the scale is not per tensor, or the result is not narrow",
    ),
    (
        "quantize-before-concat",
        """\
  %x = @param["x"] -> float32[1, 2]
  %y = @param["y"] -> float32[1, 2]
  %s = @literal(0.5, 0.25) -> float32[2]
  %1 = concat[axis=0](%x, %y)
  %2 = quantizelinear[axis=0, out_type=int8](%1, %s)
  @return(%2)""",
        "the scale is not per tensor, or the result is not narrow",
    ),
    (
        "quantize-before-pooling",
        """\
  %x = @param["x"] -> float32[1, 1, 4]
  %s = @literal(-0.5) -> float32[]
  %1 = pooling[mode="max", lengths=[2], stride=[2]](%x)
  %2 = quantizelinear[out_type=int8](%1, %s)
  @return(%2)""",
        "the scale is not one positive constant",
    ),
    (
        "pool-narrow-values",
        """\
  %q = @param["q"] -> int8[1, 1, 4]
  %s = @literal(-0.5) -> float32[]
  %1 = dequantizelinear(%q, %s)
  %2 = pooling[mode="max", lengths=[2], stride=[2]](%1)
  @return(%2)""",
        "the scale is not one positive constant",
    ),
    (
        "concat-narrow-values",
        """\
  %q = @param["q"] -> int8[1, 2]
  %y = @param["y"] -> float32[1, 2]
  %s = @literal(0.5) -> float32[]
  %1 = dequantizelinear(%q, %s)
  %2 = concat[axis=0](%1, %y)
  @return(%2)""",
        "not all parts are quantized",
    ),
    (
        "integer-dot",
        """\
  %p = @param["p"] -> uint8[2, 4]
  %q = @param["q"] -> int8[4, 2]
  %s = @literal(0.5, 0.25, 0.5, 0.25) -> float32[2, 2]
  %t = @literal(0.5) -> float32[]
  %1 = dequantizelinear[axis=1, block_size=2](%p, %s)
  %2 = dequantizelinear(%q, %t)
  %3 = dot(%1, %2)
  @return(%3)""",
        "blocks along the summed axis have different scales",
    ),
    (
        "integer-dot",
        """\
  %p = @param["p"] -> uint8[2, 4]
  %q = @param["q"] -> int8[4, 2]
  %t = @literal(0.5) -> float64[]
  %1 = dequantizelinear(%p, %t)
  %2 = dequantizelinear(%q, %t)
  %3 = dot(%1, %2)
  @return(%3)""",
        "a float64 result would lose precision with a factor in float32",
    ),
    (
        "integer-convolution",
        """\
  %p = @param["p"] -> uint8[1, 2, 3]
  %q = @param["q"] -> int8[1, 2, 1]
  %s = @literal(0.5, 0.25) -> float32[2]
  %t = @literal(0.5) -> float32[]
  %1 = dequantizelinear[axis=1](%p, %s)
  %2 = dequantizelinear(%q, %t)
  %3 = convolution(%1, %2)
  @return(%3)""",
        "the image has more than one scale",
    ),
    (
        "signed-weights",
        """\
  %p = @param["p"] -> uint8[4, 2]
  %q = @literal(0, 255, 128, 5) -> uint8[2, 2]
  %1 = quant_dot(%p, %q)
  @return(%1)""",
        "the right operand has no zero point from which 128 could be subtracted",
    ),
    (
        "signed-weights",
        """\
  %p = @param["p"] -> uint8[4, 2]
  %q = @param["q"] -> uint8[2, 2]
  %y = @literal(3) -> uint8[]
  %1 = quant_dot(%p, %q, %y, %y)
  @return(%1)""",
        "the right operand is not constant",
    ),
    (
        "signed-weights",
        """\
  %p = @param["p"] -> uint8[4, 2]
  %q = @literal(0, 255, 128, 5) -> uint8[2, 2]
  %y = @param["y"] -> uint8[]
  %1 = quant_dot(%p, %q, %y, %y)
  @return(%1)""",
        "the zero point of the right operand is not constant",
    ),
    (
        "bias-after-factor",
        """\
  %p = @param["p"] -> uint8[4, 2]
  %q = @param["q"] -> int8[2, 2]
  %b = @param["b"] -> int32[4, 2]
  %1 = quant_dot(%p, %q)
  %2 = add(%1, %b)
  %3 = convert[target_type=float32](%2)
  @return(%3)""",
        "the term is not constant, or a sum has other users",
    ),
    (
        "slice-of-concat",
        """\
  %x = @param["x"] -> float32[3]
  %y = @param["y"] -> float32[3]
  %1 = concat[axis=0](%x, %y)
  %2 = slice[axes=[0], starts=[0], ends=[3], steps=[2]](%1)
  @return(%2)""",
        "its step is not 1",
    ),
    (
        "join-concats",
        """\
  %x = @param["x"] -> float32[1, 2]
  %y = @param["y"] -> float32[1, 2]
  %z = @param["z"] -> float32[1, 4]
  %1 = concat[axis=1](%x, %y)
  %2 = concat[axis=0](%1, %z)
  @return(%2)""",
        "the inner concat is along another axis, or has other users",
    ),
    (
        "gather-of-range",
        """\
  %x = @param["x"] -> float32[n]
  %i = @literal(-2, -1) -> int64[2]
  %1 = gather[axis=0](%x, %i)
  @return(%1)""",
        "positions count from the end of an extent that is known only at run time",
    ),
    (
        "logsoftmax-from-difference",
        """\
  %x = @param["x"] -> float32[2, 3]
  %1 = reduce_max[axes=[1]](%x)
  %2 = multibroadcast[out_lens=[2, 3]](%1)
  %3 = sub(%x, %2)
  %4 = exp(%x)
  %5 = reduce_sum[axes=[1]](%4)
  %6 = log(%5)
  %7 = multibroadcast[out_lens=[2, 3]](%6)
  %8 = sub(%3, %7)
  @return(%8)""",
        "the sum is not one of the same differences along the last axis",
    ),
    (
        "work-before-slices",
        """\
  %x = @param["x"] -> float32[4]
  %1 = slice[axes=[0], starts=[0], ends=[2]](%x)
  %2 = slice[axes=[0], starts=[2], ends=[4]](%x)
  %3 = relu(%1)
  %4 = tanh(%2)
  @return(%3, %4)""",
        "the users of the slices are not all the same op with equal attributes",
    ),
    (
        "work-before-slices",
        """\
  %x = @param["x"] -> float32[4]
  %1 = slice[axes=[0], starts=[0], ends=[2]](%x)
  %2 = slice[axes=[0], starts=[2], ends=[4]](%x)
  %3 = @literal(1.0, 2.0) -> float32[2]
  %4 = sub(%1, %3)
  %5 = sub(%3, %2)
  @return(%4, %5)""",
        "the users of the slices are not all the same op of the same operand",
    ),
    (
        "work-before-slices",
        """\
  %x = @param["x"] -> float32[4]
  %1 = slice[axes=[0], starts=[0], ends=[2]](%x)
  %2 = slice[axes=[0], starts=[2], ends=[4]](%x)
  %3 = relu(%1)
  %4 = relu(%2)
  @return(%3, %4, %x, %2)""",
        "a slice has more than one user",
    ),
    (
        "reshape-before-slices",
        """\
  %x = @param["x"] -> float32[3, 4]
  %1 = slice[axes=[1], starts=[0], ends=[2]](%x)
  %2 = slice[axes=[1], starts=[2], ends=[4]](%x)
  %3 = reshape[dims=[2, 3]](%1)
  %4 = reshape[dims=[2, 3]](%2)
  @return(%3, %4)""",
        "the sliced axis does not become the leading factor of an axis of the result",
    ),
    (
        "work-after-concat",
        """\
  %x = @param["x"] -> float32[2]
  %y = @param["y"] -> float32[2]
  %1 = relu(%x)
  %2 = tanh(%y)
  %3 = concat[axis=0](%1, %2)
  @return(%3)""",
        "the operands are not all the same op, or have other users",
    ),
    (
        "reshape-below-dot",
        """\
  %x = @param["x"] -> float32[2, 3, 4]
  %w = @param["w"] -> float32[2, 2]
  %1 = reshape[dims=[12, 2]](%x)
  %2 = dot(%1, %w)
  %3 = reshape[dims=[2, 3, 4]](%2)
  @return(%3)""",
        "the operand has other users, or its last axis is reshaped",
    ),
    (
        "reshape-below-dot",
        """\
  %x = @param["x"] -> float32[2, 1, 3, 4]
  %w = @param["w"] -> float32[2, 4, 5]
  %1 = reshape[dims=[2, 3, 4]](%x)
  %2 = dot(%1, %w)
  %3 = reshape[dims=[2, 1, 3, 5]](%2)
  @return(%3)""",
        "the right operand is not one matrix for all batches",
    ),
    (
        "join-reductions",
        """\
  %x = @param["x"] -> int32[2, 3]
  %1 = reduce_mean[axes=[1]](%x)
  %2 = reduce_mean[axes=[0]](%1)
  @return(%2)""",
        "means of integers are rounded at each step",
    ),
    (
        "static-pad",
        """\
  %x = @param["x"] -> int64[2]
  %pads = @literal(1, 1) -> int64[2]
  %v = @literal(9007199254740993) -> int64[]
  %1 = pad(%x, %pads, %v)
  @return(%1)""",
        "the value is not an exact float",
    ),
    (
        "static-pad",
        """\
  %x = @param["x"] -> float32[2]
  %pads = @literal(1, 1) -> int64[2]
  %v = @param["v"] -> float32[]
  %1 = pad(%x, %pads, %v)
  @return(%1)""",
        "widths or value are known only at run time",
    ),
    (
        "static-axes",
        """\
  %x = @param["x"] -> float32[2, 3]
  %axes = @param["axes"] -> int64[1]
  %1 = reduce_sum(%x, %axes)
  @return(%1)""",
        "axes are known only at run time",
    ),
    (
        "static-topk",
        """\
  %x = @param["x"] -> float32[4]
  %k = @param["k"] -> int64[1]
  %1 = topk[axis=0](%x, %k)
  @return(%1)""",
        "k is known only at run time",
    ),
    (
        "convert-behind-topk",  # the cpu target ordered them on the host
        """\
  %x = @param["x"] -> float8_e4m3fn[4]
  %1 = convert[target_type=float32](%x)
  %2 = topk[k=2](%1)
  %3 = get_tuple_elem[index=0](%2)
  @return(%3)""",
        "few targets have kernels that order float8_e4m3fn",
    ),
    (
        "convert-behind-gather",
        """\
  %x = @param["x"] -> float16[4]
  %n = @param["n"] -> int64[3]
  %1 = convert[target_type=float32](%x)
  %2 = gather[axis=0](%1, %n)
  @return(%2)""",
        "no reader would convert what it reads",
    ),
    (
        "convert-behind-gather",
        """\
  %x = @param["x"] -> float32[4]
  %n = @param["n"] -> int64[3]
  %1 = convert[target_type=float16](%x)
  %2 = gather[axis=0](%1, %n)
  %3 = abs(%2)
  @return(%3)""",
        "float16 does not hold every float32 in more bits",
    ),
    (
        "slice-from-split",
        """\
  %x = @param["x"] -> float32[4]
  %sizes = @param["sizes"] -> int64[2]
  %1 = split[axis=0, count=2](%x, %sizes)
  %2 = get_tuple_elem[index=0](%1)
  @return(%2)""",
        "the sizes are known only at run time",
    ),
    (
        "drop-resize",
        """\
  %x = @param["x"] -> float32[4, 4]
  %1 = resize[sizes=[4, 4], keep_aspect_ratio_policy="not_larger"](%x)
  @return(%1)""",
        "the factor follows from the extents",
    ),
    (
        "slice-of-product",
        """\
  %p = @param["p"] -> uint8[4, 2]
  %q = @param["q"] -> int8[2, 2]
  %y = @literal(1, 2, 3, 4) -> uint8[4, 1]
  %1 = quant_dot(%p, %q, %y)
  %2 = slice[axes=[0], starts=[0], ends=[2]](%1)
  @return(%2)""",
        "positions along axis 0 depend on both operands",
    ),
    (
        "slice-of-product",
        """\
  %x = @param["x"] -> float32[4, 2]
  %y = @param["y"] -> float32[2, 4]
  %1 = dot(%x, %y)
  %2 = slice[axes=[0, 1], starts=[0, 0], ends=[2, 2]](%1)
  @return(%2)""",
        "several axes are sliced",
    ),
    (
        "slice-before-epilogue",
        """\
  %x = @param["x"] -> float32[2, 3, 2]
  %y = @param["y"] -> float32[2, 2, 4]
  %1 = dot(%x, %y)
  %2 = relu(%1)
  %3 = slice[axes=[0], starts=[0], ends=[1]](%2)
  @return(%3)""",
        "positions along the axis depend on both operands of the product",
    ),
    (
        "transpose-below-pointwise",
        """\
  %x = @param["x"] -> float32[2, 3]
  %y = @param["y"] -> float32[3, 2]
  %1 = transpose[permutation=[1, 0]](%x)
  %2 = add(%1, %y)
  @return(%2)""",
        "an operand is neither constant nor transposed in the same way",
    ),
    (
        "reshape-below-concat",
        """\
  %x = @param["x"] -> float32[2, 6]
  %y = @param["y"] -> float32[2, 6]
  %1 = reshape[dims=[4, 3]](%x)
  %2 = reshape[dims=[4, 3]](%y)
  %3 = concat[axis=1](%1, %2)
  @return(%3)""",
        "the axis is not a single axis of all operands, or their other extents differ",
    ),
    (
        "weights-on-the-left",
        """\
  %v = @param["v"] -> float32[2, 3]
  %s = @param["s"] -> float32[3, 3]
  %1 = softmax[axis=1](%s)
  %2 = transpose[permutation=[1, 0]](%1)
  %3 = dot(%v, %2)
  @return(%3, %1)""",
        "the weights have other users",
    ),
    (
        "dot-of-transposes",
        """\
  %x = @param["x"] -> float32[2, 3]
  %y = @param["y"] -> float32[2, 3]
  %1 = transpose[permutation=[1, 0]](%x)
  %2 = dot(%y, %1)
  %3 = transpose[permutation=[1, 0]](%2)
  @return(%3, %2)""",
        "the product has other users",
    ),
    (
        "input-term-out-of-dot",
        """\
  %x = @param["x"] -> float32[2, 1, 2]
  %c = @literal(1.0, 2.0) -> float32[2]
  %w = @literal(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0) -> float32[2, 2, 2]
  %1 = multibroadcast[out_lens=[2, 1, 2]](%c)
  %2 = add(%x, %1)
  %3 = dot(%2, %w)
  @return(%3)""",
        "the weights are not one matrix",
    ),
    (
        "compute-in-wider-type",
        """\
  %x = @param["x"] -> float32[2]
  %1 = convert[target_type=float16](%x)
  %2 = relu(%1)
  %3 = convert[target_type=float32](%2)
  @return(%3, %2)""",
        "the narrow result has other users",
    ),
    (
        "concat-of-convolutions",
        """\
  %x = @param["x"] -> float32[1, 2, 3]
  %w = @literal(1.0) -> float32[1, 1, 1]
  %v = @literal(1.0, 2.0) -> float32[2, 1, 1]
  %a = slice[axes=[1], starts=[0], ends=[1]](%x)
  %b = slice[axes=[1], starts=[1], ends=[2]](%x)
  %1 = convolution(%a, %w)
  %2 = convolution(%b, %v)
  %3 = concat[axis=1](%1, %2)
  @return(%3)""",
        "the convolutions differ in more than their weights",
    ),
    (
        "factor-of-slice-into-convolution",
        """\
  %x = @param["x"] -> float32[1, 1, 2, 2]
  %w = @literal(1.0, 2.0) -> float32[2, 1, 1, 1]
  %s = @literal(2.0) -> float32[]
  %1 = convolution(%x, %w)
  %2 = slice[axes=[2], starts=[0], ends=[1]](%1)
  %3 = multibroadcast[out_lens=[1, 2, 1, 2]](%s)
  %4 = mul(%2, %3)
  @return(%4)""",
        "the slice is not along the channels",
    ),
    (
        "gather-added-constants",
        """\
  %x = @param["x"] -> float32[1, 2]
  %w = @literal(1.0, 2.0, 3.0, 4.0) -> float32[2, 2]
  %c = @literal(1.0, 2.0) -> float32[1, 2]
  %1 = dot(%x, %w)
  %2 = add(%1, %c)
  %v = @literal(4.0, 2.0, 3.0, 4.0) -> float32[2, 2]
  %3 = dot(%x, %v)
  %4 = add(%3, %c)
  %5 = add(%2, %4)
  @return(%5)""",
        "each constant is the bias of a product",
    ),
    (
        "work-after-concat",
        """\
  %x = @param["x"] -> float32[2]
  %y = @param["y"] -> float32[2]
  %z = @param["z"] -> float32[2]
  %c = @literal(1.0, 2.0) -> float32[2]
  %1 = mul(%x, %c)
  %2 = mul(%y, %z)
  %3 = concat[axis=0](%1, %2)
  @return(%3)""",
        "the other operands are not all constants that can be joined",
    ),
    (
        "work-before-slices",
        """\
  %x = @param["x"] -> float32[4]
  %1 = slice[axes=[0], starts=[0], ends=[2]](%x)
  %2 = slice[axes=[0], starts=[2], ends=[4]](%x)
  %3 = relu(%1)
  %4 = relu(%2)
  %5 = tanh(%x)
  @return(%3, %4, %5)""",
        "x is read otherwise too",
    ),
    (
        "reshape-below-reduction",
        """\
  %x = @param["x"] -> float32[4, 3]
  %1 = reshape[dims=[3, 4]](%x)
  %2 = reduce_sum[axes=[1]](%1)
  @return(%2)""",
        "the reshaped axes are not factors of those of x",
    ),
    (
        "reshape-below-pointwise",
        """\
  %x = @param["x"] -> float32[2, 3]
  %y = @param["y"] -> float32[6]
  %1 = relu(%x)
  %2 = reshape[dims=[6]](%1)
  %3 = add(%2, %y)
  @return(%3)""",
        "an operand is neither reshaped in the same way nor a constant that can be",
    ),
    (
        "shifted-rows",
        """\
  %x = @param["x"] -> float32[n, 3]
  %1 = pad[pads=[0, 0, 0, 1]](%x)
  %2 = slice[axes=[1], starts=[0], ends=[3]](%1)
  @return(%2)""",
        "the elements are not windows of the rows, or some are padding",
    ),
    (
        "factor-into-convolution",
        """\
  %x = @param["x"] -> float16[1, 1, 2, 2]
  %w = @literal(60000.0) -> float16[1, 1, 1, 1]
  %s = @literal(4.0) -> float16[]
  %1 = convolution(%x, %w)
  %2 = multibroadcast[out_lens=[1, 1, 2, 2]](%s)
  %3 = mul(%1, %2)
  @return(%3)""",
        "the weights would leave the range of their type, or lose digits in it",
    ),
    (
        "input-factor-into-convolution",
        """\
  %x = @param["x"] -> float16[1, 1, 2, 2]
  %w = @literal(60000.0) -> float16[1, 1, 1, 1]
  %s = @literal(4.0) -> float16[]
  %1 = multibroadcast[out_lens=[1, 1, 2, 2]](%s)
  %2 = mul(%x, %1)
  %3 = convolution(%2, %w)
  @return(%3)""",
        "the weights would leave the range of their type, or lose digits in it",
    ),
    (
        "input-factor-into-dot",
        """\
  %x = @param["x"] -> float16[2, 1]
  %w = @literal(60000.0) -> float16[1, 1]
  %s = @literal(4.0) -> float16[]
  %1 = multibroadcast[out_lens=[2, 1]](%s)
  %2 = mul(%x, %1)
  %3 = dot(%2, %w)
  @return(%3)""",
        "the weights would leave the range of their type, or lose digits in it",
    ),
    (
        "wide-norm-into-product",
        """\
  %x = @param["x"] -> float16[2, 1]
  %w = @literal(60000.0) -> float16[1, 1]
  %s = @literal(4.0) -> float32[]
  %1 = dot(%x, %w)
  %2 = convert[target_type=float32](%1)
  %3 = multibroadcast[out_lens=[2, 1]](%s)
  %4 = mul(%2, %3)
  %5 = convert[target_type=float16](%4)
  @return(%5)""",
        "the weights would leave the range of their type, or lose digits in it",
    ),
    (
        "wide-norm-into-product",
        """\
  %x = @param["x"] -> float16[2, 1]
  %w = @literal(2.0) -> float16[1, 1]
  %s = @literal(4.0) -> float32[]
  %1 = dot(%x, %w)
  %2 = convert[target_type=float32](%1)
  %3 = multibroadcast[out_lens=[2, 1]](%s)
  %4 = mul(%2, %3)
  %5 = convert[target_type=float16](%4)
  @return(%5, %1)""",
        "the product or a part of the norm has other users",
    ),
    (
        "scale-out-of-dot",
        """\
  %x = @param["x"] -> float32[2, 2]
  %y = @param["y"] -> float32[2, 2]
  %s = @literal(4.0) -> float32[]
  %1 = multibroadcast[out_lens=[2, 2]](%s)
  %2 = mul(%x, %1)
  %3 = dot(%2, %y)
  @return(%3, %2)""",
        "the scaled operand has other users",
    ),
    (
        "join-factors",
        """\
  %x = @param["x"] -> float32[2]
  %c = @literal(3.0, 5.0) -> float32[2]
  %1 = mul(%x, %c)
  %2 = mul(%1, %c)
  @return(%2, %1)""",
        "the product inside has other users",
    ),
    (
        "join-integer-factors",
        """\
  %x = @param["x"] -> int32[2]
  %c = @literal(3, 5) -> int32[2]
  %1 = mul(%x, %c)
  %2 = mul(%1, %c)
  @return(%2, %1)""",
        "the product inside has other users",
    ),
    (
        "add-of-convolutions",
        """\
  %x = @param["x"] -> float32[1, 1, 4, 4]
  %y = @param["y"] -> float32[1, 1, 3, 3]
  %w = @literal(1.0) -> float32[1, 1, 1, 1]
  %1 = convolution[stride=[2, 2]](%x, %w)
  %2 = convolution[stride=[2, 2]](%y, %w)
  %3 = add(%1, %2)
  @return(%3)""",
        "the images have other extents",
    ),
    (
        "factor-of-slice-into-convolution",
        """\
  %x = @param["x"] -> float32[1, 1, 2, 2]
  %w = @literal(1.0, 2.0) -> float32[2, 1, 1, 1]
  %s = @literal(4.0) -> float32[]
  %1 = convolution(%x, %w)
  %2 = slice[axes=[1], starts=[0], ends=[1]](%1)
  %3 = multibroadcast[out_lens=[1, 1, 2, 2]](%s)
  %4 = mul(%2, %3)
  @return(%4, %2)""",
        "the slice has other users",
    ),
    (
        "scale-before-square",
        """\
  %x = @param["x"] -> float16[2]
  %c = @literal(4.0, 4.0) -> float16[2]
  %1 = mul(%x, %x)
  %2 = div(%1, %c)
  @return(%2, %1)""",
        "the square has other users",
    ),
    (
        "quantize-before-pooling",
        """\
  %x = @param["x"] -> float32[1, 1, 4, 4]
  %s = @literal(0.5) -> float32[]
  %1 = pooling[mode="max", lengths=[2, 2], stride=[2, 2]](%x)
  %2 = quantizelinear[out_type=int8](%1, %s)
  @return(%2, %1)""",
        "the pooling has other users",
    ),
    (
        "static-axes",
        """\
  %x = @param["x"] -> float32[2, 3]
  %a = @literal(0, -2) -> int64[2]
  %1 = reduce_sum(%x, %a)
  @return(%1)""",
        "the axes are outside the rank, or one appears twice",
    ),
    (
        "join-slices",
        """\
  %x = @param["x"] -> float32[n]
  %1 = slice[axes=[0], starts=[0], ends=[n], steps=[2]](%x)
  %2 = slice[axes=[0], starts=[0], ends=[1]](%1)
  @return(%2)""",
        "a slice with steps has symbolic bounds",
    ),
    (
        "slice-of-reshape",
        """\
  %x = @param["x"] -> float32[2, 12]
  %1 = reshape[dims=[2, 3, 4]](%x)
  %2 = slice[axes=[0], starts=[0], ends=[1]](%1)
  @return(%2)""",
        "x cannot absorb the slice, or has other users",
    ),
    (
        "reshape-below-concat",
        """\
  %x = @param["x"] -> float32[2, 12]
  %y = @param["y"] -> float32[2, 12]
  %1 = reshape[dims=[2, 3, 4]](%x)
  %2 = reshape[dims=[2, 3, 4]](%y)
  %3 = concat[axis=0](%1, %2)
  @return(%3, %1)""",
        "an operand has other users",
    ),
    (
        "transpose-below-pointwise",
        """\
  %x = @param["x"] -> float32[2, 3]
  %y = @param["y"] -> float32[2, 3]
  %1 = transpose[permutation=[1, 0]](%x)
  %2 = transpose[permutation=[1, 0]](%y)
  %3 = add(%1, %2)
  @return(%3, %1)""",
        "the transposed operand has other users",
    ),
    (
        "transpose-below-pointwise",
        """\
  %x = @param["x"] -> float32[2, 3]
  %1 = relu(%x)
  %2 = transpose[permutation=[1, 0]](%1)
  %3 = tanh(%2)
  %4 = reduce_sum[axes=[1]](%3)
  @return(%4)""",
        "a reduction reads the result",
    ),
    (
        "reshape-below-pointwise",
        """\
  %x = @param["x"] -> float32[6, 2]
  %y = @param["y"] -> float32[4, 3]
  %1 = relu(%x)
  %2 = reshape[dims=[2, 6]](%1)
  %3 = reshape[dims=[2, 6]](%y)
  %4 = mul(%2, %3)
  @return(%4)""",
        "the operands are reshaped from different extents, or have other users",
    ),
    (
        "slice-before-epilogue",
        """\
  %x = @param["x"] -> float32[2, 3]
  %y = @param["y"] -> float32[3, 4]
  %1 = dot(%x, %y)
  %2 = slice[axes=[0], starts=[0], ends=[1]](%1)
  %3 = relu(%2)
  %4 = slice[axes=[1], starts=[0], ends=[2]](%3)
  @return(%4)""",
        "a slice in between could not move above its own product",
    ),
    (
        "shifted-rows",
        """\
  %x = @param["x"] -> float32[1, 40000, 20000]
  %1 = pad[pads=[0, 0, 0, 0, 0, 1]](%x)
  %2 = reshape[dims=[1, 800040000]](%1)
  %3 = slice[axes=[1], starts=[0], ends=[800000000]](%2)
  @return(%3)""",
        "the rows are long, or their extents are symbolic",
    ),
    (
        "layernorm-from-batch-form",
        """\
  %x = @param["x"] -> float32[2, 4]
  %e = @literal(0.001) -> float32[]
  %gamma = @literal(1.0, 2.0, 3.0, 4.0) -> float32[4]
  %beta = @literal(0.5, 0.25, 0.125, 0.0) -> float32[4]
  %1 = reduce_mean[axes=[0]](%x)
  %2 = multibroadcast[out_lens=[2, 4]](%1)
  %5 = sqdiff(%x, %2)
  %6 = reduce_mean[axes=[0]](%5)
  %7 = multibroadcast[out_lens=[1, 4]](%e)
  %8 = add(%6, %7)
  %9 = rsqrt(%8)
  %10 = multibroadcast[out_lens=[2, 4]](%9)
  %11 = multibroadcast[out_lens=[2, 4]](%gamma)
  %12 = mul(%10, %11)
  %13 = mul(%x, %12)
  %14 = mul(%2, %12)
  %15 = multibroadcast[out_lens=[2, 4]](%beta)
  %16 = sub(%15, %14)
  %17 = add(%13, %16)
  @return(%17)""",
        "the normalization is not over the last axes",
    ),
    (
        "static-pad",
        """\
  %x = @param["x"] -> float32[2, 3]
  %p = @literal(1, 1, 1, 1) -> int64[4]
  %a = @literal(0, -2) -> int64[2]
  %v = @literal(0.0) -> float32[]
  %1 = pad(%x, %p, %v, %a)
  @return(%1)""",
        "the axes are outside the rank, or one appears twice",
    ),
    (
        "static-broadcast",
        """\
  %x = @param["x"] -> float32[1]
  %m = @param["m"] -> bool[4]
  %1 = nonzero(%m)
  %2 = multibroadcast(%x, %1)
  @return(%2)""",
        "the extents depend on data",
    ),
    (
        "shifted-rows",
        """\
  %x = @param["x"] -> float32[1, 2, 3]
  %1 = pad[pads=[0, 0, 0, 0, 0, 65536]](%x)
  %2 = reshape[dims=[1, 131078]](%1)
  %3 = slice[axes=[1], starts=[0], ends=[6]](%2)
  @return(%3)""",
        "the padded rows are long",
    ),
]


TARGET_CASES: list[tuple[Rules, str, str, str]] = [
    (
        CODED_WEIGHTS,
        "weights-as-codes",
        """\
  %x = @param["x"] -> float32[2, 2]
  %q = @literal(1, 2, 3, 4) -> int8[2, 2]
  %s = @param["s"] -> float32[]
  %1 = dequantizelinear[axis=1, block_size=0](%q, %s)
  %2 = dot(%x, %1)
  @return(%2)""",
        "the weights' scale or zero point is not constant",
    ),
    (
        CODED_WEIGHTS,
        "weights-as-codes",
        """\
  %x = @param["x"] -> float32[2, 2]
  %q = @literal(1, 2, 3, 4) -> int16[2, 2]
  %s = @literal(0.5) -> float32[]
  %1 = dequantizelinear[axis=1, block_size=0](%q, %s)
  %2 = dot(%x, %1)
  @return(%2)""",
        "weights of int16 are not codes of 4 or 8 bits",
    ),
    (
        CODED_WEIGHTS,
        "weights-as-codes",
        """\
  %x = @param["x"] -> float32[17, 2]
  %q = @literal(1, 2, 3, 4) -> int8[2, 2]
  %s = @literal(0.5) -> float32[]
  %1 = dequantizelinear[axis=1, block_size=0](%q, %s)
  %2 = dot(%x, %1)
  @return(%2)""",
        "with 17 rows a float product is faster",
    ),
    (
        CODED_WEIGHTS,
        "weights-as-codes",
        """\
  %x = @param["x"] -> float32[2, n]
  %q = @literal(1, 2, 3, 4) -> int8[2, 2]
  %s = @literal(0.5) -> float32[]
  %1 = dequantizelinear[axis=1, block_size=0](%q, %s)
  %2 = dot(%x, %1)
  @return(%2)""",
        "the rows are n long, which is not known before a run to be 2",
    ),
    (
        CODED_WEIGHTS,
        "weights-as-codes",
        """\
  %x = @param["x"] -> float32[2, 2]
  %q = @literal(1, 2, 3, 4) -> int8[2, 2]
  %s = @literal(0.5, 0.25) -> float32[2]
  %1 = dequantizelinear[axis=0, block_size=0](%q, %s)
  %2 = dot(%x, %1)
  @return(%2)""",
        "the scale does not vary along the columns alone",
    ),
    (
        CODED_WEIGHTS,
        "weights-as-codes",
        """\
  %x = @param["x"] -> float32[2, 2]
  %q = @literal(1, 2, 3, 4) -> int8[2, 2]
  %s = @literal(0.5, 0.25) -> float32[2, 1]
  %1 = dequantizelinear[axis=1, block_size=2](%q, %s)
  %2 = dot(%x, %1)
  @return(%2)""",
        "the blocks of the weights lie along the columns",
    ),
    (
        CODED_WEIGHTS,
        "weights-as-codes",
        """\
  %x = @param["x"] -> float32[2, 2, 2]
  %q = @literal(1, 2, 3, 4, 5, 6, 7, 8) -> int8[2, 2, 2]
  %s = @literal(0.5) -> float32[]
  %1 = dequantizelinear(%q, %s)
  %2 = dot(%x, %1)
  @return(%2)""",
        "the weights are not one constant matrix for all batches",
    ),
    (
        CODED_WEIGHTS,
        "weights-as-codes",
        """\
  %x = @param["x"] -> float64[2, 2]
  %q = @literal(1, 2, 3, 4) -> int8[2, 2]
  %s = @literal(0.5) -> float64[]
  %1 = dequantizelinear(%q, %s)
  %2 = dot(%x, %1)
  @return(%2)""",
        "the product is not one of float32 matrices",
    ),
    (
        WEIGHT_ARITHMETIC,
        "weights-that-arithmetic-widens",
        """\
  %x = @param["x"] -> float32[2, 2]
  %q = @literal(1, 2, 3, 4) -> uint8[2, 2]
  %z = @literal(0.5, 0.5, 0.5, 0.5) -> float32[2, 2]
  %1 = convert[target_type=float32](%q)
  %2 = sub(%1, %z)
  %3 = dot(%x, %2)
  @return(%3)""",
        "the zero points are not all representable in uint8",
    ),
    (
        WEIGHT_ARITHMETIC,
        "weights-that-arithmetic-widens",
        """\
  %x = @param["x"] -> float32[2, 2]
  %q = @literal(1, 2, 3, 4) -> uint8[2, 2]
  %s = @literal(0.5, 0.25, 0.125, 1.0) -> float32[2, 2]
  %1 = convert[target_type=float32](%q)
  %2 = mul(%1, %s)
  %3 = dot(%x, %2)
  @return(%3)""",
        "the scale or zero point varies along more than one axis, or within blocks",
    ),
    (
        TRANSPOSED,
        "convolution-for-each-place",
        """\
  %x = @param["x"] -> float32[1, 1, 3]
  %w = @param["w"] -> float32[1, 1, 2]
  %1 = convolution_backwards[stride=[2]](%x, %w)
  @return(%1)""",
        "the weights are not constant",
    ),
    (
        TRANSPOSED,
        "convolution-for-each-place",
        """\
  %x = @param["x"] -> float32[0, 1, 3]
  %w = @literal(1.0, 2.0) -> float32[1, 1, 2]
  %1 = convolution_backwards[stride=[2]](%x, %w)
  @return(%1)""",
        "there are no elements",
    ),
    (
        TRANSPOSED,
        "convolution-for-each-place",
        """\
  %x = @param["x"] -> float32[1, 1, 3]
  %w = @literal(1.0, 2.0, 3.0) -> float32[1, 1, 3]
  %1 = convolution_backwards[stride=[2]](%x, %w)
  @return(%1)""",
        "zeros would fill up windows",
    ),
    (
        TRANSPOSED,
        "convolution-with-filled-windows",
        """\
  %x = @param["x"] -> float32[1, 1, 3]
  %w = @literal(1.0) -> float32[1, 1, 1]
  %1 = convolution_backwards[stride=[8]](%x, %w)
  @return(%1)""",
        "most multiplications would be by zero",
    ),
    (
        NARROW_FLOAT_PRODUCTS,
        "narrow-float-dot",
        """\
  %p = @param["p"] -> float8_e4m3fn[2, 2]
  %q = @param["q"] -> float8_e4m3fn[2, 2]
  %s = @literal(0.5) -> float32[]
  %z = @literal(1.0) -> float8_e4m3fn[]
  %1 = dequantizelinear(%p, %s, %z)
  %2 = dequantizelinear(%q, %s)
  %3 = dot(%1, %2)
  @return(%3)""",
        "the zero point is not 0",
    ),
]


@pytest.mark.parametrize(("name", "before", "why"), CASES, ids=[f"{name}-{n}" for n, (name, _, _) in enumerate(CASES)])
def test_refuses(rule_refuses, name, before, why):
    rule_refuses(name, before, why)


@pytest.mark.parametrize(
    ("rules", "name", "before", "why"),
    TARGET_CASES,
    ids=[f"{name}-{n}" for n, (_, name, _, _) in enumerate(TARGET_CASES)],
)
def test_rules_of_targets_refuse(rule_refuses, rules, name, before, why):
    rule_refuses(name, before, why, rules)
