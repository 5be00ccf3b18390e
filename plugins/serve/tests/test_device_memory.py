"""Tensors in device memory, shared by a third-party client: on the emulated device, where a handle is the name of a
shared-memory object.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

pytest.importorskip("mgx_gpu_hip")

X = np.arange(8, dtype=np.float32).reshape(2, 4)
MODULES = [tritonclient.http, tritonclient.grpc]


@pytest.fixture(scope="module")
def emulated(
    serve: Callable[..., Any], small_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Any:
    path = small_model(tmp_path_factory.mktemp("device") / "double.onnx")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MGX_GPU_DEVICE", "host:0")
        return serve(path, "--shared-memory", "--target", "gpu")


@pytest.fixture
def memory() -> Iterator[Path]:
    """256 bytes that the emulated driver treats as another process' memory; they begin with `X`."""
    path = Path(f"/dev/shm/mgx_device_{os.getpid()}")
    path.write_bytes(X.tobytes().ljust(256, b"\0"))
    yield path
    path.unlink()


def handle(path: Path) -> bytes:
    return base64.b64encode(path.name.encode().ljust(64, b"\0"))


def client(module: Any, server: Any) -> Any:
    return module.InferenceServerClient(server.http if module is tritonclient.http else server.grpc)


def register(c: Any, raw: bytes, size: int = 256, device: int = 0, name: str = "mine") -> None:
    c.register_cuda_shared_memory(
        name, raw.decode() if isinstance(c, tritonclient.http.InferenceServerClient) else raw, device, size
    )


def ask(c: Any, module: Any) -> Any:
    given = module.InferInput("x", [2, 4], "FP32")
    given.set_shared_memory("mine", 32)
    wanted = module.InferRequestedOutput("y")
    wanted.set_shared_memory("mine", 32, 64)
    return c.infer("double", [given], outputs=[wanted, module.InferRequestedOutput("z")])


@pytest.mark.parametrize("module", MODULES)
def test_inputs_and_outputs(module: Any, emulated: Any, memory: Path) -> None:
    options = {} if module is tritonclient.http else {"as_json": True}
    with client(module, emulated) as c:
        register(c, handle(memory))
        status = str(c.get_cuda_shared_memory_status(**options))
        assert "mine" in status and "256" in status
        assert "mine" not in str(c.get_system_shared_memory_status(**options))
        c.unregister_system_shared_memory()  # regions of the other kind remain
        np.testing.assert_array_equal(ask(c, module).as_numpy("z"), X.sum(1, keepdims=True))
        np.testing.assert_array_equal(np.frombuffer(memory.read_bytes(), np.float32, 8, 64).reshape(2, 4), 2 * X)
        c.unregister_cuda_shared_memory("mine")
        with pytest.raises(InferenceServerException, match="no region 'mine'"):
            ask(c, module)


@pytest.mark.parametrize("module", MODULES)
def test_invalid_handles(module: Any, emulated: Any, memory: Path) -> None:
    good = handle(memory)
    short, unknown = base64.b64encode(b"short"), base64.b64encode(b"mgx_nosuch".ljust(64, b"\0"))
    with client(module, emulated) as c:
        for raw, size, device, said in (
            (short, 256, 0, "64 bytes is required, got 5"),
            (unknown, 256, 0, "hostIpcOpenMemHandle"),
            (good, 257, 0, "has 256"),
            (good, 0, 0, "a size from 1 on"),
            (good, 256, 1, "device 0 is required, got device 1"),
        ):
            with pytest.raises(InferenceServerException, match=said):
                register(c, raw, size, device)
        assert "mine" not in str(c.get_cuda_shared_memory_status())
        assert c.is_server_live()


def test_a_server_without_a_device_reports_it(serve: Callable[..., Any], models: Path, memory: Path) -> None:
    server = serve(models, "--shared-memory")
    for module in MODULES:
        with client(module, server) as c, pytest.raises(InferenceServerException, match="'ref' has no device memory"):
            register(c, handle(memory))
