"""The cpu target under lasting load, beside onnxruntime in the same run.

  python benchmarks/cpu_endurance.py threads MODEL.onnx [--threads 16] [--seconds 60] [--turn 5]
  python benchmarks/cpu_endurance.py shapes MODEL.onnx [--count 1000]

`threads`: many threads call one program, in turns with as many that call one session of onnxruntime; every result is compared
with that of a lone run.  `shapes`: a new set of extents again and again; how long an instance takes, and what memory does.
MODEL.in.npz holds the inputs; symbolic extents of `shapes` are drawn anew.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import mgx_core as mgx

TOLERANCE = 1e-4


def resident() -> float:
    """Megabytes of memory that the process has now."""
    gc.collect()
    text = Path("/proc/self/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def turn(run: Callable[[], Sequence[Any]], wanted: Sequence[Any], threads: int, seconds: float) -> int:
    """Runs done by some threads together; every result must be the wanted one."""
    counts, failures = [0] * threads, []
    end = time.perf_counter() + seconds

    def work(number: int) -> None:
        try:
            while time.perf_counter() < end:
                for got, right in zip(run(), wanted, strict=True):
                    error = np.abs(np.asarray(got, np.float64) - right).max() / max(1e-30, np.abs(right).max())
                    if not error <= TOLERANCE:
                        raise AssertionError(f"a result is off by {error:.1e}")
                counts[number] += 1
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(threads)]
    for w in workers:
        w.start()
    for w in workers:
        w.join(seconds + 60)
    if any(w.is_alive() for w in workers):
        raise AssertionError("threads are locked up")
    if failures:
        raise failures[0]
    return sum(counts)


def many_threads(path: Path, threads: int, seconds: float, length: float) -> dict[str, Any]:
    import onnxruntime as ort

    feeds = dict(np.load(path.with_suffix(".in.npz")))
    program = mgx.parse_onnx(path)
    program.compile(mgx.get_target("cpu"))
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    wanted = [np.asarray(r, np.float64) for r in program.run(feeds)]
    runs: dict[str, list[int]] = {"mgx": [], "onnxruntime": []}
    while len(runs["mgx"]) * length < seconds:
        runs["mgx"].append(turn(lambda: program.run(feeds), wanted, threads, length))
        runs["onnxruntime"].append(turn(lambda: session.run(None, feeds), wanted, threads, length))
    found = {name: sum(counts) / (len(counts) * length) for name, counts in runs.items()}
    print(f"{path.stem}: {threads} threads for {len(runs['mgx']) * length:.0f} s each, all results right")
    print(
        f"  mgx {found['mgx']:.2f}/s, onnxruntime {found['onnxruntime']:.2f}/s, ratio {found['mgx'] / found['onnxruntime']:.2f}"
    )
    print(f"  resident {resident():.0f} MB")
    return {"threads": threads, "seconds": seconds, "per_second": found, "runs": runs}


def many_shapes(path: Path, count: int) -> dict[str, Any]:
    feeds = dict(np.load(path.with_suffix(".in.npz")))
    program = mgx.parse_onnx(path)
    program.compile(mgx.get_target("cpu"))
    executable = program.executable
    assert executable is not None
    rng = np.random.default_rng(0)
    shapes = program.get_parameter_shapes()
    names = sorted({str(d) for s in shapes.values() for d in s.dims if not isinstance(d, int)})
    seen: set[tuple[int, ...]] = set()
    seconds, memory = [], []
    for n in range(count):
        while True:
            extents = dict(
                zip(names, (int(v) for v in (rng.integers(1, 9), *rng.integers(1, 257, len(names) - 1))), strict=True)
            )
            if tuple(extents.values()) not in seen:
                seen.add(tuple(extents.values()))
                break
        given = {
            name: np.resize(feeds[name], [d if isinstance(d, int) else extents[str(d)] for d in shape.dims])
            for name, shape in shapes.items()
        }
        values = executable.bind(given)
        start = time.perf_counter()
        executable.instance(values)
        seconds.append(time.perf_counter() - start)
        if n % 100 == 99:
            results = program.run(given)
            assert all(np.isfinite(np.asarray(r)).all() for r in results)
            memory.append(resident())
            print(f"  {n + 1} shapes: resident {memory[-1]:.0f} MB", flush=True)
    median = statistics.median(seconds)
    print(f"{path.stem}: {count} shapes of {', '.join(names)}; an instance takes {median * 1e3:.1f} ms (median), "
          f"{np.percentile(seconds, 95) * 1e3:.1f} ms (95th percentile)")  # fmt: skip
    return {"count": count, "median_s": median, "p95_s": float(np.percentile(seconds, 95)), "resident_mb": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["threads", "shapes"])
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--turn", type=float, default=5)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--json")
    given = parser.parse_args()
    if given.what == "threads":
        found = many_threads(given.model, given.threads, given.seconds, given.turn)
    else:
        found = many_shapes(given.model, given.count)
    if given.json:
        Path(given.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
