"""Our own targets pass the public kit like any third-party target: cpu on every op, the others on samples; other tests are
slow.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mgx_core as mgx
from mgx_conformance.expected import ExpectedFailures
from mgx_conformance.graphs import THEMES
from mgx_conformance.onnx_nodes import judge, node_tests, out_of_reach
from mgx_conformance.suite.test_graphs import try_graphs
from mgx_conformance.trial import NotApplicable, attempt, selected

PLUGINS = Path(__file__).parents[2] / "plugins"
PACKAGES = {"ref": ("mgx_ref", "ref"), "cpu": ("mgx_cpu_dnnl", "cpu_dnnl"), "gpu": ("mgx_gpu_hip", "gpu_hip")}
# one op for each kind of kernel: elementwise, rows, columns, windows, products, fused groups, indices, orders, states
KERNELS = "softmax or layernorm or reduce_sum or pooling or dot or attention or gather or scatter_add or topk or concat or group or gru"
# On ref, the levels ops and onnx would compare the reference implementations with themselves, or repeat ONNX's own
# suite.
SAMPLES = [
    ("ref", "hygiene", 1, {"hygiene": 5}),
    ("ref", "contract", 1, {"contract": 25}),
    ("cpu", "hygiene,models", 1, {"hygiene": 5, "models": 4}),
    ("cpu", "contract", 1, {"contract": 25}),
    ("gpu", "contract", 1, {"contract": 25}),
    ("gpu", "ops", 120, {"ops": 20}),
]
PARTS = 12  # of the cases run in this process


def kit(target: str, folder: Path, *options: str, device: str = "host:1") -> dict[str, dict[str, int]]:
    """Runs a session that must pass; returns outcomes by level.  device: the emulated GPU: host:0 has waves of 64, host:1 of
    32.
    """
    package, plugin = PACKAGES[target]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    card = folder / "card.json"
    words = [
        "--mgx-target",
        target,
        "--mgx-expect",
        str(PLUGINS / plugin / "expected.toml"),
        "--mgx-scorecard",
        str(card),
    ]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--pyargs",
        "mgx_conformance.suite",
        *words,
    ]
    done = subprocess.run(
        [*command, *options],
        env={**os.environ, "MGX_GPU_DEVICE": device}, cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    levels: dict[str, dict[str, int]] = json.loads(card.read_text())["levels"]
    assert not any(counts["fail"] for counts in levels.values())
    return levels


@pytest.mark.parametrize(("target", "levels", "sample", "passing"), SAMPLES)
def test_sample(target: str, levels: str, sample: int, passing: dict[str, int], tmp_path: Path) -> None:
    options = ["--mgx-level", levels, "--mgx-sample", str(sample), "--mgx-examples", "8"]
    if (target, levels) == ("gpu", "ops"):
        options += ["-k", KERNELS]
    found = kit(target, tmp_path, *options)
    assert set(found) == set(passing)
    assert {level for level, least in passing.items() if found[level]["pass"] < least} == set()


def expected_failures(target: str) -> ExpectedFailures:
    return ExpectedFailures.read(PLUGINS / PACKAGES[target][1] / "expected.toml")


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", ["ref", "cpu"])
def test_sample_of_random_graphs(name: str, theme: str) -> None:
    if not expected_failures(name).find(f"graphs/random/{theme}"):
        try_graphs(theme, mgx.get_target(name), 8)


@pytest.mark.parametrize("part", range(PARTS))
def test_ops_on_cpu(part: int) -> None:
    """Every case of every op."""
    chosen = list(selected())
    assert len(chosen) > 4000
    target, failing = mgx.get_target("cpu"), expected_failures("cpu")
    for case, layout in chosen[part::PARTS]:
        if not failing.find(f"ops/{case.id}/{layout}"):
            with contextlib.suppress(NotApplicable):
                attempt(case, layout, target)


@pytest.fixture(scope="module")
def standard() -> dict[str, Any]:
    """Returns the ONNX node tests; loading them computes their results, which takes seconds."""
    return {name: test for name, test in sorted(node_tests().items()) if name not in out_of_reach()}


@pytest.mark.parametrize("part", range(PARTS))
def test_the_standard_on_cpu(part: int, standard: dict[str, Any]) -> None:
    """All ONNX node tests: a sample of an eighth missed one that failed on every target."""
    assert len(standard) > 1800
    target, failing = mgx.get_target("cpu"), expected_failures("cpu")
    for name in list(standard)[part::PARTS]:
        if not failing.find(f"onnx/{name}"):
            judge(standard[name], target)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["ref", "cpu"])
def test_everything(target: str, tmp_path: Path) -> None:
    found = kit(target, tmp_path, "--mgx-examples", "100")
    assert found["ops"]["pass"] > 4500
    assert found["onnx"]["pass"] > 1800


@pytest.mark.slow
@pytest.mark.parametrize("device", ["host:0", "host:1"], ids=["wave64", "wave32"])
def test_everything_on_the_emulated_device(device: str, tmp_path: Path) -> None:
    assert kit("gpu", tmp_path, device=device)["ops"]["pass"] > 4500
