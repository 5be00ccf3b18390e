"""A server in a cluster that others use too; and the files that it leaves there."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import ray
import tritonclient.http
from onnx import TensorProto, helper
from ray import serve as ray_serve

from mgx_serve import ModelSettings
from mgx_serve.on_ray.exchange import Exchange
from mgx_serve.on_ray.publishing import publish

pytestmark = pytest.mark.usefixtures("emptied")


@ray_serve.deployment(ray_actor_options={"num_cpus": 0.1})
class Other:
    def __call__(self) -> str:
        return "here"


def test_servers_end_their_own_applications_alone(
    serve: Callable[..., Any], small_model: Callable[..., Path], tmp_path: Path
) -> None:
    small_model(tmp_path / "double" / "1" / "model.onnx")
    (tmp_path / "double" / "config.toml").write_text("cpus = 0.2\n")
    small_model(tmp_path / "broken" / "1" / "model.onnx")
    (tmp_path / "broken" / "config.toml").write_text('target = "nosuch"\n')
    ray_serve.start(http_options={"location": "NoServer"})
    other = ray_serve.run(Other.bind(), name="mgx-double", route_prefix=None)  # type: ignore[attr-defined]
    address = ray.get_runtime_context().gcs_address
    with ThreadPoolExecutor(2) as threads:
        servers = list(threads.map(lambda _: serve(tmp_path, "--ray-address", address), range(2)))
    assert len(ray_serve.status().applications) == 3
    x = np.ones((2, 4), np.float32)
    given = tritonclient.http.InferInput("x", [2, 4], "FP32")
    given.set_data_from_numpy(x)
    for left, server in ((2, servers[0]), (1, servers[1])):
        with tritonclient.http.InferenceServerClient(server.http) as c:
            np.testing.assert_array_equal(c.infer("double", [given]).as_numpy("y"), 2 * x)
        server.process.terminate()
        assert server.process.wait(60) == 0
        assert len(ray_serve.status().applications) == left
    assert other.remote().result() == "here"


def test_auto_is_the_cluster_of_this_machine(
    serve: Callable[..., Any], small_model: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # if there are several clusters, such as those of other modules, Ray uses the one named by the environment
    monkeypatch.setenv("RAY_ADDRESS", ray.get_runtime_context().gcs_address)
    small_model(tmp_path / "found" / "1" / "model.onnx", 3)
    (tmp_path / "found" / "config.toml").write_text("cpus = 0.2\n")
    server = serve(tmp_path, "--ray-address", "auto")
    (name,) = [n for n in ray_serve.status().applications if n.endswith("-found")]
    x = np.ones((2, 4), np.float32)
    given = tritonclient.http.InferInput("x", [2, 4], "FP32")
    given.set_data_from_numpy(x)
    with tritonclient.http.InferenceServerClient(server.http) as c:
        np.testing.assert_array_equal(c.infer("found", [given]).as_numpy("y"), 3 * x)
    server.process.terminate()
    assert server.process.wait(60) == 0
    assert name not in ray_serve.status().applications
    assert ray.get(ray.remote(num_cpus=0.1)(lambda: "alive").remote()) == "alive"


def test_an_address_of_no_cluster_is_refused(small_model: Callable[..., Path], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mgx_serve", str(small_model(tmp_path / "m.onnx")), "--ray-address", "nosuch:1:2"]
    ended = subprocess.run([*command, "--target", "ref"], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1
    assert "mgx-serve: " in ended.stderr and "nosuch:1:2" in ended.stderr, ended.stderr
    assert "Traceback" not in ended.stderr


def test_files_are_closed_with_their_last_reference() -> None:
    exchange, file = Exchange(), np.zeros(1, np.uint8)
    for holder in ("a", "b"):
        exchange.hold("m", file, holder)
    exchange.hold("n", file, "a")
    for key in ("m-kind", "n-kind"):
        assert exchange.claim(key, "x")
        exchange.put(key, file)
    exchange.drop("m", "a")
    assert all(exchange.get(key) for key in ("m", "m-kind", "n", "n-kind"))
    exchange.drop("m", "b")
    assert not exchange.get("m") and not exchange.get("m-kind")
    assert exchange.get("n") and exchange.get("n-kind")
    exchange.put("m-late", file)
    assert not exchange.get("m-late")


def test_locks_outlive_old_files(small_model: Callable[..., Path], tmp_path: Path, cache: Path) -> None:
    settings = ModelSettings(target="ref")
    handed = publish("m", "1", small_model(tmp_path / "m.onnx", 11), settings)
    handed.open()
    folder = cache / "serve"
    (lock,) = folder.glob(f"{handed.key}.lock")
    for path in (lock, folder / f"{handed.key}.mxr"):
        os.utime(path, (0, 0))
    publish("other", "1", small_model(tmp_path / "other.onnx", 13), settings)
    assert lock.exists() and not (folder / f"{handed.key}.mxr").exists()


def test_models_that_reject_zeros_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = [helper.make_tensor_value_info(name, TensorProto.INT64, [1]) for name in ("x", "shape")]
    made = helper.make_tensor_value_info("y", TensorProto.INT64, ["n"])
    graph = helper.make_graph([helper.make_node("Reshape", ["x", "shape"], ["y"], allowzero=1)], "g", given, [made])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    with caplog.at_level(logging.WARNING, "mgx_serve"):
        publish("m", "1", tmp_path / "m.onnx", ModelSettings(target="ref")).open()
    assert "model m does not run with zeros of batch size 1" in caplog.text
