"""The commands at the top of the package's README, verbatim."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parents[1] / "README.md"
DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits.onnx"


@pytest.mark.skipif(shutil.which("curl") is None, reason="the README calls curl")
def test_requests_can_be_pasted(serve: Callable[..., Any]) -> None:
    block = "\n".join(line.strip() for line in README.read_text().splitlines() if line.startswith("    "))
    about, asked = (f"curl {r}" for r in block.replace("\\\n", " ").split("curl ")[1:3])
    running = serve(DIGITS)
    for request in (about, asked.splitlines()[0]):
        assert "localhost:8000" in request
        script = request.replace("localhost:8000", running.http).replace("curl ", "curl -sS --fail-with-body ")
        answer = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=30, check=False)
        assert answer.returncode == 0, answer.stdout + answer.stderr
        found = json.loads(answer.stdout)
        assert "error" not in found
    (output,) = found["outputs"]
    assert (output["name"], output["shape"]) == ("probabilities", [1, 10])
    assert sum(output["data"]) == pytest.approx(1, abs=1e-5)
