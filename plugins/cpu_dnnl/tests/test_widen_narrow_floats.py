"""Narrow floats computed in float32: which roundings are removed, and which values keep their type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ir.module import nested
from mgx_core.ir.text.parser import parse_module
from mgx_core.ir.verify import verify
from mgx_core.ops import STANDARD
from mgx_core.types.dtype import DType
from mgx_cpu_dnnl.native_library import native
from mgx_cpu_dnnl.packing import is_bfloat16
from mgx_cpu_dnnl.shared import shared
from mgx_cpu_dnnl.target import CpuTarget
from mgx_cpu_dnnl.widen_narrow_floats import WidenNarrowFloats

BF16 = dt.bfloat16.numpy
NARROW = frozenset({dt.float16, dt.bfloat16})
rng = np.random.default_rng(5)


def turned(text: str) -> tuple[bool, str]:
    """Returns whether the pass changed a module, and its text afterwards."""
    module = parse_module(f"module main\n{text}", STANDARD)
    changed = WidenNarrowFloats(NARROW).apply(module)
    module.sweep()
    assert verify(module) == []
    plain = module.text().split("module main\n", 1)[1]
    return changed, plain.replace(', saturate=true, round_mode="up"', "").strip()


def lines(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines())


def test_arithmetic_is_done_in_float32_and_rounded_where_the_module_ends() -> None:
    changed, after = turned(
        """
        %x = @param["x"] -> bfloat16[2, 3]
        %y = @param["y"] -> bfloat16[3, 4]
        %1 = dot(%x, %y) -> bfloat16[2, 4]
        %2 = relu(%1) -> bfloat16[2, 4]
        @return(%2)
        """
    )
    assert changed
    assert lines(after) == lines(
        """
        %x = @param["x"] -> bfloat16[2, 3]
        %y = @param["y"] -> bfloat16[3, 4]
        %1 = convert[target_type=float32](%x) -> float32[2, 3]
        %2 = convert[target_type=float32](%y) -> float32[3, 4]
        %3 = dot(%1, %2) -> float32[2, 4]
        %4 = relu(%3) -> float32[2, 4]
        %5 = convert[target_type=bfloat16](%4) -> bfloat16[2, 4]
        @return(%5)
        """
    )


def test_conversions_to_a_narrow_type_and_back_go() -> None:
    _, after = turned(
        """
        %x = @param["x"] -> float32[2, 3]
        %1 = exp(%x) -> float32[2, 3]
        %2 = convert[target_type=float16](%1) -> float16[2, 3]
        %3 = transpose[permutation=[1, 0]](%2) -> float16[3, 2]
        %4 = neg(%3) -> float16[3, 2]
        %5 = convert[target_type=float32](%4) -> float32[3, 2]
        @return(%5)
        """
    )
    assert lines(after) == lines(
        """
        %x = @param["x"] -> float32[2, 3]
        %1 = exp(%x) -> float32[2, 3]
        %2 = transpose[permutation=[1, 0]](%1) -> float32[3, 2]
        %3 = neg(%2) -> float32[3, 2]
        @return(%3)
        """
    )


def test_constants_keep_their_rounding_and_are_converted_before_they_are_repeated() -> None:
    _, after = turned(
        """
        %x = @param["x"] -> float32[2]
        %1 = @literal(0.1) -> float32[]
        %2 = convert[target_type=bfloat16](%1) -> bfloat16[]
        %3 = multibroadcast[out_lens=[2]](%2) -> bfloat16[2]
        %4 = convert[target_type=bfloat16](%x) -> bfloat16[2]
        %5 = add(%4, %3) -> bfloat16[2]
        %6 = convert[target_type=float32](%5) -> float32[2]
        @return(%6)
        """
    )
    assert lines(after) == lines(
        """
        %x = @param["x"] -> float32[2]
        %1 = @literal(0.1) -> float32[]
        %2 = convert[target_type=bfloat16](%1) -> bfloat16[]
        %3 = convert[target_type=float32](%2) -> float32[]
        %4 = multibroadcast[out_lens=[2]](%3) -> float32[2]
        %5 = add(%x, %4) -> float32[2]
        @return(%5)
        """
    )


@pytest.mark.parametrize(
    "text",
    [
        # only moves elements
        """
        %x = @param["x"] -> bfloat16[4, 3]
        %i = @param["i"] -> int64[2]
        %1 = gather[axis=0](%x, %i) -> bfloat16[2, 3]
        %2 = transpose[permutation=[1, 0]](%1) -> bfloat16[3, 2]
        @return(%2)
        """,
        # read directly by a kernel that computes in float32
        """
        %x = @param["x"] -> float32[1, 2, 1, 8]
        %k = @param["k"] -> float16[1, 2, 30, 8]
        %v = @param["v"] -> float16[1, 2, 30, 8]
        %1 = convert[target_type=float16](%x) -> float16[1, 2, 1, 8]
        %2 = attention(%1, %k, %v) -> float16[1, 2, 1, 8]
        @return(%2)
        """,
        # reinterpreted bits
        """
        %x = @param["x"] -> float32[4]
        %1 = convert[target_type=bfloat16](%x) -> bfloat16[4]
        %2 = bit_cast[target_type=int16](%1) -> int16[4]
        @return(%2)
        """,
        # a rounding that is the result
        """
        %x = @param["x"] -> float32[4]
        %1 = convert[target_type=bfloat16](%x) -> bfloat16[4]
        @return(%1)
        """,
        # no narrow values
        """
        %x = @param["x"] -> float32[4]
        %1 = exp(%x) -> float32[4]
        @return(%1)
        """,
    ],
)
def test_ops_that_stay(text: str) -> None:
    module = parse_module(f"module main\n{text}", STANDARD)
    before = module.text()
    assert not WidenNarrowFloats(NARROW).apply(module)
    assert module.text() == before


def test_an_identity_that_is_returned_stays_one() -> None:
    program = mgx.Program()
    main = program.get_main_module()
    half = main.add(mgx.op("convert", target_type="float16"), main.add_parameter("x", mgx.Shape("float32", [4])))
    twice = main.add(mgx.op("add"), half, half)
    main.add_return([main.add(mgx.op("identity"), twice), main.add(mgx.op("mul"), twice, half)])
    program.compile(mgx.get_target("cpu"))
    same, product = program.run({"x": np.float32([1, 2, 3, 4])})
    assert same.to_numpy().tolist() == [2, 4, 6, 8] and product.to_numpy().tolist() == [2, 8, 18, 32]


def test_results_of_several_values_and_values_that_nested_modules_read() -> None:
    main = mgx.Module("main")
    x = main.add_parameter("x", mgx.shape(type="bfloat16", lens=[2, 6]))
    top = main.add(mgx.op("topk", k=2, axis=1), main.add(mgx.op("exp"), x))
    value, index = (main.add(mgx.op("get_tuple_elem", index=n), top) for n in (0, 1))
    branches = [mgx.Module("then"), mgx.Module("else")]
    for branch, word in zip(branches, ("neg", "sqrt"), strict=True):
        branch.add_return([branch.add(mgx.op(word), value)])
    chosen = main.add(mgx.op("if"), main.add_parameter("c", mgx.shape(type="bool", lens=[1])), modules=branches)
    main.add_return([main.add(mgx.op("get_tuple_elem", index=0), chosen), index])
    given = [rng.standard_normal((2, 6)).astype(BF16), np.array([True])]
    wanted = Interpreter().run(main, given)
    assert WidenNarrowFloats(NARROW).apply(main)
    main.sweep()
    assert verify(main) == []
    assert [i.shape.dtype.name for m in branches for i in m if i.op.name in ("neg", "sqrt")] == ["float32"] * 2
    found = Interpreter().run(main, given)
    assert [a.dtype for a in found] == [a.dtype for a in wanted]
    np.testing.assert_allclose(found[0].astype(np.float32), wanted[0].astype(np.float32), rtol=2.0**-7)
    np.testing.assert_array_equal(found[1], wanted[1])


def network(kind: DType) -> mgx.Program:
    """A small network whose parameters and results are narrow."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.shape(type=kind.name, lens=[1, 8, 12, 12]))
    w = m.add_literal((0.2 * rng.standard_normal((16, 8, 3, 3))).astype(kind.numpy))
    y = m.add(mgx.op("convolution", padding=[1, 1], stride=[1, 1], dilation=[1, 1]), x, w)
    y = m.add(mgx.op("reshape", dims=(1, 16 * 144)), m.add(mgx.op("relu"), y))
    v = m.add_literal((0.05 * rng.standard_normal((16 * 144, 40))).astype(kind.numpy))
    m.add_return([m.add(mgx.op("softmax", axis=1), m.add(mgx.op("dot"), y, v)), y])
    return program


