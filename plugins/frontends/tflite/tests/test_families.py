"""Families of converters are imported when an operator is looked up that no imported family converts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from mgx_tflite import converters
from mgx_tflite.converter import FAMILIES

ASKED = """
import sys
from mgx_tflite.converter import STANDARD
assert STANDARD.find("", "CONV_2D", 1) is not None
assert "mgx_tflite.converters.stablehlo" not in sys.modules
assert STANDARD.find("", "STABLEHLO_ADD", 1) is not None and STANDARD.find("", "NONE", 1) is None
"""


def test_all_families_are_named() -> None:
    assert sorted(FAMILIES) == sorted(p.stem for p in Path(converters.__path__[0]).glob("[!_]*.py"))


def test_in_a_new_process() -> None:
    subprocess.run([sys.executable, "-c", ASKED], check=True)
