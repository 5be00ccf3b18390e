"""Passes that form groups, join products and decompose ops: module text before and after, counts, and equal results."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_core import Instruction, Module, Program, Shape, op
from mgx_core.compile.pipeline import Pipeline, Stage
from mgx_core.ir.interpreter import evaluate_module
from mgx_core.ir.text.parser import parse_module
from mgx_core.ir.verify import verify
from mgx_core.ops import STANDARD
from mgx_core.ops.control import Group
from mgx_core.ops.softmax import Logsoftmax
from mgx_core.passes.expand_composites import ExpandComposites
from mgx_core.passes.fuse_attention import FuseAttention
from mgx_core.passes.fuse_elementwise import FuseElementwise
from mgx_core.passes.fuse_epilogue import FuseEpilogue
from mgx_core.passes.fuse_horizontal import FuseHorizontal
from mgx_core.passes.resolve_extents import ResolveExtents
from mgx_core.rules.algebra import SIMPLIFY

CASES = [
    (
        "attention",
        (FuseAttention(),),
        """\
  %q = @param["q"] -> float32[2, 3, 4]
  %k = @param["k"] -> float32[2, 4, 5]
  %v = @param["v"] -> float32[2, 5, 4]
  %m = @param["m"] -> float32[2, 3, 5]
  %1 = dot(%q, %k)
  %2 = add(%1, %m)
  %3 = softmax[axis=2](%2)
  %4 = dot(%3, %v)
  %5 = transpose[permutation=[1, 0, 2]](%4)
  %6 = reshape[dims=[3, 8]](%5)
  @return(%6)""",
        """\
  %q = @param["q"] -> float32[2, 3, 4]
  %k = @param["k"] -> float32[2, 4, 5]
  %v = @param["v"] -> float32[2, 5, 4]
  %m = @param["m"] -> float32[2, 3, 5]
  %1 = group[tag="attention"](%q, %k, %m, %v){attention_0} -> float32[3, 8]
  @return(%1)
module attention_0
  %x0 = @param["x0"] -> float32[2, 3, 4]
  %x1 = @param["x1"] -> float32[2, 4, 5]
  %x2 = @param["x2"] -> float32[2, 3, 5]
  %x3 = @param["x3"] -> float32[2, 5, 4]
  %2 = dot(%x0, %x1) -> float32[2, 3, 5]
  %3 = add(%2, %x2) -> float32[2, 3, 5]
  %4 = softmax[axis=2](%3) -> float32[2, 3, 5]
  %5 = dot(%4, %x3) -> float32[2, 3, 4]
  %6 = transpose[permutation=[1, 0, 2]](%5) -> float32[3, 2, 4]
  %7 = reshape[dims=[3, 8], allowzero=false](%6) -> float32[3, 8]
  @return(%7)""",
        [("fuse-attention", 1, 0, "")],
    ),
    (
        "no_attention",
        (FuseAttention(),),
        """\
  %q = @param["q"] -> float32[2, 3, 4]
  %k = @param["k"] -> float32[2, 4, 5]
  %1 = dot(%q, %k)
  %2 = softmax[axis=1](%1)
  %3 = softmax[axis=2](%1)
  %4 = softmax[axis=2](%q)
  @return(%2, %3, %4)""",
        """\
  %q = @param["q"] -> float32[2, 3, 4]
  %k = @param["k"] -> float32[2, 4, 5]
  %1 = dot(%q, %k) -> float32[2, 3, 5]
  %2 = softmax[axis=1](%1) -> float32[2, 3, 5]
  %3 = softmax[axis=2](%1) -> float32[2, 3, 5]
  %4 = softmax[axis=2](%q) -> float32[2, 3, 4]
  @return(%2, %3, %4)""",
        [("fuse-attention", 0, 3, "the softmax is not along the last axis")],
    ),
    (
        "reduction",
        (FuseElementwise(),),
        """\
  %x = @param["x"] -> float32[2, 3]
  %y = @param["y"] -> float32[2, 1]
  %1 = exp(%x)
  %2 = reduce_sum[axes=[1]](%1)
  %3 = add(%2, %y)
  %4 = multibroadcast[out_lens=[2, 3]](%3)
  %5 = div(%1, %4)
  @return(%5)""",
        """\
  %x = @param["x"] -> float32[2, 3]
  %y = @param["y"] -> float32[2, 1]
  %1 = fused_reduce[axes=[1]](%x, %y){fused_reduce_0} -> float32[2, 3]
  @return(%1)
module fused_reduce_0
  %x0 = @param["x0"] -> float32[2, 3]
  %x1 = @param["x1"] -> float32[2, 1]
  %2 = exp(%x0) -> float32[2, 3]
  %3 = reduce_sum[axes=[1], noop_with_empty_axes=false](%2) -> float32[2, 1]
  %4 = add(%3, %x1) -> float32[2, 1]
  %5 = multibroadcast[out_lens=[2, 3]](%4) -> float32[2, 3]
  %6 = div(%2, %5) -> float32[2, 3]
  @return(%6)""",
        [("fuse-reductions", 1, 0, "")],
    ),
    (
        "kept_apart",
        (FuseElementwise(),),
        """\
  %x = @param["x"] -> float32[2, 3]
  %1 = exp(%x)
  %2 = reduce_sum[axes=[1]](%1)
  %3 = softmax[axis=1](%1)
  %4 = reduce_max[axes=[0]](%1)
  %5 = add(%1, %3)
  @return(%2, %4, %5)""",
        """\
  %x = @param["x"] -> float32[2, 3]
  %1 = fused_reduce[axes=[1]](%x){fused_reduce_0} -> (float32[2, 3], float32[2, 1])
  %2 = get_tuple_elem[index=0](%1) -> float32[2, 3]
  %3 = get_tuple_elem[index=1](%1) -> float32[2, 1]
  %4 = softmax[axis=1](%2) -> float32[2, 3]
  %5 = fused_reduce[axes=[0]](%2){fused_reduce_1} -> float32[1, 3]
  %6 = pointwise(%2, %4){pointwise_0} -> float32[2, 3]
  @return(%3, %5, %6)
