"""A server under mixed load, with models replaced every minute: results, rejections and memory.

python benchmarks/serving/endurance.py [--minutes 30] [--pause SECONDS] [--frontends N]

Clients call two models over HTTP with JSON, HTTP with binary tensors and gRPC, and send malformed requests; every answer is
compared with numpy's, for the version stated in it.  The exit status is 1 for a wrong result, or for a request that failed
without being rejected.
"""

from __future__ import annotations

import argparse
import collections
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tritonclient.grpc
import tritonclient.http
from onnx import TensorProto, helper, numpy_helper
from tritonclient.utils import InferenceServerException

sys.path.insert(0, str(Path(__file__).parent))
from load import free_port, wait

WIDTH = 64


def write(path: Path, factor: float) -> None:
    """y = factor * x @ w, [batch, 64], with random `w`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", WIDTH]) for n in "xy")
    weights = numpy_helper.from_array(matrix() * np.float32(factor), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def matrix() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((WIDTH, WIDTH), np.float32)


class Clients:
    """Threads that send requests until they are stopped, and their observations."""

    def __init__(self, http: int, grpc: int, pause: float) -> None:
        self.http, self.grpc, self.pause = f"127.0.0.1:{http}", f"127.0.0.1:{grpc}", pause
        self.ended = threading.Event()
        self.seen: collections.Counter[str] = collections.Counter()
        self.failures: list[str] = []
        kinds = [
            (tritonclient.http, True),
            (tritonclient.http, False),
            (tritonclient.grpc, True),
            (tritonclient.grpc, True),
        ]
        self.threads = [threading.Thread(target=self.work, args=(n, *k)) for n, k in enumerate(kinds)]
        self.threads.append(threading.Thread(target=self.disturb))

    def work(self, seed: int, module: Any, binary: bool) -> None:
        drawn = np.random.default_rng(seed)
        client = module.InferenceServerClient(self.http if module is tritonclient.http else self.grpc)
        while not self.ended.wait(self.pause * drawn.random()):
            x = drawn.standard_normal((int(drawn.integers(1, 9)), WIDTH), np.float32)
            model = "joined" if drawn.random() < 0.5 else "single"
            given = module.InferInput("x", list(x.shape), "FP32")
            options = {"binary_data": binary} if module is tritonclient.http else {}
            given.set_data_from_numpy(x, **options)
            try:
                result = client.infer(model, [given], outputs=[module.InferRequestedOutput("y", **options)])
            except InferenceServerException as error:
                if "429" in str(error) or "try again" in str(error):
                    self.seen["refused"] += 1
                else:
                    self.failures.append(f"{model}: {error}")
                continue
            said = result.get_response()
            version = int(said["model_version"] if isinstance(said, dict) else said.model_version)
            error = np.abs(result.as_numpy("y") - x @ matrix() * version).max() / version
            if not error < 1e-3:
                self.failures.append(f"{model} version {version}: a result is off by {error}")
            self.seen["answered"] += 1

    def disturb(self) -> None:
        """Sends malformed requests, and disconnects early."""
        import http.client

        bodies = [
            b"",
            b"{",
            b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 64], "data": [1]}]}',
            b"[" * 1000,
        ]
        turn = 0
        while not self.ended.wait(5 * self.pause):
            turn += 1
            connection = http.client.HTTPConnection(self.http, timeout=60)
            connection.request("POST", "/v2/models/single/infer", bodies[turn % len(bodies)])
            if turn % 3:
                if connection.getresponse().status != 400:
                    self.failures.append("a malformed request was not refused with 400")
                self.seen["malformed"] += 1
            connection.close()


def resident(process: int) -> list[float]:
    """Returns the memory of a process and its children in megabytes."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    texts = [Path(f"/proc/{number}/status").read_text() for number in (process, *children)]
    lines = [next(line for line in text.splitlines() if line.startswith("VmRSS")) for text in texts]
    return [round(int(line.split()[1]) / 1024, 1) for line in lines]


def serve(root: Path, frontends: int) -> tuple[subprocess.Popen[bytes], int, int]:
    http, grpc = free_port(), free_port()
    command = [
        sys.executable,
        "-c",
        "from mgx_serve.command import main; main()",
        str(root),
        "--frontends",
        str(frontends),
    ]
    process = subprocess.Popen(
        [*command, "--http-port", str(http), "--grpc-port", str(grpc)], stdout=subprocess.DEVNULL
    )
    client = tritonclient.http.InferenceServerClient(f"127.0.0.1:{http}")

    def ready() -> None:
        assert client.is_server_ready()

    wait(ready)
    return process, http, grpc


def replace(root: Path, version: int, load: Callable[[str], None]) -> None:
    for name in ("joined", "single"):
        write(root / name / str(version) / "model.onnx", version)
        load(name)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--pause", type=float, default=0.02, help="maximum seconds between two requests of a client")
    parser.add_argument("--frontends", type=int, default=0, help="number of front-end processes")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in ("joined", "single"):
            write(root / name / "1" / "model.onnx", 1)
        (root / "joined" / "config.toml").write_text("max_batch = 32\nqueue_delay = 0.001\nqueue_size = 8\n")
        process, http, grpc = serve(root, given.frontends)
        clients = Clients(http, grpc, given.pause)
        try:
            for thread in clients.threads:
                thread.start()
            client = tritonclient.http.InferenceServerClient(f"127.0.0.1:{http}", network_timeout=300.0)
            start = time.monotonic()
            for minute in range(round(given.minutes)):
                time.sleep(max(0.0, start + 60 * (minute + 1) - time.monotonic()))
                replace(root, minute + 2, client.load_model)
                seen = f"{dict(clients.seen)}, {len(clients.failures)} failed"
                print(f"minute {minute + 1:3}: {resident(process.pid)} MB, {seen}", flush=True)
        finally:
            clients.ended.set()
            for thread in clients.threads:
                thread.join()
            process.terminate()
            process.wait(60)
    for failure in clients.failures[:10]:
        print(failure)
    sys.exit(1 if clients.failures else 0)


if __name__ == "__main__":
    main()
