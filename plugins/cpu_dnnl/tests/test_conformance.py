"""The cpu target proves itself with the public kit, as any stranger's target would."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip(
    "mgx_conformance", reason="the conformance kit is a distribution of its own: pip install mgx-conformance"
)

EXPECTED = Path(__file__).parent.parent / "expected.toml"


def run(folder: Path, *arguments: str) -> dict[str, dict[str, int]]:
    """Outcomes by level."""
    card = folder / "card.json"
    words = ["--pyargs", "mgx_conformance.suite", "--mgx-target", "cpu", "--mgx-scorecard", str(card), *arguments]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words, "--mgx-expect", str(EXPECTED)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    levels: dict[str, dict[str, int]] = json.loads(card.read_text())["levels"]
    return levels


def test_a_sample(tmp_path: Path) -> None:
    """Every level, an eighth of the cases."""
    levels = run(tmp_path, "--mgx-sample", "8", "--mgx-examples", "8")
    assert set(levels) == {"hygiene", "ops", "graphs", "onnx", "models", "contract", "cost"}
    assert not any(counts["fail"] for counts in levels.values())
    assert levels["ops"]["pass"] > 600
    assert levels["onnx"]["pass"] > 150


@pytest.mark.slow
def test_everything(tmp_path: Path) -> None:
    levels = run(tmp_path, "--mgx-examples", "100")
    assert not any(counts["fail"] for counts in levels.values())
    assert levels["ops"]["pass"] > 4500
    assert levels["onnx"]["pass"] > 1800
