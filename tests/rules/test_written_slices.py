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
        ([1], 3, 1),  # one copy either way
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


REFUSES = [
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
