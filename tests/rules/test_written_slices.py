"""Rules that join slices written one by one: module text before and after, and equal results."""

from __future__ import annotations

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.ir.interpreter import Interpreter


def written(
    steps: list[int], length: int, axis: int, read: int | None = None
) -> tuple[mgx.Program, dict[str, np.ndarray]]:
    """Returns a program that writes a slice at each place in turn, and its arguments; read: a write that is also a result."""
    program = mgx.Program()
    m = program.get_main_module()
    dims = [2, 3]
    dims.insert(axis, length)
    one = [1 if a == axis else n for a, n in enumerate(dims)]
    x = m.add_parameter("x", mgx.Shape("float32", dims))
    results = []
    for n, place in enumerate(steps):
        u = m.add_parameter(f"u{n}", mgx.Shape("float32", one))
        where = m.add_literal(np.full(one, place, np.int64))
        x = m.add(mgx.op("scatter_none", axis=axis - 3), x, where, u)
        results += [x] if n == read else []
    m.add_return([x, *results])
    rng = np.random.default_rng(1)
    feed = {n: rng.standard_normal(p.shape.lens()).astype(np.float32) for n, p in m.parameters.items()}
    return program, feed


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(
    ("steps", "length", "scatters"),
    [
        ([0, 1, 2], 3, 0),
        ([2, 0], 4, 0),  # the rest is kept
        ([1, -3, 1, 0], 4, 0),  # the last of several at one place is kept
        ([1], 3, 0),
    ],
)
def test_the_slices_are_concatenated(steps: list[int], length: int, axis: int, scatters: int) -> None:
    program, feed = written(steps, length, axis)
    (wanted,) = Interpreter().run(program.get_main_module().clone(), list(feed.values()))
    program.compile(mgx.get_target("ref"))
    assert str(program).count("= scatter_none") == scatters, program
    np.testing.assert_array_equal(program.run(feed)[0].to_numpy(), np.asarray(wanted))


def test_a_state_that_is_read_in_between_is_kept() -> None:
    """The writes before it form one concatenation, those after it another."""
    program, feed = written([0, 1, 2, 3], 4, 1, read=1)
    wanted = Interpreter().run(program.get_main_module().clone(), list(feed.values()))
    program.compile(mgx.get_target("ref"))
    assert str(program).count("= concat") == 2 and "scatter_none" not in str(program), program
    for one, other in zip(program.run(feed), wanted, strict=True):
        np.testing.assert_array_equal(one.to_numpy(), np.asarray(other))


def assigned(
    axis: int, rows: list[int], transposed: bool, length: int = 5
) -> tuple[mgx.Program, dict[str, np.ndarray]]:
    """Returns a program that writes rows along an axis as torch's ONNX exporter does, and its arguments."""
    program = mgx.Program()
    m = program.get_main_module()
    dims = [2, 3]
    dims.insert(axis, length)
    order = [axis, *(a for a in range(3) if a != axis)]
    x = m.add_parameter("x", mgx.Shape("float32", dims))
    u = m.add_parameter("u", mgx.Shape("float32", [len(rows) if a == axis else n for a, n in enumerate(dims)]))
    if transposed:
        x, u = (m.add(mgx.op("transpose", permutation=order), v) for v in (x, u))
    y = m.add(mgx.op("scatternd_none"), x, m.add_literal(np.array(rows, np.int64)[:, None]), u)
    m.add_return([m.add(mgx.op("transpose", permutation=[order.index(a) for a in range(3)]), y) if transposed else y])
    rng = np.random.default_rng(2)
    return program, {n: rng.standard_normal(p.shape.lens()).astype(np.float32) for n, p in m.parameters.items()}


@pytest.mark.parametrize(("axis", "transposed"), [(0, False), (0, True), (1, True), (2, True)])
@pytest.mark.parametrize("rows", [[0], [1, 2], [3, 4], [-2, -1], [0, 1, 2, 3, 4]])
def test_consecutive_rows_are_concatenated(axis: int, transposed: bool, rows: list[int]) -> None:
    program, feed = assigned(axis, rows, transposed)
    (wanted,) = Interpreter().run(program.get_main_module().clone(), list(feed.values()))
    program.compile(mgx.get_target("ref"))
    assert "scatter" not in str(program) and "transpose" not in str(program), program
    np.testing.assert_array_equal(program.run(feed)[0].to_numpy(), np.asarray(wanted))


@pytest.mark.parametrize("rows", [[1, 1], [2, 1], [0, 2], [4, 0]])
def test_other_rows_are_scattered(rows: list[int]) -> None:
    program, feed = assigned(0, rows, False)
    (wanted,) = Interpreter().run(program.get_main_module().clone(), list(feed.values()))
    program.compile(mgx.get_target("ref"))
    assert "scatternd_none" in str(program)
    np.testing.assert_array_equal(program.run(feed)[0].to_numpy(), np.asarray(wanted))


@pytest.mark.parametrize("rows", [[5], [4, 5], [-6]])
def test_rows_outside_are_errors_of_the_run(rows: list[int]) -> None:
    program, feed = assigned(0, rows, False)
    program.compile(mgx.get_target("ref"))
    with pytest.raises(mgx.MgxError, match="indices must lie in"):
        program.run(feed)


def reads_rows(places: str) -> str:
    return f"""\
  %x = @param["x"] -> float32[5, 3]
  %u = @param["u"] -> float32[2, 3]
  %1 = @literal({places}) -> int64[2, 1]
  %2 = scatternd_none(%x, %1, %u)
  @return(%2)"""


REFUSES = [
    ("concat-from-written-rows", reads_rows("0, 2"), "the rows are not consecutive, or outside"),
    ("concat-from-written-rows", reads_rows("4, 5"), "the rows are not consecutive, or outside"),
    (
        "concat-from-written-slices",
        """\
  %x = @param["x"] -> float32[600]
  %u = @param["u"] -> float32[1]
"""
        + "".join(
            f"""\
  %{2 * n + 1} = @literal({2 * n}) -> int64[1]
  %{2 * n + 2} = scatter_none[axis=0](%{2 * n if n else "x"}, %{2 * n + 1}, %u)
"""
            for n in range(129)
        )
        + "  @return(%258)",
        "the slices form 258 parts, at most 256 are concatenated",
    ),
]


@pytest.mark.parametrize(("name", "before", "why"), REFUSES)
def test_refuses(rule_refuses, name, before, why):
    rule_refuses(name, before, why)
