"""Random graphs on ref and cpu, compared with onnxruntime, with a fixed seed; more in the slow tests; see FUZZING.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

GRAPHS = Path(__file__).parent / "graphs"


@pytest.mark.parametrize(
    ("kind", "cases"),
    [
        ("float32", 40),
        ("open", 15),
        ("bfloat16", 15),
        ("int8", 15),
        *(pytest.param(k, 300, marks=pytest.mark.slow) for k in ("open", "float16", "open-bfloat16", "int8")),
        pytest.param("float32", 1500, marks=pytest.mark.slow),
    ],
)
def test_all_targets_agree_with_onnxruntime(kind: str, cases: int) -> None:
    pytest.importorskip("onnxruntime")
    command = [sys.executable, str(GRAPHS), "--random", "0", "--cases", str(cases), "--seconds", "600", "--gpu", "0"]
    command += ["--kind", kind]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "0 findings" in ran.stdout