module fused_reduce_0
  %x0 = @param["x0"] -> float32[2, 3]
  %7 = exp(%x0) -> float32[2, 3]
  %8 = reduce_sum[axes=[1], noop_with_empty_axes=false](%7) -> float32[2, 1]
  @return(%7, %8)
module fused_reduce_1
  %x0.2 = @param["x0"] -> float32[2, 3]
  %9 = reduce_max[axes=[0], noop_with_empty_axes=false](%x0.2) -> float32[1, 3]
  @return(%9)
module pointwise_0
  %x0.3 = @param["x0"] -> float32[2, 3]
  %x1 = @param["x1"] -> float32[2, 3]
  %10 = add(%x0.3, %x1) -> float32[2, 3]
  @return(%10)""",
        [("fuse-reductions", 2, 2, "the group reduces other axes"), ("fuse-elementwise", 1, 0, "")],
    ),
    (
        "epilogue",
        (
            FuseElementwise(),
            FuseEpilogue(),
        ),
        """\
  %x = @param["x"] -> float32[2, 3]
  %w = @param["w"] -> float32[3, 4]
  %b = @param["b"] -> float32[8]
  %1 = dot(%x, %w)
  %2 = reshape[dims=[8]](%1)
  %3 = add(%2, %b)
  %4 = relu(%3)
  @return(%4)""",
        """\
  %x = @param["x"] -> float32[2, 3]
  %w = @param["w"] -> float32[3, 4]
  %b = @param["b"] -> float32[8]
  %1 = group[tag="dot"](%x, %w, %b){dot_0} -> float32[8]
  @return(%1)
module dot_0
  %x0 = @param["x0"] -> float32[2, 3]
  %x1 = @param["x1"] -> float32[3, 4]
  %x2 = @param["x2"] -> float32[8]
  %2 = dot(%x0, %x1) -> float32[2, 4]
  %3 = reshape[dims=[8], allowzero=false](%2) -> float32[8]
  %4 = pointwise(%3, %x2){pointwise_0} -> float32[8]
  @return(%4)
module pointwise_0
  %x0.2 = @param["x0"] -> float32[8]
  %x1.2 = @param["x1"] -> float32[8]
  %5 = add(%x0.2, %x1.2) -> float32[8]
  %6 = relu(%5) -> float32[8]
  @return(%6)""",
        [("fuse-elementwise", 1, 0, ""), ("fuse-epilogue", 1, 0, "")],
    ),
    (
        "no_epilogue",
        (
            FuseElementwise(),
            FuseEpilogue(),
        ),
        """\
  %x = @param["x"] -> float32[2, 3]
  %w = @param["w"] -> float32[3, 4]
  %1 = dot(%x, %w)
  %2 = relu(%1)
  @return(%2, %1)""",
        """\
  %x = @param["x"] -> float32[2, 3]
  %w = @param["w"] -> float32[3, 4]
  %1 = dot(%x, %w) -> float32[2, 4]
  %2 = pointwise(%1){pointwise_0} -> float32[2, 4]
  @return(%2, %1)
