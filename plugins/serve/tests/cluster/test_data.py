"""Models on data sets, and as steps of graphs, in worker processes."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import ray
from onnx import TensorProto, helper
from ray import serve

from mgx_serve import ModelSettings
from mgx_serve.data import Predictor, map_batches
from mgx_serve.errors import BadRequest
from mgx_serve.on_ray.publishing import publish

ENSEMBLE = Path(__file__).parents[4] / "examples" / "ensemble" / "ensemble.py"


pytestmark = pytest.mark.usefixtures("emptied")


def test_data_sets(small_model: Callable[..., Path], tmp_path: Path) -> None:
    model = small_model(tmp_path / "m.onnx", 3)
    rows = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)
    ray.data.from_items([{"row": n, "x": x} for n, x in enumerate(rows)]).write_parquet(str(tmp_path / "rows"))
    options: dict[str, Any] = {"batch_size": 8, "concurrency": 2, "target": "ref", "cpus": 0.5}
    made = map_batches(ray.data.read_parquet(str(tmp_path / "rows")), model, outputs={"z": "sum"}, **options)
    found = sorted(made.take_all(), key=lambda row: row["row"])
    assert [row["row"] for row in found] == list(range(50))
    np.testing.assert_allclose([row["y"] for row in found], 3 * rows, rtol=1e-6)
    np.testing.assert_allclose([row["sum"] for row in found], rows.sum(1, keepdims=True), rtol=1e-5, atol=1e-6)


def test_processes_that_leave_no_cpu_for_reading_are_reported(
    small_model: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows, model = ray.data.from_items([{"x": [1.0, 2.0, 3.0, 4.0]}]), small_model(tmp_path / "m.onnx", 3)
    map_batches(rows, model, target="ref", concurrency=(3, 8))  # lazy: 4 CPUs suffice
    assert "are required" not in caplog.text
    map_batches(rows, model, target="ref", concurrency=4)
    assert "5 CPUs are required, of 4 in the cluster" in caplog.text


def test_columns_that_do_not_fit(small_model: Callable[..., Path], tmp_path: Path) -> None:
    handed = publish("m", "1", small_model(tmp_path / "m.onnx", 7), ModelSettings(target="ref"))
    predict = Predictor(handed, {}, {})
    assert predict({"x": np.ones((2, 4))})["y"].dtype == np.float32
    with pytest.raises(BadRequest, match="no input or output 'nosuch'"):
        Predictor(handed, {"nosuch": "x"}, {})
    for batch, said in (
        ({"a": np.ones((2, 4), np.float32)}, "requires a column 'x'; known are a"),
        ({"x": np.ones((2, 4), np.complex64)}, "requires FP32, column 'x' holds complex64"),
        ({"x": np.ones((2, 5), np.float32)}, r"FP32\[-1, 4\] is required, got FP32\[2, 5\]"),
        ({"x": np.array([[1.0], [1.0, 2.0]], object)}, "rows of one shape are required"),
    ):
        with pytest.raises(BadRequest, match=said):
            predict(batch)


def cast_model(path: Path, kind: int) -> Path:
    """y = x, for one element type."""
    x, y = (helper.make_tensor_value_info(name, kind, ["batch"]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


@pytest.mark.parametrize(
    ("kind", "fits", "lost"),
    [
        (TensorProto.INT32, np.array([-5, 2**31 - 1]), np.array([1, 2**40])),
        (TensorProto.INT32, np.array([7], np.uint32), np.array([2**31], np.uint32)),
        (TensorProto.INT64, np.array([7], np.uint64), np.array([2**63 + 5], np.uint64)),
        (TensorProto.FLOAT16, np.array([0.1, 65504.0, np.inf, np.nan]), np.array([0.0, 70000.0])),
        (TensorProto.FLOAT16, np.array([5, -7]), np.array([70000])),
    ],
)
def test_elements_that_the_input_cannot_hold(kind: int, fits: Any, lost: Any, tmp_path: Path) -> None:
    handed = publish("m", "1", cast_model(tmp_path / "m.onnx", kind), ModelSettings(target="ref"))
    predict = Predictor(handed, {}, {})
    np.testing.assert_array_equal(predict({"x": fits})["y"], fits.astype(helper.tensor_dtype_to_np_dtype(kind)))
    with pytest.raises(BadRequest, match=f"cannot hold {lost[-1]} of column 'x'"):
        predict({"x": lost})


def test_a_graph_of_models(tmp_path: Path) -> None:
    example = runpy.run_path(str(ENSEMBLE))
    serve.start(http_options={"location": "NoServer"})
    handle = serve.run(example["graph"](tmp_path, "ref"), name="classifier", route_prefix=None)
    text = "a graph of three steps"
    given = example["weights"]()
    tokens = example["Tokenizer"]()(text)
    scores = np.tanh(given["words"][tokens].mean(1) @ given["dense"]) @ given["classes"]
    wanted = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
    np.testing.assert_allclose(handle.remote(text).result(), wanted[0], rtol=1e-4, atol=1e-6)
