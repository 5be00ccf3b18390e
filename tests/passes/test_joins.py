"""Rules that join or move products, slices and views: module text before and after, refusals, and equal results."""

from __future__ import annotations

import pytest

TURNS = [
    (
        "add-of-convolutions",
        """\
  %x = @param["x"] -> float32[n, 1, 3]
  %y = @param["y"] -> float32[n, 1, 3]
  %w = @literal(1.0, 2.0) -> float32[2, 1, 1]
  %v = @literal(3.0, 4.0) -> float32[2, 1, 1]
  %1 = convolution(%x, %w)
  %2 = convolution(%y, %v)
  %3 = add(%1, %2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[n, 1, 3]
  %y = @param["y"] -> float32[n, 1, 3]
  %1 = concat[axis=1](%x, %y) -> float32[n, 2, 3]
  %2 = @literal(1.0, 3.0, 2.0, 4.0) -> float32[2, 2, 1]
  %3 = convolution[padding=[], stride=[], dilation=[], group=1, padding_mode="default"](%1, %2) -> float32[n, 2, 3]
  @return(%3)""",
    ),
    (
        "add-of-convolutions",
        """\
  %x = @param["x"] -> float32[1, 1, 2]
  %y = @param["y"] -> float32[1, 1, 3]
  %w = @literal(1.0, 2.0) -> float32[2, 1, 1]
  %v = @literal(3.0, 4.0) -> float32[2, 1, 1]
  %1 = convolution(%x, %w)
  %2 = convolution[stride=[2]](%y, %v)
  %3 = add(%1, %2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[1, 1, 2]
  %y = @param["y"] -> float32[1, 1, 3]
  %1 = slice[axes=[2], starts=[0], ends=[3], steps=[2]](%y) -> float32[1, 1, 2]
  %2 = concat[axis=1](%x, %1) -> float32[1, 2, 2]
  %3 = @literal(1.0, 3.0, 2.0, 4.0) -> float32[2, 2, 1]
  %4 = convolution[padding=[], stride=[], dilation=[], group=1, padding_mode="default"](%2, %3) -> float32[1, 2, 2]
  @return(%4)""",
    ),
    (
        "concat-of-convolutions",
        """\
  %x = @param["x"] -> float32[1, 4, 3]
  %w = @literal(1.0, 2.0) -> float32[1, 2, 1]
  %v = @literal(3.0, 4.0) -> float32[1, 2, 1]
  %c = @literal(0.5) -> float32[1, 1]
  %d = @literal(0.25) -> float32[1, 1]
  %e = multibroadcast[out_lens=[1, 1, 3]](%c)
  %f = multibroadcast[out_lens=[1, 1, 3]](%d)
  %1 = slice[axes=[1], starts=[0], ends=[2]](%x)
  %2 = slice[axes=[1], starts=[2], ends=[4]](%x)
  %3 = convolution(%1, %w)
  %4 = convolution(%2, %v)
  %5 = add(%3, %e)
  %6 = add(%4, %f)
  %7 = concat[axis=1](%5, %6)
  @return(%7)""",
        """\
  %x = @param["x"] -> float32[1, 4, 3]
  %1 = @literal(1.0, 2.0, 3.0, 4.0) -> float32[2, 2, 1]
  %2 = convolution[padding=[], stride=[], dilation=[], group=2, padding_mode="default"](%x, %1) -> float32[1, 2, 3]
  %3 = @literal(0.5, 0.25) -> float32[2, 1]
  %4 = multibroadcast[out_lens=[1, 2, 3]](%3) -> float32[1, 2, 3]
  %5 = add(%2, %4) -> float32[1, 2, 3]
  @return(%5)""",
    ),
    (
        "factor-of-slice-into-convolution",
        """\
  %x = @param["x"] -> float32[1, 1, 2]
  %w = @literal(1.0, 2.0, 3.0) -> float32[3, 1, 1]
  %c = @literal(2.0, 3.0) -> float32[2, 1]
  %s = multibroadcast[out_lens=[1, 2, 2]](%c)
  %1 = convolution(%x, %w)
  %2 = slice[axes=[1], starts=[0], ends=[2]](%1)
  %3 = slice[axes=[1], starts=[2], ends=[3]](%1)
  %4 = mul(%2, %s)
  @return(%4, %3)""",
        """\
  %x = @param["x"] -> float32[1, 1, 2]
  %1 = @literal(2.0, 6.0, 3.0) -> float32[3, 1, 1]
  %2 = convolution[padding=[], stride=[], dilation=[], group=1, padding_mode="default"](%x, %1) -> float32[1, 3, 2]
  %3 = slice[axes=[1], starts=[0], ends=[2], steps=[]](%2) -> float32[1, 2, 2]
  %4 = slice[axes=[1], starts=[2], ends=[3], steps=[]](%2) -> float32[1, 1, 2]
  @return(%3, %4)""",
    ),
    (
        "repetition-from-gather",
        """\
  %x = @param["x"] -> float32[n, 2]
  %i = @literal(0, 0, -1, 1) -> int64[4]
  %1 = gather[axis=1](%x, %i)
  @return(%1)""",
        """\
  %x = @param["x"] -> float32[n, 2]
  %1 = reshape[dims=[n, 2, 1], allowzero=true](%x) -> float32[n, 2, 1]
  %2 = multibroadcast[out_lens=[n, 2, 2]](%1) -> float32[n, 2, 2]
  %3 = reshape[dims=[n, 4], allowzero=true](%2) -> float32[n, 4]
  @return(%3)""",
    ),
    (
        "repetition-from-gather",
        """\
  %x = @param["x"] -> float32[2, n]
  %i = @literal(0, 1, 0, 1) -> int64[2, 2]
  %1 = gather[axis=0](%x, %i)
  @return(%1)""",
        """\
  %x = @param["x"] -> float32[2, n]
  %1 = reshape[dims=[1, 2, n], allowzero=true](%x) -> float32[1, 2, n]
  %2 = multibroadcast[out_lens=[2, 2, n]](%1) -> float32[2, 2, n]
  %3 = reshape[dims=[2, 2, n], allowzero=true](%2) -> float32[2, 2, n]
  @return(%3)""",
    ),
    (
        "work-before-slices",
        """\
  %x = @param["x"] -> float32[n, 4]
  %a = @literal(1.0, 2.0) -> float32[2]
  %b = @literal(3.0) -> float32[1]
  %c = multibroadcast[out_lens=[n, 2]](%a)
  %d = multibroadcast[out_lens=[n, 2]](%b)
  %1 = slice[axes=[1], starts=[0], ends=[2]](%x)
  %2 = slice[axes=[1], starts=[2], ends=[4]](%x)
  %3 = sub(%c, %1)
  %4 = sub(%d, %2)
  @return(%3, %4)""",
        """\
  %x = @param["x"] -> float32[n, 4]
  %1 = @literal(1.0, 2.0, 3.0, 3.0) -> float32[1, 4]
  %2 = multibroadcast[out_lens=[n, 4]](%1) -> float32[n, 4]
  %3 = sub(%2, %x) -> float32[n, 4]
  %4 = slice[axes=[1], starts=[0], ends=[2], steps=[]](%3) -> float32[n, 2]
  %5 = slice[axes=[1], starts=[2], ends=[4], steps=[]](%3) -> float32[n, 2]
  @return(%4, %5)""",
    ),
    (
        "reduction-before-slices",
        """\
  %x = @param["x"] -> float32[n, 4]
  %1 = slice[axes=[1], starts=[0], ends=[2]](%x)
  %2 = slice[axes=[1], starts=[2], ends=[4]](%x)
  %3 = reduce_sum[axes=[0]](%1)
  %4 = reduce_sum[axes=[0]](%2)
  @return(%3, %4)""",
        """\
  %x = @param["x"] -> float32[n, 4]
  %1 = reduce_sum[axes=[0], noop_with_empty_axes=false](%x) -> float32[1, 4]
  %2 = slice[axes=[1], starts=[0], ends=[2], steps=[]](%1) -> float32[1, 2]
  %3 = slice[axes=[1], starts=[2], ends=[4], steps=[]](%1) -> float32[1, 2]
  @return(%2, %3)""",
    ),
    (
        "transpose-before-slices",
        """\
  %x = @param["x"] -> float32[n, 3]
  %1 = slice[axes=[1], starts=[0], ends=[1]](%x)
  %2 = slice[axes=[1], starts=[1], ends=[3]](%x)
  %3 = transpose[permutation=[1, 0]](%1)
  %4 = transpose[permutation=[1, 0]](%2)
  @return(%3, %4)""",
        """\
  %x = @param["x"] -> float32[n, 3]
  %1 = transpose[permutation=[1, 0]](%x) -> float32[3, n]
  %2 = slice[axes=[0], starts=[0], ends=[1], steps=[]](%1) -> float32[1, n]
  %3 = slice[axes=[0], starts=[1], ends=[3], steps=[]](%1) -> float32[2, n]
  @return(%2, %3)""",
    ),
    (
        "reshape-before-slices",
        """\
  %x = @param["x"] -> float32[n, 8]
  %1 = slice[axes=[1], starts=[0], ends=[4]](%x)
  %2 = slice[axes=[1], starts=[4], ends=[8]](%x)
  %3 = reshape[dims=[n, 2, 2]](%1)
  %4 = reshape[dims=[n, 2, 2]](%2)
  @return(%3, %4)""",
        """\
  %x = @param["x"] -> float32[n, 8]
  %1 = reshape[dims=[n, 4, 2], allowzero=true](%x) -> float32[n, 4, 2]
  %2 = slice[axes=[1], starts=[0], ends=[2], steps=[]](%1) -> float32[n, 2, 2]
  %3 = slice[axes=[1], starts=[2], ends=[4], steps=[]](%1) -> float32[n, 2, 2]
  @return(%2, %3)""",
    ),
    (
        "work-after-concat",
        """\
  %x = @param["x"] -> float32[n, 2]
  %y = @param["y"] -> float32[n, 1]
  %a = @literal(2.0) -> float32[]
  %c = multibroadcast[out_lens=[n, 2]](%a)
  %d = multibroadcast[out_lens=[n, 1]](%a)
  %1 = mul(%x, %c)
  %2 = mul(%y, %d)
  %3 = concat[axis=1](%1, %2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[n, 2]
  %y = @param["y"] -> float32[n, 1]
  %1 = concat[axis=1](%x, %y) -> float32[n, 3]
  %2 = @literal(2.0) -> float32[]
  %3 = multibroadcast[out_lens=[n, 3]](%2) -> float32[n, 3]
  %4 = mul(%1, %3) -> float32[n, 3]
  @return(%4)""",
    ),
    (
        "slice-of-transpose",
        """\
  %x = @param["x"] -> float32[n, 3]
  %1 = transpose[permutation=[1, 0]](%x)
  %2 = slice[axes=[0], starts=[1], ends=[3]](%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[n, 3]
  %1 = slice[axes=[1], starts=[1], ends=[3], steps=[]](%x) -> float32[n, 2]
  %2 = transpose[permutation=[1, 0]](%1) -> float32[2, n]
  @return(%2)""",
    ),
    (
        "slice-of-reshape",
        """\
  %x = @param["x"] -> float32[n, 6, 2]
  %w = @literal(1.0, 2.0, 3.0, 4.0, 5.0, 6.0) -> float32[2, 3]
  %b = multibroadcast[out_lens=[n, 2, 3]](%w)
  %1 = dot(%x, %b)
  %2 = reshape[dims=[n, 2, 3, 3]](%1)
  %3 = slice[axes=[3], starts=[1], ends=[2]](%2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[n, 6, 2]
  %1 = @literal(1.0, 2.0, 3.0, 4.0, 5.0, 6.0) -> float32[2, 3]
  %2 = multibroadcast[out_lens=[n, 2, 3]](%1) -> float32[n, 2, 3]
  %3 = dot(%x, %2) -> float32[n, 6, 3]
  %4 = slice[axes=[2], starts=[1], ends=[2], steps=[]](%3) -> float32[n, 6, 1]
  %5 = reshape[dims=[n, 2, 3, 1], allowzero=true](%4) -> float32[n, 2, 3, 1]
  @return(%5)""",
    ),
    (
        "reshape-below-concat",
        """\
  %x = @param["x"] -> float32[4, n, 2]
  %y = @param["y"] -> float32[4, 1, 2]
  %1 = reshape[dims=[2, 2, n, 2]](%x)
  %2 = reshape[dims=[2, 2, 1, 2]](%y)
  %3 = concat[axis=2](%1, %2)
  %4 = reshape[dims=[4, n + 1, 2]](%3)
  @return(%4)""",
        """\
  %x = @param["x"] -> float32[4, n, 2]
  %y = @param["y"] -> float32[4, 1, 2]
  %1 = concat[axis=1](%x, %y) -> float32[4, n+1, 2]
  %2 = reshape[dims=[2, 2, n+1, 2], allowzero=true](%1) -> float32[2, 2, n+1, 2]
  %3 = reshape[dims=[4, n+1, 2], allowzero=false](%2) -> float32[4, n+1, 2]
  @return(%3)""",
    ),
    (
        "group-norm-from-instances",
        """\
  %x = @param["x"] -> float32[2, 4, 3]
  %s = @literal(1.0) -> float32[1]
  %b = @literal(0.0) -> float32[1]
  %1 = reshape[dims=[2, 1, 12]](%x)
  %2 = instancenorm(%1, %s, %b)
  %3 = reshape[dims=[2, 4, 3]](%2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2, 4, 3]
  %1 = groupnorm[num_groups=1, epsilon=1e-05](%x) -> float32[2, 4, 3]
  @return(%1)""",
    ),
    (
        "weights-on-the-left",
        """\
  %v = @param["v"] -> float32[2, 3]
  %s = @param["s"] -> float32[4, 3]
  %1 = softmax[axis=1](%s)
  %2 = transpose[permutation=[1, 0]](%1)
  %3 = dot(%v, %2)
  @return(%3)""",
        """\
  %v = @param["v"] -> float32[2, 3]
  %s = @param["s"] -> float32[4, 3]
  %1 = softmax[axis=1](%s) -> float32[4, 3]
  %2 = transpose[permutation=[1, 0]](%v) -> float32[3, 2]
  %3 = dot(%1, %2) -> float32[4, 2]
  %4 = transpose[permutation=[1, 0]](%3) -> float32[2, 4]
  @return(%4)""",
    ),
    (
        "reshape-below-dot",
        """\
  %x = @param["x"] -> float32[2, n, 2]
  %w = @literal(1.0, 2.0) -> float32[2, 1]
  %1 = reshape[dims=[2 * n, 2]](%x)
  %2 = dot(%1, %w)
  %3 = reshape[dims=[2, n, 1]](%2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2, n, 2]
  %1 = @literal(1.0, 2.0) -> float32[2, 1]
  %2 = multibroadcast[out_lens=[2, 2, 1]](%1) -> float32[2, 2, 1]
  %3 = dot(%x, %2) -> float32[2, n, 1]
  %4 = reshape[dims=[2*n, 1], allowzero=true](%3) -> float32[2*n, 1]
  %5 = reshape[dims=[2, n, 1], allowzero=false](%4) -> float32[2, n, 1]
  @return(%5)""",
    ),
    (
        "scale-out-of-dot",
        """\
  %x = @param["x"] -> float32[2, 3]
  %y = @param["y"] -> float32[2, 3]
  %a = @literal(0.5) -> float32[]
  %b = multibroadcast[out_lens=[2, 3]](%a)
  %1 = mul(%y, %b)
  %2 = transpose[permutation=[1, 0]](%1)
  %3 = dot(%x, %2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2, 3]
  %y = @param["y"] -> float32[2, 3]
  %1 = transpose[permutation=[1, 0]](%y) -> float32[3, 2]
  %2 = dot(%x, %1) -> float32[2, 2]
  %3 = @literal(0.5) -> float32[]
  %4 = multibroadcast[out_lens=[2, 2]](%3) -> float32[2, 2]
  %5 = mul(%2, %4) -> float32[2, 2]
  @return(%5)""",
    ),
    (
        "slice-of-product",
        """\
  %x = @param["x"] -> int8[2, 3]
  %w = @literal(1, 2, 3, 4, 5, 6) -> int8[3, 2]
  %1 = quant_dot(%x, %w)
  %2 = slice[axes=[1], starts=[1], ends=[2]](%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> int8[2, 3]
  %1 = @literal(2, 4, 6) -> int8[3, 1]
  %2 = quant_dot(%x, %1) -> int32[2, 1]
  @return(%2)""",
    ),
    (
        "static-onehot",
        """\
  %x = @param["x"] -> int64[n]
  %d = @literal(3) -> int64[]
  %v = @literal(0.0, 1.0) -> float32[2]
  %1 = onehot[axis=1](%x, %d, %v)
  %2 = convert[target_type=int32](%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> int64[n]
  %1 = @literal(0.0, 1.0) -> float32[2]
  %2 = onehot[axis=1, depth=3](%x, -, %1) -> float32[n, 3]
  %3 = convert[target_type=int32, saturate=true, round_mode="up"](%2) -> int32[n, 3]
  @return(%3)""",
    ),
    (
        "drop-zero-point-of-zero",
        """\
  %x = @param["x"] -> float32[2]
  %s = @literal(0.25) -> float32[]
  %z = @literal(0) -> int8[]
  %1 = quantizelinear(%x, %s, %z)
  %2 = dequantizelinear(%1, %s, %z)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = @literal(0.25) -> float32[]
  %2 = quantizelinear[axis=1, block_size=0, out_type=int8, saturate=true, precision=none](%x, %1) -> int8[2]
  %3 = dequantizelinear[axis=1, block_size=0, out_type=none](%2, %1) -> float32[2]
  @return(%3)""",
    ),
    (
        "pooling-from-lrn",
        """\
  %x = @param["x"] -> float32[n, 4, 3]
  %1 = lrn[alpha=0.5, beta=0.75, bias=2.0, size=2](%x)
  @return(%1)""",
        """\
  %x = @param["x"] -> float32[n, 4, 3]
  %1 = mul(%x, %x) -> float32[n, 4, 3]
  %2 = reshape[dims=[n, 1, 4, 3], allowzero=false](%1) -> float32[n, 1, 4, 3]
  %3 = pooling[mode="average", padding=[0, 0, 1, 0], padding_mode="default", stride=[1, 1], lengths=[2, 1], dilations=[], ceil_mode=false, count_include_pad=true, lp_order=2, dyn_global=false](%2) -> float32[n, 1, 4, 3]
  %4 = reshape[dims=[n, 4, 3], allowzero=false](%3) -> float32[n, 4, 3]
  %5 = @literal(0.5) -> float32[]
  %6 = multibroadcast[out_lens=[n, 4, 3]](%5) -> float32[n, 4, 3]
  %7 = mul(%4, %6) -> float32[n, 4, 3]
  %8 = @literal(2.0) -> float32[]
  %9 = multibroadcast[out_lens=[n, 4, 3]](%8) -> float32[n, 4, 3]
  %10 = add(%7, %9) -> float32[n, 4, 3]
  %11 = @literal(-0.75) -> float32[]
  %12 = multibroadcast[out_lens=[n, 4, 3]](%11) -> float32[n, 4, 3]
  %13 = pow(%10, %12) -> float32[n, 4, 3]
  %14 = mul(%x, %13) -> float32[n, 4, 3]
  @return(%14)""",
    ),
]

