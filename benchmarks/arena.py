"""Compares the planned arena with the peak of live bytes, for each model of a folder on the reference plan.

python benchmarks/arena.py MODELS [--only a,b] [--target ref] [--json FILE]

Models with symbolic extents are planned for the shapes of their example inputs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

import mgx_core as mgx


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path)
    parser.add_argument("--only")
    parser.add_argument("--target", default="ref")
    parser.add_argument("--json")
    given = parser.parse_args()
    names = given.only.split(",") if given.only else sorted(p.stem for p in given.models.glob("*.onnx"))
    results = {}
    for name in names:
        path = given.models / f"{name}.onnx"
        program = mgx.parse_onnx(path)
        program.compile(mgx.get_target(given.target))
        executable = program.executable
        assert executable is not None
        values = executable.bind(dict(np.load(path.with_suffix(".in.npz"))))
        plan = executable.instance(values).plan
        ratio = plan.peak / max(plan.lower_bound, 1)
        results[name] = {"arena": plan.peak, "lower_bound": plan.lower_bound, "ratio": ratio}
        print(
            f"{name:20} {plan.peak / 1e6:9.2f} MB, lower bound {plan.lower_bound / 1e6:9.2f} MB, x{ratio:.3f}",
            flush=True,
        )
    print(f"worst x{max(r['ratio'] for r in results.values()):.3f}")
    if given.json:
        with open(given.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