module pointwise_0
  %x0 = @param["x0"] -> float32[2, 4]
  %3 = relu(%x0) -> float32[2, 4]
  @return(%3)""",
        [("fuse-elementwise", 1, 0, ""), ("fuse-epilogue", 0, 1, "the dot has other users")],
    ),
    (
        "horizontal",
        (FuseHorizontal(),),
        """\
  %x = @param["x"] -> float32[2, 2]
  %w = @literal(1.0, 2.0, 3.0, 4.0) -> float32[2, 2]
  %v = @literal(5.0, 6.0) -> float32[2, 1]
  %b = @literal(0.5, 1.5) -> float32[2]
  %c = @literal(2.5) -> float32[1]
  %1 = multibroadcast[out_lens=[2, 2]](%b)
  %2 = multibroadcast[out_lens=[2, 1]](%c)
  %3 = dot(%x, %w)
  %4 = dot(%x, %v)
  %5 = add(%3, %1)
  %6 = add(%4, %2)
  @return(%5, %6)""",
        """\
  %x = @param["x"] -> float32[2, 2]
  %1 = @literal(1.0, 2.0, 5.0, 3.0, 4.0, 6.0) -> float32[2, 3]
  %2 = dot(%x, %1) -> float32[2, 3]
  %3 = @literal(0.5, 1.5, 2.5) -> float32[3]
  %4 = multibroadcast[out_lens=[2, 3]](%3) -> float32[2, 3]
  %5 = add(%2, %4) -> float32[2, 3]
  %6 = slice[axes=[1], starts=[0], ends=[2], steps=[]](%5) -> float32[2, 2]
  %7 = slice[axes=[1], starts=[2], ends=[3], steps=[]](%5) -> float32[2, 1]
  @return(%6, %7)""",
        [("fuse-horizontal", 1, 0, "")],
    ),
    (
        "horizontal_bias_behind_a_view",
        (FuseHorizontal(),),
        """\
  %x = @param["x"] -> float32[6, 2]
  %w = @literal(1.0, 2.0, 3.0, 4.0) -> float32[2, 2]
  %v = @literal(5.0, 6.0) -> float32[2, 1]
  %u = @literal(7.0, 8.0) -> float32[2, 1]
  %b = @literal(0.5, 1.5) -> float32[2]
  %c = @literal(2.5) -> float32[1]
  %1 = multibroadcast[out_lens=[2, 3, 2]](%b)
  %2 = multibroadcast[out_lens=[6, 1]](%c)
  %3 = dot(%x, %w)
  %4 = dot(%x, %v)
  %5 = dot(%x, %u)
  %6 = reshape[dims=[2, 3, 2]](%3)
  %7 = add(%6, %1)
  %8 = add(%4, %2)
  %9 = reshape[dims=[3, 2, 1]](%5)
  @return(%7, %8, %9)""",
        """\
  %x = @param["x"] -> float32[6, 2]
  %1 = @literal(1.0, 2.0, 5.0, 7.0, 3.0, 4.0, 6.0, 8.0) -> float32[2, 4]
  %2 = dot(%x, %1) -> float32[6, 4]
  %3 = @literal(0.5, 1.5, 2.5, 0.0) -> float32[4]
  %4 = multibroadcast[out_lens=[6, 4]](%3) -> float32[6, 4]
  %5 = add(%2, %4) -> float32[6, 4]
  %6 = slice[axes=[1], starts=[0], ends=[2], steps=[]](%5) -> float32[6, 2]
  %7 = reshape[dims=[2, 3, 2], allowzero=false](%6) -> float32[2, 3, 2]
  %8 = slice[axes=[1], starts=[2], ends=[3], steps=[]](%5) -> float32[6, 1]
  %9 = slice[axes=[1], starts=[3], ends=[4], steps=[]](%5) -> float32[6, 1]
  %10 = reshape[dims=[3, 2, 1], allowzero=false](%9) -> float32[3, 2, 1]
  @return(%7, %8, %10)""",
        [("fuse-horizontal", 1, 0, "")],
    ),
    (
        "horizontal_bias_of_one_in_two",
        (FuseHorizontal(),),
        """\
  %x = @param["x"] -> float32[2, 2]
  %w = @literal(1.0, 2.0, 3.0, 4.0) -> float32[2, 2]
  %v = @literal(5.0, 6.0) -> float32[2, 1]
  %b = @literal(0.5, 1.5) -> float32[2]
  %1 = multibroadcast[out_lens=[2, 2]](%b)
  %2 = dot(%x, %w)
  %3 = dot(%x, %v)
  %4 = add(%2, %1)
  @return(%4, %3)""",
        """\
  %x = @param["x"] -> float32[2, 2]
  %1 = @literal(1.0, 2.0, 5.0, 3.0, 4.0, 6.0) -> float32[2, 3]
  %2 = dot(%x, %1) -> float32[2, 3]
  %3 = @literal(0.5, 1.5, 0.0) -> float32[3]
  %4 = multibroadcast[out_lens=[2, 3]](%3) -> float32[2, 3]
  %5 = add(%2, %4) -> float32[2, 3]
  %6 = slice[axes=[1], starts=[0], ends=[2], steps=[]](%5) -> float32[2, 2]
  %7 = slice[axes=[1], starts=[2], ends=[3], steps=[]](%5) -> float32[2, 1]
  @return(%6, %7)""",
        [("fuse-horizontal", 1, 0, "")],
    ),
    (
        "horizontal_zero_points",
        (FuseHorizontal(),),
        """\
  %x = @param["x"] -> uint8[2, 2]
  %z = @literal(7) -> uint8[]
  %y = @literal(7) -> uint8[]
  %o = @literal(8) -> uint8[]
  %c = @literal(1) -> int8[]
  %w = @literal(1, 2, 3, 4) -> int8[2, 2]
  %v = @literal(5, 6) -> int8[2, 1]
  %1 = quant_dot(%x, %w, %z)
  %2 = quant_dot(%x, %v, %y)
  %3 = quant_dot(%x, %v, %o)
  %4 = quant_dot(%x, %v, %z, %c)
  @return(%1, %2, %3, %4)""",
        """\
  %x = @param["x"] -> uint8[2, 2]
  %1 = @literal(7) -> uint8[]
  %2 = @literal(8) -> uint8[]
  %3 = @literal(1) -> int8[]
  %4 = @literal(5, 6) -> int8[2, 1]
  %5 = @literal(1, 2, 5, 3, 4, 6) -> int8[2, 3]
  %6 = @literal(7) -> uint8[]
  %7 = quant_dot(%x, %5, %6) -> int32[2, 3]
  %8 = slice[axes=[1], starts=[0], ends=[2], steps=[]](%7) -> int32[2, 2]
  %9 = slice[axes=[1], starts=[2], ends=[3], steps=[]](%7) -> int32[2, 1]
  %10 = quant_dot(%x, %4, %2) -> int32[2, 1]
  %11 = quant_dot(%x, %4, %1, %3) -> int32[2, 1]
  @return(%8, %9, %10, %11)""",
        [("fuse-horizontal", 1, 0, "")],
    ),
    (
        "horizontal_narrow",
        (FuseHorizontal(),),
        """\
  %x = @param["x"] -> int8[2, 2]
  %w = @literal(1, 2, 3, 4) -> int8[2, 2]
  %v = @literal(5, 6) -> int8[2, 1]
  %s = @literal(0.5, 0.25) -> float32[2]
  %t = @literal(0.125) -> float32[1]
  %b = @literal(1.5, 2.5) -> float16[2]
  %1 = multibroadcast[out_lens=[2, 2]](%s)
  %2 = multibroadcast[out_lens=[2, 1]](%t)
  %3 = multibroadcast[out_lens=[2, 2]](%b)
  %4 = quant_dot(%x, %w)
  %5 = quant_dot(%x, %v)
  %6 = convert[target_type=float32](%4)
  %7 = convert[target_type=float32](%5)
  %8 = mul(%6, %1)
  %9 = mul(%7, %2)
  %10 = convert[target_type=float16](%8)
  %11 = convert[target_type=float16](%9)
  %12 = add(%10, %3)
  %13 = tanh(%12)
  %14 = relu(%11)
  @return(%13, %14)""",
        """\
  %x = @param["x"] -> int8[2, 2]
  %1 = @literal(1, 2, 5, 3, 4, 6) -> int8[2, 3]
  %2 = quant_dot(%x, %1) -> int32[2, 3]
  %3 = convert[target_type=float32, saturate=true, round_mode="up"](%2) -> float32[2, 3]
  %4 = @literal(0.5, 0.25, 0.125) -> float32[3]
  %5 = multibroadcast[out_lens=[2, 3]](%4) -> float32[2, 3]
  %6 = mul(%3, %5) -> float32[2, 3]
  %7 = convert[target_type=float16, saturate=true, round_mode="up"](%6) -> float16[2, 3]
  %8 = @literal(1.5, 2.5, 0.0) -> float16[3]
  %9 = multibroadcast[out_lens=[2, 3]](%8) -> float16[2, 3]
  %10 = add(%7, %9) -> float16[2, 3]
  %11 = slice[axes=[1], starts=[0], ends=[2], steps=[]](%10) -> float16[2, 2]
  %12 = slice[axes=[1], starts=[2], ends=[3], steps=[]](%10) -> float16[2, 1]
  %13 = tanh(%11) -> float16[2, 2]
  %14 = relu(%12) -> float16[2, 1]
  @return(%13, %14)""",
        [("fuse-horizontal", 1, 0, "")],
    ),
    (
        "horizontal_codes",
        (FuseHorizontal(),),
        """\
  %x = @param["x"] -> float32[1, 4]
  %w = @literal(1, 2, 3, 4) -> uint8[2, 2]
  %v = @literal(5, 6) -> uint8[1, 2]
  %u = @literal(7, 8) -> uint8[1, 2]
  %s = @literal(0.5, 0.25, 0.125, 1.0) -> float32[2, 2]
  %t = @literal(2.0, 3.0) -> float32[1, 2]
  %c = @literal(4.0) -> float32[1, 1]
  %b = @literal(0.5, 1.5) -> float32[1, 2]
  %1 = dequant_dot[bits=4, block_size=2](%x, %w, %s)
  %2 = dequant_dot[bits=4, block_size=2](%x, %v, %t)
  %3 = dequant_dot[bits=4, block_size=4](%x, %u, %c)
  %4 = add(%1, %b)
  @return(%4, %2, %3)""",
        """\
  %x = @param["x"] -> float32[1, 4]
  %1 = @literal(7, 8) -> uint8[1, 2]
  %2 = @literal(4.0) -> float32[1, 1]
  %3 = @literal(1, 2, 3, 4, 5, 6) -> uint8[3, 2]
  %4 = @literal(0.5, 0.25, 0.125, 1.0, 2.0, 3.0) -> float32[3, 2]
  %5 = dequant_dot[bits=4, block_size=2, activation_bits=0](%x, %3, %4) -> float32[1, 3]
  %6 = @literal(0.5, 1.5, 0.0) -> float32[3]
  %7 = multibroadcast[out_lens=[1, 3]](%6) -> float32[1, 3]
  %8 = add(%5, %7) -> float32[1, 3]
  %9 = slice[axes=[1], starts=[0], ends=[2], steps=[]](%8) -> float32[1, 2]
  %10 = slice[axes=[1], starts=[2], ends=[3], steps=[]](%8) -> float32[1, 1]
  %11 = dequant_dot[bits=4, block_size=4, activation_bits=0](%x, %1, %2) -> float32[1, 1]
  @return(%9, %10, %11)""",
        [("fuse-horizontal", 1, 0, "")],
    ),
    (
        "sums_before_reduction",
        (FuseElementwise(), FuseEpilogue()),
        """\
  %x = @param["x"] -> int8[2, 2]
  %w = @param["w"] -> int8[2, 4]
  %y = @param["y"] -> float16[2, 4]
  %s = @literal(0.5) -> float32[]
  %1 = multibroadcast[out_lens=[2, 4]](%s)
  %2 = quant_dot(%x, %w)
  %3 = convert[target_type=float32](%2)
  %4 = mul(%3, %1)
  %5 = convert[target_type=float16](%4)
  %6 = add(%5, %y)
  %7 = reduce_sum[axes=[1]](%6)
  @return(%7)""",
        """\
  %x = @param["x"] -> int8[2, 2]
  %w = @param["w"] -> int8[2, 4]
  %y = @param["y"] -> float16[2, 4]
  %1 = group[tag="quant_dot"](%x, %w){quant_dot_0} -> float16[2, 4]
  %2 = fused_reduce[axes=[1]](%1, %y){fused_reduce_0} -> float16[2, 1]
  @return(%2)
