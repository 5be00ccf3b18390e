"""Requantization in loops: the conversions that remain, and bytes equal to the reference for every kind of number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_cpu_dnnl.jit.graph import Graph, walk
from mgx_cpu_dnnl.jit.integral_floats import keep_integral
from mgx_cpu_dnnl.target import CpuTarget

SPECIAL = [0.0, -0.0, np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45, 126.5, 127.5, -128.5, 1e9, -1e9]


@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("zeros", [(0, 0), (3, -5), (-37, -37)])
def test_bytes_are_those_of_the_definition(kind: str, zeros: tuple[int, int]) -> None:
    program = mgx.Program()
    main = program.get_main_module()

    def add(name: str, *inputs: Any) -> Any:
        return main.add(mgx.op(name), *inputs)

    def scaled(name: str, x: Any, scale: float, zero: int) -> Any:
        point = main.add_literal(np.dtype(kind).type(zero + (128 if kind == "uint8" else 0)))
        return add(name, x, main.add_literal(np.float32(scale)), point)

    x, y = (main.add_parameter(n, mgx.Shape(dt.float32, [40, 16])) for n in "xy")
    first = scaled("quantizelinear", add("mul", x, y), 0.71, zeros[0])
    wide = scaled("dequantizelinear", first, 0.71, zeros[0])
    main.add_return([scaled("quantizelinear", add("relu", add("add", wide, y)), 0.33, zeros[1]), first])
    r = np.random.default_rng(0)
    feed = {n: r.normal(0, 40, (40, 16)).astype(np.float32) for n in "xy"}
    feed["x"].reshape(-1)[: len(SPECIAL)] = SPECIAL
    feed["y"].reshape(-1)[: len(SPECIAL)] = 1.0
    plain = program.clone()
    program.compile(CpuTarget())
    plain.compile(mgx.get_target("ref"), optimize=False)
    with np.errstate(all="ignore"):
        for got, wanted in zip(program.run(feed), plain.run(feed), strict=True):
            np.testing.assert_array_equal(np.asarray(got), np.asarray(wanted))
    assert [s.name.split()[0] for s in program.executable.instances()[-1].runner.schedule.steps] == ["loop"]


def requantized(g: Graph, x: Any, zero: float, low: float = -128.0, high: float = 127.0) -> Any:
    def const(value: float) -> Any:
        return g.const(value, dt.float32)

    y = g.prim("add", dt.float32, (g.prim("round", dt.float32, (x,)), const(zero)))
    y = g.prim("min", dt.float32, (g.prim("max", dt.float32, (y, const(low))), const(high)))
    return g.convert(g.convert(y, dt.int8), dt.float32)


def kinds(g: Graph) -> list[str]:
    return [n.word if n.kind == "prim" else n.kind for n in walk(g.outputs) if n.kind not in ("load", "const")]


def test_a_zero_point_that_is_added_and_subtracted_moves_the_bounds() -> None:
    g = Graph([4], frozenset())
    x = g.prim("mul", dt.float32, (g.convert(g.load(0, dt.int8, [1]), dt.float32), g.const(0.3, dt.float32)))
    g.outputs = [g.prim("sub", dt.float32, (requantized(g, x, -37.0), g.const(-37.0, dt.float32)))]
    keep_integral(g)
    assert kinds(g) == ["convert", "mul", "round", "max", "min"]
    assert [float(n.word) for n in walk(g.outputs) if n.kind == "const"] == [pytest.approx(0.3), -91.0, 164.0]


def test_numbers_of_unknown_size_lose_their_conversions_and_keep_their_zero_point() -> None:
    g = Graph([4], frozenset())
    g.outputs = [
        g.prim("sub", dt.float32, (requantized(g, g.load(0, dt.float32, [1]), -37.0), g.const(-37.0, dt.float32)))
    ]
    keep_integral(g)
    assert kinds(g) == ["round", "add", "max", "min", "number", "sub"]


@pytest.mark.parametrize(("zero", "low", "high"), [(0.5, -128.0, 127.0), (0.0, -129.0, 127.0), (0.0, -128.0, 128.0)])
def test_values_out_of_the_range_of_bytes_are_converted(zero: float, low: float, high: float) -> None:
    g = Graph([4], frozenset())
    g.outputs = [requantized(g, g.load(0, dt.float32, [1]), zero, low, high)]
    before = kinds(g)
    keep_integral(g)
    assert kinds(g) == before
