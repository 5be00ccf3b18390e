"""For all tests: none takes a program that an earlier run kept; those of kept programs switch that on for themselves."""

from __future__ import annotations

import os


def pytest_configure() -> None:
    os.environ.pop("MGX_KEEP_PROGRAMS", None)