module quant_dot_0
  %x0 = @param["x0"] -> int8[2, 2]
  %x1 = @param["x1"] -> int8[2, 4]
  %3 = quant_dot(%x0, %x1) -> int32[2, 4]
  %4 = pointwise(%3){pointwise_0} -> float16[2, 4]
  @return(%4)
module pointwise_0
  %x0.2 = @param["x0"] -> int32[2, 4]
  %5 = convert[target_type=float32, saturate=true, round_mode="up"](%x0.2) -> float32[2, 4]
  %6 = @literal(0.5) -> float32[]
  %7 = multibroadcast[out_lens=[2, 4]](%6) -> float32[2, 4]
  %8 = mul(%5, %7) -> float32[2, 4]
  %9 = convert[target_type=float16, saturate=true, round_mode="up"](%8) -> float16[2, 4]
  @return(%9)
module fused_reduce_0
  %x0.3 = @param["x0"] -> float16[2, 4]
  %x1.2 = @param["x1"] -> float16[2, 4]
  %10 = add(%x0.3, %x1.2) -> float16[2, 4]
  %11 = reduce_sum[axes=[1], noop_with_empty_axes=false](%10) -> float16[2, 1]
  @return(%11)""",
        [
            (
                "fuse-elementwise",
                1,
                1,
                "the producer has an epilogue of its own, which stores narrower numbers than its sums",
            ),
            ("fuse-reductions", 1, 0, ""),
            ("fuse-epilogue", 1, 0, ""),
        ],
    ),
    (
        "sums_of_two_products",
        (FuseElementwise(), FuseEpilogue()),
        """\
  %x = @param["x"] -> int8[2, 2]
  %w = @param["w"] -> int8[2, 4]
  %v = @param["v"] -> int8[2, 4]
  %s = @literal(0.5) -> float32[]
  %1 = multibroadcast[out_lens=[2, 4]](%s)
  %2 = quant_dot(%x, %w)
  %3 = quant_dot(%x, %v)
  %4 = convert[target_type=float32](%2)
  %5 = mul(%4, %1)
  %6 = convert[target_type=float16](%5)
  %7 = convert[target_type=float32](%3)
  %8 = mul(%7, %1)
  %9 = convert[target_type=float16](%8)
  %10 = add(%6, %9)
  %11 = relu(%10)
  @return(%11)""",
        """\
  %x = @param["x"] -> int8[2, 2]
  %w = @param["w"] -> int8[2, 4]
  %v = @param["v"] -> int8[2, 4]
  %1 = group[tag="quant_dot"](%x, %w){quant_dot_0} -> float16[2, 4]
  %2 = group[tag="quant_dot"](%x, %v, %1){quant_dot_1} -> float16[2, 4]
  @return(%2)
