"""The programs of this folder that do not need torch; the others run if torch is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_arrays_go_in_and_come_out() -> None:
    program = Path(__file__).with_name("numpy_interchange.py")
    said = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True).stdout.splitlines()
    assert said == [
        "a result is an array: [[12.0, 15.0, 18.0, 21.0], [12.0, 15.0, 18.0, 21.0]]",
        "on the same memory: True",
        "an argument is the array that it was made from: True",
        "buffers of other kinds do as well: float_type, {2, 4}, {4, 1}",
        "so does another layout: True",
    ]
