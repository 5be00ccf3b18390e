"""Requests that are padded to buckets of extents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tritonclient.http
from onnx import TensorProto, helper, numpy_helper

from mgx_core import ParameterError
from mgx_serve.batching import Batcher
from mgx_serve.metrics import Metrics
from mgx_serve.model import Model
from mgx_serve.padding import padded, unpadded
from mgx_serve.settings import ModelSettings, model_settings
from mgx_serve.tracing import NoTraces

TABLE = np.random.default_rng(0).random((50, 4), np.float32)
SETTINGS = "max_batch = 8\n[buckets]\nlength = [4, 8, 16]\n[fill]\nids = 7\n"


def tensor(name: str, kind: int, *dims: object) -> Any:
    return helper.make_tensor_value_info(name, kind, dims)


def write(path: Path, outputs: Sequence[Any] = (), nodes: Sequence[Any] = ()) -> Path:
    """tokens = rows of a table by ids, 0 where masked; mean = over the unmasked ones."""
    nodes = nodes or [
        helper.make_node("Gather", ["table", "ids"], ["found"]),
        helper.make_node("Cast", ["mask"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["real", "last"], ["each"]),
        helper.make_node("Mul", ["found", "each"], ["tokens"]),
        helper.make_node("ReduceSum", ["tokens", "one"], ["sum"], keepdims=0),
        helper.make_node("ReduceSum", ["real", "one"], ["count"]),
        helper.make_node("Div", ["sum", "count"], ["mean"]),
    ]
    weights = [
        numpy_helper.from_array(value, name)
        for name, value in (("table", TABLE), ("last", np.array([-1])), ("one", np.array([1])))
    ]
    inputs = [tensor(name, TensorProto.INT64, "batch", "length") for name in ("ids", "mask")]
    outputs = outputs or [
        tensor("tokens", TensorProto.FLOAT, "batch", "length", 4),
        tensor("mean", TensorProto.FLOAT, "batch", 4),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def feeds(random: np.random.Generator, count: int, length: int) -> dict[str, Any]:
    mask = random.integers(0, 2, (count, length))
    mask[:, 0] = 1
    return {"ids": random.integers(0, 50, (count, length)), "mask": mask}


def wanted(given: dict[str, Any]) -> tuple[Any, Any]:
    tokens = TABLE[given["ids"]] * given["mask"][..., None].astype(np.float32)
    return tokens, tokens.sum(1) / given["mask"].sum(1, keepdims=True)


def check(given: dict[str, Any], tokens: Any, mean: Any) -> None:
    expected = wanted(given)
    np.testing.assert_array_equal(tokens, expected[0])
    np.testing.assert_allclose(mean, expected[1], rtol=1e-6)


def model(path: Path, text: str = SETTINGS) -> Model:
    (path.parent / "config.toml").write_text(text)
    return Model.read("m", "1", path, model_settings(path.parent, ModelSettings(target="ref")))


def test_requests_of_different_lengths_share_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = model(write(tmp_path / "model.onnx"))
    shapes: list[tuple[int, ...]] = []
    run = made.run

    def noted(given: Any, outputs: Any = None) -> Any:
        shapes.append(given["ids"].shape)
        return run(given, outputs)

    monkeypatch.setattr(made, "run", noted)
    random = np.random.default_rng(1)

    async def ask() -> None:
        batcher = Batcher(made, Metrics(NoTraces()))
        given = [feeds(random, 1 + n % 2, length) for n, length in enumerate((1, 2, 3, 4, 5, 8, 17, 3))]
        answers = await asyncio.gather(*(batcher.infer(one) for one in given))
        for one, (_, results) in zip(given, answers, strict=True):
            check(one, *results)
        _, (mean,) = await batcher.infer(given[0], wanted=["mean"])
        np.testing.assert_allclose(mean, wanted(given[0])[1], rtol=1e-6)
        await batcher.close()

    asyncio.run(ask())
    assert {length for _, length in shapes} == {4, 8, 17} and len(shapes) < 7


@pytest.mark.parametrize("frontends", [0, 2])
def test_a_server(frontends: int, serve: Callable[..., Any], tmp_path: Path) -> None:
    path = write(tmp_path / "m" / "1" / "model.onnx")
    (path.parents[1] / "config.toml").write_text(SETTINGS)
    server = serve(tmp_path, "--frontends", frontends)

    def ask(seed: int) -> None:
        random = np.random.default_rng(seed)
        with tritonclient.http.InferenceServerClient(server.http) as client:
            for _ in range(60):
                given = feeds(random, int(random.integers(1, 3)), int(random.integers(1, 18)))
                inputs = []
                for name, value in given.items():
                    inputs.append(tritonclient.http.InferInput(name, list(value.shape), "INT64"))
                    inputs[-1].set_data_from_numpy(value)
                found = client.infer("m", inputs)
                check(given, found.as_numpy("tokens"), found.as_numpy("mean"))

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(ask, range(6))) == [None] * 6
    with tritonclient.http.InferenceServerClient(server.http) as client:
        told = client.get_model_config("m")["parameters"]
        assert told["mgx.buckets"] == {"string_value": '{"length": [4, 8, 16]}'}
        runs = client.get_inference_statistics("m")["model_stats"][0]
        assert runs["inference_count"] > runs["execution_count"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("max_batch = 8\nbuckets = {size = [4]}\n", r"buckets: .*open extents \['length'\], got 'size'"),
        ("max_batch = 8\nbuckets = {length = [8, 4]}\n", r"buckets of 'length' must be ascending sizes from 1 on"),
        ("max_batch = 8\nbuckets = {length = [0]}\n", "buckets of 'length' must be ascending sizes from 1 on"),
        ("max_batch = 8\nbuckets = {length = []}\n", "buckets of 'length' must be ascending sizes from 1 on"),
        (
            "max_batch = 8\nbuckets = {length = [1000000000]}\n",
            r"buckets of 'length': a row of 1000000000 takes 16000000000",
        ),
        ("max_batch = 8\nbuckets = 4\n", "buckets must be of type dict"),
        ("buckets = {length = [4]}\n", "buckets are for requests that are joined"),
        (
            "max_batch = 8\nbuckets = {length = [4]}\nfill = {words = 1}\n",
            "fill: the model's inputs are ids, mask, got",
        ),
        (
            "max_batch = 8\nbuckets = {length = [4]}\nfill = {ids = 1.5}\n",
            "fill: input 'ids' is of type INT64, got 1.5",
        ),
        (
            "max_batch = 8\nbuckets = {length = [4]}\nfill = {ids = 'a'}\n",
            "fill: input 'ids' is of type INT64, got 'a'",
        ),
    ],
)
def test_settings_that_do_not_fit(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=why):
        model(write(tmp_path / "model.onnx"), text)


def test_an_output_that_has_an_extent_twice_is_not_cut(tmp_path: Path) -> None:
    nodes = [helper.make_node("Concat", ["ids", "mask"], ["both"], axis=1)]
    path = write(tmp_path / "model.onnx", [tensor("both", TensorProto.INT64, "batch", None)], nodes)
    with pytest.raises(ParameterError, match=r"buckets of 'length': outputs are cut .*output 0 is"):
        model(path)


@pytest.mark.parametrize("name", ["height", "width"])
def test_an_output_with_two_extents_in_an_axis_is_not_cut(name: str, tmp_path: Path) -> None:
    x = tensor("x", TensorProto.FLOAT, "batch", "height", "width")
    graph = helper.make_graph(
        [helper.make_node("Flatten", ["x"], ["y"])], "g", [x], [tensor("y", TensorProto.FLOAT, "batch", None)]
    )
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    with pytest.raises(ParameterError, match=rf"buckets of '{name}': outputs are cut .*output 0 is"):
        model(path, f"max_batch = 8\nbuckets = {{{name} = [4]}}\n")


def test_an_element_that_its_type_has_not_is_refused(tmp_path: Path) -> None:
    x, y = (tensor(name, TensorProto.FLOAT16, "batch", "length") for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    text = "max_batch = 8\nbuckets = {length = [4]}\nfill = {x = %s}\n"
    for value in ("0.1", "inf"):
        model(path, text % value)
    with pytest.raises(ParameterError, match="fill: input 'x' is of type FP16, got 100000"):
        model(path, text % "100000.0")


def test_rows_of_bytes_are_padded_and_cut() -> None:
    given = np.arange(2 * 3 * 2, dtype=np.int16).reshape(2, 3, 2)
    place = memoryview(bytearray(2 * 4 * 3 * 2))
    cut = ((3, 2), (4, 3), 2, np.int16(-1).tobytes())
    padded(place, 2, given.tobytes(), cut)
    whole = np.frombuffer(place, np.int16).reshape(2, 4, 3)
    np.testing.assert_array_equal(whole[:, :3, :2], given)
    assert (whole == -1).sum() == 2 * (12 - 6)
    assert unpadded(place, 2, cut) == given.tobytes()
    empty = ((0, 2), (4, 3), 2, b"\0\0")
    padded(place, 2, b"", empty)
    assert not any(place) and unpadded(place, 2, empty) == b""
