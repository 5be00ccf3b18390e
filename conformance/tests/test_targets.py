"""Our own targets prove themselves with the public kit, as any stranger's would: a sample always, everything among the slow tests."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parents[2] / "plugins"
PACKAGES = {"ref": ("mgx_ref", "ref"), "cpu": ("mgx_cpu_dnnl", "cpu_dnnl"), "gpu": ("mgx_gpu_hip", "gpu_hip")}
# one of each way to make a kernel: elementwise, rows, columns, windows, products, fused groups, indices, orders, states
KERNELS = "softmax or layernorm or reduce_sum or pooling or dot or attention or gather or scatter_add or topk or concat or group or gru"
# On ref the levels ops and onnx would compare the definitions with themselves, or repeat the standard's suite.
SAMPLES = [
    ("ref", "hygiene,contract", 1, {"hygiene": 5, "contract": 25}),
    ("ref", "graphs", 1, {"graphs": 5}),
    ("cpu", "hygiene,contract,models", 1, {"hygiene": 5, "contract": 25, "models": 4}),
    ("cpu", "graphs", 1, {"graphs": 5}),
    ("cpu", "ops", 8, {"ops": 600}),
    ("cpu", "onnx", 8, {"onnx": 150}),
    ("gpu", "contract", 1, {"contract": 25}),
    ("gpu", "ops", 120, {"ops": 20}),
]


def kit(target: str, folder: Path, *options: str, device: str = "host:1") -> dict[str, dict[str, int]]:
    """Outcomes by level of a session that must succeed; `device` is the emulated GPU: host:0 has waves of 64, host:1 of 32."""
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
