"""The example that runs on torch's stream."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
EXAMPLE = Path(__file__).parents[4] / "examples" / "python" / "asynchronous_torch.py"


def test_it_gives_what_torch_gives() -> None:
    said = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, check=True).stdout
    assert said.startswith("the greatest difference from torch is small")
