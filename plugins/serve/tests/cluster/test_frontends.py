"""``mgx-serve --ray --frontends``: front ends call replicas directly."""

from __future__ import annotations

import json
import os
import re
import signal
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

X = np.arange(8, dtype=np.float32).reshape(2, 4)


@pytest.fixture(scope="module")
def fronted(cache: Path, serve: Callable[..., Any], tmp_path_factory: Any, small_model: Callable[..., Path]) -> Any:
    root = tmp_path_factory.mktemp("fronted")
    small_model(root / "apart" / "1" / "model.onnx")
    (root / "apart" / "config.toml").write_text("replicas = 2\ncpus = 0.5\nmax_batch = 8\n")
    return serve(root, "--ray", "--frontends", 2)


def replicas() -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if re.search(rb"ServeReplica:mgx-\w+-apart", path.read_bytes()):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def ask(server: Any, module: Any = tritonclient.http) -> float:
    """Returns the factor by which the input was multiplied."""
    address = server.http if module is tritonclient.http else server.grpc
    with module.InferenceServerClient(address) as c:
        given = module.InferInput("x", list(X.shape), "FP32")
        given.set_data_from_numpy(X)
        return float(c.infer("apart", [given]).as_numpy("y")[1, 3] / X[1, 3])


def figures(server: Any) -> tuple[int, int]:
    """Returns how many requests were answered, and how many wait."""
    with urllib.request.urlopen(f"http://{server.http}/v2/models/apart/stats") as found:
        answered = int(json.load(found)["model_stats"][0]["inference_stats"]["success"]["count"])
    with urllib.request.urlopen(f"http://{server.http}/metrics") as found:
        matched = re.search(r'mgx_waiting_requests\{.*"apart".*\} (\S+)', found.read().decode())
    assert matched is not None
    return answered, int(float(matched[1]))


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.parametrize("module", [tritonclient.http, tritonclient.grpc])
def test_every_front_end_answers_and_the_figures_are_of_all(module: Any, fronted: Any) -> None:
    before, _ = figures(fronted)
    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(lambda _: ask(fronted, module), range(24))) == {2.0}
    until(lambda: figures(fronted) == (before + 24, 0))


def test_front_ends_call_local_replicas_directly(fronted: Any) -> None:
    def channels() -> int:
        """Returns the number of channels to replicas: connected sockets, not listening ones."""
        lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
        return sum(line[3] == "00000000" and line[-1].startswith("@mgx-serve-") for line in lines)

    until(lambda: ask(fronted) == 2.0 and channels() >= 4)  # two replicas, two front ends


def test_a_killed_replica_fails_no_request(fronted: Any) -> None:
    until(lambda: len(replicas()) == 2)
    killed = replicas()[0]
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(ask, fronted) for _ in range(80)]
        os.kill(killed, signal.SIGKILL)
        assert {a.result(120) for a in asked} == {2.0}


def test_an_unloaded_model_is_unloaded_for_every_front_end(fronted: Any) -> None:
    with tritonclient.http.InferenceServerClient(fronted.http, network_timeout=120) as c:
        c.unload_model("apart")
        for _ in range(8):
            with pytest.raises(InferenceServerException, match="'apart' is not ready: unloaded"):
                ask(fronted)
        c.load_model("apart")
    assert {ask(fronted) for _ in range(8)} == {2.0}
