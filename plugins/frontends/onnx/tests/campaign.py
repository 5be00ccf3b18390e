"""Runs fuzzing cases one after the other in a worker process and counts distinct findings."""

from __future__ import annotations

import argparse
import collections
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confined import Confined

__all__ = ["Campaign", "asked"]

HANGS = 60.0  # timeout in seconds


def asked(says: str | None, more: Iterable[tuple[str, dict[str, Any]]]) -> argparse.Namespace:
    """Parses the command line: options common to all fuzzers, and further ones."""
    ask = argparse.ArgumentParser(description=says)
    ask.add_argument("--seconds", type=float, default=60)
    ask.add_argument("--cases", type=int, default=1 << 60)
    ask.add_argument("--random", type=int, default=0)
    ask.add_argument("--case", type=int, help="repeat one case in this process")
    for name, how in more:
        ask.add_argument(name, **how)
    return ask.parse_args()


@dataclass
class Campaign:
    """Calls a function of a file, by name, for one case after the other.

    seen: called with the number of each case and its outcome; first: likewise for the first case of each finding.
    """

    file: Path
    function: str = "work"
    seen: Callable[[int, dict[str, Any]], None] = lambda case, found: None
    first: Callable[[int, dict[str, Any]], None] = lambda case, found: None
    findings: dict[str, list[int]] = field(default_factory=dict)

    def run(self, request: dict[str, Any], seconds: float, cases: int) -> int:
        """Prints exceptions, crashes and hangs; returns 1 if there were any."""
        outcomes: collections.Counter[str] = collections.Counter()
        slowest = (0.0, -1)
        until = time.monotonic() + seconds
        case = 0
        with Confined(self.file, self.function, seconds=HANGS) as worker:
            while time.monotonic() < until and case < cases:
                found = worker.ask({**request, "case": case})
                outcomes[found["outcome"]] += 1
                slowest = max(slowest, (found["seconds"], case))
                self.seen(case, found)
                if found["outcome"] not in ("ran", "refused"):
                    self._note(case, found)
                case += 1
        print(
            f"{case} cases: {dict(outcomes)}; slowest {slowest[0]:.1f} s (case {slowest[1]}); {len(self.findings)} findings"
        )
        for name, places in self.findings.items():
            print(f"  {len(places):5} {name}: cases {places[:5]}")
        return 1 if self.findings else 0

    def _note(self, case: int, found: dict[str, Any]) -> None:
        places = self.findings.setdefault(key(found), [])
        places.append(case)
        if len(places) == 1:
            print(f"case {case}: {found['outcome']}: {found['error']}", flush=True)
            self.first(case, found)


def key(found: dict[str, Any]) -> str:
    """Returns the identity of a finding: its outcome and location, else its message without names and numbers."""
    said, at, place = found["error"].rpartition(" at ")
    if at:
        return f"{found['outcome']} {said.partition(':')[0]} {place}"
    return f"{found['outcome']} " + re.sub(r"'[^']*'|[\d.]+", "", found["error"])[-200:]
