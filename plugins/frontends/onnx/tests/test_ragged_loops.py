"""EmbeddingBags with offsets as torch's two exporters write them: loops over slices of the indices or of the gathered rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx

from .test_lists import program_of

OLDER = """g (int64[n] x, int64[b] offsets, float[20, 3] table) => (float[k, 3] y) {{
    yes = Constant<value = bool {{1}}>()
    axis = Constant<value_ints = [0]>()
    size = Shape(x)
    bounds = Concat<axis = 0>(offsets, size)
    one = Constant<value_ints = [1]>()
    last = Constant<value_ints = [9223372036854775807]>()
    ends = Slice(bounds, one, last, axis)
    counts = Shape(ends)
    count = Squeeze(counts, axis)
    y = Loop (count, yes) <body = b (int64 i, bool c) => (bool d, float[3] row) {{
        first = Gather<axis = 0>(bounds, i)
        after = Gather<axis = 0>(ends, i)
        start = Unsqueeze(first, axis)
        end = Unsqueeze(after, axis)
        some = Slice(x, start, end, axis)
        rows = Gather<axis = 0>(table, some)
        row = {reduce}<keepdims = 0>(rows, axis)
        d = Cast<to = 9>(yes)
    }}>
}}"""

NEWER = """g (int64[12] x, int64[5] offsets, float[20, 3] table) => (float[5, 3] y) {{
    rows = Gather<axis = 0>(table, x)
    size = Constant<value_ints = [12]>()
    bounds = Concat<axis = 0>(offsets, size)
    yes = Constant<value = bool {{1}}>()
    zero = Constant<value_int = 0>()
    bags = Constant<value_int = 5>()
    last = Constant<value_int = 4>()
    one = Constant<value_int = 1>()
    two = Constant<value_int = 2>()
    flat = Constant<value_ints = [-1]>()
    axis = Constant<value_ints = [0]>()
    zeros = Constant<value = float[1, 3] {{0, 0, 0}}>()
    none = SequenceEmpty<dtype = 1>()
    number, list = Loop ("", yes, zero, none) <body = b (int64 i, bool c, int64 k, seq(float) s) => (bool d, int64 m, seq(float) t) {{
        at = Reshape(k, flat)
        next = Add(at, one)
        start = Slice(bounds, at, next)
        second = Add(at, two)
        end = Slice(bounds, next, second)
        empty = Equal(start, end)
        row = If (empty) <then_branch = t () => (float[1, 3] z) {{ z = Identity(zeros) }},
            else_branch = e () => (float[1, 3] w) {{
                final = Equal(k, last)
                some = If (final) <then_branch = f () => (float[p, 3] u) {{ u = Slice(rows, start, size) }},
                    else_branch = h () => (float[q, 3] v) {{ v = Slice(rows, start, end) }}>
                w = {reduce}(some, axis)
            }}>
        t = SequenceInsert(s, row)
        m = Add(k, one)
        d = Less(m, bags)
    }}>
    y = ConcatFromSequence<axis = 0>(list)
}}"""


@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize(("name", "reduce"), [("ReduceSum", np.sum), ("ReduceMean", np.mean), ("ReduceMax", np.max)])
@pytest.mark.parametrize("text", [OLDER, NEWER], ids=["older", "newer"])
def test_embedding_bags(text: str, name: str, reduce: Any, target: str) -> None:
    rng = np.random.default_rng(1)
    x, table = rng.integers(0, 20, 12), rng.standard_normal((20, 3)).astype(np.float32)
    program = program_of(text.format(reduce=name), target)
    assert "reduce_slices" in str(program) and "loop" not in str(program) and "scan[" not in str(program)
    for offsets in ([0, 3, 4, 7, 11], [0, 1, 2, 3, 4], [0, 5, 6, 8, 10]):
        found = program.run({"x": x, "offsets": np.array(offsets), "table": table})[0].to_numpy()
        rows = [reduce(table[x[a:b]], axis=0) for a, b in zip(offsets, [*offsets[1:], 12], strict=True)]
        np.testing.assert_allclose(found, np.stack(rows), rtol=1e-5, atol=1e-6)


def test_bags_without_elements() -> None:
    """One form selects zeros for them; the sum of the other form is 0, too."""
    given = {"x": np.arange(12), "offsets": np.array([0, 0, 4, 12, 12]), "table": np.ones((20, 3), np.float32)}
    wanted = np.repeat(np.array([0, 4, 8, 0, 0], np.float32), 3).reshape(5, 3)
    for text in (OLDER, NEWER):
        found = program_of(text.format(reduce="ReduceSum"), "cpu").run(given)[0].to_numpy()
        np.testing.assert_array_equal(found, wanted)


def test_an_index_outside_the_table() -> None:
    given = {"x": np.full(12, 20), "offsets": np.array([0, 1, 2, 3, 4]), "table": np.ones((20, 3), np.float32)}
    with pytest.raises(mgx.MgxError, match="20"):
        program_of(OLDER.format(reduce="ReduceSum"), "cpu").run(given)
