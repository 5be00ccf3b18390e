"""Try the corpus: ``python hostile [--match WORD] [--slow] [--json FILE]``; exit code 1 if a model is not answered as it must be.

Every model is parsed, compiled for ref and run in a process with 4 GB of address space and 10 seconds of
processor time.  Good answers: a refusal by
an exception of mgx's tree, or for legal oddities results (and the program's text parses back to the same text).
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import bombs  # noqa: E402, F401
import files  # noqa: E402, F401
import nesting  # noqa: E402, F401
import nodes  # noqa: E402, F401
import weights  # noqa: E402, F401
from case import CASES  # noqa: E402
from confined import Confined  # noqa: E402


def work(request: dict[str, Any]) -> dict[str, Any]:
    """Answers of the worker: a case is built first, so that only what mgx does is timed."""
    import time

    from trial import attempt

    with tempfile.TemporaryDirectory() as folder:
        trial = CASES[request["name"]].trial(Path(folder))
        start = time.process_time()
        found = attempt(trial.model, trial.feeds, again=True, **trial.options)
        found["took"] = time.process_time() - start
        if found["outcome"] == "ran" and trial.wanted is not None:
            found["result"] = str(found["result"])
    return found


def wrong(expect: str, found: dict[str, Any], seconds: float) -> str:
    """What is wrong with an answer, or nothing."""
    if found["outcome"] not in ("ran", "refused"):
        return f"{found['outcome']}: {found['error']}"
    if found["outcome"] == "ran" and expect == "refuse":
        return f"ran: {str(found['result'])[:200]}"
    if found["outcome"] == "refused" and expect == "run":
        return found["error"]
    if expect == "refuse" and found["error"].startswith(("ShapeError: not enough", "DeviceError: not enough")):
        return f"refused too late: {found['error']}"
    return f"took {found['took']:.1f} s ({found['outcome']})" if found["took"] > seconds else ""


def main() -> int:
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--match", default="")
    ask.add_argument("--slow", action="store_true", help="the slow ones, too")
    ask.add_argument("--seconds", type=float, default=10.0)
    ask.add_argument("--json", default="", help="where to write all answers")
    ask.add_argument("-v", action="store_true", help="print good answers, too")
    options = ask.parse_args()
    answers: dict[str, Any] = {}
    with Confined(Path(__file__), "work") as worker:
        for case in CASES.values():
            if (case.slow and not options.slow) or not re.search(options.match, case.name):
                continue
            seconds = options.seconds * (6 if case.slow else 1)
            worker.seconds = 4 * seconds + 10  # the machine may have other things to do
            found = worker.ask({"name": case.name})
            bad = wrong(case.expect, found, seconds)
            answers[case.name] = {**found, "expect": case.expect, "wrong": bad}
            if bad:
                print(f"WRONG {case.name} (expected: {case.expect}): {bad[:500]}", flush=True)
            elif options.v:
                print(
                    f"{found['outcome']:8} {found['took']:.2f} {case.name}: {str(found.get('error', found.get('result')))[:200]}",
                    flush=True,
                )
    counts = collections.Counter(a["outcome"] for a in answers.values())
    print(f"{len(answers)} models: {dict(counts)}; {sum(bool(a['wrong']) for a in answers.values())} wrong")
    if options.json:
        Path(options.json).write_text(json.dumps(answers, indent=0))
    return 1 if any(a["wrong"] for a in answers.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
