"""Rules on all slices of a tensor take time proportional to the number of slices."""

from __future__ import annotations

from typing import Any

import pytest

import mgx_core as mgx
from mgx_core.passes.rewrite import Rewrite
from mgx_core.rules import splits

COUNT = 100


@pytest.mark.parametrize("ops", [["relu"], ["abs", "sqrt", "exp"]])
def test_the_slices_of_many_readers_are_not_examined_by_each(ops: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of equal readers, those replaced along with the first; of different ones, those after the second."""
    ranges, examined = splits.ranges, []

    def counted(ins: Any) -> Any:
        examined.append(ins)
        return ranges(ins)

    monkeypatch.setattr(splits, "ranges", counted)
    m = mgx.Module("main")
    x = m.add_parameter("x", mgx.Shape("float32", [3, COUNT]))
    parts = [m.add(mgx.op("slice", axes=[1], starts=[k], ends=[k + 1]), x) for k in range(COUNT)]
    m.add_return([m.add(mgx.op(ops[k % len(ops)]), part) for k, part in enumerate(parts)])
    assert Rewrite(splits.SPLITS).apply(m) == (len(ops) == 1)
    assert 0 < len(examined) <= 4 * COUNT