module quant_dot_0
  %x0 = @param["x0"] -> int8[2, 2]
  %x1 = @param["x1"] -> int8[2, 4]
  %3 = quant_dot(%x0, %x1) -> int32[2, 4]
  %4 = pointwise(%3){pointwise_0} -> float16[2, 4]
  @return(%4)
module pointwise_0
  %x0.2 = @param["x0"] -> int32[2, 4]
  %5 = convert[target_type=float32, saturate=true, round_mode="up"](%x0.2) -> float32[2, 4]
  %6 = @literal(0.5) -> float32[]
  %7 = multibroadcast[out_lens=[2, 4]](%6) -> float32[2, 4]
  %8 = mul(%5, %7) -> float32[2, 4]
  %9 = convert[target_type=float16, saturate=true, round_mode="up"](%8) -> float16[2, 4]
  @return(%9)
module quant_dot_1
  %x0.3 = @param["x0"] -> int8[2, 2]
  %x1.2 = @param["x1"] -> int8[2, 4]
  %x2 = @param["x2"] -> float16[2, 4]
  %10 = quant_dot(%x0.3, %x1.2) -> int32[2, 4]
  %11 = pointwise(%10, %x2){pointwise_1} -> float16[2, 4]
  @return(%11)
module pointwise_1
  %x0.4 = @param["x0"] -> int32[2, 4]
  %x1.3 = @param["x1"] -> float16[2, 4]
  %12 = convert[target_type=float32, saturate=true, round_mode="up"](%x0.4) -> float32[2, 4]
  %13 = @literal(0.5) -> float32[]
  %14 = multibroadcast[out_lens=[2, 4]](%13) -> float32[2, 4]
  %15 = mul(%12, %14) -> float32[2, 4]
  %16 = convert[target_type=float16, saturate=true, round_mode="up"](%15) -> float16[2, 4]
  %17 = add(%x1.3, %16) -> float16[2, 4]
  %18 = relu(%17) -> float16[2, 4]
  @return(%18)""",
        [
            (
                "fuse-elementwise",
                2,
                1,
                "the producer has an epilogue of its own, which stores narrower numbers than its sums",
            ),
            ("fuse-epilogue", 2, 0, ""),
        ],
    ),
    (
        "costly_function_of_sums",
        (FuseElementwise(), FuseEpilogue()),
        """\
  %x = @param["x"] -> int8[2, 2]
  %w = @param["w"] -> int8[2, 4]
  %s = @literal(0.5) -> float32[]
  %1 = multibroadcast[out_lens=[2, 4]](%s)
  %2 = quant_dot(%x, %w)
  %3 = convert[target_type=float32](%2)
  %4 = mul(%3, %1)
  %5 = convert[target_type=float16](%4)
  %6 = gelu_erf(%5)
  %7 = neg(%6)
  @return(%7)""",
        """\
  %x = @param["x"] -> int8[2, 2]
  %w = @param["w"] -> int8[2, 4]
  %1 = group[tag="quant_dot"](%x, %w){quant_dot_0} -> float16[2, 4]
  %2 = pointwise(%1){pointwise_1} -> float16[2, 4]
  @return(%2)
