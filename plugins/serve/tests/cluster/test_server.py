"""``mgx-serve --ray``: replicas in separate processes, replaced and killed while clients send requests."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from mgx_core import ParameterError
from mgx_serve.on_ray.backend import require_reachable

X = np.arange(8, dtype=np.float32).reshape(2, 4)
PATIENCE = 120.0  # seconds, for busy machines


def ask(connection: Any, module: Any = tritonclient.http, x: Any = X) -> Any:
    given = module.InferInput("x", list(x.shape), "FP32")
    given.set_data_from_numpy(x)
    return connection.infer("double", [given])


def replicas() -> list[int]:
    """Returns the ids of the processes that run `double`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if re.search(rb"ServeReplica:mgx-\w+-double", path.read_bytes()):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@contextmanager
def load(server: Any, clients: int = 4) -> Iterator[list[Any]]:
    """Sends requests continuously; yields the answers: the factor by which the input was multiplied, or the error."""
    answers: list[Any] = []
    ended = threading.Event()

    def work() -> None:
        with tritonclient.http.InferenceServerClient(server.http) as c:
            while not ended.is_set():
                try:
                    answers.append(float(ask(c).as_numpy("y")[1, 3] / X[1, 3]))
                except Exception as error:
                    answers.append(error)

    threads = [threading.Thread(target=work) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.parametrize("module", [tritonclient.http, tritonclient.grpc])
def test_inference(module: Any, cluster: Any) -> None:
    with module.InferenceServerClient(cluster.http if module is tritonclient.http else cluster.grpc) as c:
        assert c.is_server_ready() and c.is_model_ready("double")
        result = ask(c, module)
        np.testing.assert_array_equal(result.as_numpy("y"), 2 * X)
        np.testing.assert_array_equal(result.as_numpy("z"), X.sum(1, keepdims=True))
        with pytest.raises(InferenceServerException, match=r"FP32\[-1, 4\] is required, got FP32\[2, 3\]"):
            ask(c, module, X[:, :3].copy())
        stats = c.get_inference_statistics("double")
        first = stats["model_stats"][0] if isinstance(stats, dict) else stats.model_stats[0]
        assert int(first["inference_count"] if isinstance(first, dict) else first.inference_count) > 0


def test_a_model_is_compiled_once_and_mapped_by_every_replica(cluster: Any, cache: Path) -> None:
    until(lambda: len(replicas()) == 2)
    mapped = [set(re.findall(rf"{cache}/serve/\S+", Path(f"/proc/{p}/maps").read_text())) for p in replicas()]
    (file,) = mapped[0]
    assert mapped[1] == mapped[0]
    source = Path(file).name.partition("-")[0]
    assert len(list((cache / "serve").glob(f"{source}-*.mxr"))) == 1


def test_a_killed_replica_fails_no_request_and_is_replaced(cluster: Any) -> None:
    until(lambda: len(replicas()) == 2)
    with load(cluster) as answers:
        until(lambda: len(answers) > 20)
        killed = replicas()[0]
        os.kill(killed, signal.SIGKILL)
        until(lambda: killed not in replicas() and len(replicas()) == 2)
        before = len(answers)
        until(lambda: len(answers) > before + 20)
    assert set(answers) == {2.0}


def test_versions_are_replaced_while_clients_send_requests(
    cluster: Any, repository: Path, small_model: Callable[..., Path]
) -> None:
    former = set(replicas())
    patient = tritonclient.http.InferenceServerClient(cluster.http, network_timeout=PATIENCE)
    with load(cluster) as answers, patient as c:
        until(lambda: len(answers) > 20)
        small_model(repository / "double" / "2" / "model.onnx", 5)
        c.load_model("double")
        assert ask(c).get_response()["model_version"] == "2"
        before = len(answers)
        until(lambda: len(answers) > before + 20)
    assert set(answers) == {2.0, 5.0} and set(answers[-10:]) == {5.0}
    assert not former & set(replicas())
    with tritonclient.http.InferenceServerClient(cluster.http) as c:
        (repository / "double" / "3").mkdir()
        (repository / "double" / "3" / "model.onnx").write_bytes(b"no model")
        with pytest.raises(InferenceServerException, match="cannot be loaded"):
            c.load_model("double")
        np.testing.assert_array_equal(ask(c).as_numpy("y"), 5 * X)


def test_what_the_machine_lacks_is_said(cluster: Any, repository: Path, small_model: Callable[..., Path]) -> None:
    small_model(repository / "large" / "1" / "model.onnx")
    (repository / "large" / "config.toml").write_text("replicas = 3\ngpus = 1000.5\n")
    with tritonclient.http.InferenceServerClient(cluster.http, network_timeout=PATIENCE) as c:
        with pytest.raises(InferenceServerException, match=r"3001.5 GPUs are required, of \d+ in the cluster"):
            c.load_model("large")
        assert ask(c).as_numpy("y") is not None


def test_an_address_without_a_cluster() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ParameterError, match=f"no cluster of Ray at address '{address}': .*refused"):
            require_reachable(address)


def test_a_server_ends_its_cluster(cluster: Any) -> None:
    processes = replicas()
    cluster.process.terminate()
    assert cluster.process.wait(PATIENCE) == 0
    until(lambda: not set(processes) & set(replicas()))
