"""What is known of values while a model is read."""

from __future__ import annotations

import numpy as np

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.converting.known import Known
from mgx_core.types.dim import symbol


def test_extents_chosen_by_any_operation_on_constants_are_known() -> None:
    """A choice by `a >= b`, the negation of a comparison, was left to the run, and with it the extents and their rank."""
    module = mgx.Module("main")
    n = symbol("n", 1, 9)
    x = module.add_parameter("x", mgx.Shape.of(dt.float32, [n, 3]))
    axis, zero = module.add_literal(0), module.add_literal(0)
    inside = module.add(mgx.op("not"), module.add(mgx.op("less"), axis, zero))
    rows = module.add(mgx.op("slice", axes=(0,), starts=(0,), ends=(1,)), module.add(mgx.op("dimensions_of", end=2), x))
    chosen = module.add(
        mgx.op("where"),
        module.add(mgx.op("unsqueeze", axes=(0,)), inside),
        rows,
        module.add(mgx.op("unsqueeze", axes=(0,)), axis),
    )
    found = Known().extents(chosen)
    assert found is not None and found.tolist() == [n]


def test_extents_rounded_from_constant_floats_are_known() -> None:
    """Paddings of TensorFlow's `SAME`, as torch's older exporter writes them: computed in floats, converted, then rearranged."""
    module = mgx.Module("main")
    given = module.add_literal(np.asarray([1.0, 3.0], np.float32))
    halved = module.add(mgx.op("div"), given, module.add_literal(np.asarray([2.0, 2.0], np.float32)))
    rounded = module.add(mgx.op("convert", target_type=dt.int64), halved)
    turned = module.add(mgx.op("reverse", axes=(0,)), rounded)
    found = Known().extents(turned)
    assert found is not None and found.tolist() == [1, 0]

    open_ones = module.add_parameter("x", mgx.Shape.of(dt.float32, [2]))
    assert Known().extents(module.add(mgx.op("convert", target_type=dt.int64), open_ones)) is None
