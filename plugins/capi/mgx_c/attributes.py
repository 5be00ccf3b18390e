"""Parses the attributes of an op, written as JSON with optional quotes around names."""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["read"]

_PART = re.compile(r'"(?:[^"\\]|\\.)*"|(?<![\w.])[A-Za-z_][\w.]*')  # the lookbehind skips exponents such as 1e-05
_WORDS = ("true", "false", "null", "Infinity", "NaN")  # literals of Python's json


def read(text: str | None) -> dict[str, Any]:
    """Parses attributes such as ``{axes: [1, 2], mode: average, "name": "x"}``.  Errors: ValueError for anything else."""
    if not text or not text.strip():
        return {}

    def quoted(part: re.Match[str]) -> str:
        word = part[0]
        return word if word.startswith('"') or word in _WORDS else json.dumps(word)

    try:
        made = json.loads(_PART.sub(quoted, text))
    except ValueError as error:
        raise ValueError(f"attributes must have the form {{name: value, ...}}, got {text!r} ({error})") from error
    if not isinstance(made, dict):
        raise ValueError(f"attributes must have the form {{name: value, ...}}, got {text!r}")
    return made
