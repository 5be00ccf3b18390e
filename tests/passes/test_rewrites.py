"""Rules on conversions, padding, pooling and quantization: module text before and after, and equal results."""

from __future__ import annotations

import pytest

TURNS = [
    (
        "drop-same-type",
        """\
  %x = @param["x"] -> float32[2]
  %1 = convert[target_type=float32](%x)
  %2 = neg(%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = neg(%x) -> float32[2]
  @return(%1)""",
    ),
    (
        "join-converts",
        """\
  %x = @param["x"] -> float16[2]
  %1 = convert[target_type=float32](%x)
  %2 = convert[target_type=int32](%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float16[2]
  %1 = convert[target_type=int32, saturate=true, round_mode="up"](%x) -> int32[2]
  @return(%1)""",
    ),
    (
        "convert-behind-topk",
        """\
  %x = @param["x"] -> float16[4]
  %1 = convert[target_type=float32](%x)
  %2 = topk[k=2](%1)
  %3 = get_tuple_elem[index=0](%2)
  %4 = get_tuple_elem[index=1](%2)
  @return(%3, %4)""",
        """\
  %x = @param["x"] -> float16[4]
  %1 = topk[k=2, axis=-1, largest=true, sorted=true](%x) -> (float16[2], int64[2])
  %2 = get_tuple_elem[index=0](%1) -> float16[2]
  %3 = convert[target_type=float32, saturate=true, round_mode="up"](%2) -> float32[2]
  %4 = topk[k=2, axis=-1, largest=true, sorted=true](%x) -> (float16[2], int64[2])
  %5 = get_tuple_elem[index=1](%4) -> int64[2]
  @return(%3, %5)""",
    ),
    (
        "convert-behind-gather",
        """\
  %x = @param["x"] -> float16[4]
  %n = @param["n"] -> int64[3]
  %1 = convert[target_type=float32](%x)
  %2 = gather[axis=0](%1, %n)
  %3 = reshape[dims=[3, 1]](%2)
  %4 = abs(%3)
  @return(%4)""",
        """\
  %x = @param["x"] -> float16[4]
  %n = @param["n"] -> int64[3]
  %1 = gather[axis=0](%x, %n) -> float16[3]
  %2 = convert[target_type=float32, saturate=true, round_mode="up"](%1) -> float32[3]
  %3 = reshape[dims=[3, 1], allowzero=false](%2) -> float32[3, 1]
  %4 = abs(%3) -> float32[3, 1]
  @return(%4)""",
    ),
    (
        "compute-in-wider-type",
        """\
  %x = @param["x"] -> float32[2]
  %c = @literal(2.0) -> float16[]
  %b = multibroadcast[out_lens=[2]](%c)
  %1 = convert[target_type=float16](%x)
  %2 = mul(%1, %b)
  %3 = convert[target_type=float32](%2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = @literal(2.0) -> float32[]
  %2 = multibroadcast[out_lens=[2]](%1) -> float32[2]
  %3 = mul(%x, %2) -> float32[2]
  @return(%3)""",
    ),
    (
        "scale-before-square",
        """\
  %x = @param["x"] -> float16[2]
  %c = @literal(8.0) -> float16[]
  %b = multibroadcast[out_lens=[2]](%c)
  %2 = mul(%x, %x)
  %3 = div(%2, %b)
  @return(%3)""",
        """\
  %x = @param["x"] -> float16[2]
  %1 = @literal(8.0) -> float16[]
  %2 = multibroadcast[out_lens=[2]](%1) -> float16[2]
  %3 = div(%x, %2) -> float16[2]
  %4 = mul(%x, %3) -> float16[2]
  @return(%4)""",
    ),
    (
        "quantize-what-was-quantized",
        """\
  %x = @param["x"] -> int8[2]
  %s = @literal(0.1) -> float32[]
  %z = @literal(3) -> int8[]
  %1 = dequantizelinear(%x, %s, %z)
  %2 = quantizelinear(%1, %s, %z)
  %3 = convert[target_type=int32](%2)
  @return(%3)""",
        """\
  %x = @param["x"] -> int8[2]
  %1 = convert[target_type=int32, saturate=true, round_mode="up"](%x) -> int32[2]
  @return(%1)""",
    ),
    (
        "reduction-from-max-pooling",
        """\
  %x = @param["x"] -> float32[n, 2, 3, 4]
  %1 = pooling[mode="max", lengths=[3, 4]](%x)
  @return(%1)""",
        """\
  %x = @param["x"] -> float32[n, 2, 3, 4]
  %1 = reduce_max[axes=[2, 3], noop_with_empty_axes=false](%x) -> float32[n, 2, 1, 1]
  @return(%1)""",
    ),
    (
        "reduction-from-average-pooling",
        """\
  %x = @param["x"] -> float32[1, 2, n, 4]
  %1 = pooling[mode="average", dyn_global=true](%x)
  @return(%1)""",
        """\
  %x = @param["x"] -> float32[1, 2, n, 4]
  %1 = reduce_mean[axes=[2, 3], noop_with_empty_axes=false](%x) -> float32[1, 2, 1, 1]
  @return(%1)""",
    ),
    (
        "drop-pooling-of-one",
        """\
  %x = @param["x"] -> float32[1, 2, 3]
  %1 = pooling[mode="max", lengths=[1], stride=[1]](%x)
  %2 = neg(%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[1, 2, 3]
  %1 = neg(%x) -> float32[1, 2, 3]
  @return(%1)""",
    ),
    (
        "fit-windows",
        """\
  %x = @param["x"] -> float32[1, 2, 5, n]
  %1 = pooling[mode="max", lengths=[99, 9], stride=[300, 9], padding=[1, 0], dilations=[2, 1], ceil_mode=true](%x)
  @return(%1)""",
        """\
  %x = @param["x"] -> float32[1, 2, 5, n]
  %1 = pooling[mode="max", padding=[1, 0], padding_mode="default", stride=[300, 9], lengths=[4, 9], dilations=[2, 1], \
ceil_mode=true, count_include_pad=false, lp_order=2, dyn_global=false](%x) -> float32[1, 2, 1, ((n+8)//9)]
  @return(%1)""",
    ),
    (
        "plain-average",
        """\
  %x = @param["x"] -> float32[1, 2, 5]
  %1 = pooling[mode="average", lengths=[2], count_include_pad=true](%x)
  @return(%1)""",
        """\
  %x = @param["x"] -> float32[1, 2, 5]
  %1 = pooling[mode="average", padding=[], padding_mode="default", stride=[], lengths=[2], dilations=[], ceil_mode=false, count_include_pad=false, lp_order=2, dyn_global=false](%x) -> float32[1, 2, 4]
  @return(%1)""",
    ),
    (
        "drop-pad-of-nothing",
        """\
  %x = @param["x"] -> float32[1, n]
  %1 = pad[pads=[0, 0, 0, 0]](%x)
  %2 = neg(%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[1, n]
  %1 = neg(%x) -> float32[1, n]
  @return(%1)""",
    ),
    (
        "join-pads",
        """\
  %x = @param["x"] -> float32[1, n]
  %1 = pad[pads=[0, 1, 0, 2], value=1.0](%x)
  %2 = pad[pads=[1, 1, 0, 0], value=1.0](%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[1, n]
  %1 = pad[pads=[1, 2, 0, 2], mode="constant", value=1.0](%x) -> float32[2, n+4]
  @return(%1)""",
    ),
    (
        "pad-into-convolution",
        """\
  %x = @param["x"] -> float32[1, 2, 4, 4]
  %w = @literal(1.0, 2.0) -> float32[1, 2, 1, 1]
  %1 = pad[pads=[0, 0, 1, 0, 0, 0, 2, 1]](%x)
  %2 = convolution[padding=[1, 1]](%1, %w)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[1, 2, 4, 4]
  %1 = @literal(1.0, 2.0) -> float32[1, 2, 1, 1]
  %2 = convolution[padding=[2, 1, 3, 2], stride=[], dilation=[], group=1, padding_mode="default"](%x, %1) -> float32[1, 1, 9, 7]
  @return(%2)""",
    ),
    (
        "pad-into-transform",
        """\
  %x = @param["x"] -> float32[2, 3000]
  %1 = pad[pads=[0, 0, 0, 3000]](%x)
  %2 = unsqueeze[axes=[-1]](%1)
  %3 = dft[axis=1, onesided=true](%2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2, 3000]
  %1 = unsqueeze[axes=[-1]](%x) -> float32[2, 3000, 1]
  %2 = dft[axis=1, inverse=false, onesided=true, dft_length=6000](%1) -> float32[2, 3001, 2]
  @return(%2)""",
    ),
    (
        "pad-into-transform",
        """\
  %x = @param["x"] -> float32[2, 1100, 2]
  %1 = pad[pads=[0, 0, 0, 0, 1901, 0]](%x)
  %2 = dft[axis=1, inverse=true, onesided=true](%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[2, 1100, 2]
  %1 = dft[axis=1, inverse=true, onesided=true, dft_length=6000](%x) -> float32[2, 6000, 1]
  @return(%1)""",
    ),
    (
        "pad-into-pooling",
        """\
  %x = @param["x"] -> float32[1, 2, 4, 4]
  %1 = pad[pads=[0, 0, 1, 0, 0, 0, 1, 1]](%x)
  %2 = pooling[mode="average", lengths=[2, 2]](%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[1, 2, 4, 4]
  %1 = pooling[mode="average", padding=[1, 0, 1, 1], padding_mode="default", stride=[], lengths=[2, 2], dilations=[], ceil_mode=false, count_include_pad=true, lp_order=2, dyn_global=false](%x) -> float32[1, 2, 5, 4]
  @return(%1)""",
    ),
    (
        "pad-into-pooling",
        """\
  %x = @param["x"] -> float32[1, 2, 4, 4]
  %0 = relu(%x)
  %1 = pad[pads=[0, 0, 1, 0, 0, 0, 1, 1]](%0)
  %2 = pooling[mode="max", lengths=[2, 2]](%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[1, 2, 4, 4]
  %1 = relu(%x) -> float32[1, 2, 4, 4]
  %2 = pooling[mode="max", padding=[1, 0, 1, 1], padding_mode="default", stride=[], lengths=[2, 2], dilations=[], ceil_mode=false, count_include_pad=false, lp_order=2, dyn_global=false](%1) -> float32[1, 2, 5, 4]
  @return(%2)""",
    ),
    (
        "moved-pad-into-convolution",
        """\
  %x = @param["x"] -> float32[1, 4, 5, 2]
  %w = @param["w"] -> float32[3, 2, 3, 3]
  %1 = pad[pads=[0, 1, 2, 0, 0, 3, 0, 0]](%x)
  %2 = transpose[permutation=[0, 3, 1, 2]](%1)
  %3 = convolution(%2, %w)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[1, 4, 5, 2]
  %w = @param["w"] -> float32[3, 2, 3, 3]
  %1 = transpose[permutation=[0, 3, 1, 2]](%x) -> float32[1, 2, 4, 5]
  %2 = convolution[padding=[1, 2, 3, 0], stride=[], dilation=[], group=1, padding_mode="default"](%1, %w) -> float32[1, 3, 6, 5]
  @return(%2)""",
    ),
    (
        "moved-pad-into-convolution",
        """\
  %x = @param["x"] -> int8[1, 2, 4, 5]
  %w = @param["w"] -> int8[3, 2, 3, 3]
  %z = @literal(-7) -> int8[]
  %1 = pad[pads=[0, 0, 1, 2, 0, 0, 3, 0], value=-7.0](%x)
  %2 = quant_convolution(%1, %w, %z)
  @return(%2)""",
        """\
  %x = @param["x"] -> int8[1, 2, 4, 5]
  %w = @param["w"] -> int8[3, 2, 3, 3]
  %1 = @literal(-7) -> int8[]
  %2 = quant_convolution[padding=[1, 2, 3, 0], stride=[], dilation=[], group=1, padding_mode="default"](%x, %w, %1) -> int32[1, 3, 6, 5]
  @return(%2)""",
    ),
]


