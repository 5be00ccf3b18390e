"""Runs the corpus: ``python hostile [--match WORD] [--part K/N] [--slow] [--json FILE]``; exit code 1 for an unexpected outcome.

Every model is parsed, compiled for ref and run in a process with 4 GB of address space.  Accepted outcomes are an exception
of mgx's tree with less than 1 GB of memory, or for legal models results (and the program's text parses back to the same text).
Durations are not judged, but a process that does not answer is ended.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MOST = 1 << 30  # maximum memory of a refusal in bytes
HANGS = 300.0  # timeout in seconds
sys.path[:0] = [str(HERE), str(HERE.parent)]

import bombs  # noqa: E402, F401
import files  # noqa: E402, F401
import nesting  # noqa: E402, F401
import nodes  # noqa: E402, F401
import weights  # noqa: E402, F401
from case import CASES  # noqa: E402
from confined import Confined  # noqa: E402


def work(request: dict[str, Any]) -> dict[str, Any]:
    """Runs in the worker: a case is built first, so that only the memory of mgx counts."""
    from trial import attempt

    with tempfile.TemporaryDirectory() as folder:
        trial = CASES[request["name"]].trial(Path(folder))
        before = peak(reset=True)
        found = attempt(trial.model, trial.feeds, again=True, **trial.options)
        found["taken"] = peak() - before
        if found["outcome"] == "ran" and trial.wanted is not None:
            found["result"] = str(found["result"])
    return found


def peak(reset: bool = False) -> int:
    """Returns this process's peak resident memory in bytes since the last reset."""
    if reset:
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def wrong(expect: str, found: dict[str, Any]) -> str:
    """Describes why an answer is wrong; empty if it is correct."""
    if found["outcome"] not in ("ran", "refused"):
        return f"{found['outcome']}: {found['error']}"
    if found["outcome"] == "ran" and expect == "refuse":
        return f"ran: {str(found['result'])[:200]}"
    if found["outcome"] == "refused" and expect == "run":
        return found["error"]
    if expect == "refuse" and found["error"].startswith(("ShapeError: not enough", "DeviceError: not enough")):
        return f"refused too late: {found['error']}"
    if found["outcome"] == "refused" and found["taken"] > MOST:
        return f"refused after {found['taken'] >> 20} MB: {found['error']}"
    return ""


def main() -> int:
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--match", default="")
    ask.add_argument("--part", default="0/1", metavar="K/N", help="every N-th case, starting at the K-th")
    ask.add_argument("--slow", action="store_true", help="include slow cases")
    ask.add_argument("--json", default="", help="file for all answers")
    ask.add_argument("--list", action="store_true", help="only print the names")
    ask.add_argument("-v", action="store_true", help="also print correct answers")
    options = ask.parse_args()
    if options.list:
        print("\n".join(case.name for case in CASES.values()))
        return 0
    answers: dict[str, Any] = {}
    with Confined(Path(__file__), "work", seconds=HANGS) as worker:
        first, every = map(int, options.part.split("/"))
        for case in [*CASES.values()][first::every]:
            if (case.slow and not options.slow) or not re.search(options.match, case.name):
                continue
            found = worker.ask({"name": case.name})
            bad = wrong(case.expect, found)
            answers[case.name] = {**found, "expect": case.expect, "wrong": bad}
            if bad:
                print(f"WRONG {case.name} (expected: {case.expect}): {bad[:500]}", flush=True)
            elif options.v:
                print(
                    f"{found['outcome']:8} {found['seconds']:.2f} {case.name}: {str(found.get('error', found.get('result')))[:200]}",
                    flush=True,
                )
    counts = collections.Counter(a["outcome"] for a in answers.values())
    print(f"{len(answers)} models: {dict(counts)}; {sum(bool(a['wrong']) for a in answers.values())} wrong")
    if options.json:
        Path(options.json).write_text(json.dumps(answers, indent=0))
    return 1 if any(a["wrong"] for a in answers.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
