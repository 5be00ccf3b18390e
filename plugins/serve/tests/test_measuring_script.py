"""The script that measures the engine process uses its internal interfaces, which types do not check."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "benchmarks/serving/engine.py"


def test_the_engine_answers_front_ends_that_do_no_work() -> None:
    command = [sys.executable, str(SCRIPT), "--kind", "tokens", "--seconds", "0.5", "--channels", "2", "--clients", "4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    rows = float(done.stdout.split()[0])
    assert rows > 0 and "between them" in done.stdout