@pytest.mark.parametrize("kind", sorted(NARROW, key=str))
def test_networks_are_nearer_to_exact_results(kind: DType) -> None:
    program = network(kind)
    main = program.get_main_module()
    given = rng.standard_normal((1, 8, 12, 12)).astype(kind.numpy)
    narrow = Interpreter().run(main, [given])
    program.compile(CpuTarget(), validate=True)
    runner = program.executable.instances()[0].runner
    assert not runner.program.hosted, runner.notes
    found = [a.to_numpy() for a in program.run({"x": given})]
    assert all(a.dtype == kind.numpy for a in found)
    # a processor with native arithmetic for the type rounds between the ops
    widened = kind in CpuTarget._not_multiplied()
    WidenNarrowFloats(NARROW).apply(main)
    main.sweep()
    for got, wanted, rounded in zip(found, Interpreter().run(main, [given]), narrow, strict=True):
        exact, size = wanted.astype(np.float64), float(np.abs(wanted.astype(np.float64)).max())
        error = np.abs(got.astype(np.float64) - exact).max()
        if widened:
            assert error <= kind.epsilon * size
        assert error <= np.abs(rounded.astype(np.float64) - exact).max() + kind.epsilon * size / 2


@pytest.mark.parametrize(
    "options",
    [{"fast_math": False}, {"aggressiveness": 0}, {"optimize": False}, {"disable_passes": ("widen-narrow-floats",)}],
)
def test_options_that_leave_programs_narrow(options: dict[str, Any]) -> None:
    program = network(dt.float16)
    program.compile(CpuTarget(), **options)
    modules = list(nested(program.executable.module))
    assert len(modules) > 1 or not options.get("optimize", True)
    assert {i.shape.dtype for m in modules for i in m if isinstance(i.result, mgx.Shape)} == {dt.float16}
    again = network(dt.float16)
    again.compile(CpuTarget())
    assert dt.float32 in {i.shape.dtype for m in nested(again.executable.module) for i in m if not i.is_return}


