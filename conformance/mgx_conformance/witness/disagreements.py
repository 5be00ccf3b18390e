"""The file of known disagreements with the witnesses, each with the decisive interpretation of the standard."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

__all__ = ["Disagreements"]


class Disagreements:
    """Lines of ``disagreements.toml``: the question, the witness, and why the reference is right.

    The file names the versions of the witnesses that it was written for; a line is considered stale only for these.
    """

    def __init__(self) -> None:
        text = (Path(__file__).parent / "disagreements.toml").read_text(encoding="utf-8")
        document: dict[str, Any] = tomllib.loads(text)
        self.versions: dict[str, str] = document["versions"]
        self.lines: list[dict[str, str]] = document.get("disagreement", [])
        for line in self.lines:
            if set(line) != {"question", "witness", "reading"} or len(line["reading"].split()) < 4:
                raise ValueError(f"a disagreement needs question, witness and reading, got {line}")

    def find(self, question: str, witness: str) -> str:
        """Returns the decisive interpretation; empty if none is listed."""
        for line in self.lines:
            if line["witness"] == witness and fnmatchcase(question, line["question"]):
                return line["reading"]
        return ""
