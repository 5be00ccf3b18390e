"""Fuzzes the parser: ``python fuzz [--seeds FOLDER] [--seconds N] [--random N] [--case N]``; exit code 1 if anything escaped.

Each mutant is parsed, compiled for ref and run in a process with 4 GB.  A finding is an exception outside mgx's
tree, a crash, or no answer for a minute; equal ones are counted once.  ``--case N`` repeats one case in this process, with its
traceback.
"""

from __future__ import annotations

import collections
import random
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# refusals that say little about the fault
SOFT = re.compile("cannot be computed from these|wrong number, type or rank of operands|malformed node")
sys.path[:0] = [str(HERE), str(HERE.parent)]

from campaign import Campaign, asked  # noqa: E402
from mutate import mutated  # noqa: E402
from seeds import seeds  # noqa: E402

_seeds: dict[str, list[bytes]] = {}


def mutant(request: dict[str, Any]) -> bytes:
    """Returns the model of a request, deterministically."""
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


def repeated(request: dict[str, Any]) -> None:
    """Prints the model of one case, and runs it in this process."""
    import onnx
    from trial import inputs_for

    import mgx_core as mgx

    data = mutant(request)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
        print(str(model)[:6000])
    except Exception as error:
        print(error)
    program = mgx.parse_onnx_buffer(data)
    print(program)
    program.compile(mgx.get_target("ref"))
    print(program.run(inputs_for(program.get_parameter_shapes())))


def main() -> int:
    folder = {"default": "", "help": "a folder of .onnx files (default: models of our own)"}
    kept = {"default": "", "help": "a folder for the models that were findings"}
    options = asked(__doc__, [("--seeds", folder), ("--keep", kept)])
    request = {"seeds": options.seeds, "random": options.random}
    if options.case is not None:
        repeated({**request, "case": options.case})
        return 0
    soft: collections.Counter[str] = collections.Counter()

    def seen(case: int, found: dict[str, Any]) -> None:
        if found["outcome"] == "refused" and SOFT.search(found["error"]):
            soft[re.sub(r"[\d.]+", "N", found["error"])[:160]] += 1

    def keep(case: int, found: dict[str, Any]) -> None:
        if options.keep:
            path = Path(options.keep) / f"{options.random}_{case}.onnx"
            path.write_bytes(mutant({**request, "case": case}))

    status = Campaign(Path(__file__), seen=seen, first=keep).run(request, options.seconds, options.cases)
    if options.keep:
        (Path(options.keep) / "soft.txt").write_text("\n".join(f"{n:5} {text}" for text, n in soft.most_common()))
    return status


if __name__ == "__main__":
    sys.exit(main())
