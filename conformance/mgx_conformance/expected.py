"""Expected failures: a file of tests that must fail, each with a reason."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["ExpectedFailures", "Line"]


class Line(NamedTuple):
    """One entry: a pattern of test ids (``*`` and ``?`` are wildcards) and the reason."""

    test: str
    reason: str


class ExpectedFailures:
    """The entries of a file.  Every matching test must fail; entries that match no test are errors."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = list(lines)
        self._exact = {line.test: line for line in self.lines if not set(line.test) & set("*?")}
        self._patterns = [line for line in self.lines if line.test not in self._exact]

    @classmethod
    def read(cls, path: Any) -> ExpectedFailures:
        """Reads a TOML file.  Errors: ValueError for anything but [[expected]] tables with a test and a reason."""
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
        """Returns the entry that matches a test."""
        exact = self._exact.get(test)
        return exact or next((p for p in self._patterns if fnmatchcase(test, p.test)), None)

    def matching_nothing(self, tests: Collection[str], levels: Collection[str]) -> list[str]:
        """Returns entries of the selected levels that match no test."""
        known = set(tests)
        return [
            line.test
            for line in self.lines
            if line.test.partition("/")[0] in levels
            and line.test not in known
            and not any(fnmatchcase(test, line.test) for test in known)
        ]
