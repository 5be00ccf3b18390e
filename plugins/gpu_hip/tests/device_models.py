"""Public models on a real GPU, compared with onnxruntime: python device_models.py MODELS [--only a,b] [--fp16] [--kind cuda]

MODELS contains NAME.onnx and NAME.in.npz.  For each model, prints compile time, time of a run on device buffers (events around
graph replays), the largest error relative to the largest output, launches, and the ops that ran on the host.
"""

from __future__ import annotations

import argparse
import time
import traceback
from pathlib import Path

import numpy as np
import onnxruntime

import mgx_core as mgx
from mgx_gpu_hip.target import GpuTarget


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path)
    parser.add_argument("--only")
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--kind", default="")
    parser.add_argument("--trace", action="store_true")
    given = parser.parse_args()
    names = given.only.split(",") if given.only else sorted(p.stem for p in given.models.glob("*.onnx"))
    for name in names:
        path = given.models / f"{name}.onnx"
        feed = dict(np.load(path.with_suffix(".in.npz")))
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        wanted = session.run(None, feed)
        try:
            print(f"{name:18} {measured(path, feed, wanted, given.fp16, given.kind)}", flush=True)
        except Exception as error:
            print(f"{name:18} FAILED {type(error).__name__}: {str(error)[:400]}", flush=True)
            if given.trace:
                traceback.print_exc()


def measured(path: Path, feed: dict[str, np.ndarray], wanted: list[np.ndarray], fp16: bool, kind: str) -> str:
    program = mgx.parse_onnx(path)
    if fp16:
        mgx.quantize_fp16(program)
    target = GpuTarget(kind)
    start = time.perf_counter()
    program.compile(target)
    results = program.run(feed)
    took = time.perf_counter() - start
    error = 0.0
    for result, right in zip(results, wanted, strict=True):
        got = result.to_numpy()
        if got.shape != right.shape:
            return f"shape {got.shape}, {right.shape} required"
        if got.size:
            difference = np.abs(got.astype(np.float64) - right.astype(np.float64)).max()
            error = max(error, float(difference / (np.abs(right).max() + 1e-9)))
    runner = program.executable.instances()[-1].runner
    device = runner.device
    stream = device.default_stream
    graph = runner.graphs.last()
    begin, end = device.event(timing=True), device.event(timing=True)
    times = []
    if graph is not None:
        for _ in range(5):
            begin.record(stream)
            for _ in range(20):
                graph.launch(stream.handle)
            end.record(stream)
            end.wait()
            times.append(end.since(begin) / 20)
    hosted = [f"{s.name} ({s.host[:80]})" for s in runner.hosted] + [repr(i.op) for i in runner.rest]
    shown = f"{np.median(times):.3f} ms" if times else "not captured"
    return (
        f"compile+first run {took:.2f} s, {shown}, err {error:.1e}, {len(runner.schedule.steps)} steps, "
        f"arena {runner.schedule.peak / 1e6:.1f} MB (bound {runner.schedule.lower_bound / 1e6:.1f}), host: {hosted}"
    )


if __name__ == "__main__":
    main()
