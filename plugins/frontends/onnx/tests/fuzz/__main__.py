"""Fuzz the parser: ``python fuzz [--seeds FOLDER] [--seconds N] [--random N] [--case N]``; exit code 1 if anything escaped.

Each mutant is parsed, compiled for ref and run in a process with 4 GB.  A finding is an exception outside mgx's
tree, a crash, or no answer for a minute; equal ones are counted once.  ``--case N`` repeats one case here, with its traceback.
"""

from __future__ import annotations

import argparse
import collections
import random
import re
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
HANGS = 60.0  # seconds without an answer
sys.path[:0] = [str(HERE), str(HERE.parent)]

from confined import Confined  # noqa: E402
from mutate import mutated  # noqa: E402
from seeds import seeds  # noqa: E402

_seeds: dict[str, list[bytes]] = {}


def mutant(request: dict[str, Any]) -> bytes:
    """The model of a request, always the same for the same numbers."""
    folder = request["seeds"]
    if folder not in _seeds:
        _seeds[folder] = seeds(folder)
    rng = random.Random(f"{request['random']}/{request['case']}")
    return mutated(rng.choice(_seeds[folder]), rng, _seeds[folder])


def work(request: dict[str, Any]) -> dict[str, Any]:
    from trial import attempt

    found = attempt(mutant(request))
    found.pop("result", None)
    return found


def key(found: dict[str, Any]) -> str:
    where = found["error"].rpartition(" at ")
    return (
        f"{found['outcome']} {where[0].partition(':')[0]} {where[2]}"
        if where[1]
        else found["outcome"] + re.sub(r"[\d.]+", "", found["error"])
    )


def main() -> int:
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--seeds", default="", help="a folder of .onnx files (default: models of our own)")
    ask.add_argument("--seconds", type=float, default=60)
    ask.add_argument("--cases", type=int, default=1 << 60)
    ask.add_argument("--random", type=int, default=0)
    ask.add_argument("--case", type=int, help="repeat one case in this process")
    ask.add_argument("--keep", default="", help="a folder for the models that were findings")
    options = ask.parse_args()
    request = {"seeds": options.seeds, "random": options.random}
    if options.case is not None:
        import onnx

        data = mutant({**request, "case": options.case})
        model = onnx.ModelProto()
        try:
            model.ParseFromString(data)
            print(str(model)[:6000])
        except Exception as error:
            print(error)
        from trial import inputs_for

        import mgx_core as mgx

        program = mgx.parse_onnx_buffer(data)
        print(program)
        program.compile(mgx.get_target("ref"))
        print(program.run(inputs_for(program.get_parameter_shapes())))
        return 0
    outcomes: collections.Counter[str] = collections.Counter()
    findings: dict[str, list[int]] = {}
    soft: collections.Counter[str] = collections.Counter()
    slowest = (0.0, -1)
    until = time.monotonic() + options.seconds
    case = 0
    with Confined(Path(__file__), "work", seconds=HANGS) as worker:
        while time.monotonic() < until and case < options.cases:
            found = worker.ask({**request, "case": case})
            outcomes[found["outcome"]] += 1
            if found["outcome"] == "refused" and re.search(
                "cannot be computed from these|wrong number, type or rank of operands|malformed node", found["error"]
            ):
                soft[re.sub(r"[\d.]+", "N", found["error"])[:160]] += 1
            slowest = max(slowest, (found["seconds"], case))
            if found["outcome"] not in ("ran", "refused"):
                cases = findings.setdefault(key(found), [])
                cases.append(case)
                if len(cases) == 1:
                    print(f"case {case}: {found['outcome']}: {found['error']}", flush=True)
                    if options.keep:
                        (Path(options.keep) / f"{options.random}_{case}.onnx").write_bytes(
                            mutant({**request, "case": case})
                        )
            case += 1
    print(f"{case} cases: {dict(outcomes)}; slowest {slowest[0]:.1f} s (case {slowest[1]}); {len(findings)} findings")
    for name, cases in findings.items():
        print(f"  {len(cases):5} {name}: cases {cases[:5]}")
    if options.keep:
        (Path(options.keep) / "soft.txt").write_text("\n".join(f"{n:5} {text}" for text, n in soft.most_common()))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
