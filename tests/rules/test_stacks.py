"""Reductions of stacked tensors: module text before and after, and equal results."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_core.compile.stages import optimize_module
from mgx_core.ir.module import Module
from mgx_core.ir.text.parser import parse_module
from mgx_core.ops import STANDARD
from mgx_core.options import CompileOptions
from mgx_core.rules.engine import Rewriter
from mgx_core.rules.stacks import STACKS
from mgx_core.types.shape import Shape

TURNS = [
    (
        "reduce-stacked",
        """\
  %x = @param["x"] -> float32[3, 1]
  %y = @param["y"] -> float32[3, 1]
  %z = @param["z"] -> float32[3, 1]
  %1 = concat[axis=1](%x, %y, %z)
  %2 = reduce_max[axes=[1]](%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[3, 1]
  %y = @param["y"] -> float32[3, 1]
  %z = @param["z"] -> float32[3, 1]
  %1 = max(%x, %y) -> float32[3, 1]
  %2 = max(%1, %z) -> float32[3, 1]
  @return(%2)""",
    ),
    (
        "reduce-stacked",
        """\
  %x = @param["x"] -> float16[2, 1, 5]
  %y = @param["y"] -> float16[2, 1, 5]
  %1 = concat[axis=1](%x, %y)
  %2 = reduce_mean[axes=[-2]](%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float16[2, 1, 5]
  %y = @param["y"] -> float16[2, 1, 5]
  %1 = convert[target_type=float32, saturate=true, round_mode="up"](%x) -> float32[2, 1, 5]
  %2 = convert[target_type=float32, saturate=true, round_mode="up"](%y) -> float32[2, 1, 5]
  %3 = add(%1, %2) -> float32[2, 1, 5]
  %4 = @literal(0.5) -> float32[]
  %5 = multibroadcast[out_lens=[2, 1, 5]](%4) -> float32[2, 1, 5]
  %6 = mul(%3, %5) -> float32[2, 1, 5]
  %7 = convert[target_type=float16, saturate=true, round_mode="up"](%6) -> float16[2, 1, 5]
  @return(%7)""",
    ),
]


@pytest.mark.parametrize(("name", "before", "after"), TURNS)
def test_turns(rule_turns, name, before, after):
    rule_turns(name, before, after)


@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_the_mean_of_convolutions_of_one_tensor_is_one_convolution(kind, run_both):
    """An inception block of TimesNet averages kernels of several sizes."""

    def made() -> Module:
        random, module = np.random.default_rng(0), Module()
        x, stack = module.add_parameter("x", Shape(kind, [2, 3, 5, 6])), []
        for size in (1, 3, 5):
            w = module.add_literal(random.normal(size=(4, 3, size, size)).astype(kind))
            c = module.add_literal(random.normal(size=4).astype(kind).reshape(4, 1, 1))
            y = module.add(STANDARD.make("convolution", padding=[size // 2, size // 2]), x, w)
            y = module.add(
                STANDARD.make("add"), y, module.add(STANDARD.make("multibroadcast", out_lens=[2, 4, 5, 6]), c)
            )
            stack.append(module.add(STANDARD.make("unsqueeze", axes=[4]), y))
        mean = module.add(STANDARD.make("reduce_mean", axes=[4]), module.add(STANDARD.make("concat", axis=4), *stack))
        module.add_return([module.add(STANDARD.make("squeeze", axes=[4]), mean)])
        return module

    before, module = made(), made()
    optimize_module(module, CompileOptions(), before="fuse")
    assert [i.name for i in module if i.name in ("convolution", "concat", "reduce_mean", "convert")] == ["convolution"]
    run_both(before, module)


@pytest.mark.parametrize(
    ("parts", "more", "why"),
    [(2, ", %1", "the stack has other users"), (17, "", "more than 16 tensors are stacked")],
)
def test_refuses(rule_refuses, parts, more, why):
    text = f"""\
  %x = @param["x"] -> float32[3, 1]
  %1 = concat[axis=1]({", ".join(["%x"] * parts)})
  %2 = reduce_sum[axes=[1]](%1)
  @return(%2{more})"""
    rule_refuses("reduce-stacked", text, why)


@pytest.mark.parametrize(
    ("op", "kind", "axes", "wide"),
    [
        ("sum", "int32", [1], 1),
        ("sum", "float32", [0, 1], 1),
        ("sum", "float32", [1], 2),
        ("any", "float32", [1], 1),
        ("all", "float16", [1], 1),
    ],
)
def test_other_reductions_stay(op, kind, axes, wide):
    text = f"""\
  %x = @param["x"] -> {kind}[3, 1]
  %y = @param["y"] -> {kind}[3, {wide}]
  %1 = concat[axis=1](%x, %y)
  %2 = reduce_{op}[axes={axes}](%1)
  @return(%2)"""
    module = parse_module("module main\n" + text, STANDARD)
    rewriter = Rewriter(STACKS)
    rewriter.apply(module)
    assert not rewriter.tally.fired and not rewriter.tally.refusals
