"""The operation in use: from ONNX, on ref, on cpu in C, on gpu in HIP."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper

import mgx_core as mgx
from mgx_gpu_hip.target import GpuTarget

KERNELS = {"ref": "reference clip_rows", "cpu": "clip_rows in C", "gpu": "clip_rows in HIP"}


def model() -> bytes:
    node = helper.make_node("ClipRows", ["x"], ["y"], domain="example", limit=2.0)
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 5]) for name in "xy"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("example", 1)]
    return helper.make_model(
        helper.make_graph([node], "g", info[:1], info[1:]), opset_imports=opsets
    ).SerializeToString()


@pytest.mark.parametrize("name", KERNELS)
def test_model(name):
    program = mgx.parse_buffer(model(), "onnx")
    program.compile(GpuTarget("host", 1) if name == "gpu" else mgx.get_target(name))
    for rows in (1, 3, 700):
        x = np.random.default_rng(rows).normal(size=(rows, 5)).astype(np.float32)
        length = np.sqrt((x.astype(np.float64) ** 2).sum(-1, keepdims=True))
        np.testing.assert_allclose(program.run({"x": x})[0], x * np.minimum(1, 2 / length), rtol=1e-6, atol=1e-7)
    (placed,) = [p for p in program.executable.instances()[0].placements if p.op.startswith("clip_rows")]
    assert placed.kernel == KERNELS[name]


def test_the_kit(tmp_path):
    words = ["--mgx-target", "cpu", "--mgx-ops", "example_mgx_op_everywhere"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--pyargs",
        "mgx_conformance.suite",
        *words,
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
