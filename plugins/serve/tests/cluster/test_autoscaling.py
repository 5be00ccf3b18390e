"""Replicas scale with the load, between a minimum and a maximum."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import tritonclient.http

PATIENCE = 150.0  # seconds, for busy machines


def replicas() -> int:
    """Returns the number of processes that run `grown`."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += re.search(rb"ServeReplica:mgx-\w+-grown", path.read_bytes()) is not None
        except OSError:
            continue
    return found


@pytest.mark.usefixtures("emptied")
def test_load_starts_another_replica(
    serve: Callable[..., Any], small_model: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_SERVE_HANDLE_AUTOSCALING_METRIC_PUSH_INTERVAL_S", "1")  # Ray's default is ten seconds
    small_model(tmp_path / "grown" / "1" / "model.onnx", 19)
    (tmp_path / "grown" / "config.toml").write_text("replicas = 1\nmax_replicas = 2\nload = 1.0\ncpus = 0.2\n")
    server = serve(tmp_path, "--ray-address", ray.get_runtime_context().gcs_address)
    assert replicas() == 1
    wrong: list[Any] = []
    ended = threading.Event()

    def work() -> None:
        x = np.ones((2, 4), np.float32)
        given = tritonclient.http.InferInput("x", [2, 4], "FP32")
        given.set_data_from_numpy(x)
        with tritonclient.http.InferenceServerClient(server.http) as c:
            while not ended.is_set():
                try:
                    np.testing.assert_array_equal(c.infer("grown", [given]).as_numpy("y"), 19 * x)
                except Exception as error:
                    wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    try:
        end = time.monotonic() + PATIENCE
        while replicas() < 2:
            assert time.monotonic() < end and not wrong
            time.sleep(0.2)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    server.process.terminate()
    assert server.process.wait(60) == 0
    assert not wrong
