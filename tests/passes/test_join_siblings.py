"""Convolutions of one tensor and look-ups in several tables are joined."""

from __future__ import annotations

import numpy as np

from mgx_core.ir.module import Module
from mgx_core.ir.text.parser import parse_module
from mgx_core.ir.verify import verify
from mgx_core.ops import STANDARD
from mgx_core.passes.join_siblings import JoinConvolutions, JoinGathers
from mgx_core.types.shape import Shape


def make(name: str, **attributes):
    return STANDARD.make(name, **attributes)


def two_convolutions(bias: bool = True) -> Module:
    random = np.random.default_rng(0)
    main = Module()
    x = main.add_parameter("x", Shape("float", [2, 3, 5, 5]))
    ends = []
    for m in (4, 2):
        w = main.add_literal(random.normal(size=(m, 3, 3, 3)).astype(np.float32))
        at = main.add(make("convolution", padding=[1, 1]), x, w, sources=[f"conv{m}"])
        if bias:
            c = main.add_literal(random.normal(size=(m, 1, 1)).astype(np.float32))
            at = main.add(
                make("add"), at, main.add(make("multibroadcast", out_lens=at.shape.dims), c), sources=[f"bias{m}"]
            )
        ends.append(main.add(make("relu"), at, sources=[f"relu{m}"]))
    main.add_return(ends)
    return main


def names(module: Module) -> list[str]:
    return [i.name for i in module if not (i.is_param or i.is_literal or i.is_return or i.name == "multibroadcast")]


def test_convolutions_with_their_bias_and_activation_become_one(run_both):
    for bias in (True, False):
        before, module = two_convolutions(bias), two_convolutions(bias)
        assert JoinConvolutions().apply(module)
        assert verify(module) == []
        assert names(module) == ["convolution", *(["add"] if bias else []), "relu", "slice", "slice"]
        assert not JoinConvolutions().apply(module)
        run_both(before, module)
        assert module.outputs[0].sources == ("relu4",)


def test_other_windows_and_wide_results_are_left_alone():
    module = two_convolutions()
    assert not JoinConvolutions(most=5).apply(module)
    first = next(i for i in module if i.name == "convolution")
    module.replace_op(first, first.op.replace(padding=(1, 1), dilation=(1, 1)))
    assert not JoinConvolutions().apply(module)


def test_look_ups_become_one(run_both):
    def program(positions: str = "int64") -> Module:
        main = Module()
        found = []
        for n in range(4):
            table = main.add_literal(np.arange(12, dtype=np.float32).reshape(6, 2) + 100 * n)
            at = main.add_parameter(f"i{n}", Shape(positions, [2, n + 1] if n else []))
            found.append(main.add(make("gather", axis=0), table, at, sources=[f"look{n}"]))
        main.add_return(found)
        return main

    before, module = program(), program()
    assert JoinGathers().apply(module)
    assert verify(module) == []
    assert names(module).count("gather") == 1
    run_both(before, module, True)
    assert not JoinGathers(least=5).apply(program())
    assert not JoinGathers().apply(program("int8"))  # an invalid position in the joined table


def test_text_of_a_join():
    module = parse_module(
        """\
module main
  %x = @param["x"] -> float32[1, 1, 2]
  %w = @literal(1.0) -> float32[1, 1, 1]
  %v = @literal(2.0, 3.0) -> float32[2, 1, 1]
  %1 = convolution(%x, %w)  # a
  %2 = convolution(%x, %v)  # b
  @return(%1, %2)""",
        STANDARD,
    )
    JoinConvolutions().apply(module)
    op = 'convolution[padding=[], stride=[], dilation=[], group=1, padding_mode="default"]'
    assert (
        module.text()
        == f"""\
module main
  %x = @param["x"] -> float32[1, 1, 2]
  %1 = @literal(1.0, 2.0, 3.0) -> float32[3, 1, 1]
  %2 = {op}(%x, %1) -> float32[1, 3, 2]  # a, b
  %3 = slice[axes=[1], starts=[0], ends=[1], steps=[]](%2) -> float32[1, 1, 2]  # a
  %4 = slice[axes=[1], starts=[1], ends=[3], steps=[]](%2) -> float32[1, 2, 2]  # b
  @return(%3, %4)"""
    )
