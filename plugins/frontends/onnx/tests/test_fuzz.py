"""Short fuzzing with a fixed seed, longer among the slow tests; FUZZING.md describes long runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parent / "fuzz"


@pytest.mark.parametrize("cases", [200, pytest.param(2000, marks=pytest.mark.slow)])
def test_a_run_finds_nothing(cases: int) -> None:
    command = [sys.executable, str(FUZZ), "--random", "0", "--cases", str(cases), "--seconds", "300"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "0 findings" in ran.stdout


def test_escaped_exceptions_are_detected(tmp_path: Path) -> None:
    """The harness detects foreign exceptions, crashes and hangs."""
    (tmp_path / "careless.py").write_text(
        "import os, time\n"
        "def work(request):\n"
        "    if request == 'crash': os.abort()\n"
        "    if request == 'hang': time.sleep(60)\n"
        "    if request == 'memory': bytearray(8 << 30)\n"
        "    return {'outcome': 'ran'}\n"
    )
    script = (
        f"import sys; sys.path.insert(0, {str(FUZZ.parent)!r})\n"
        "from pathlib import Path; from confined import Confined\n"
        f"with Confined(Path({str(tmp_path / 'careless.py')!r}), 'work', memory=1 << 30, seconds=3) as worker:\n"
        "    for request in ('fine', 'crash', 'fine', 'hang', 'memory', 'fine'):\n"
        "        print(request, worker.ask(request)['outcome'])\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.split("\n")[:-1] == [
        "fine ran",
        "crash crash",
        "fine ran",
        "hang hang",
        "memory crash",
        "fine ran",
    ]
