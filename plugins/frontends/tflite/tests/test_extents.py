"""Extents of inputs that options override."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_tflite.model import Model, Operator, Subgraph, Tensor
from mgx_tflite.options import TfliteOptions
from mgx_tflite.parser import parse_model


def program(**options: Any) -> mgx.Program:
    """A convolution with bias on an image whose batch size in the file is 1."""
    tensors = [
        Tensor("x", dt.float32, [1, 2, 2, 1], None, None),
        Tensor("w", dt.float32, [2, 1, 1, 1], np.array([1, 2], np.float32).reshape(2, 1, 1, 1), None),
        Tensor("b", dt.float32, [2], np.array([10, 20], np.float32), None),
        Tensor("y", dt.float32, [1, 2, 2, 2], None, None),
    ]
    conv = Operator("CONV_2D", [0, 1, 2], [3], [], None, b"", 0)
    return parse_model(Model([Subgraph("main", tensors, [conv], [0], [3])]), TfliteOptions.of(**options))


@pytest.mark.parametrize(
    "options", [{"map_input_dims": {"x": [3, 2, 2, 1]}}, {"map_dyn_input_dims": {"x": [[1, 4], 2, 2, 1]}}]
)
def test_a_given_batch_replaces_the_declared_one(options: dict[str, Any]):
    made = program(**options)
    made.compile(mgx.get_target("ref"))
    x = np.arange(12, dtype=np.float32).reshape(3, 2, 2, 1)
    (y,) = made.run({"x": x})
    np.testing.assert_array_equal(y, x * np.array([1, 2], np.float32) + np.array([10, 20], np.float32))


def test_the_change_is_reported(caplog: pytest.LogCaptureFixture):
    program(map_input_dims={"x": [1, 2, 2, 1]})
    assert not caplog.messages
    program(map_input_dims={"x": [3, 2, 2, 1]})
    assert caplog.messages == ["input 'x': the extents [1, 2, 2, 1] of the model are overridden by [3, 2, 2, 1]"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"map_input_dims": {"z": [3, 2, 2, 1]}}, "extents are set for input 'z', which does not exist; .*'?x'?"),
        ({"map_input_dims": 3}, "map_input_dims must be a mapping by name, got 3"),
        ({"map_input_dims": {"x": [1]}, "map_dyn_input_dims": {"x": [1]}}, "'x' is in both"),
        ({"map_dyn_input_dims": {"x": ["many", 2, 2, 1]}}, "must be an int or a range"),
        ({"map_input_dims": {"x": [-3, 2, 2, 1]}}, "negative"),
    ],
)
def test_mismatches_are_rejected(options: dict[str, Any], message: str):
    with pytest.raises(mgx.MgxError, match=message):
        program(**options)