REFUSES = [
    (
        "add-of-convolutions",
        """\
  %x = @param["x"] -> float32[1, 3, 3]
  %y = @param["y"] -> float32[1, 3, 3]
  %w = @literal(1.0, 2.0, 3.0) -> float32[1, 3, 1]
  %1 = convolution(%x, %w)
  %2 = convolution(%y, %w)
  %3 = add(%1, %2)
  @return(%3)""",
        "concatenating the inputs would cost more than is saved",
    ),
    (
        "add-of-convolutions",
        """\
  %x = @param["x"] -> float32[1, 1, 2]
  %y = @param["y"] -> float32[1, 1, 3]
  %w = @literal(1.0, 2.0) -> float32[1, 1, 2]
  %1 = convolution[padding=[1]](%x, %w)
  %2 = convolution[stride=[1], dilation=[2], padding=[1]](%y, %w)
  %3 = add(%1, %2)
  @return(%3)""",
        "the attributes differ",
    ),
    (
        "add-of-convolutions",
        """\
  %x = @param["x"] -> float32[1, 1, 2]
  %w = @literal(1.0) -> float32[1, 1, 1]
  %v = @literal(2.0) -> float32[1, 1, 1]
  %1 = convolution(%x, %w)
  %2 = convolution(%x, %v)
  %3 = add(%1, %2)
  @return(%3, %2)""",
        "a convolution has other users",
    ),
    (
        "concat-of-convolutions",
        """\
  %x = @param["x"] -> float32[1, 1, 2]
  %w = @literal(1.0) -> float32[1, 1, 1]
  %v = @literal(2.0) -> float32[1, 1, 1]
  %1 = convolution(%x, %w)
  %2 = convolution(%x, %v)
  %3 = concat[axis=1](%1, %2)
  @return(%3)""",
        "the inputs are not adjacent slices of one tensor",
    ),
    (
        "factor-of-slice-into-convolution",
        """\
  %x = @param["x"] -> float32[1, 1, 2]
  %w = @literal(1.0, 2.0) -> float32[2, 1, 1]
  %c = @literal(2.0) -> float32[]
  %s = multibroadcast[out_lens=[1, 1, 2]](%c)
  %1 = convolution(%x, %w)
  %2 = slice[axes=[1], starts=[0], ends=[1]](%1)
  %3 = mul(%2, %s)
  @return(%3, %1)""",
        "other users read these channels",
    ),
    (
        "repetition-from-gather",
        """\
  %x = @param["x"] -> float32[2]
  %i = @literal(0, 1, 1, 0) -> int64[4]
  %1 = gather[axis=0](%x, %i)
  @return(%1)""",
        "the positions do not repeat the axis evenly",
    ),
    (
        "reduction-before-slices",
        """\
  %x = @param["x"] -> float32[4]
  %1 = slice[axes=[0], starts=[0], ends=[2]](%x)
  %2 = slice[axes=[0], starts=[2], ends=[4]](%x)
  %3 = reduce_sum[axes=[0]](%1)
  %4 = reduce_sum[axes=[0]](%2)
  @return(%3, %4)""",
        "the sliced axis is reduced",
    ),
    (
        "transpose-before-slices",
        """\
  %x = @param["x"] -> float32[2, 2, 2]
  %1 = slice[axes=[0], starts=[0], ends=[1]](%x)
  %2 = slice[axes=[0], starts=[1], ends=[2]](%x)
  %3 = transpose[permutation=[1, 0, 2]](%1)
  %4 = transpose[permutation=[2, 1, 0]](%2)
  @return(%3, %4)""",
        "the users of the slices are not all the same op with equal attributes",
    ),
    (
        "reshape-before-slices",
        """\
  %x = @param["x"] -> float32[2, 4]
  %1 = slice[axes=[1], starts=[0], ends=[2]](%x)
  %2 = slice[axes=[1], starts=[2], ends=[4]](%x)
  %3 = reshape[dims=[4]](%1)
  %4 = reshape[dims=[2, 2, 1]](%2)
  @return(%3, %4)""",
        "the users of the slices are not all the same op with equal attributes",
    ),
    (
        "reshape-before-slices",
        """\
  %x = @param["x"] -> float32[2, 4]
  %1 = slice[axes=[1], starts=[0], ends=[1]](%x)
  %2 = slice[axes=[1], starts=[1], ends=[4]](%x)
  %3 = reshape[dims=[-1]](%1)
  %4 = reshape[dims=[-1]](%2)
  @return(%3, %4)""",
        "the slices are not all reshaped in the same way",
    ),
    (
        "slice-of-transpose",
        """\
  %x = @param["x"] -> float32[2, 3]
  %1 = transpose[permutation=[1, 0]](%x)
  %2 = slice[axes=[0], starts=[1], ends=[3]](%1)
  @return(%2, %1)""",
        "the transposed tensor has other users, or is constant",
    ),
    (
        "slice-of-reshape",
        """\
  %x = @param["x"] -> float32[2, 2]
  %y = @param["y"] -> float32[2, 2]
  %1 = concat[axis=0](%x, %y)
  %2 = reshape[dims=[2, 4]](%1)
  %3 = slice[axes=[1], starts=[1], ends=[2]](%2)
  @return(%3)""",
        "the sliced axis is not an axis of x",
    ),
    (
        "reshape-below-concat",
        """\
  %x = @param["x"] -> float32[4, 2]
  %y = @param["y"] -> float32[4, 1]
  %1 = reshape[dims=[2, 2, 2]](%x)
  %2 = reshape[dims=[2, 2, 1]](%y)
  %3 = concat[axis=2](%1, %2)
  @return(%3)""",
        "no operations would become fusible",
    ),
    (
        "reshape-below-dot",
        """\
  %x = @param["x"] -> float32[2, 3, 2]
  %w = @literal(1.0, 2.0) -> float32[2, 1]
  %1 = reshape[dims=[6, 2]](%x)
  %2 = dot(%1, %w)
  %3 = reshape[dims=[3, 2, 1]](%2)
  @return(%3)""",
        "the result is not reshaped to the original batch axes",
    ),
    (
        "static-onehot",
        """\
  %x = @param["x"] -> int64[n]
  %d = @param["d"] -> int64[]
  %v = @literal(0.0, 1.0) -> float32[2]
  %1 = onehot[axis=1](%x, %d, %v)
  @return(%1)""",
        "the depth is known only at run time",
    ),
    (
        "slice-of-product",
        """\
  %x = @param["x"] -> int8[2, 3]
  %z = @param["z"] -> int8[2, 1]
  %w = @literal(1, 2, 3, 4, 5, 6) -> int8[3, 2]
  %1 = quant_dot(%x, %w, %z)
  %2 = slice[axes=[0], starts=[1], ends=[2]](%1)
  @return(%2)""",
        "positions along axis 0 depend on both operands",
    ),
]


@pytest.mark.parametrize(("name", "before", "after"), TURNS, ids=[f"{n}-{t[0]}" for n, t in enumerate(TURNS)])
def test_turns(name, before, after, rule_turns):
    rule_turns(name, before, after)


@pytest.mark.parametrize(("name", "before", "why"), REFUSES, ids=[f"{n}-{t[0]}" for n, t in enumerate(REFUSES)])
def test_refuses(name, before, why, rule_refuses):
    rule_refuses(name, before, why)
