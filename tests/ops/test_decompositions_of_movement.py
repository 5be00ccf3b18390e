"""Decompositions of movement ops for targets without a kernel: both forms give equal results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_core import Module
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ops.broadcast import Tile
from mgx_core.ops.index import Onehot, Trilu
from mgx_core.ops.pad import FixedPad, Pad
from mgx_core.ops.recurrent_states import RnnLastHsOutput
from mgx_core.rules.engine import Builder
from mgx_core.types.argument import shape_of

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        (Tile(repeats=(2, 1, 3)), [X]),
        (Tile(repeats=(0, 1, 3)), [X]),
        (Trilu(k=1), [X]),
        (Trilu(upper=False), [X > 3]),
        (Onehot(axis=1, depth=4), [np.array([[0, 3], [-1, 9]]), None, np.array([2, 5], np.int8)]),
        (Onehot(depth=3), [np.array([1.5, -1.5], np.float32), None, np.array([0, 1])]),
        (Pad(pads=(1, 0, 2, -1, 5, 1), mode="reflect"), [X]),
        (Pad(pads=(1, 0, -2, 0, 5, 1), mode="edge"), [X]),
        (Pad(pads=(1, 7, 2, 0, 5, 1), mode="wrap"), [X]),
        (FixedPad(output_lens=(2, 5, 4)), [X]),
        (RnnLastHsOutput(direction="forward"), [X[:, None]]),
        (RnnLastHsOutput(direction="reverse"), [X[:, None]]),
        (RnnLastHsOutput(direction="bidirectional"), [X.reshape(3, 2, 2, 2)]),
    ],
    ids=repr,
)
def test_same_result(op: Any, inputs: list[Any]) -> None:
    module = Module("main")
    args = [
        module.add_absent() if x is None else module.add_parameter(f"x{i}", shape_of(x)) for i, x in enumerate(inputs)
    ]
    whole = module.add(op, *args)
    parts = op.decompose(Builder(module, whole), *(None if a.is_absent else a for a in args))
    module.add_return([whole, parts])
    assert parts.shape.dims == whole.shape.dims
    assert [i for i in module if i.op.name == op.name] == [whole]
    expected, found = Interpreter().run(module, [x for x in inputs if x is not None])
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype
