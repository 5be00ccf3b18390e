"""Picking, placing, searching and ordering in native loops, and results whose extents depend on data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_cpu_dnnl.target import CpuTarget

rng = np.random.default_rng(3)


def program_of(op: mgx.Operation, arrays: Sequence[Any]) -> mgx.Program:
    program = mgx.Program()
    m = program.get_main_module()
    made = m.add(
        op, *(m.add_parameter(f"x{n}", mgx.Shape(dt.of(a.dtype), list(a.shape))) for n, a in enumerate(arrays))
    )
    several = isinstance(made.result, mgx.TupleShape)
    count = len(made.result.items) if several else 1
    m.add_return([m.add(mgx.op("get_tuple_elem", index=i), made) for i in range(count)] if several else [made])
    program.compile(CpuTarget())
    return program


def run(program: mgx.Program, arrays: Sequence[Any]) -> list[Any]:
    return [r.to_numpy() for r in program.run({f"x{n}": a for n, a in enumerate(arrays)})]


def check(op: mgx.Operation, *arrays: Any) -> None:
    program = program_of(op, arrays)
    got = run(program, arrays)
    wanted = op.evaluate(arrays)
    for a, b in zip(got, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(*((v.astype(np.float32) if v.dtype == dt.bfloat16.numpy else v) for v in (a, b)))
    (instance,) = program.executable.instances()
    assert [p.kernel for p in instance.placements if p.place == "host"] == []


FLOATS = ["float32", "float64", "float16", "bfloat16"]


@pytest.mark.parametrize("name", [*FLOATS, "int8", "uint8", "int32", "int64", "uint64"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_order(name: str, axis: int) -> None:
    x = rng.integers(0, 9, (4, 7, 5)).astype(dt.of(name).numpy)
    if name in FLOATS:
        x[1, 2, 3] = np.nan
        x[3, 2, 3] = -np.inf
    for flag in (True, False):
        check(mgx.op("topk", k=3, axis=axis, largest=flag), x)
        check(mgx.op("argmax", axis=axis, select_last_index=flag), x)
        check(mgx.op("argmin", axis=axis, select_last_index=flag), x)


def test_topk_of_a_long_line() -> None:
    x = rng.standard_normal((3, 5000)).astype(np.float32)
    check(mgx.op("topk", k=100), x)
    check(mgx.op("topk", k=5000, largest=False), x)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums_and_products(exclusive: bool, reverse: bool) -> None:
    for x in (rng.integers(-128, 128, (3, 9, 2), np.int8), rng.standard_normal((3, 9, 2)).astype(np.float32)):
        for name in ("prefix_scan_sum", "prefix_scan_prod"):
            check(mgx.op(name, axis=1, exclusive=exclusive, reverse=reverse), x)


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_picking_and_placing(kind: Any) -> None:
    data = rng.standard_normal((5, 6, 4)).astype(np.float32)
    at = rng.integers(-6, 6, (5, 3, 4)).astype(kind)
    check(mgx.op("gather_elements", axis=1), data, at)
    check(mgx.op("gathernd", batch_dims=1), data, rng.integers(-4, 4, (5, 2, 2)).astype(kind))
    updates = rng.standard_normal(at.shape).astype(np.float32)
    rows = rng.integers(-5, 5, (7, 1)).astype(kind)
    for reduction in ("none", "add", "mul", "min", "max"):
        check(mgx.op(f"scatter_{reduction}", axis=1), data, at, updates)
        check(mgx.op(f"scatternd_{reduction}"), data, rows, rng.standard_normal((7, 6, 4)).astype(np.float32))


def test_reverse() -> None:
    check(mgx.op("reverse", axes=(0, 2)), rng.standard_normal((3, 4, 5)).astype(np.float32))


@pytest.mark.parametrize("bad", [6, -7])
def test_a_position_outside_is_an_error_and_the_program_lives_on(bad: int) -> None:
    data = rng.standard_normal((5, 6)).astype(np.float32)
    at = np.zeros((5, 2), np.int64)
    program = program_of(mgx.op("gather_elements", axis=1), [data, at])
    with pytest.raises(mgx.ShapeError, match=rf"gather_elements.*index {bad} is out of bounds"):
        run(program, [data, np.full((5, 2), bad)])
    np.testing.assert_array_equal(run(program, [data, at])[0], data[:, [0, 0]])


@pytest.mark.parametrize("fill", [0.0, 0.3, 1.0])
def test_nonzero(fill: float) -> None:
    x = (rng.random((4, 5, 6)) < fill).astype(np.float32)
    check(mgx.op("nonzero"), x)


def boxes(count: int, classes: int, batch: int = 2) -> list[Any]:
    corners = rng.random((batch, count, 4)).astype(np.float32) * 20
    return [corners, rng.random((batch, classes, count)).astype(np.float32)]


@pytest.mark.parametrize("center", [False, True])
def test_choice_of_boxes(center: bool) -> None:
    op = mgx.op("nonmaxsuppression", center_point_box=center)
    given = boxes(60, 3)
    most, overlap, least = np.array([7]), np.array([0.4], np.float32), np.array([0.25], np.float32)
    check(op, *given)
    check(op, *given, most)
    check(op, *given, most, overlap)
    check(op, *given, most, overlap, least)
    check(op, *given, np.array([1000]), overlap, np.array([2.0], np.float32))  # nothing is found


def test_a_threshold_outside_its_range() -> None:
    given = [*boxes(9, 1), np.array([3]), np.array([1.5], np.float32)]
    with pytest.raises(mgx.ShapeError, match="outside its range"):
        run(program_of(mgx.op("nonmaxsuppression"), given), given)


def test_ops_after_one_with_open_extents() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [4, 6]))
    found = m.add(mgx.op("nonzero"), x)
    rows = m.add(mgx.op("squeeze", axes=(0,)), m.add(mgx.op("slice", axes=(0,), starts=(0,), ends=(1,)), found))
    m.add_return([m.add(mgx.op("gather", axis=0), m.add(mgx.op("relu"), x), rows)])
    program.compile(CpuTarget())
    for keep in (0.4, 0.0, 1.0):
        given = np.where(rng.random((4, 6)) < keep, rng.standard_normal((4, 6)), 0).astype(np.float32)
        wanted = np.maximum(given, 0)[np.nonzero(given)[0]]
        np.testing.assert_array_equal(program.run({"x": given})[0].to_numpy(), wanted)
    (instance,) = program.executable.instances()
    assert [p.op for p in instance.placements if p.place == "host"] == []
