"""A server in a separate process, and small models to serve."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

# tests that need Ray, KServe or MLServer have separate environments and processes: two clients register the same
# messages
needed = {"cluster": "ray", "kserve_client": "ray", "mlserver_runtime": "mlserver"}
collect_ignore = [folder for folder, package in needed.items() if importlib.util.find_spec(package) is None]


@dataclass
class Running:
    """A server's process, its ports, and the line that announces them."""

    process: subprocess.Popen[str]
    http: str
    grpc: str
    said: str


def write_model(path: Path, factor: float = 2.0, batch: object = "batch", width: int | str = 4) -> Path:
    """y = factor * x, z = sum of each row of x."""
    path.parent.mkdir(parents=True, exist_ok=True)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, width])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, width])
    z = helper.make_tensor_value_info("z", TensorProto.FLOAT, [batch, 1])
    weights = [numpy_helper.from_array(np.float32(factor), "f"), numpy_helper.from_array(np.array([1]), "axes")]
    nodes = [helper.make_node("Mul", ["x", "f"], ["y"]), helper.make_node("ReduceSum", ["x", "axes"], ["z"])]
    made = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y, z], weights), opset_imports=[helper.make_opsetid("", 17)]
    )
    onnx.save(made, path)
    return path


def softmax(path: Path) -> None:
    """y = softmax of x over the batch: rows depend on each other."""
    path.parent.mkdir(parents=True)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])
    graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"], axis=0)], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


@pytest.fixture(scope="session")
def small_model() -> Callable[..., Path]:
    return write_model


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of `double` (versions 1 and 2), `fixed` (batch 3) and `broken`."""
    root = tmp_path_factory.mktemp("models")
    write_model(root / "double" / "1" / "model.onnx", 3)
    write_model(root / "double" / "2" / "model.onnx")
    (root / "double" / "config.toml").write_text("max_batch = 8\nqueue_delay = 0.002\n")
    softmax(root / "softmax" / "1" / "model.onnx")
    write_model(root / "fixed" / "1" / "model.onnx", batch=3)
    (root / "broken" / "1").mkdir(parents=True)
    (root / "broken" / "1" / "model.onnx").write_bytes(b"no model")
    return root


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[..., Running]]:
    """Starts ``mgx-serve`` on free ports; stops it with SIGTERM."""
    started: list[Running] = []

    def serve(*arguments: object) -> Running:
        command = [sys.executable, "-c", "from mgx_serve.command import main; main()", *map(str, arguments)]
        ports = ["--http-port", "0", "--grpc-port", "0"]
        if "--target" not in arguments:
            ports += ["--target", "ref"]
        process = subprocess.Popen(
            [*command, *ports], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(os.environ)
        )
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            matched = re.search(r"HTTP port (\S+), gRPC port (\S+);", line)
            if matched:
                running = Running(process, f"127.0.0.1:{matched[1]}", f"127.0.0.1:{matched[2]}", line)
                started.append(running)
                return running
        raise AssertionError(said)

    yield serve
    for running in started:
        running.process.terminate()
    for running in started:
        running.process.wait(60)
        assert running.process.stdout is not None
        running.process.stdout.close()


@pytest.fixture(scope="session")
def server(serve: Callable[..., Running], models: Path) -> Running:
    return serve(models)