@pytest.mark.parametrize(("name", "before", "after"), TURNS)
def test_turns(rule_turns, name, before, after):
    rule_turns(name, before, after)


REFUSES = [
    (
        "join-converts",
        """\
  %x = @param["x"] -> float32[2]
  %1 = convert[target_type=float16](%x)
  %2 = convert[target_type=float32](%1)
  @return(%2)""",
        "float16 does not hold every float32",
    ),
    (
        "join-converts",
        """\
  %x = @param["x"] -> int16[2]
  %1 = convert[target_type=float32](%x)
  %2 = convert[target_type=uint32](%1)
  @return(%2)""",
        "uint32 does not represent every int16: floats saturate, integers wrap",
    ),
    (
        "join-converts",
        """\
  %x = @param["x"] -> float32[2]
  %1 = convert[target_type=float64](%x)
  %2 = convert[target_type=string](%1)
  @return(%2)""",
        "text shows which type it was converted from",
    ),
    (
        "compute-in-wider-type",
        """\
  %x = @param["x"] -> float32[2]
  %y = @param["y"] -> float16[2]
  %1 = convert[target_type=float16](%x)
  %2 = mul(%1, %y)
  %3 = convert[target_type=float32](%2)
  @return(%3)""",
        "an operand does not come from float32",
    ),
    (
        "quantize-what-was-quantized",
        """\
  %x = @param["x"] -> int8[2]
  %s = @literal(0.1) -> float32[]
  %t = @literal(0.2) -> float32[]
  %z = @literal(3) -> int8[]
  %1 = dequantizelinear(%x, %s, %z)
  %2 = quantizelinear(%1, %t, %z)
  @return(%2)""",
        "the scales or zero points differ",
    ),
    (
        "pad-into-pooling",
        """\
  %x = @param["x"] -> float32[1, 2, 4, 4]
  %1 = pad[pads=[0, 0, 1, 0, 0, 0, 1, 1]](%x)
  %2 = pooling[mode="max", lengths=[2, 2]](%1)
  @return(%2)""",
        "the border could be a maximum",
    ),
    (
        "pad-into-pooling",
        """\
  %x = @param["x"] -> float32[1, 2, 4, 4]
  %0 = relu(%x)
  %1 = pad[pads=[0, 0, 2, 0, 0, 0, 1, 1]](%0)
  %2 = pooling[mode="max", lengths=[2, 2]](%1)
  @return(%2)""",
        "a window could cover only padding",
    ),
    (
        "moved-pad-into-convolution",
        """\
  %x = @param["x"] -> int8[1, 2, 4, 5]
  %w = @param["w"] -> int8[3, 2, 3, 3]
  %z = @literal(-7) -> int8[]
  %1 = pad[pads=[0, 0, 1, 2, 0, 0, 3, 0]](%x)
  %2 = quant_convolution(%1, %w, %z)
  @return(%2)""",
        "the border is not the zero point",
    ),
    (
        "pad-into-convolution",
        """\
  %x = @param["x"] -> float32[1, 1, 4, 4]
  %w = @literal(1.0, 2.0) -> float32[1, 2, 1, 1]
  %1 = pad[pads=[0, 1, 1, 0, 0, 0, 2, 1]](%x)
  %2 = convolution(%1, %w)
  @return(%2)""",
        "batch or channels are padded, or an axis is cropped",
    ),
    (
        "pad-into-convolution",
        """\
  %x = @param["x"] -> float32[1, 2, 4, 4]
  %w = @literal(1.0, 2.0) -> float32[1, 2, 1, 1]
  %1 = pad[pads=[0, 0, 1, 0, 0, 0, 2, 1], mode="edge"](%x)
  %2 = convolution(%1, %w)
  @return(%2)""",
        "the border is not 0",
    ),
    (
        "join-pads",
        """\
  %x = @param["x"] -> float32[1, 3]
  %1 = pad[pads=[0, 1, 0, 2], value=1.0](%x)
  %2 = pad[pads=[1, 1, 0, 0]](%1)
  @return(%2)""",
        "the borders differ, are not constant, or the inner one has other users",
    ),
]


@pytest.mark.parametrize(("name", "before", "why"), REFUSES)
def test_refuses(rule_refuses, name, before, why):
    rule_refuses(name, before, why)
