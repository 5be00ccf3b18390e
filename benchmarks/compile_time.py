"""Compares parsing and optimizing (normalize to fuse) with onnx.load + onnxruntime's session creation, for each model of a
folder.

python benchmarks/compile_time.py MODELS [--only a,b] [--rounds 5] [--json FILE]

Times exclude imports and are interleaved; ratios are medians over rounds.  `parse` is parse_onnx compared with onnx.load +
session; `optimize` is parsing + stages normalize to fuse compared with session creation from the file.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import onnx
import onnxruntime

import mgx_core as mgx
from mgx_core.compile.stages import optimize_module


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    kept = function()
    took = time.perf_counter() - start
    del kept
    return took


def session(path: str) -> object:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 2
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def optimized(path: str) -> object:
    program = mgx.parse_onnx(path)
    optimize_module(program.get_main_module(), mgx.CompileOptions())
    return program


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path)
    parser.add_argument("--only")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    given = parser.parse_args()
    os.environ["MGX_KEEP_PROGRAMS"] = "0"  # programs compiled by earlier runs must not be used
    names = given.only.split(",") if given.only else sorted(p.stem for p in given.models.glob("*.onnx"))
    results: dict[str, dict[str, float]] = {}
    mgx.get_onnx_operators()
    for name in names:
        path = str(given.models / f"{name}.onnx")
        jobs: dict[str, Callable[[], object]] = {
            "parse": lambda p=path: mgx.parse_onnx(p),
            "optimize": lambda p=path: optimized(p),
            "load": lambda p=path: onnx.load(p),
            "session": lambda p=path: session(p),
        }
        times: dict[str, list[float]] = {k: [] for k in jobs}
        for _ in range(given.rounds):
            for key, job in jobs.items():
                times[key].append(seconds(job))
        rows = list(zip(*(times[k] for k in ("parse", "optimize", "load", "session")), strict=True))
        row = {k: statistics.median(v) for k, v in times.items()}
        row["parse_ratio"] = statistics.median(p / (n + s) for p, _, n, s in rows)
        row["optimize_ratio"] = statistics.median(o / s for _, o, _, s in rows)
        results[name] = row
        print(
            f"{name:20} parse {row['parse']:.3f} s x{row['parse_ratio']:.2f}   parse+optimize {row['optimize']:.3f} s "
            f"x{row['optimize_ratio']:.2f}   onnx.load {row['load']:.3f} s   session {row['session']:.3f} s",
            flush=True,
        )
    for key in ("parse_ratio", "optimize_ratio"):
        values = [r[key] for r in results.values()]
        mean = math.exp(sum(map(math.log, values)) / len(values))
        print(f"{key}: geometric mean {mean:.3f}, worst {max(values):.2f}")
    if given.json:
        with open(given.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
