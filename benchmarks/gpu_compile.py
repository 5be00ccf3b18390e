"""From parsing to the first result on the gpu target: with empty caches, and with kernels cached by another process.

    python benchmarks/gpu_compile.py MODELS [--only a,b] [--precision fp16] [--rounds 1]

MODELS contains NAME.onnx and NAME.in.npz.  Each time is measured in a separate process that has opened the device and run a
trivial program: seconds from the file to the first result in host memory.  empty: the cache is empty; kernels: another
process has compiled the same model before.  Nothing else runs at the same time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

CHILD = """
import sys, time
import numpy as np
import mgx_core as mgx
path, precision = sys.argv[1:]
feed = dict(np.load(path[:-5] + ".in.npz"))
target = mgx.get_target("gpu")
small = mgx.Program()
module = small.get_main_module()
module.add_return([module.add(mgx.op("relu"), module.add_parameter("x", mgx.Shape("float32", [4])))])
small.compile(target)
small.run({"x": np.ones(4, np.float32)})
start = time.perf_counter()
program = mgx.parse_onnx(path)
program.compile(target, use_fp16=precision == "fp16")
program.run(feed)
print(time.perf_counter() - start)
"""
WAYS = ("empty", "kernels")


def seconds(model: Path, precision: str, cache: str) -> float:
    """Returns the time measured by one process.  Errors: CalledProcessError, with the process's output on stderr."""
    environment = {**os.environ, "MGX_CACHE_DIR": cache}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(model), precision],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(done.stdout.split()[-1])


def measured(model: Path, precision: str, rounds: int) -> dict[str, float]:
    """Returns the median seconds of each variant."""
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            for way in WAYS:
                times[way].append(seconds(model, precision, cache))
    return {way: statistics.median(found) for way, found in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--precision", choices=("fp16", "fp32"), default="fp16")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    only = [name for name in given.only.split(",") if name]
    found = {}
    print(f"| model | {' | '.join(WAYS)} |\n| --- |{' --- |' * len(WAYS)}")
    for model in sorted(given.models.glob("*.onnx")):
        if only and model.stem not in only:
            continue
        try:
            found[model.stem] = times = measured(model, given.precision, given.rounds)
        except subprocess.CalledProcessError as error:
            print(f"| {model.stem} | failed with status {error.returncode} | |", flush=True)
            continue
        print(f"| {model.stem} | {' | '.join(f'{times[way]:.2f}' for way in WAYS)} |", flush=True)
    for way in WAYS:
        if found:
            print(f"{way}: at most {max(times[way] for times in found.values()):.2f} s")
    if given.json:
        given.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
