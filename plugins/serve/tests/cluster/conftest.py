"""Servers and data sets on a local Ray cluster with its own worker processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import serve as ray_serve


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cache folder of all processes, for inspection."""
    folder = tmp_path_factory.mktemp("cache")
    former = os.environ.get("MGX_CACHE_DIR")
    os.environ["MGX_CACHE_DIR"] = str(folder)
    yield folder
    if former is None:
        del os.environ["MGX_CACHE_DIR"]
    else:
        os.environ["MGX_CACHE_DIR"] = former


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory, small_model: Callable[..., Path]) -> Path:
    root = tmp_path_factory.mktemp("repository")
    small_model(root / "double" / "1" / "model.onnx")
    (root / "double" / "config.toml").write_text("replicas = 2\ncpus = 0.5\nmax_batch = 8\n")
    return root


@pytest.fixture(scope="session")
def cluster(cache: Path, serve: Callable[..., Any], repository: Path) -> Any:
    """``mgx-serve --ray`` with two replicas of `double`."""
    return serve(repository, "--ray")


@pytest.fixture(scope="session")
def workers(cache: Path) -> Iterator[None]:
    """A cluster started by this process, for all tests that need not start or stop one, which takes longer than they do."""
    ray.init(num_cpus=4, log_to_driver=False, include_dashboard=False, namespace="mgx")
    yield
    ray_serve.shutdown()
    ray.shutdown()


@pytest.fixture(scope="module")
def emptied(workers: None) -> Iterator[None]:
    """The cluster of `workers`, without the state that a module leaves there."""
    yield
    for name in list(ray_serve.status().applications):
        ray_serve.delete(name)
