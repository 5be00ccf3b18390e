"""Scans along an axis known at run time become branches: text, values and errors."""

from __future__ import annotations

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.ir.module import everywhere
from mgx_core.ops.scan import PrefixScan

BEFORE = """\
  %x = @param["x"] -> float32[2, 3]
  %1 = @literal(-1) -> int64[]
  %2 = prefix_scan_prod[axis=0, exclusive=false, reverse=true](%x, %1)
  @return(%2)"""
AFTER = """\
  %x = @param["x"] -> float32[2, 3]
  %1 = prefix_scan_prod[axis=-1, exclusive=false, reverse=true](%x) -> float32[2, 3]
  @return(%1)"""


def test_a_constant_axis_becomes_the_attribute(rule_turns):
    rule_turns("branch-on-scanned-axis", BEFORE, AFTER)


@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize("dims", [(3,), (2, 3, 4)])
def test_any_axis_is_scanned_and_others_are_errors(target, dims):
    program = mgx.Program()
    m = program.get_main_module()
    x, k = m.add_parameter("x", mgx.Shape("float32", dims)), m.add_parameter("k", mgx.Shape("int32", [1]))
    m.add_return([m.add(mgx.op("prefix_scan_sum", reverse=True), x, k)])
    program.compile(mgx.get_target(target))
    scans = [i for _, i in everywhere(program.executable.module) if isinstance(i.op, PrefixScan)]
    assert [len(i.inputs) for i in scans] == ([2] if len(dims) == 1 else [1] * len(dims))
    data = np.arange(np.prod(dims), dtype=np.float32).reshape(dims)
    for axis in range(-len(dims), len(dims)):
        (found,) = program.run({"x": data, "k": np.asarray([axis], np.int32)})
        np.testing.assert_array_equal(found, np.flip(np.cumsum(np.flip(data, axis), axis), axis))
    with pytest.raises(mgx.ShapeError, match=str(len(dims))):
        program.run({"x": data, "k": np.asarray([len(dims)], np.int32)})