module quant_dot_0
  %x0 = @param["x0"] -> int8[2, 2]
  %x1 = @param["x1"] -> int8[2, 4]
  %3 = quant_dot(%x0, %x1) -> int32[2, 4]
  %4 = pointwise(%3){pointwise_0} -> float16[2, 4]
  @return(%4)
module pointwise_0
  %x0.2 = @param["x0"] -> int32[2, 4]
  %5 = convert[target_type=float32, saturate=true, round_mode="up"](%x0.2) -> float32[2, 4]
  %6 = @literal(0.5) -> float32[]
  %7 = multibroadcast[out_lens=[2, 4]](%6) -> float32[2, 4]
  %8 = mul(%5, %7) -> float32[2, 4]
  %9 = convert[target_type=float16, saturate=true, round_mode="up"](%8) -> float16[2, 4]
  @return(%9)
module pointwise_1
  %x0.3 = @param["x0"] -> float16[2, 4]
  %10 = gelu_erf(%x0.3) -> float16[2, 4]
  %11 = neg(%10) -> float16[2, 4]
  @return(%11)""",
        [
            (
                "fuse-elementwise",
                2,
                1,
                "the producer has an epilogue of its own, which stores narrower numbers than its sums",
            ),
            ("fuse-epilogue", 1, 0, ""),
        ],
    ),
    (
        "composite",
        (ExpandComposites(frozenset({Logsoftmax})),),
        """\
  %x = @param["x"] -> float32[2, 2]
  %1 = logsoftmax[axis=1](%x)
  @return(%1)""",
        """\
  %x = @param["x"] -> float32[2, 2]
  %1 = reduce_max[axes=[1], noop_with_empty_axes=false](%x) -> float32[2, 1]
  %2 = multibroadcast[out_lens=[2, 2]](%1) -> float32[2, 2]
  %3 = sub(%x, %2) -> float32[2, 2]
  %4 = exp(%3) -> float32[2, 2]
  %5 = reduce_sum[axes=[1], noop_with_empty_axes=false](%4) -> float32[2, 1]
  %6 = multibroadcast[out_lens=[2, 2]](%5) -> float32[2, 2]
  %7 = log(%6) -> float32[2, 2]
  %8 = sub(%3, %7) -> float32[2, 2]
  @return(%8)""",
        [],
    ),
    (
        "extents",
        (ResolveExtents(),),
        """\
  %x = @param["x"] -> float32[2, 5]
  %1 = dimensions_of[start=0, end=2](%x)
  %2 = neg(%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[2, 5]
  %1 = @literal(-2, -5) -> int64[2]
  @return(%1)""",
        [],
    ),
    (
        "extents in groups",
        (ResolveExtents(),),
        """\
  %x = @param["x"] -> float32[2, 5]
  %1 = @literal(0) -> int64[]
  %2 = @literal(2) -> int64[]
  %3 = dimensions_of[start=1, end=2](%x)
  %4 = pointwise(%3){half} -> int64[]
  %5 = dynamic_range[length=4](%1, %4, %2)
  @return(%5)
module half
  %x0 = @param["x0"] -> int64[1]
  %6 = @literal(3) -> int64[]
  %7 = squeeze[axes=[]](%x0)
  %8 = add(%7, %6)
  @return(%8)""",
        """\
  %x = @param["x"] -> float32[2, 5]
  %1 = @literal(0, 2, 4, 6) -> int64[4]
  @return(%1)""",
        [],
    ),
    (
        "attention_to_bytes",
        (FuseAttention(rounds=True),),
        """\
  %q = @param["q"] -> float32[2, 3, 4]
  %k = @param["k"] -> float32[2, 4, 5]
  %v = @param["v"] -> float32[2, 5, 4]
  %r = @param["r"] -> float32[8]
  %1 = dot(%q, %k)
  %2 = softmax[axis=2](%1)
  %3 = dot(%2, %v)
  %4 = transpose[permutation=[1, 0, 2]](%3)
  %5 = reshape[dims=[3, 8]](%4)
  %6 = multibroadcast[out_lens=[3, 8]](%r)
  %7 = mul(%5, %6)
  %8 = convert[target_type=int8](%7)
  @return(%8)""",
        """\
  %q = @param["q"] -> float32[2, 3, 4]
  %k = @param["k"] -> float32[2, 4, 5]
  %v = @param["v"] -> float32[2, 5, 4]
  %r = @param["r"] -> float32[8]
  %1 = group[tag="attention"](%q, %k, %v, %r){attention_0} -> int8[3, 8]
  @return(%1)
module attention_0
  %x0 = @param["x0"] -> float32[2, 3, 4]
  %x1 = @param["x1"] -> float32[2, 4, 5]
  %x2 = @param["x2"] -> float32[2, 5, 4]
  %x3 = @param["x3"] -> float32[8]
  %2 = dot(%x0, %x1) -> float32[2, 3, 5]
  %3 = softmax[axis=2](%2) -> float32[2, 3, 5]
  %4 = dot(%3, %x2) -> float32[2, 3, 4]
  %5 = transpose[permutation=[1, 0, 2]](%4) -> float32[3, 2, 4]
  %6 = reshape[dims=[3, 8], allowzero=false](%5) -> float32[3, 8]
  %7 = multibroadcast[out_lens=[3, 8]](%x3) -> float32[3, 8]
  %8 = mul(%6, %7) -> float32[3, 8]
  %9 = convert[target_type=int8, saturate=true, round_mode="up"](%8) -> int8[3, 8]
  @return(%9)""",
        [("fuse-attention", 1, 0, "")],
    ),
]


@pytest.mark.parametrize(("passes", "before", "after", "counts"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_text(passes, before, after, counts, run_both):
    module, old = (parse_module("module main\n" + before, STANDARD) for _ in range(2))
    pipeline = Pipeline([Stage("given", passes)], validate=True)
    pipeline.run(module)
    assert verify(module) == []
    assert module.text().rstrip("\n") == "module main\n" + after
    assert [tuple(c) for record in pipeline.records for c in record.rules] == counts
    run_both(old, module)


def test_a_pass_resets_its_counts_each_time():
    fuse = FuseAttention()
    for _ in range(2):
        module = parse_module("module main\n" + CASES[1][2], STANDARD)
        pipeline = Pipeline([Stage("given", (fuse,))])
        pipeline.run(module)
        assert [c.refused for c in pipeline.records[0].rules] == [3]
    assert {r.why for r in fuse.tally.refusals} == {
        "the softmax is not along the last axis",
        "the weights are not connected to the left operand of one product by pointwise operations alone",
        "no product is connected to the softmax by pointwise operations alone",
    }


def test_expensive_functions_follow_sums_if_a_target_supports_them() -> None:
    before = next(c[2] for c in CASES if "%6 = gelu_erf(%5)" in c[2])
    for costly, groups in ((frozenset({"erf"}), 2), (frozenset[str](), 1)):
        module = parse_module("module main\n" + before, STANDARD)
        Pipeline([Stage("given", (FuseElementwise(costly=costly), FuseEpilogue()))]).run(module)
        assert sum(bool(ins.modules) for ins in module) == groups


def test_a_product_around_a_branch_is_not_moved_into_it() -> None:
    program = Program()
    main = program.get_main_module()
    condition = main.add_parameter("c", Shape("bool", []))
    x = main.add_parameter("x", Shape("float32", [2, 2]))
    product = main.add(op("dot"), x, x)
    sides = []
    for name, kind in (("then", "sin"), ("other", "cos")):
        side = Module(name)
        side.add_return([side.add(op(kind), product if name == "then" else x)])
        sides.append(side)
    chosen = main.add(op("if"), condition, modules=sides)
    main.add_return([main.add(op("get_tuple_elem", index=0), chosen)])
    passes = (FuseElementwise(), FuseEpilogue())
    Pipeline([Stage("test", passes)]).run(main)
    verify(main)
    assert product.parent is main and len(product.users) == 1
    assert any("is outside the module" in refusal.why for refusal in passes[1].tally.refusals)


def test_a_view_stays_after_the_definition_of_its_extents() -> None:
    module = parse_module(
        """\
symbol n in 0..9
symbol k in 0..9
module main
  %a = @param["a"] -> float32[]
  %b = @param["b"] -> float32[]
  %0 = @literal(0.0) -> float32[]
  %1 = @literal(1.0) -> float32[]
  %2 = dynamic_range[length=none](%0, %a, %1) -> float32[n]
  %3 = neg(%2) -> float32[n]
  %4 = abs(%3) -> float32[n]
  %5 = dynamic_range[length=none](%0, %b, %1) -> float32[k]
  %6 = multibroadcast[out_lens=[k, n]](%4) -> float32[k, n]
  @return(%5, %6)""",
        STANDARD,
    )
    FuseElementwise().apply(module)
    assert [i.op.name for i in module if i.inputs][-4:] == ["pointwise", "dynamic_range", "multibroadcast", "@return"]
    vector, rows = evaluate_module(module, [np.float32(3), np.float32(2)])
    assert np.asarray(vector).tolist() == [0, 1]
    assert np.asarray(rows).tolist() == [[0, 1, 2]] * 2


def test_a_factor_that_joined_products_shared_goes_into_their_weights() -> None:
    """Once products are joined, the value they share has one reader, so that its factor can be folded into the weights."""
    m = Program().get_main_module()
    x = m.add_parameter("x", Shape("float32", (3, 4)))
    half = m.add(op("multibroadcast", out_lens=(3, 4)), m.add_literal(np.float32(0.5)))
    shared = m.add(op("mul"), x, half)
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((4, n)).astype(np.float32) for n in (5, 6)]
    m.add_return([m.add(op("dot"), shared, m.add_literal(w)) for w in weights])
    assert FuseHorizontal(rules=SIMPLIFY).apply(m)
    m.sweep()
    names = [i.op.name for i in m]
    assert names.count("dot") == 1 and "mul" not in names
    given = rng.standard_normal((3, 4)).astype(np.float32)
    for got, w in zip(evaluate_module(m, [given]), weights, strict=True):
        np.testing.assert_allclose(np.asarray(got), given * 0.5 @ w, rtol=1e-5)


@pytest.mark.parametrize(("tensors", "groups"), [(24, 1), (25, 2)])
def test_the_most_inputs_of_a_group_are_without_numbers_that_it_holds(tensors: int, groups: int) -> None:
    program = Program()
    main = program.get_main_module()
    total = main.add_parameter("x0", Shape("float32", [4]))
    for n in range(1, tensors):
        scaled = main.add(op("mul"), main.add_parameter(f"x{n}", Shape("float32", [4])), spread(main, float(n)))
        total = main.add(op("add"), total, scaled)
    main.add_return([main.add(op("relu"), total)])
    FuseElementwise().apply(main)
    assert sum(i.op.name == "pointwise" for i in main) == groups


def spread(module: Module, number: float) -> Instruction:
    """Returns a vector with one number for each of four elements."""
    return module.add(op("multibroadcast", out_lens=(4,)), module.add_literal(np.float32(number)))


def _rounded_sum_of_two_products(reduced: bool) -> Module:
    """Returns a third product of the rounded sum of two, of which one is rounded before, and its own sum with that operand."""
    reduction = "reduce_sum[axes=[1]](%22)" if reduced else "neg(%22)"
    return parse_module(
        f"""\
module main
  %x = @param["x"] -> int8[2, 4]
  %w = @param["w"] -> int8[4, 4]
  %v = @param["v"] -> int8[4, 4]
  %s = @literal(0.5) -> float32[]
  %1 = multibroadcast[out_lens=[2, 4]](%s)
  %2 = quant_dot(%x, %w)
  %3 = convert[target_type=float32](%2)
  %4 = mul(%3, %1)
  %5 = convert[target_type=int8](%4)
  %6 = convert[target_type=float32](%5)
  %7 = mul(%6, %1)
  %8 = convert[target_type=float16](%7)
  %9 = quant_dot(%x, %v)
  %10 = convert[target_type=float32](%9)
  %11 = mul(%10, %1)
  %12 = convert[target_type=float16](%11)
  %13 = add(%8, %12)
  %14 = relu(%13)
  %15 = convert[target_type=int8](%14)
  %16 = quant_dot(%15, %w)
  %17 = convert[target_type=float32](%16)
  %18 = mul(%17, %1)
  %19 = convert[target_type=float16](%18)
  %20 = convert[target_type=float32](%15)
  %21 = convert[target_type=float16](%20)
  %22 = add(%19, %21)
  %23 = {reduction}
  @return(%23)""",
        STANDARD,
    )


def test_the_most_reductions_in_a_row_of_a_group() -> None:
    """Compilers of kernels take minutes for long chains."""
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", [3, 4]))
    for _ in range(30):
        total = main.add(op("multibroadcast", out_lens=[3, 4]), main.add(op("reduce_max", axes=[1]), x))
        x = main.add(op("sub"), main.add(op("sin"), x), total)
    beside = [main.add(op("reduce_sum", axes=[1]), main.add(op("exp"), x)) for _ in range(20)]
    main.add_return([x, *beside])
    before = program.clone()
    Pipeline([Stage("given", (FuseElementwise(),))]).run(main)
    chains = [sum(bool(i.op.combine) for i in g.modules[0]) for g in main if g.op.name == "fused_reduce"]
    assert chains == [12, 12, 6 + 20]
    values = [np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)]
    for a, b in zip(evaluate_module(main, values), evaluate_module(before.get_main_module(), values), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("reduced", [False, True])
def test_a_later_product_reads_the_bytes_that_an_earlier_one_stored(reduced: bool) -> None:
    module = _rounded_sum_of_two_products(reduced)
    Pipeline([Stage("given", (FuseElementwise(), FuseEpilogue()))], validate=True).run(module)
    assert verify(module) == []
    groups = [i for i in module if isinstance(i.op, Group)]
    first, second, third = groups
    assert [g.shape.dtype.name for g in groups[:2]] == ["int8", "int8"]
    assert first in second.inputs and second in third.inputs
    assert sum(bool(i.modules) for i in module) == len(groups) + reduced  # the reduction, with the sum that it reads


def test_a_reduction_behind_rounding_leaves_it_in_the_epilogue() -> None:
    """Otherwise a product followed by a rounded activation and a mean stores its sums."""
    module = parse_module(
        """\
module main
  %x = @param["x"] -> int8[2, 4]
  %w = @param["w"] -> int8[4, 4]
  %s = @literal(0.5) -> float32[]
  %1 = multibroadcast[out_lens=[2, 4]](%s)
  %2 = quant_dot(%x, %w)
  %3 = convert[target_type=float32](%2)
  %4 = mul(%3, %1)
  %5 = convert[target_type=int8](%4)
  %6 = convert[target_type=float32](%5)
  %7 = mul(%6, %1)
  %8 = convert[target_type=float16](%7)
  %9 = sigmoid(%8)
  %10 = reduce_sum[axes=[1]](%9)
  @return(%9, %10)""",
        STANDARD,
    )
    Pipeline([Stage("given", (FuseElementwise(costly=frozenset()), FuseEpilogue()))], validate=True).run(module)
    (group,) = (i for i in module if isinstance(i.op, Group))
    assert group.shape.dtype.name == "float16"


def test_bodies_of_groups_stay_as_they_are() -> None:
    """A program that was optimized before is not grouped again inside its groups."""
    text = """module main
  %x = @param["x"] -> float32[2, 3, 4]
  %1 = relu(%x)
  %2 = reduce_mean[axes=[1, 2]](%1)
  %3 = tanh(%x)
  %4 = exp(%3)
  @return(%2, %4)"""
    module = parse_module(text, STANDARD)
    assert FuseElementwise().apply(module)
    once = str(module)
    assert [i.name for i in module if i.modules] == ["fused_reduce", "pointwise"]
    assert not FuseElementwise().apply(module)
    assert str(module) == once
