"""Latency on a busy machine: the cpu target and onnxruntime alternate under each load.

    python benchmarks/busy.py MODELS [NAME ...] [--busy 0 1 3] [--loads loops products engine] [--json FILE]

Each engine has its own process; they alternate after a few calls, so that both run under the same load.  `loops`: one counting
thread; `products`: matrix products on all threads; `engine`: onnxruntime on the first model, on all threads.  The table
contains the median and the mean latency of both, in milliseconds, and the ratio of ours to onnxruntime's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

ROUNDS = 12
SECONDS = 0.25  # of calls of one engine per round


def ours(model: Path) -> Callable[[dict[str, Any]], Any]:
    import mgx_core as mgx

    program = mgx.parse_onnx(str(model))
    program.compile(mgx.get_target("cpu"))
    return program.run


def onnxruntime(model: Path) -> Callable[[dict[str, Any]], Any]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return lambda feed: session.run(None, feed)


ENGINES = {"ours": ours, "onnxruntime": onnxruntime}


def serve(engine: str, model: Path) -> None:
    """Reads numbers of seconds from stdin; for each, runs calls for that time and prints their latencies."""
    feed = dict(np.load(model.with_suffix(".in.npz")))
    run = ENGINES[engine](model)
    run(feed)
    print(json.dumps([]), flush=True)
    for line in sys.stdin:
        times = []
        end = time.perf_counter() + float(line)
        while not times or time.perf_counter() < end:
            start = time.perf_counter()
            run(feed)
            times.append(time.perf_counter() - start)
        print(json.dumps(times), flush=True)


def burden(load: str, model: Path) -> None:
    """Keeps processors busy until it is stopped."""
    if load == "loops":
        while True:
            sum(range(1 << 20))
    if load == "products":
        a = np.random.default_rng(0).standard_normal((1500, 1500)).astype(np.float32)
        while True:
            a @ a
    feed = dict(np.load(model.with_suffix(".in.npz")))
    run = onnxruntime(model)
    while True:
        run(feed)


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, __file__, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@contextmanager
def busy(load: str, count: int, model: Path) -> Iterator[None]:
    processes = [start("--burden", load, str(model)) for _ in range(count)]
    try:
        time.sleep(1.5 if count else 0)
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def ask(process: subprocess.Popen[str], seconds: float | None) -> list[float]:
    assert process.stdin and process.stdout
    if seconds is not None:
        process.stdin.write(f"{seconds}\n")
        process.stdin.flush()
    return list(json.loads(process.stdout.readline()))


def compare(model: Path) -> dict[str, float]:
    """Returns medians and means of both engines, in milliseconds."""
    processes = {engine: start("--serve", engine, str(model)) for engine in ENGINES}
    calls: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    try:
        for process in processes.values():
            ask(process, None)
            ask(process, SECONDS)
        for n in range(ROUNDS):
            for engine in sorted(ENGINES, reverse=bool(n % 2)):
                calls[engine] += ask(processes[engine], SECONDS)
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    kinds = {"median": statistics.median, "mean": statistics.fmean}
    return {f"{engine} {kind}": 1e3 * of(calls[engine]) for engine in ENGINES for kind, of in kinds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--busy", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--loads", nargs="+", default=["loops", "products", "engine"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    models = [p for p in sorted(options.models.glob("*.onnx")) if not options.names or p.stem in options.names]
    rows = []
    print("| load | model | ours | onnxruntime | ratio | ours, mean | onnxruntime, mean | ratio |\n" + "|---" * 8 + "|")
    for load in options.loads:
        for count in options.busy:
            for model in models:
                with busy(load, count, models[0]):
                    row = compare(model)
                rows.append({"load": load, "busy": count, "model": model.stem, **row})
                cells = [f"{count} {load}", model.stem]
                for kind in ("median", "mean"):
                    a, b = row[f"ours {kind}"], row[f"onnxruntime {kind}"]
                    cells += [f"{a:.2f}", f"{b:.2f}", f"{a / b:.2f}"]
                print("|", " | ".join(cells), "|", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], Path(sys.argv[3]))
    elif sys.argv[1:2] == ["--burden"]:
        burden(sys.argv[2], Path(sys.argv[3]))
    else:
        main()
