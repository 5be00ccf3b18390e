"""The package in use: installed, discovered by mgx, used by a model."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from example_mgx_custom_op.ops import MovingAverage, Squareplus

import mgx_core as mgx

SCRIPT = Path(__file__).parents[1] / "make_model.py"


@pytest.fixture
def model() -> onnx.ModelProto:
    spec = importlib.util.spec_from_file_location("make_model", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.model()


def expected(x, b=1.0, window=3):
    """Computes the model in numpy, in double precision."""
    a = (x + np.sqrt(x.astype(np.float64) ** 2 + b)) / 2
    return 2 * np.stack([a[..., i : i + window].mean(axis=-1) for i in range(x.shape[-1] - window + 1)], axis=-1)


def test_the_plugin_is_found():
    (record,) = [r for r in mgx.plugin_manager().records if r.name == "custom_op"]
    assert (record.state, record.distribution) == ("ok", "example-mgx-custom-op")
    assert mgx.op("moving_average", window=2) == MovingAverage(window=2)


def test_listing_loads_nothing_of_ours():
    code = "import sys, mgx_core; mgx_core.plugin_manager(); print('example_mgx_custom_op.ops' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize("batch", [1, 5])
def test_model_runs_on_ref(model, batch):
    program = mgx.parse_onnx_buffer(model.SerializeToString())
    assert [i.name for i in program.get_main_module()][1:3] == ["squareplus", "moving_average"]
    assert str(program.get_output_shapes()[0]) == "float32[batch, 6]"
    program.compile(mgx.get_target("ref"))
    x = np.random.default_rng(batch).normal(size=(batch, 8)).astype(np.float32)
    (y,) = program.run({"x": x})
    np.testing.assert_allclose(y, expected(x), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_decomposition_means_the_same(dtype):
    class WithoutIt(mgx.Target):
        """A target with kernels for everything except moving_average."""

        name = "without"

        def kernels(self, context):
            plans = mgx.Kernels("without")

            @plans.plan()
            def definition(op, shapes, context, modules=()):
                return mgx.No("not here") if op.name == "moving_average" else mgx.Reference(op)

            return plans

    shape = mgx.Shape(dtype, [2, 9])
    program = mgx.Program()
    main = program.get_main_module()
    main.add_return([main.add(MovingAverage(window=4), main.add_parameter("x", shape))])
    program.compile(WithoutIt(), optimize=False)
    placed = [p.op.split("[")[0] for p in program.executable.instances()[0].placements]
    assert placed == ["slice"] * 4 + ["add"] * 3 + ["multibroadcast", "mul"]
    x = mgx.generate_argument(shape, 1)
    got = program.run({"x": x})[0].to_numpy().astype(np.float64)
    want = MovingAverage(window=4).compute(x.to_numpy()).astype(np.float64)
    np.testing.assert_allclose(got, want, atol=8 * mgx.dtype.of(dtype).epsilon)


def test_shape_rule():
    rule = MovingAverage(window=3).infer
    n = mgx.dim.symbol("n")
    assert str(rule(mgx.Shape.of(mgx.dtype.float32, (2, n)))) == "float32[2, n-2]"
    assert rule(mgx.Shape("float32", [3])).lens() == [1]
    for bad in (mgx.Shape("float32", [2]), mgx.Shape("float32", []), mgx.Shape("int32", [9])):
        with pytest.raises(mgx.ShapeError):
            rule(bad)


def test_attributes_are_checked():
    with pytest.raises(mgx.ParameterError, match="at least 1"):
        MovingAverage(window=0)
    with pytest.raises(mgx.ParameterError, match="needs attribute 'window'"):
        MovingAverage()
    with pytest.raises(mgx.ParameterError, match="negative"):
        Squareplus(b=-1.0)


def test_squareplus_of_b_0_is_relu():
    x = np.linspace(-2, 2, 9, dtype=np.float32)
    np.testing.assert_array_equal(Squareplus(b=0.0).compute(x), np.maximum(x, 0))


def test_errors_name_the_node(model):
    model.graph.node[1].attribute[0].i = 99
    with pytest.raises(mgx.ShapeError, match=r"smooth.*at least 99 elements, got 8"):
        mgx.parse_onnx_buffer(model.SerializeToString())


def test_driver(tmp_path):
    path = tmp_path / "model.onnx"
    subprocess.run([sys.executable, SCRIPT, path], check=True)
    run = [sys.executable, "-m", "mgx_core"]
    shown = subprocess.run([*run, "ops", "moving_average", "--json"], capture_output=True, text=True, check=True)
    assert json.loads(shown.stdout)["attributes"][0]["name"] == "window"
    done = subprocess.run(
        [*run, "verify", path, "--ref", "--batch", "2", "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["ok"] is True
