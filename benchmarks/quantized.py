"""Quantized files beside onnxruntime on the same file, and beside the float model: ratios of processor time, call by call.

    python benchmarks/quantized.py FLOAT.onnx QUANTIZED.onnx INPUTS.npz ...

takes three files for each model.  Both engines run on one thread, one call of each in turn, so that other load on the machine
meets both alike; what is printed are medians of ratios.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
import onnxruntime as ort

import mgx_core as mgx

RUNS = 15


def compiled(path: Path) -> mgx.Program:
    program = mgx.parse_onnx(path)
    program.compile(mgx.get_target("cpu"), threads=1)
    return program


def taken(call: Callable[[], Any]) -> float:
    """Seconds of processor time of the second of two calls."""
    call()
    begin = time.thread_time()
    call()
    return time.thread_time() - begin


def measured(plain: Path, narrow: Path, inputs: Path) -> tuple[float, float]:
    """Median time of the quantized file over onnxruntime's, and over that of the float model."""
    with np.load(inputs) as held:
        feeds = {name: held[name] for name in held.files}
    ours, floats = compiled(narrow), compiled(plain)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    peer = ort.InferenceSession(str(narrow), options, providers=["CPUExecutionProvider"])
    rows = []
    for _ in range(RUNS):
        own = taken(lambda: ours.run(feeds))
        rows.append((own / taken(lambda: peer.run(None, feeds)), own / taken(lambda: floats.run(feeds))))
    beside, before = np.median(np.array(rows), axis=0)
    return float(beside), float(before)


def main(arguments: list[str]) -> None:
    if not arguments or len(arguments) % 3:
        raise SystemExit(__doc__)
    found = []
    for at in range(0, len(arguments), 3):
        plain, narrow, inputs = map(Path, arguments[at : at + 3])
        beside, before = measured(plain, narrow, inputs)
        found.append(beside)
        print(f"{narrow.name:32} onnxruntime x {beside:.2f}   float32 x {before:.2f}", flush=True)
    print(f"{'geometric mean':32} onnxruntime x {geometric_mean(found):.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
