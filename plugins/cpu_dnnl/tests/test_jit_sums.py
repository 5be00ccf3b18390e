"""Sums with constant factors that are converted to bytes: which operations remain."""

from __future__ import annotations

from typing import Any

import pytest

from mgx_core import dtype as dt
from mgx_cpu_dnnl.jit.graph import Graph, walk
from mgx_cpu_dnnl.jit.integral_floats import keep_integral
from mgx_cpu_dnnl.jit.sums import combine_sums


class Builder:
    """A graph of floats over four elements."""

    def __init__(self) -> None:
        self.graph = Graph([4], frozenset())

    def given(self, n: int, kind: Any = dt.float32) -> Any:
        return self.graph.load(n, kind, [1])

    def add(self, name: str, *args: Any) -> Any:
        nodes = [self.graph.const(a, dt.float32) if isinstance(a, float) else a for a in args]
        return self.graph.prim(name, dt.float32, tuple(nodes))

    def narrow(self, x: Any, scale: float, zero: float, kind: Any = dt.uint8) -> Any:
        y = self.add("add", self.add("round", self.add("div", x, scale)), zero)
        low, high = float(kind.lowest), float(kind.highest)
        return self.graph.convert(self.add("min", self.add("max", y, low), high), kind)

    def wide(self, q: Any, scale: float, zero: float) -> Any:
        return self.add("mul", self.add("sub", self.graph.convert(q, dt.float32), zero), scale)

    def left(self, out: Any) -> tuple[list[str], list[float]]:
        """Returns the remaining operations and constants."""
        self.graph.outputs = [out]
        keep_integral(self.graph)
        combine_sums(self.graph)
        nodes = list(walk(self.graph.outputs))
        names = [n.word if n.kind == "prim" else n.kind for n in nodes if n.kind not in ("load", "const")]
        return names, [float(n.word) for n in nodes if n.kind == "const"]


@pytest.mark.parametrize(("kind", "zero"), [(dt.uint8, 3.0), (dt.int8, 3.0), (dt.int8, -128.0)])
def test_a_scaled_sum_is_rounded_after_two_operations(kind: Any, zero: float) -> None:
    b = Builder()
    total = b.add("add", b.add("mul", b.given(0), b.given(1)), b.given(2))
    assert b.left(b.narrow(total, 0.5, zero, kind)) == (["fma", "mul", f"rounded_{kind}"], [2.0, zero])


def test_added_bytes_need_one_operation_each() -> None:
    b = Builder()
    total = b.add("add", b.wide(b.given(0, dt.uint8), 0.5, 100.0), b.wide(b.given(1, dt.uint8), 0.25, 50.0))
    names, numbers = b.left(b.narrow(total, 2.0, 0.0))
    assert names == ["convert", "convert", "fma", "fma", "rounded_uint8"]
    assert sorted(numbers) == [-(50.0 + 12.5) / 2, 0.0, 0.125, 0.25]


def test_intermediate_rounding_is_kept() -> None:
    b = Builder()
    inner = b.wide(b.narrow(b.given(0), 0.5, 7.0), 0.5, 7.0)
    names, numbers = b.left(b.narrow(b.add("add", inner, b.given(1)), 2.0, 0.0))
    assert names == ["mul", "round", "max_number", "min_const", "mul", "fma", "rounded_uint8"]
    assert {-7.0, 248.0} <= set(numbers)


@pytest.mark.parametrize("number", [1e20, 1e-20])
def test_constants_that_would_leave_the_range_stay_apart(number: float) -> None:
    b = Builder()
    names, numbers = b.left(b.narrow(b.add("mul", b.add("mul", b.given(0), number), 1 / number), 2.0, 0.0))
    assert names.count("mul") == 3
    assert number in numbers


def test_results_that_are_no_bytes_are_left_alone() -> None:
    b = Builder()
    x = b.add("add", b.add("mul", b.given(0), 3.0), 1.0)
    assert b.left(b.add("div", x, 3.0)) == (["mul", "add", "div"], [3.0, 1.0])


def test_bounds_of_integers_stay_as_they_are() -> None:
    b = Builder()
    low = b.graph.prim("min", dt.int32, (b.given(0, dt.int32), b.graph.const(-34, dt.int32)))
    assert b.left(b.graph.convert(low, dt.int8)) == (["min", "convert"], [-34.0])
