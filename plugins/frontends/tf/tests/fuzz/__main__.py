"""Fuzzes both frontends: ``python fuzz SEEDS [--seconds N] [--random N] [--case N]``; exit code 1 if anything escaped.

SEEDS is a folder; its SavedModels, `.pb` and `.tflite` files of at most 2 MB are the seeds.  Each mutant is parsed, compiled for
ref and run in a process with 4 GB of address space.  A finding is an exception outside mgx's tree, an error in a plugin's code, a
crash, or no answer for a minute; equal ones are counted once.  ``--case N`` repeats one case in this process.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "onnx" / "tests")]

from campaign import Campaign, asked  # noqa: E402
from mutate import damaged  # noqa: E402

LIMITS = {"limit_max_iterations": 200, "limit_nodes": 20_000, "limit_bytes": 1 << 26}
_seeds: dict[str, list[dict[str, bytes]]] = {}


def seeds(folder: str) -> list[dict[str, bytes]]:
    """Returns the files of every small model in a folder."""
    found = []
    for path in sorted(Path(folder).rglob("*")):
        if path.name == "saved_model.pb":
            found.append(
                {str(p.relative_to(path.parent)): p.read_bytes() for p in path.parent.rglob("*") if p.is_file()}
            )
        elif path.suffix in (".pb", ".tflite") and path.name != "fingerprint.pb" and path.is_file():
            found.append({path.name: path.read_bytes()})
    return [f for f in found if sum(map(len, f.values())) <= 2 << 20]


def mutant(request: dict[str, Any]) -> dict[str, bytes]:
    """Returns the files of a request's model, deterministically."""
    folder = request["seeds"]
    if folder not in _seeds:
        _seeds[folder] = seeds(folder)
    rng = random.Random(f"{request['random']}/{request['case']}")
    return damaged(rng.choice(_seeds[folder]), rng)


def tried(files: dict[str, bytes]) -> list[str]:
    """Parses, compiles and runs a model; returns the shapes of its results."""
    import numpy as np
    from trial import check, inputs_for

    import mgx_core as mgx

    if "saved_model.pb" in files:
        with tempfile.TemporaryDirectory() as folder:
            for name, data in files.items():
                place = Path(folder) / name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(data)
            program = mgx.parse(folder, **LIMITS)
    else:
        ((name, data),) = files.items()
        program = mgx.parse_buffer(data, "tflite" if name.endswith(".tflite") else "tf", **LIMITS)
    program.compile(mgx.get_target("ref"))
    with np.errstate(all="ignore"):
        results = program.run(inputs_for(program.get_parameter_shapes()))
    for n, (shape, found) in enumerate(zip(program.get_output_shapes(), results, strict=True)):
        check(n, shape, found)
    return [str(r.get_shape()) for r in results]


def work(request: dict[str, Any]) -> dict[str, Any]:
    from trial import verdict

    found = verdict(lambda: tried(mutant(request)))
    if found["outcome"] == "refused" and found["error"].startswith("PluginError"):
        found["outcome"] = "escaped"
    found.pop("result", None)
    return found


def main() -> int:
    options = asked(__doc__, [("seeds", {"help": "a folder of models"})])
    request = {"seeds": options.seeds, "random": options.random}
    if options.case is not None:
        print(tried(mutant({**request, "case": options.case})))
        return 0
    return Campaign(Path(__file__)).run(request, options.seconds, options.cases)


if __name__ == "__main__":
    sys.exit(main())
