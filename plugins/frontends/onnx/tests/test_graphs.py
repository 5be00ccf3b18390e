"""Random graphs on ref and cpu against onnxruntime with a fixed seed, more among the slow tests; see FUZZING.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

GRAPHS = Path(__file__).parent / "graphs"


@pytest.mark.parametrize("cases", [40, pytest.param(1500, marks=pytest.mark.slow)])
def test_all_targets_give_the_numbers_of_onnxruntime(cases: int) -> None:
    pytest.importorskip("onnxruntime")
    command = [sys.executable, str(GRAPHS), "--random", "0", "--cases", str(cases), "--seconds", "600", "--gpu", "0"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "0 findings" in ran.stdout
