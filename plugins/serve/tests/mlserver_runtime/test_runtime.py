"""This engine inside an MLServer server, used by tritonclient."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

X = np.arange(8, dtype=np.float32).reshape(2, 4)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.fixture(scope="module")
def ports(small_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    root = tmp_path_factory.mktemp("mlserver")
    http, grpc = free_port(), free_port()
    given = {"host": "127.0.0.1", "http_port": http, "grpc_port": grpc, "metrics_port": free_port()}
    (root / "settings.json").write_text(json.dumps({**given, "debug": False}))
    small_model(root / "double" / "model.onnx")
    model = {"name": "double", "implementation": "mgx_serve.mlserver.MgxRuntime"}
    parameters = {"uri": "./model.onnx", "version": "7", "extra": {"target": "ref", "max_batch": 8}}
    (root / "double" / "model-settings.json").write_text(json.dumps({**model, "parameters": parameters}))
    with (root / "log").open("w") as log:
        command = [sys.executable, "-c", "from mlserver.cli import main; main()", "start", str(root)]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=dict(os.environ))
    try:
        with tritonclient.http.InferenceServerClient(f"127.0.0.1:{http}") as c:
            end = time.monotonic() + 120
            while not ready(c):
                assert time.monotonic() < end and process.poll() is None, (root / "log").read_text()
                time.sleep(0.2)
        yield f"127.0.0.1:{http}", f"127.0.0.1:{grpc}"
    finally:
        process.terminate()
        process.wait(60)


def ready(client: Any) -> bool:
    try:
        return bool(client.is_model_ready("double"))
    except OSError:
        return False


def ask(module: Any, address: str, x: np.ndarray, **options: Any) -> Any:
    given = module.InferInput("x", list(x.shape), "FP32")
    if module is tritonclient.http:
        given.set_data_from_numpy(x, binary_data=False)
        options = {"outputs": [module.InferRequestedOutput(n, binary_data=False) for n in ("y", "z")], **options}
    else:
        given.set_data_from_numpy(x)
    with module.InferenceServerClient(address) as c:
        return c.infer("double", [given], **options)


@pytest.mark.parametrize("module", [tritonclient.http, tritonclient.grpc])
def test_inference(module: Any, ports: tuple[str, str]) -> None:
    found = ask(module, ports[module is tritonclient.grpc], X)
    np.testing.assert_array_equal(found.as_numpy("y"), 2 * X)
    np.testing.assert_array_equal(found.as_numpy("z"), X.sum(1, keepdims=True))


def test_metadata(ports: tuple[str, str]) -> None:
    with tritonclient.http.InferenceServerClient(ports[0]) as c:
        about = c.get_model_metadata("double")
        assert [(t["name"], t["datatype"], t["shape"]) for t in about["inputs"]] == [("x", "FP32", [-1, 4])]
        assert [(t["name"], t["datatype"], t["shape"]) for t in about["outputs"]] == [
            ("y", "FP32", [-1, 4]),
            ("z", "FP32", [-1, 1]),
        ]


def test_mismatches_are_rejected(ports: tuple[str, str]) -> None:
    with pytest.raises(InferenceServerException, match=r"FP32\[-1, 4\] is required, got FP32\[2, 3\]") as refused:
        ask(tritonclient.http, ports[0], X[:, :3].copy())
    assert refused.value.status() == "400"
    wanted = [tritonclient.http.InferRequestedOutput("q", binary_data=False)]
    with pytest.raises(InferenceServerException, match="no output 'q'; it has y, z"):
        ask(tritonclient.http, ports[0], X, outputs=wanted)


def test_an_input_that_is_given_twice_is_refused(ports: tuple[str, str]) -> None:
    given = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1.0, 2.0, 3.0, 4.0]}
    body = json.dumps({"inputs": [given, given]}).encode()
    asked = urllib.request.Request(
        f"http://{ports[0]}/v2/models/double/infer", body, {"Content-Type": "application/json"}
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(asked)
    assert refused.value.code == 400 and b"'x' is given twice" in refused.value.read()


@pytest.mark.parametrize(("extra", "said"), [({"nosuch": 1}, "there is no setting 'nosuch'"), ({}, "model.onnx")])
def test_why_a_model_cannot_be_loaded(extra: Any, said: str, small_model: Callable[..., Path], tmp_path: Path) -> None:
    if extra:
        small_model(tmp_path / "model.onnx")
    else:
        (tmp_path / "model.onnx").write_bytes(b"no model")
    model = {"name": "m", "implementation": "mgx_serve.mlserver.MgxRuntime"}
    parameters = {"uri": str(tmp_path / "model.onnx"), "extra": {"target": "ref", **extra}}
    # in a separate process: MLServer and tritonclient register the same messages
    load = "import asyncio, sys; from mlserver import ModelSettings; from mgx_serve.mlserver import MgxRuntime; "
    load += "asyncio.run(MgxRuntime(ModelSettings.model_validate_json(sys.argv[1])).load())"
    command = [sys.executable, "-c", load, json.dumps({**model, "parameters": parameters})]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert re.search(f"MLServerError: model 'm' cannot be loaded: .*{said}", ended.stderr), ended.stderr
