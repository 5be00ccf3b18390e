"""Many random input shapes with one compiled program: how often it optimizes, the cost of an instance, whether memory grows.

python benchmarks/shapes.py MODEL [--target cpu] [--count 1000] [--most batch=8,seq=256] [--instances N] [--check 20]

Every symbol of the model gets random values from 1 to its maximum.  An instance's cost in Python is the time to create it less
the target's share (`make-runner`); memory is the resident set, after the first 100 shapes and later.  Every `--check`-th
result is compared with onnxruntime's, which runs in a separate process so that its memory does not count.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import mgx_core as mgx
from mgx_core.compile.pipeline import Pipeline
from mgx_core.types.dim import symbols_of


def resident() -> float:
    """Returns the resident memory of this process in megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def fed(shapes: Any, symbols: dict[str, int], random: np.random.Generator) -> dict[str, Any]:
    """Returns random inputs: small integers, masks of ones with a tail of zeros, normal floats."""
    out: dict[str, Any] = {}
    for name, shape in shapes.items():
        lens = shape.substitute(symbols).lens()
        if shape.dtype.is_float:
            value = random.normal(size=lens)
        elif "mask" in name:
            value = np.arange(lens[-1]) < random.integers(1, lens[-1] + 1, (*lens[:-1], 1))
        else:
            value = random.integers(0, 2 if "type" in name else 1000, lens)
        out[name] = np.asarray(value).astype(shape.dtype.numpy)
    return out


@cache
def peer(model: Path) -> Any:
    """Returns onnxruntime's session in the calling process."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 2
    return onnxruntime.InferenceSession(str(model), options, ["CPUExecutionProvider"])


def expected(model: Path, inputs: dict[str, Any]) -> list[Any]:
    return list(peer(model).run(None, inputs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--most", default="batch=8,seq=256")
    parser.add_argument("--instances", type=int, default=64)
    parser.add_argument("--check", type=int, default=20)
    parser.add_argument("--json")
    given = parser.parse_args()
    most = {k: int(v) for k, _, v in (p.partition("=") for p in given.most.split(","))}
    optimized = 0
    run_pipeline = Pipeline.run

    def counted(self: Pipeline, module: Any) -> Any:
        nonlocal optimized
        optimized += any(s.name == "simplify" for s in self.stages)
        return run_pipeline(self, module)

    Pipeline.run = counted  # type: ignore[method-assign]
    program = mgx.parse_onnx(given.model)
    program.compile(mgx.get_target(given.target), instances=given.instances)
    executable = program.executable
    assert executable is not None
    shapes = program.get_parameter_shapes()
    names = sorted({s.name for shape in shapes.values() for d in shape.dims for s in symbols_of(d)})
    peers = multiprocessing.get_context("spawn").Pool(1) if given.check else None
    random = np.random.default_rng(0)
    python: list[float] = []
    whole: list[float] = []
    runs: list[float] = []
    memory: dict[int, float] = {}
    worst, checked, seen = 0.0, 0, set()
    for n in range(given.count):
        symbols = {name: int(random.integers(1, most.get(name, 8) + 1)) for name in names}
        inputs = fed(shapes, symbols, random)
        values = executable.bind(inputs)
        before = executable.instances()
        start = time.perf_counter()
        instance = executable.instance(values)
        took = time.perf_counter() - start
        if all(instance is not i for i in before):
            whole.append(took)
            python.append(took - sum(r.seconds for r in instance.records if r.name == "make-runner"))
        seen.add(tuple(symbols.values()))
        start = time.perf_counter()
        results = program.run(inputs)
        runs.append(time.perf_counter() - start)
        if peers is not None and n % given.check == 0:
            for ours, theirs in zip(results, peers.apply(expected, (given.model, inputs)), strict=True):
                scale = max(float(np.abs(theirs).max(initial=0)), 1e-30)
                worst = max(worst, float(np.abs(np.asarray(ours) - theirs).max(initial=0)) / scale)
            checked += 1
        if n + 1 in (1, 10, given.count) or (n + 1) % 100 == 0:
            memory[n + 1] = resident()
    row = {
        "shapes": given.count,
        "different": len(seen),
        "optimized": optimized,
        "instances made": len(whole),
        "python_ms": {"median": statistics.median(python) * 1e3, "worst": max(python) * 1e3},
        "instance_ms": {"median": statistics.median(whole) * 1e3, "worst": max(whole) * 1e3},
        "run_ms": statistics.median(runs) * 1e3,
        "resident_mb": memory,
        "checked": checked,
        "error": worst,
    }
    for key, value in row.items():
        print(f"{key:16} {value}")
    if given.json:
        with open(given.json, "w") as file:
            json.dump(row, file, indent=1)


if __name__ == "__main__":
    main()
