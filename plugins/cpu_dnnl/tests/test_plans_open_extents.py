"""Results with data-dependent extents, and ops after them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.ir.interpreter import Interpreter
from mgx_cpu_dnnl.target import CpuTarget

rng = np.random.default_rng(3)
Check = Callable[..., None]


@pytest.mark.parametrize("fill", [0.0, 0.3, 1.0])
def test_nonzero(agrees: Check, fill: float) -> None:
    x = (rng.random((4, 5, 6)) < fill).astype(np.float32)
    agrees(mgx.op("nonzero"), x)


@pytest.mark.parametrize("name", ["nonzero", "compress"])
@pytest.mark.parametrize("after", [True, False])
def test_nothing_to_count(name: str, after: bool) -> None:
    """Empty operands determine the extents of the result."""
    program = mgx.Program()
    m = program.get_main_module()
    given = {"x": np.zeros((2, 0), np.float32)}
    inputs = [m.add_parameter("x", mgx.Shape("float32", [2, 0]))]
    if name == "compress":
        given["condition"] = np.zeros(0, np.bool_)
        inputs.append(m.add_parameter("condition", mgx.Shape("bool", [0])))
    y = m.add(mgx.op(name, axis=1) if name == "compress" else mgx.op(name), *inputs)
    m.add_return([m.add(mgx.op("neg"), y) if after else y])
    program.compile(CpuTarget())
    assert program.run(given)[0].to_numpy().shape == (2, 0)


def boxes(count: int, classes: int, batch: int = 2) -> list[Any]:
    corners = rng.random((batch, count, 4)).astype(np.float32) * 20
    return [corners, rng.random((batch, classes, count)).astype(np.float32)]


@pytest.mark.parametrize("center", [False, True])
def test_choice_of_boxes(agrees: Check, center: bool) -> None:
    op = mgx.op("nonmaxsuppression", center_point_box=center)
    given = boxes(60, 3)
    most, overlap, least = np.array([7]), np.array([0.4], np.float32), np.array([0.25], np.float32)
    agrees(op, *given)
    agrees(op, *given, most)
    agrees(op, *given, most, overlap)
    agrees(op, *given, most, overlap, least)
    agrees(op, *given, np.array([1000]), overlap, np.array([2.0], np.float32))  # nothing is found


def test_a_threshold_outside_its_range(fails: Check) -> None:
    given = [*boxes(9, 1), np.array([3])]
    good, bad = np.array([0.5], np.float32), np.array([1.5], np.float32)
    fails("outside its range", mgx.op("nonmaxsuppression"), [*given, bad], [*given, good])


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_layers_of_as_many_steps_or_sequences_as_the_data_decide(kind: str, axis: int) -> None:
    gates = {"rnn": 1, "gru": 3, "lstm": 4}[kind]
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [5, 6, 7]))
    kept = m.add(mgx.op("compress", axis=axis), x, m.add_parameter("keep", mgx.Shape("bool", [5 + axis])))
    weights = [m.add_literal(rng.standard_normal((1, gates * 3, n)).astype(np.float32)) for n in (7, 3)]
    layer = m.add(mgx.op(kind, hidden_size=3), kept, *weights)
    m.add_return([m.add(mgx.op("get_tuple_elem", index=0), layer) if kind == "lstm" else layer])
    plain = m.clone()
    program.compile(CpuTarget())
    for keep in (0.5, 1.0):
        given = [rng.standard_normal((5, 6, 7)).astype(np.float32), rng.random(5 + axis) < keep]
        (wanted,) = Interpreter().run(plain, given)
        got = program.run(dict(zip(("x", "keep"), given, strict=True)))[0]
        np.testing.assert_allclose(got.to_numpy(), wanted, rtol=1e-4, atol=1e-5)


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


@pytest.mark.pairs
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "uint8", "int16", "bool"])
@pytest.mark.parametrize("shape", [(7, 5, 2), (3, 400, 1)], ids=str)
def test_distinct_slices(agrees: Check, dtype: str, axis: int | None, ordered: bool, shape: tuple[int, ...]) -> None:
    x = rng.integers(0, 3, shape)
    if dtype in ("float32", "float64", "int64"):
        x = x * 300 - 300
    values = x.astype(mgx.Shape(dtype, []).dtype.numpy)
    agrees(mgx.op("unique", axis=axis, sorted=ordered), values)
    agrees(mgx.op("unique", axis=axis, sorted=ordered), values.transpose(2, 1, 0).copy())


@pytest.mark.parametrize("count", [9, 1000])
@pytest.mark.parametrize("equal", [True, False])
def test_distinct_numbers_with_nan_and_zeros(agrees: Check, count: int, equal: bool) -> None:
    x = rng.standard_normal(count).astype(np.float32)
    x[::3], x[1::3] = np.nan, rng.choice([0.0, -0.0, np.inf, -np.inf], len(x[1::3]))
    agrees(mgx.op("unique", equal_nan=equal), x)
    agrees(mgx.op("unique", equal_nan=equal, sorted=False), x)
    agrees(mgx.op("unique", axis=0, equal_nan=equal), np.stack([x, x[::-1]], 1))
    agrees(mgx.op("unique", axis=0, equal_nan=equal), x[:, None])


@pytest.mark.pairs
@pytest.mark.parametrize("distinct", [1, 255, 256, 257, 900])
@pytest.mark.parametrize("dtype", ["float32", "int64", "int32", "uint8", "float16"])
def test_few_distinct_numbers_and_more_than_few(agrees: Check, dtype: str, distinct: int) -> None:
    """The 257th of 900 elements is the last one that is new."""
    x = np.concatenate([rng.permutation(distinct), rng.integers(0, distinct, 900 - distinct)]) * 7 - 300
    x = (x % 256 if dtype == "uint8" else x).astype(dtype)
    for ordered in (True, False):
        agrees(mgx.op("unique", sorted=ordered), x)
        agrees(mgx.op("unique", sorted=ordered), x[::-1].copy())


def test_distinct_slices_are_results_of_the_static_part() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("int64", [6, 2]))
    found = m.add(mgx.op("unique", axis=0), x)
    m.add_return([m.add(mgx.op("get_tuple_elem", index=n), found) for n in (0, 2)])
    program.compile(CpuTarget())
    given = np.array([[3, 1], [0, 2], [3, 1], [0, 1], [0, 2], [3, 1]])
    rows, places = (np.asarray(r) for r in program.run({"x": given}))
    assert rows.tolist() == [[0, 1], [0, 2], [3, 1]]
    assert places.tolist() == [2, 1, 2, 0, 1, 2]
    runner: Any = program.executable.instances()[0].runner
    assert [op.name for op, _ in runner._crops] == ["unique"]
    assert not runner._items


def test_programs_read_items_of_counted_tuples() -> None:
    """What follows is one native program for each number of distinct elements."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("int64", [8]))
    found = m.add(mgx.op("unique"), x)
    values, _, places, counts = (m.add(mgx.op("get_tuple_elem", index=n), found) for n in range(4))
    m.add_return([m.add(mgx.op("mul"), values, counts), m.add(mgx.op("neg"), places)])
    program.compile(CpuTarget())
    for given in ([3, 3, 3, 1, 1, 0, 0, 0], [1, 2, 3, 4, 5, 6, 7, 8], [5] * 8):
        wanted, where, sizes = np.unique(given, return_inverse=True, return_counts=True)
        products, negative = (np.asarray(r) for r in program.run({"x": np.array(given)}))
        assert products.tolist() == (wanted * sizes).tolist()
        assert negative.tolist() == (-where).tolist()
    (item,) = program.executable.instances()[0].runner._items
    assert len(item.what._made) == 3


def test_programs_read_extents_of_counted_tuples_without_their_items() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x, y = (m.add_parameter(name, mgx.Shape("int64", [8])) for name in "xy")
    first, second = m.add(mgx.op("unique"), x), m.add(mgx.op("unique"), y)
    (extent, *_) = second.result.items[0].dims
    ones = m.add(mgx.op("multibroadcast", out_lens=(extent,)), m.add_literal(np.int64(1)))
    values = m.add(mgx.op("get_tuple_elem", index=0), first)
    m.add_return([m.add(mgx.op("concat", axis=0), values, ones)])
    program.compile(CpuTarget())
    for given in ([3, 3, 3, 1, 1, 0, 0, 0], [1, 2, 3, 4, 5, 6, 7, 8]):
        (found,) = program.run({"x": np.array([5, 5, 4, 4, 4, 4, 4, 4]), "y": np.array(given)})
        assert np.asarray(found).tolist() == [4, 5] + [1] * len(set(given))