@pytest.mark.skipif("avx512_bf16" in native().cpu_features(), reason="the processor has native bfloat16 products")
def test_by_default_there_is_no_intermediate_rounding() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.shape(type="bfloat16", lens=[4]))
    y = m.add_parameter("y", mgx.shape(type="bfloat16", lens=[4]))
    m.add_return([m.add(mgx.op("sub"), m.add(mgx.op("add"), x, y), x)])
    program.compile(CpuTarget())
    ones, steps = np.ones(4, BF16), np.full(4, 1 / 512).astype(BF16)
    np.testing.assert_array_equal(program.run({"x": ones, "y": steps})[0].to_numpy(), steps)


@pytest.mark.parametrize("turn", [False, True])
@pytest.mark.parametrize(("rows", "kept"), [(1, 2), (3, 2), (4, 4)])
@pytest.mark.parametrize("columns", [96, 101])
def test_weights_that_are_bfloat16_are_read_as_such_by_products_of_few_rows(
    rows: int, kept: int, columns: int, turn: bool
) -> None:
    """Float32 weights that are representable in bfloat16 lose nothing; activations are not rounded."""
    weights = rng.standard_normal((columns, 64) if turn else (64, columns)).astype(BF16).astype(np.float32)
    a = rng.standard_normal((rows, 64)).astype(np.float32)
    program = mgx.Program()
    m = program.get_main_module()
    w = m.add_literal(weights)
    if turn:
        w = m.add(mgx.op("transpose", permutation=(1, 0)), w)
    m.add_return([m.add(mgx.op("dot"), m.add_parameter("x", mgx.shape(type="float32", lens=[rows, 64])), w)])
    program.compile(CpuTarget(), validate=True)
    exact = a.astype(np.float64) @ (weights.T if turn else weights).astype(np.float64)
    np.testing.assert_allclose(program.run({"x": a})[0].to_numpy(), exact, rtol=1e-4, atol=1e-5)
    runner = program.executable.instances()[0].runner
    panels = [b.bytes for b in runner.schedule.literals if b.array is None]
    whole = columns // 16 * 16 if kept == 2 else columns
    if kept == 2 and not shared().engine.wide:
        assert panels == [64 * whole * 2]


def test_one_number_that_bfloat16_does_not_hold_is_found() -> None:
    array = np.zeros((40, 100), np.float32)
    assert is_bfloat16(array)
    assert is_bfloat16(array[:0])
    array[-1, -1] = 0.1
    assert not is_bfloat16(array)
