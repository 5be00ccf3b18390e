"""The conformance kit on the emulated device, at either wave: a part of it always, all of it among the slow tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mgx_conformance")

EXPECTED = Path(__file__).parent.parent / "expected.toml"
# one of each way to make a kernel: elementwise, rows, columns, windows, products, fused groups, indices, orders, states
PART = "softmax or layernorm or reduce_sum or pooling or dot or attention or gather or scatter_add or topk or concat or group or gru"


def kit(device: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", "mgx_conformance.suite"]
    return subprocess.run(
        [*command, "--mgx-target", "gpu", "--mgx-expect", str(EXPECTED), *options],
        env={**os.environ, "MGX_GPU_DEVICE": device}, cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("device", ["host:0", "host:1"], ids=["wave64", "wave32"])
def test_a_part(device: str, tmp_path: Path) -> None:
    done = kit(device, tmp_path, "--mgx-level", "ops,contract", "--mgx-sample", "120", "-k", f"contract or {PART}")
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.slow
@pytest.mark.parametrize("device", ["host:0", "host:1"], ids=["wave64", "wave32"])
def test_everything(device: str, tmp_path: Path) -> None:
    done = kit(device, tmp_path)
    assert done.returncode == 0, done.stdout[-4000:]
