"""Tensors in GPU memory that a client process shares with the server by a driver handle."""

from __future__ import annotations

import base64
import ctypes
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

runtime = pytest.importorskip("mgx_gpu_hip.runtime")
pytestmark = pytest.mark.gpu
X = np.arange(8, dtype=np.float32).reshape(2, 4)
GET = {"cuda": "cuIpcGetMemHandle", "hip": "hipIpcGetMemHandle"}


@pytest.fixture(scope="module")
def device() -> Any:
    if not runtime.available():
        pytest.skip("no GPU found")
    return runtime.open_device()


@pytest.fixture(scope="module")
def server(
    device: Any, serve: Callable[..., Any], small_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> str:
    path = small_model(tmp_path_factory.mktemp("device") / "double.onnx")
    address: str = serve(path, "--shared-memory", "--target", "gpu").http
    return address


def handle(device: Any, address: int) -> str:
    """Returns the driver's handle of an allocation in the protocol's encoding."""
    held = ctypes.create_string_buffer(64)
    get = getattr(device.driver.library, GET[device.kind])
    assert get(held, ctypes.c_void_p(address)) == 0
    return base64.b64encode(held.raw).decode()


def post(server: str, path: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(f"http://{server}/v2/{path}", json.dumps(body).encode(), method="POST")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read() or b"{}")


def register(server: str, name: str, raw: str, size: int) -> None:
    body = {"raw_handle": {"b64": raw}, "device_id": 0, "byte_size": size}
    post(server, f"cudasharedmemory/region/{name}/register", body)


def placed(name: str, size: int, offset: int = 0) -> dict[str, Any]:
    return {"shared_memory_region": name, "shared_memory_byte_size": size, "shared_memory_offset": offset}


def test_inputs_and_outputs_are_in_client_memory(device: Any, server: str) -> None:
    memory = device.upload(np.concatenate([X.ravel(), np.zeros(56, np.float32)]))
    register(server, "mine", handle(device, memory.address), 256)
    body = {
        "inputs": [{"name": "x", "shape": [2, 4], "datatype": "FP32", "parameters": placed("mine", 32)}],
        "outputs": [{"name": "y", "parameters": placed("mine", 32, 64)}, {"name": "z"}],
    }
    for factor in (1, 10):  # the region is read again for each request
        device.default_stream.copy_in(memory.address, factor * X)
        device.default_stream.wait()
        answer = {o["name"]: o for o in post(server, "models/double/infer", body)["outputs"]}
        np.testing.assert_array_equal(np.reshape(answer["z"]["data"], (2, 1)), factor * X.sum(1, keepdims=True))
        found = device.download(np.empty(64, np.float32), memory)
        np.testing.assert_array_equal(found[16:24].reshape(2, 4), 2 * factor * X)
        assert not found[24:].any()
    post(server, "cudasharedmemory/region/mine/unregister", {})
    with pytest.raises(urllib.error.HTTPError) as error:
        post(server, "models/double/infer", body)
    assert "no region 'mine'" in error.value.read().decode()


def test_a_region_reaches_no_further_than_its_allocation(device: Any, server: str) -> None:
    memory = device.upload(np.zeros(64, np.float32))
    raw = handle(device, memory.address)
    for given, size, said in ((raw, 1 << 40, "bytes are required"), (base64.b64encode(b"short").decode(), 4, "got 5")):
        with pytest.raises(urllib.error.HTTPError) as error:
            register(server, "far", given, size)
        assert said in error.value.read().decode()
