"""The driver on ONNX files, where the frontend and the reference target are installed."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from mgx_core.driver import main

onnx = pytest.importorskip("onnx")
pytest.importorskip("mgx_onnx")
pytest.importorskip("mgx_ref")


def call(*args, code=0):
    result = CliRunner().invoke(main, [str(a) for a in args])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def model(tmp_path):
    """relu(x w) with x float32[batch, 4] and w a constant."""
    helper = onnx.helper
    w = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"], name="mm"), helper.make_node("Relu", ["h"], ["y"], name="act")],
        "tiny",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 3])],
        [onnx.numpy_helper.from_array(w, "w")],
    )
    path = tmp_path / "tiny.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path, w


def test_run(model, tmp_path):
    path, w = model
    x = np.arange(8, dtype=np.float32).reshape(2, 4) - 3
    np.save(tmp_path / "x.npy", x)
    call("run", path, "--ref", "--load-arg", "@x", tmp_path / "x.npy", "-o", tmp_path / "y.npy")
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), np.maximum(x @ w, 0), rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "float32[batch, 4]"),
        (["--batch", "2"], "float32[2, 4]"),
        (["--dim-param", "@batch", "3"], "float32[3, 4]"),
        (["--dim-param", "@batch", "{min:1,max:8}"], "float32[batch, 4] with batch in 1..8"),
        (["--default-dyn-dim", "{min:2,max:6}"], "float32[batch, 4] with batch in 2..6"),
        (["--input-dim", "@x", "5", "4"], "float32[5, 4]"),
        (["--dyn-input-dim", "@x", "[{min:1,max:9}, 4]"], "with x_0 in 1..9"),
    ],
)
def test_extents(model, options, text):
    assert text in call("params", model[0], *options)


def test_verify_and_perf(model):
    assert "passed on ref" in call("verify", model[0], "--ref", "-b", "--batch", "3")
    for mode in ("-i", "-b", "-r"):
        assert "passed on ref" in call("verify", model[0], "--ref", mode)
    found = json.loads(call("perf", model[0], "--ref", "-n", "2", "--json"))
    assert {s for i in found["instructions"] for s in i["sources"]} == {"mm", "act"}


def test_operators():
    names = call("onnx").split()
    assert {"Relu", "MatMul"} <= set(names)
    assert call("onnx", "Relu") == "Relu\n"
    assert "did you mean" in call("onnx", "Rellu", code=2)


def test_damaged_file(tmp_path):
    path = tmp_path / "bad.onnx"
    path.write_bytes(b"\x00\x01nothing")
    text = call("read", path, code=2)
    assert text.count("\n") == 1
