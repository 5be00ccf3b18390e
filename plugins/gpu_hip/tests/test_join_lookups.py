"""Chains of gathers and pointwise work on single elements run as one kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from built_program import BuiltProgram

from mgx_core import Shape

waves = pytest.mark.parametrize("device", [0, 1], ids=["wave64", "wave32"])


def trees(b: BuiltProgram, rows: int, kind: str, depth: int = 3, count: int = 6) -> tuple[Any, Any]:
    """Returns the leaves that rows of eight numbers reach in regression trees, and the nodes above these."""
    x, _ = b.argument(rows, 8, kind=kind)
    nodes, dims = 2**depth - 1, [rows, count]
    feature = b.main.add_literal(b.rng.integers(-8, 8, count * nodes))  # negative ones count from the end
    limit, _ = b.argument(count * nodes, kind=kind)

    def wide(value: Any) -> Any:
        return b.add("multibroadcast", b.main.add_literal(np.asarray(value)), out_lens=dims)

    start, node = wide(np.arange(count) * nodes), wide(np.zeros(count, np.int64))
    for _ in range(depth):
        at = b.add("add", node, start)
        value = b.add("gather_elements", x, b.add("gather", feature, at), axis=1)
        right = b.add("convert", b.add("greater", value, b.add("gather", limit, at)), target_type="int64")
        before, node = node, b.add("add", b.add("add", b.add("mul", node, wide(2)), wide(1)), right)
    leaf = b.main.add_literal(b.rng.standard_normal(2 ** (depth + 1)).astype(kind))
    return b.add("gather", leaf, node), before


@waves
@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_trees(kind: str, device: int) -> None:
    b = BuiltProgram(1)
    leaves, _ = trees(b, 33, kind)
    (step,) = b.checked_steps(leaves, device, 0.0)
    assert step.name.startswith("lookup")


def test_a_result_in_the_middle_is_stored() -> None:
    """The node above a leaf has other users, so that the chain is cut behind it."""
    b = BuiltProgram(2)
    leaves, before = trees(b, 17, "float32")
    total = b.add("add", leaves, b.add("convert", before, target_type="float32"))
    steps = b.checked_steps(b.add("concat", total, b.add("pad", leaves, pads=[0, 0, 0, 0]), axis=0), 1, 0.0)
    assert sum(s.name.startswith("lookup") for s in steps) == 2


def test_views_of_tables_and_indices() -> None:
    """A transposed table, and an index broadcast over the elements."""
    b = BuiltProgram(3)
    table, _ = b.argument(7, 12)
    place = b.main.add_parameter("place", Shape("int32", (1, 5)))
    b.feed["place"] = np.arange(5, dtype=np.int32)[None]
    at = b.add("add", b.add("multibroadcast", place, out_lens=[12, 5]), b.main.add_literal(np.ones((12, 5), np.int32)))
    taken = b.add("gather_elements", b.add("transpose", table, permutation=[1, 0]), at, axis=1)
    other = b.add("gather_elements", b.add("transpose", table, permutation=[1, 0]), b.add("neg", at), axis=1)
    (step,) = b.checked_steps(b.add("mul", taken, other), 1, 1e-3)
    assert step.name.startswith("lookup")


def test_a_gather_of_rows_stays() -> None:
    b = BuiltProgram(4)
    (table, _), (x, _) = b.argument(7, 5), b.argument(4, 5)
    at = b.add("convert", b.add("abs", b.argument(4)[0]), target_type="int64")
    steps = b.checked_steps(b.add("mul", b.add("gather", table, at), x), 1, 1e-3)
    assert not any(s.name.startswith("lookup") for s in steps)


def test_a_table_that_is_computed_is_stored() -> None:
    """A step of pointer jumping looks up elements of its own indices; what follows is one kernel."""
    b = BuiltProgram(5)
    parent = b.add("add", b.main.add_parameter("p", Shape("int32", (20,))), b.main.add_literal(np.ones(20, np.int32)))
    b.feed["p"] = b.rng.integers(-1, 19, 20).astype(np.int32)
    other = b.add("neg", b.add("gather", parent, parent))
    steps = b.checked_steps(b.add("tanh", b.add("gather", b.argument(20)[0], other)), 1, 1e-3)
    assert [s.name.split("_")[0] for s in steps] == ["pointwise", "lookup"]
