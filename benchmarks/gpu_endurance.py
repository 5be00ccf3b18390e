"""Changing shapes, threads that share programs, and the device memory that programs use.

python benchmarks/gpu_endurance.py MODELS [--shapes N] [--shape-seconds S] [--every N] [--seconds S] [--threads N] [--parts a,b]

Needs bert_base_dyn.onnx, resnet50_dyn.onnx and mobilenet_v2_dyn.onnx, and onnxruntime as the reference.  Prints:

memory   for each model of the folder: device bytes allocated, compared with weights plus the plan's lower bound for one run
shapes   bert_base_dyn in fp16 with random batch (1..8) and length (1..256): milliseconds for a new and for a known shape,
         device memory after each tenth, and the largest error of samples against the reference (float32)
threads  several threads running three programs with their own inputs, host and device arrays mixed: runs, wrong results, memory
"""

from __future__ import annotations

import argparse
import gc
import random
import resource
import statistics
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import mgx_core as mgx
from mgx_gpu_hip.runtime import DeviceArray, open_device

MB = 1e6


def bert_feed(batch: int, length: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    mask = np.ones((batch, length), np.int64)
    mask[0, max(length // 2, 1) :] = 0
    ids = rng.integers(0, 30000, (batch, length))
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros((batch, length), np.int64)}


def relative(got: Any, wanted: np.ndarray) -> float:
    difference = np.abs(np.asarray(got, np.float64) - wanted.astype(np.float64)).max(initial=0)
    return float(difference / (np.abs(wanted).max(initial=0) + 1e-9))


def used() -> tuple[float, float]:
    """Returns device megabytes in use as reported by the driver, and host megabytes of this process."""
    free, total = open_device().memory()
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * resource.getpagesize()
    return (total - free) / MB, resident / MB


def program_of(models: Path, name: str, half: bool, **options: Any) -> mgx.Program:
    program = mgx.parse_onnx(models / f"{name}.onnx")
    if half:
        mgx.quantize_fp16(program)
    program.compile(mgx.get_target("gpu"), **options)
    return program


def witness(models: Path, name: str) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(models / f"{name}.onnx"), options, providers=["CPUExecutionProvider"])


def memory(models: Path) -> None:
    pool = open_device().pool
    worst = 0.0
    for path in sorted(models.glob("*.onnx")):
        feed = dict(np.load(path.with_suffix(".in.npz")))
        for half in (True, False):
            gc.collect()
            pool.trim()
            before = pool.reserved
            program = program_of(models, path.stem, half)
            program.run(feed)
            runner = program.executable.instances()[0].runner
            gc.collect()
            pool.trim()
            parts = [runner, *(runner.following.runners() if runner.following else ())]
            literals = {id(b.array): b.array.nbytes for r in parts for b in r.schedule.literals}
            weights, arena = sum(literals.values()), sum(r.schedule.peak for r in parts)
            ends = sum(b.size for r in parts for b in r.staging.values())
            lower = sum(r.schedule.lower_bound for r in parts)
            taken, bound = pool.reserved - before, lower + weights
            worst = max(worst, (taken - ends) / bound)
            print(
                f"memory   {path.stem:18} {'fp16' if half else 'fp32'}: arena {arena / MB:.1f} MB, bound {lower / MB:.1f} MB, "
                f"weights {weights / MB:.1f} MB; taken from the device {taken / MB:.1f} MB with {ends / MB:.1f} MB for inputs "
                f"and results, ratio without these {(taken - ends) / bound:.3f}, with {taken / bound:.3f}",
                flush=True,
            )
            del program, runner, parts
    print(f"memory   largest ratio without inputs and results {worst:.3f}", flush=True)


def answer(models: Path, name: str, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Returns the reference results, computed in a separate process so that its memory does not count as ours."""
    if name not in _sessions:
        _sessions[name] = witness(models, name)
    return list(_sessions[name].run(None, feed))


_sessions: dict[str, Any] = {}


def shapes(models: Path, count: int, seconds: float, every: int) -> None:
    program = program_of(models, "bert_base_dyn", True)
    apart = ProcessPoolExecutor(1, get_context("spawn"))
    choose = random.Random(1)
    new: list[float] = []
    known: list[float] = []
    worst, samples, seen = 0.0, 0, set()
    start = time.perf_counter()
    for n in range(count):
        if time.perf_counter() - start > seconds:
            break
        shape = choose.randint(1, 8), choose.randint(1, 256)
        feed = bert_feed(*shape, n)
        begin = time.perf_counter()
        results = program.run(feed)
        (known if shape in seen else new).append((time.perf_counter() - begin) * 1e3)
        seen.add(shape)
        if n % every == 0:
            wanted = apart.submit(answer, models, "bert_base_dyn", feed).result()
            worst = max(worst, *(relative(r.to_numpy(), w) for r, w in zip(results, wanted, strict=True)))
            samples += 1
        if (n + 1) % max(count // 10, 1) == 0:
            device, host = used()
            held = open_device().pool.reserved / MB
            print(f"shapes   {n + 1}: device {device:.0f} MB ({held:.0f} in the pool), host {host:.0f} MB, last new "
                  f"shapes {statistics.median(new[-50:]):.0f} ms", flush=True)  # fmt: skip
    apart.shutdown()
    done = len(new) + len(known)
    quick = f", known {statistics.median(known):.1f} ms" if known else ""
    print(f"shapes   {done} runs, {len(seen)} shapes, new {statistics.median(new):.0f} ms (first 16: "
          f"{statistics.median(new[:16]):.0f}){quick}; largest error {worst:.1e} over {samples} samples", flush=True)  # fmt: skip


def cases(models: Path) -> list[tuple[str, mgx.Program, dict[str, Any], list[np.ndarray], float]]:
    """Returns programs with inputs, host or device arrays, and expected results."""
    made = []
    for name, half, offload, limit in (
        ("bert_base_dyn", True, True, 1e-2), ("resnet50_dyn", True, False, 1e-2), ("mobilenet_v2_dyn", False, True, 1e-4)
    ):  # fmt: skip
        program, right = program_of(models, name, half, offload_copy=offload), witness(models, name)
        (first, *_) = right.get_inputs()
        for batch in (1, 2, 5):
            if "bert" in name:
                feed: dict[str, Any] = bert_feed(batch, 16 * batch + 1, batch)
            else:
                rng = np.random.default_rng(batch)
                feed = {first.name: rng.standard_normal((batch, 3, 224, 224)).astype(np.float32)}
            wanted = right.run(None, feed)
            if not offload:
                device = open_device()
                kept = program.get_parameter_shapes()
                feed = {
                    k: DeviceArray(device.upload(v.astype(kept[k].numpy_dtype)), kept[k].dtype, v.shape)
                    for k, v in feed.items()
                }
            made.append((f"{name} batch {batch}", program, feed, wanted, limit))
    return made


def threads(models: Path, count: int, seconds: float) -> None:
    work = cases(models)
    for _, program, feed, _, _ in work:
        program.run(feed)
    runs, wrong, failures = [0] * count, [0] * count, []
    end = time.perf_counter() + seconds

    def loop(index: int) -> None:
        choose = random.Random(index)
        try:
            while time.perf_counter() < end:
                name, program, feed, wanted, limit = choose.choice(work)
                results = program.run(feed)
                runs[index] += 1
                for got, right in zip(results, wanted, strict=True):
                    if not relative(got.to_numpy(), right) <= limit:
                        wrong[index] += 1
                        failures.append(name)
        except Exception as error:
            failures.append(f"{type(error).__name__}: {error}")

    workers = [threading.Thread(target=loop, args=(n,)) for n in range(count)]
    for w in workers:
        w.start()
    marks = []
    while any(w.is_alive() for w in workers):
        time.sleep(min(max(seconds / 8, 0.5), max(end - time.perf_counter(), 0.2)))
        marks.append(used())
        print(f"threads  device {marks[-1][0]:.0f} MB, host {marks[-1][1]:.0f} MB, {sum(runs)} runs", flush=True)
    device, host = (f"{marks[0][n]:.0f} to {marks[-1][n]:.0f} MB" for n in (0, 1))
    print(f"threads  {count} threads, {seconds:.0f} s: {sum(runs)} runs, {sum(wrong)} wrong, failures {failures[:3]}, "
          f"device memory {device}, host {host}", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path)
    parser.add_argument("--shapes", type=int, default=1000)
    parser.add_argument("--shape-seconds", type=float, default=600)
    parser.add_argument("--every", type=int, default=10, help="compare one of N runs with the reference")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--parts", default="memory,shapes,threads")
    given = parser.parse_args()
    parts = given.parts.split(",")
    if "memory" in parts:
        memory(given.models)
    if "shapes" in parts:
        shapes(given.models, given.shapes, given.shape_seconds, given.every)
    if "threads" in parts:
        threads(given.models, given.threads, given.seconds)


if __name__ == "__main__":
    main()
