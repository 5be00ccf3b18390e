"""Quantized images keep their layout: no transpositions between convolutions, and padding is applied to quantized values."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.ops.convolution import Convolution
from mgx_core.ops.movement import Transpose
from mgx_core.ops.quantized import Quantizelinear
from mgx_tflite.model import Model, Operator, Quantization, Subgraph, Tensor
from mgx_tflite.options import TfliteOptions
from mgx_tflite.parser import parse_model

FOLDER = os.environ.get("MGX_TEST_DATA")


@pytest.mark.skipif(FOLDER is None, reason="the public models are not available (set MGX_TEST_DATA)")
def test_values_between_convolutions_keep_their_axes():
    assert FOLDER is not None
    module = mgx.parse(Path(FOLDER) / "tf_models" / "tflite" / "mobilenet_lite_int8.tflite").get_main_module()
    moves = [i for i in module if isinstance(i.op, Transpose) and i.shape.rank == 4]
    of_images = [i for i in moves if isinstance(i.shape.dims[0], mgx.dim.Sym)]  # batches are symbolic, weights are not
    assert sum(isinstance(i.op, Convolution) for i in module) > 5
    assert sum(isinstance(i.op, Quantizelinear) for i in module) > 5
    assert len(of_images) <= 2  # at the network's inputs and outputs


def test_borders_of_bytes_are_zero_points():
    given = Quantization(np.array([0.5], np.float32), np.array([-7], np.int64), 0)
    tensors = [
        Tensor("x", dt.int8, [1, 2, 1, 1], None, given),
        Tensor("pads", dt.int32, [4, 2], np.array([[0, 0], [1, 0], [0, 2], [0, 0]], np.int32), None),
        Tensor("y", dt.int8, [1, 3, 3, 1], None, given),
    ]
    pad = Operator("PAD", [0, 1], [2], [], None, b"", 0)
    program = parse_model(Model([Subgraph("main", tensors, [pad], [0], [2])]), TfliteOptions())
    assert [i.op.name for i in program.get_main_module()][1:-1] == ["pad"]
    program.compile(mgx.get_target("ref"))
    (found,) = program.run({"x": np.array([[[[3]], [[5]]]], np.int8)})
    assert np.asarray(found).reshape(3, 3).tolist() == [[-7, -7, -7], [3, -7, -7], [5, -7, -7]]
