"""The digits demo as `make demo` runs it, and with a wrong network."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mgx_onnx")
pytest.importorskip("mgx_ref")

HERE = Path(__file__).parent


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, folder / "demo.py"], capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture
def copied(tmp_path):
    for name in ("demo.py", "digits.onnx", "digits.npz"):
        shutil.copy(HERE / name, tmp_path)
    return tmp_path


def rewrite(folder: Path, **changes) -> None:
    with np.load(folder / "digits.npz") as stored:
        held = dict(stored)
    np.savez(folder / "digits.npz", **{**held, **changes})


def test_the_demo_succeeds(copied):
    done = run(copied)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "98.61% of 360 held-out images" in done.stdout
    assert "from onnxruntime" in done.stdout


def test_wrong_labels_fail_the_demo(copied):
    with np.load(copied / "digits.npz") as stored:
        labels = stored["labels"].copy()
    labels[:20] = (labels[:20] + 1) % 10
    rewrite(copied, labels=labels)
    done = run(copied)
    assert done.returncode == 1
    assert "not accurate enough" in done.stdout


def test_answers_that_differ_fail_the_demo(copied):
    with np.load(copied / "digits.npz") as stored:
        answers = stored["answers"].copy()
    answers[7, 3] += 2e-4
    rewrite(copied, answers=answers)
    done = run(copied)
    assert done.returncode == 1
    assert "2.0e-04 from onnxruntime" in done.stdout
