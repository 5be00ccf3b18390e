"""Top-k, argmin and argmax, cumulative sums and booleans, compared with the reference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt

rng = np.random.default_rng(4)
Check = Callable[..., None]
FLOATS = ["float32", "float64", "float16", "bfloat16"]
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def few(name: str, *lens: int) -> Any:
    """Returns numbers of which many are equal, with infinities, both zeros and, for floats, NaN."""
    kind = dt.of(name).numpy
    if name not in FLOATS:
        info = np.iinfo(kind) if name != "bool" else None
        pool = [0, 1] if info is None else [info.min, 0, 1, 2, info.max]
        return rng.choice(np.array(pool, kind), lens)
    return rng.choice(np.array([-np.inf, -1, -0.0, 0.0, 1e-5, 2, np.inf, np.nan], np.float32), lens).astype(kind)


@pytest.mark.pairs
@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS, "bool"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_topk(agrees: Check, name: str, axis: int) -> None:
    x = few(name, 7, 19, 33)
    for largest in (True, False):
        for k in (0, 1, 5, 7):
            agrees(mgx.op("topk", k=k, axis=axis, largest=largest), x)


@pytest.mark.parametrize("name", ["float32", "int64"])
@pytest.mark.parametrize("k", [1, 40, 1500, 4999, 5000])
def test_topk_of_long_lines(agrees: Check, name: str, k: int) -> None:
    lines = [rng.standard_normal(5000) * 1000, np.arange(5000), -np.arange(5000), np.zeros(5000)]
    for largest in (True, False):
        agrees(mgx.op("topk", k=k, axis=-1, largest=largest), np.stack(lines).astype(name))


@pytest.mark.parametrize("n", [31, 33, 64, 200, 1000])
def test_few_of_lines_that_are_scanned_in_blocks(agrees: Check, n: int) -> None:
    """The last element of a block, of the rest after the last block, equal ones and NaN among the five best."""
    lines = rng.standard_normal((6, n)).astype(np.float32)
    lines[0, -1], lines[1, 30], lines[2, [n // 2, -2]], lines[4, [3, n - 3]] = 9, 9, 9, np.nan
    lines[3] = 1
    lines[5] = np.arange(n)
    for largest in (True, False):
        agrees(mgx.op("topk", k=5, axis=-1, largest=largest), lines)


@pytest.mark.pairs
@pytest.mark.parametrize(
    ("n", "k"), [(511, 20), (512, 20), (600, 32), (1024, 64), (1100, 50), (2048, 128), (2600, 100)]
)
@pytest.mark.parametrize("name", ["float32", "float16", "int64", "uint8"])
def test_topk_of_lines_with_a_bound(agrees: Check, name: str, n: int, k: int) -> None:
    """Random lines, sorted ones, the best ones all in one of the parts or at the end, equal ones, and NaN among the best."""
    lines = rng.standard_normal((7, n)) * 50
    lines[1] = np.sort(lines[1])
    lines[2] = np.sort(lines[2])[::-1]
    lines[3, ::64] += 100
    lines[4, -k:] += 100
    lines[5] = rng.integers(0, 3, n)
    if name.startswith("float"):
        lines[6, rng.integers(0, n, k + 2)] = np.nan
    x = np.abs(lines).astype(name) if name == "uint8" else lines.astype(name)
    for largest in (True, False):
        agrees(mgx.op("topk", k=k, axis=-1, largest=largest), x)
        agrees(mgx.op("topk", k=k, axis=0, largest=largest), np.ascontiguousarray(x.T))


@pytest.mark.pairs
@pytest.mark.parametrize("axis", [0, 2, -2])
@pytest.mark.parametrize("kind", [np.int64, np.int32])
def test_topk_of_a_count_known_while_running(agrees: Check, fails: Check, axis: int, kind: Any) -> None:
    x = few("float32", 7, 19, 33)
    for largest in (True, False):
        op = mgx.op("topk", axis=axis, largest=largest)
        for k in (0, 1, 7):
            agrees(op, x, np.array([k], kind))
    for bad in (-1, 34):
        fails(f"got a count of {bad}", op, [x, np.array([bad], kind)], [x, np.array([3], kind)])


@pytest.mark.pairs
@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS, "bool"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_positions(agrees: Check, name: str, axis: int) -> None:
    x = few(name, 9, 5, 70)
    for op in ("argmax", "argmin"):
        for last in (False, True):
            numbers = np.where(x == x, x, x.dtype.type(0))
            agrees(mgx.op(op, axis=axis, select_last_index=last), x, others=[[numbers]])


@pytest.mark.parametrize("n", [1, 31, 32, 33, 1000])
def test_positions_in_lines_of_all_lengths(agrees: Check, n: int) -> None:
    x = rng.standard_normal((3, n)).astype(np.float32)
    for op in ("argmax", "argmin"):
        agrees(mgx.op(op, axis=1), x)
        agrees(mgx.op(op, axis=1), x[:0])


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_hardmax(agrees: Check, name: str, axis: int) -> None:
    agrees(mgx.op("hardmax", axis=axis), few(name, 3, 4, 5))


@pytest.mark.pairs
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_running(agrees: Check, exclusive: bool, reverse: bool, axis: int) -> None:
    """Integers wrap; narrow floats are rounded once, from sums in double."""
    for name in INTEGERS:
        kind = dt.of(name).numpy
        info = np.iinfo(kind)
        x = rng.integers(info.min, info.max, (3, 9, 70), kind, endpoint=True)
        for op in ("prefix_scan_sum", "prefix_scan_prod"):
            agrees(mgx.op(op, axis=axis, exclusive=exclusive, reverse=reverse), x)
    for name in FLOATS:
        kind = dt.of(name)
        x = rng.standard_normal((3, 9, 70)).astype(kind.numpy)
        step = float(kind.epsilon) if kind.bits < 32 else 0.0  # the reference rounds to float32 in between
        for op in ("prefix_scan_sum", "prefix_scan_prod"):
            agrees(mgx.op(op, axis=axis, exclusive=exclusive, reverse=reverse), x, tolerance=step)


def test_running_over_nothing(agrees: Check) -> None:
    agrees(mgx.op("prefix_scan_sum", axis=1), np.zeros((3, 0, 2), np.float32))


def test_running_along_a_constant_axis() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [4, 6]))
    m.add_return([m.add(mgx.op("prefix_scan_sum"), x, m.add_literal(np.array(1)))])
    program.compile(mgx.get_target("cpu"))
    given = rng.integers(-8, 8, (4, 6)).astype(np.float32)  # whose sums are exact, also if they cancel
    np.testing.assert_array_equal(program.run({"x": given})[0].to_numpy(), np.cumsum(given, 1))
    assert [p.place for p in program.executable.instances()[0].placements] == ["target"]


@pytest.mark.pairs
@pytest.mark.parametrize("name", ["bool", "float32", "float16", "int8", "uint64"])
@pytest.mark.parametrize("axes", [(), (0,), (1, 2), (-1,)])
def test_truth(agrees: Check, name: str, axes: tuple[int, ...]) -> None:
    for op in ("reduce_any", "reduce_all"):
        shares = [(rng.random((4, 5, 6)) < share).astype(dt.of(name).numpy) for share in (0.0, 0.1, 0.95, 1.0)]
        x, *others = [*shares, *(x * x.dtype.type(3) if name != "bool" else ~x for x in shares)]
        agrees(mgx.op(op, axes=axes), x, others=[[other] for other in others])


def test_native_loops_come_back_from_a_file(tmp_path: Path) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    found = m.add(mgx.op("topk", k=3), m.add_parameter("x", mgx.Shape("float32", [4, 50])))
    m.add_return([m.add(mgx.op("get_tuple_elem", index=i), found) for i in range(2)])
    program.compile(mgx.get_target("cpu"))
    mgx.save(program, tmp_path / "topk.mxr")
    loaded = mgx.load(tmp_path / "topk.mxr")
    x = few("float32", 4, 50)
    for a, b in zip(loaded.run({"x": x}), mgx.op("topk", k=3).evaluate([x]), strict=True):
        np.testing.assert_array_equal(a.to_numpy(), b)
    assert type(loaded.executable.instances()[0].runner).__name__ == "RestoredRunner"


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 40])
def test_topk_of_equals_selects_the_first(agrees, k, largest):
    x = np.random.default_rng(3).integers(0, 2, (3, 2000)).astype(np.float32)
    x[1] = 1.0
    x[2, 700] = np.nan
    agrees(mgx.op("topk", axis=-1, k=k, largest=largest), x)
