"""Peak memory of parsing and optimizing (normalize to fuse), each model in a new process, compared with its weights' size.

python benchmarks/compile_memory.py MODELS [--only a,b] [--compile TARGET] [--json FILE]

The peak is the process's maximum resident set (VmHWM), including interpreter, imports and mapped pages of the model's file; the
bound is 2 x weights + 150 MB.  `--compile` continues to a compiled program for a target.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import onnx

CHILD = """
import json, sys
import mgx_core as mgx
from mgx_core.compile.stages import optimize_module

def megabytes(what):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(what))

mgx.get_onnx_operators()
before = megabytes("VmRSS")
program = mgx.parse_onnx(sys.argv[1])
if len(sys.argv) > 2:
    program.compile(mgx.get_target(sys.argv[2]))
else:
    optimize_module(program.get_main_module(), mgx.CompileOptions())
print(json.dumps({"imports": before, "peak": megabytes("VmHWM"), "after": megabytes("VmRSS")}))
"""


def weights(path: Path) -> float:
    """Returns the size of a model's initializers in megabytes."""
    model = onnx.load(path, load_external_data=False)
    sizes = (onnx.helper.tensor_dtype_to_np_dtype(t.data_type).itemsize for t in model.graph.initializer)
    total = 0
    for tensor, size in zip(model.graph.initializer, sizes, strict=True):
        count = 1
        for d in tensor.dims:
            count *= d
        total += count * size
    return total / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path)
    parser.add_argument("--only")
    parser.add_argument("--compile", metavar="TARGET")
    parser.add_argument("--json")
    given = parser.parse_args()
    names = given.only.split(",") if given.only else sorted(p.stem for p in given.models.glob("*.onnx"))
    results = {}
    for name in names:
        path = given.models / f"{name}.onnx"
        words = [sys.executable, "-c", CHILD, str(path), *([given.compile] if given.compile else [])]
        unkept = os.environ | {"MGX_KEEP_PROGRAMS": "0"}
        row = json.loads(subprocess.run(words, check=True, capture_output=True, text=True, env=unkept).stdout)
        row["weights"] = weights(path)
        row["bound"] = 2 * row["weights"] + 150
        results[name] = row
        verdict = "" if row["peak"] <= row["bound"] else "  ABOVE"
        print(
            f"{name:20} weights {row['weights']:6.0f} MB   peak {row['peak']:6.0f} MB   after {row['after']:6.0f} MB   "
            f"bound {row['bound']:6.0f} MB   peak less imports ({row['imports']:.0f} MB) x"
            f"{(row['peak'] - row['imports']) / max(row['weights'], 1):.2f} of the weights{verdict}",
            flush=True,
        )
    if given.json:
        with open(given.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
