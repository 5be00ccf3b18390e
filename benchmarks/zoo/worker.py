"""One engine with one model in a separate process: prints a record when ready, then one for each burst requested on stdin."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Run = Callable[[], list[Any]]
Feed = dict[str, np.ndarray]


def onnxruntime(path: Path, feed: Feed, given: argparse.Namespace) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = given.threads, 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda: list(session.run(None, feed))


def openvino(path: Path, feed: Feed, given: argparse.Namespace) -> Run:
    import openvino

    config = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": given.threads}
    if given.precision == "f32":
        config["INFERENCE_PRECISION_HINT"] = "f32"
    request = openvino.Core().compile_model(path, "CPU", config).create_infer_request()
    tensors = {name: openvino.Tensor(value) for name, value in feed.items()}
    for port in request.model_inputs:
        for name in port.get_names() & tensors.keys():
            request.set_tensor(port, tensors[name])

    def run() -> list[Any]:
        request.infer(share_outputs=True)
        return [request.get_tensor(port).data for port in request.model_outputs]

    return run


def mgx(path: Path, feed: Feed, given: argparse.Namespace) -> tuple[Run, Callable[[], dict[str, Any]]]:
    """Returns the run and a function that returns figures of the compiled program."""
    import mgx_core

    program = mgx_core.parse_onnx(path)
    if given.precision != "f32":
        {"f16": mgx_core.quantize_fp16, "bf16": mgx_core.quantize_bf16}[given.precision](program)
    program.compile(mgx_core.get_target(given.target))
    executable = program.executable
    assert executable is not None
    feed = {k: v for k, v in feed.items() if k in executable.parameters}

    def figures() -> dict[str, Any]:
        instance = executable.instance(executable.bind(feed))
        steps = list(instance.placements)
        limits = executable.target.ceilings(executable.context)
        floor = 0.0
        if limits:
            timings = executable.time(feed, 1, 0)
            moved = sum(v.nbytes for v in feed.values()) + sum(np.asarray(r).nbytes for r in program.run(feed))
            moved += sum(i.result.bytes() for i in executable.module if i.is_literal)
            floor = max(sum(t.flops for t in timings) / limits["flops"], moved / limits["bytes"])
        return {
            "steps": len(getattr(instance.plan, "steps", steps)),
            "host": sum(p.place == "host" for p in steps),
            "arena": instance.plan.peak / 1e6,
            "floor_s": floor,
        }

    return lambda: [np.asarray(r) for r in program.run(feed)], figures


def peak_memory() -> float:
    """Returns the peak resident memory of this process, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("engine")
    parser.add_argument("path", type=Path)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--precision", default="f32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall")
    given = parser.parse_args()
    feed = dict(np.load(given.path.with_name(given.path.name.replace(".onnx", ".in.npz"))))
    figures: Callable[[], dict[str, Any]] = dict
    start = time.perf_counter()
    if given.engine == "mgx":
        run, figures = mgx(given.path, feed, given)
    else:
        run = {"ort": onnxruntime, "ov": openvino}[given.engine](given.path, feed, given)
    results = [np.array(r) for r in run()]
    record: dict[str, Any] = {"compile": time.perf_counter() - start, "rss": peak_memory()}
    torch = np.load(given.path.with_name(given.path.name.replace(".onnx", ".gold.npz")))
    gold = torch["result"].astype(np.float64)
    got = results[0].astype(np.float64)
    if got.shape != gold.shape:
        raise SystemExit(f"result has shape {got.shape}, torch's {gold.shape}")
    record["error"] = (
        float(np.abs(got - gold).max() / max(np.abs(gold).max(), 1e-30)) if np.isfinite(got).all() else float("inf")
    )
    record["bar"] = max(1e-4, 2 * float(torch["own_error"])) if given.precision == "f32" else 1e-3
    print(json.dumps(record | figures()), flush=True)
    clock = time.process_time if given.clock == "processor" else time.perf_counter
    for line in sys.stdin:
        end, times = time.perf_counter() + float(line), []
        run()
        while len(times) < 3 or (time.perf_counter() < end and len(times) < 500):
            begin = clock()
            run()
            times.append(clock() - begin)
        print(json.dumps({"seconds": statistics.median(times)}), flush=True)


if __name__ == "__main__":
    main()
