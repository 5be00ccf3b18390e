"""Text contained in every Python installation: the docstrings of its standard library, as numbers below 128."""

from __future__ import annotations

import ast
import os
import sysconfig
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

WINDOW = 128  # characters per window of the model
LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "ensurepip"}


def docstrings(held_out: bool) -> Iterator[str]:
    """Yields the docstrings of one part of the library's modules, selected by their names only; one module in ten is held out."""
    root = Path(sysconfig.get_paths()["stdlib"])
    number = {place: zlib.crc32(place.as_posix().encode()) for place in _modules(root)}
    for place in sorted(number, key=lambda p: number[p]):
        if (number[place] % 10 == 0) != held_out:
            continue
        try:
            tree = ast.parse((root / place).read_text(encoding="utf-8"))
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                text = ast.get_docstring(node)
                if text:
                    yield text


def _modules(root: Path) -> Iterator[Path]:
    """Yields the modules' paths below `root`, without entering folders that are left out: installed packages are many."""
    for folder, inner, names in os.walk(root):
        inner[:] = [name for name in inner if name not in LEFT_OUT]
        for name in names:
            if name.endswith(".py"):
                yield Path(folder, name).relative_to(root)


def windows(held_out: bool, most: int | None = None) -> np.ndarray:
    """Returns int64 [n, WINDOW + 1]: the first WINDOW characters of each row are the model's input, the last WINDOW its targets.

    most: maximum number of rows.
    """
    codes: list[int] = []
    for text in docstrings(held_out):
        codes += [min(ord(c), 127) for c in text + "\0"]
        if most is not None and len(codes) > most * WINDOW:
            break
    rows = np.lib.stride_tricks.sliding_window_view(np.array(codes, np.int64), WINDOW + 1)[::WINDOW]
    return np.ascontiguousarray(rows[:most])
