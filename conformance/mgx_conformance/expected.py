"""The file of expected failures: which tests may fail, each with the reason."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["ExpectedFailures", "Line"]


class Line(NamedTuple):
    """One entry: a test's id (``*`` and ``?`` stand for any text and any character) and why it fails."""

    test: str
    reason: str


class ExpectedFailures:
    """All lines of a file.  Every test that a line matches must fail; a line that matches none is refused."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = list(lines)
        self._exact = {line.test: line for line in self.lines if not set(line.test) & set("*?")}
        self._patterns = [line for line in self.lines if line.test not in self._exact]

    @classmethod
    def read(cls, path: Any) -> ExpectedFailures:
        """Returns the lines of a TOML file.  Errors: ValueError for anything but [[expected]] tables with a test and a reason."""
        try:
            document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as error:
            raise ValueError(str(error)) from None
        if set(document) - {"expected"}:
            raise ValueError(
                f"only [[expected]] tables are known, got {', '.join(sorted(set(document) - {'expected'}))}"
            )
        lines: list[Line] = []
        for n, entry in enumerate(document.get("expected", []), 1):
            if not isinstance(entry, dict) or set(entry) - {"test", "reason"}:
                raise ValueError(f"entry {n}: only `test` and `reason` are known, got {entry}")
            test, reason = entry.get("test"), entry.get("reason")
            if not isinstance(test, str) or not test.strip():
                raise ValueError(f"entry {n} has no `test`")
            if not isinstance(reason, str) or len(reason.split()) < 2:
                raise ValueError(f"entry {n} ({test}) has no reason; say in a few words why the test fails")
            if any(line.test == test for line in lines):
                raise ValueError(f"{test!r} is listed twice")
            lines.append(Line(test, reason.strip()))
        return cls(lines)

    def find(self, test: str) -> Line | None:
        """Returns the line that expects a test to fail."""
        exact = self._exact.get(test)
        return exact or next((p for p in self._patterns if fnmatchcase(test, p.test)), None)

    def matching_nothing(self, tests: Collection[str], levels: Collection[str]) -> list[str]:
        """Returns lines for the levels that are run which no test answers to."""
        known = set(tests)
        return [
            line.test
            for line in self.lines
            if line.test.partition("/")[0] in levels
            and line.test not in known
            and not any(fnmatchcase(test, line.test) for test in known)
        ]
