"""Steps of a decoder whose cache grows by one each time, compared with onnxruntime on one thread: the cost of a new length.

python benchmarks/growing_cache.py MODEL.onnx [--target cpu] [--steps 40] [--fp16]

MODEL.onnx: a decoder with its caches as inputs [batch, heads, past, width] and a mask [batch, past + 1], as exporters write it.
Prints medians of the processor time per step (gpu: wall time): onnxruntime's, ours with a new length, and the same length
again.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import mgx_core as mgx

FIRST = 16  # length of the cache at the first step


def feed(shapes: dict[str, Any], past: int) -> dict[str, Any]:
    """Returns inputs for a cache of a given length: random caches, and ones."""
    rng, found = np.random.default_rng(past), {}
    for name, shape in shapes.items():
        if shape.rank == 4:
            batch, heads, _, width = shape.dims
            lens = [batch if isinstance(batch, int) else 1, heads, past, width]
            found[name] = rng.standard_normal(lens).astype(shape.dtype.numpy)
        else:
            last = past + 1 if "mask" in name else 1
            lens = [d if isinstance(d, int) else 1 for d in shape.dims[:-1]] + [last]
            found[name] = np.ones(lens, shape.dtype.numpy)
    return found


def seconds(call: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    call()
    return clock() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--fp16", action="store_true")
    given = parser.parse_args()
    program = mgx.parse_onnx(given.model)
    program.compile(mgx.get_target(given.target), threads=1, use_fp16=given.fp16)
    shapes = dict(program.get_parameter_shapes())
    clock = time.process_time if given.target == "cpu" else time.perf_counter
    peer = None
    if given.target == "cpu":
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        peer = ort.InferenceSession(given.model, options)
    new, again, theirs = [], [], []
    for step in range(given.steps):
        inputs = feed(shapes, FIRST + step)
        new.append(seconds(lambda inputs=inputs: program.run(inputs), clock))  # type: ignore[misc]
        again.append(seconds(lambda inputs=inputs: program.run(inputs), clock))  # type: ignore[misc]
        if peer is not None:
            theirs.append(seconds(lambda inputs=inputs: peer.run(None, inputs), clock))  # type: ignore[misc]
    print("the first five, ms:", ", ".join(f"{1e3 * t:.1f}" for t in new[:5]))
    for name, times in (("onnxruntime", theirs), ("a new length", new[5:]), ("the same length again", again[5:])):
        if times:
            print(f"{name}: {1e3 * statistics.median(times):.2f} ms")


if __name__ == "__main__":
    main()
