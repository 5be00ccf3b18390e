"""The cpu target under sustained load from many threads, compared with onnxruntime in the same run.

  python benchmarks/cpu_endurance.py MODEL.onnx [--threads 16] [--seconds 60] [--turn 5]

The threads call one program, alternating with as many that call one session of onnxruntime; every result is compared with that
of a single run.  If other processes share the machine, compare runs per second of processor time: the scheduler allocates time
per thread, and the two engines have different numbers of threads.  MODEL.in.npz contains the inputs.
"""

from __future__ import annotations

import argparse
import gc
import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import mgx_core as mgx

TOLERANCE = 1e-4


def resident() -> float:
    """Returns the process's resident memory in megabytes."""
    gc.collect()
    text = Path("/proc/self/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def turn(run: Callable[[], Sequence[Any]], wanted: Sequence[Any], threads: int, seconds: float) -> tuple[int, float]:
    """Returns the number of runs by several concurrent threads, and the processor time used; every result must equal the
    expected one.
    """
    counts, failures, spent = [0] * threads, [], time.process_time()
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
        raise AssertionError("threads are deadlocked")
    if failures:
        raise failures[0]
    return sum(counts), time.process_time() - spent


def many_threads(path: Path, threads: int, seconds: float, length: float) -> dict[str, Any]:
    import onnxruntime as ort

    feeds = dict(np.load(path.with_suffix(".in.npz")))
    program = mgx.parse_onnx(path)
    program.compile(mgx.get_target("cpu"))
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    wanted = [np.asarray(r, np.float64) for r in program.run(feeds)]
    runs: dict[str, list[tuple[int, float]]] = {"mgx": [], "onnxruntime": []}
    while len(runs["mgx"]) * length < seconds:
        runs["mgx"].append(turn(lambda: program.run(feeds), wanted, threads, length))
        runs["onnxruntime"].append(turn(lambda: session.run(None, feeds), wanted, threads, length))
        print(
            f"  {length:.0f} s each: {', '.join(f'{name} {done[-1][0]} runs' for name, done in runs.items())}",
            flush=True,
        )
    lasted = len(runs["mgx"]) * length
    rates = {name: sum(n for n, _ in done) / lasted for name, done in runs.items()}
    worth = {name: sum(n for n, _ in done) / sum(t for _, t in done) for name, done in runs.items()}
    print(f"{path.stem}: {threads} threads for {lasted:.0f} s each, all results right, resident {resident():.0f} MB")
    for what, found in (("a second", rates), ("a second of processor time", worth)):
        ratio = found["mgx"] / found["onnxruntime"]
        print(f"  runs {what}: mgx {found['mgx']:.2f}, onnxruntime {found['onnxruntime']:.2f}, ratio {ratio:.2f}")
    return {"threads": threads, "seconds": lasted, "per_second": rates, "per_processor_second": worth}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--turn", type=float, default=5)
    parser.add_argument("--json")
    given = parser.parse_args()
    found = many_threads(given.model, given.threads, given.seconds, given.turn)
    if given.json:
        Path(given.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
