"""Quantized files compared with onnxruntime and OpenVINO on the same file, with the float model, and with our own quantization
of it.

    python benchmarks/quantized.py FLOAT.onnx QUANTIZED.onnx INPUTS.npz ...

takes three files per model.  All engines run on one thread and alternate call by call, so that other load on the machine
affects all equally; printed are medians of ratios of processor time.  OpenVINO is left out if it is not installed or does not
read a file.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
import onnxruntime as ort

import mgx_core as mgx

RUNS = 15

Feeds = Mapping[str, Any]
Call = Callable[[], Any]


def ours(program: mgx.Program, feeds: Feeds) -> Call:
    program.compile(mgx.get_target("cpu"), threads=1)
    return lambda: program.run(feeds)


def quantized(path: Path, feeds: Feeds) -> mgx.Program:
    program = mgx.parse_onnx(path)
    mgx.quantize_int8(program, mgx.get_target("cpu"), [feeds])
    return program


def onnxruntime(path: Path, feeds: Feeds) -> Call:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feeds)


def openvino(path: Path, feeds: Feeds) -> Call:
    import openvino as ov

    settings = {
        "INFERENCE_NUM_THREADS": 1,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    request = ov.Core().compile_model(str(path), "CPU", settings).create_infer_request()
    return lambda: request.infer(feeds)


def taken(call: Call) -> float:
    """Returns the processor time in seconds of the second of two calls."""
    call()
    begin = time.process_time()
    call()
    return time.process_time() - begin


def measured(plain: Path, narrow: Path, inputs: Path) -> dict[str, float]:
    """Returns the median time of the quantized file over that of each other engine or model."""
    with np.load(inputs) as held:
        feeds = {name: held[name] for name in held.files}
    mine = ours(mgx.parse_onnx(narrow), feeds)
    others = {"onnxruntime": onnxruntime(narrow, feeds)}
    if importlib.util.find_spec("openvino") is not None:
        try:
            others["openvino"] = openvino(narrow, feeds)
        except RuntimeError as error:  # for example for operators of com.microsoft
            reason = str(error).strip().splitlines()
            print(f"{narrow.name:28} openvino does not read it: {reason[-1] if reason else error!r}", file=sys.stderr)
    others["float32"] = ours(mgx.parse_onnx(plain), feeds)
    others["own int8"] = ours(quantized(plain, feeds), feeds)
    rows = []
    for _ in range(RUNS):
        own = taken(mine)
        rows.append([own / taken(call) for call in others.values()])
    return dict(zip(others, np.median(np.array(rows), axis=0).tolist(), strict=True))


def main(arguments: list[str]) -> None:
    if not arguments or len(arguments) % 3:
        raise SystemExit(__doc__)
    found = []
    for at in range(0, len(arguments), 3):
        plain, narrow, inputs = map(Path, arguments[at : at + 3])
        ratios = measured(plain, narrow, inputs)
        found.append(max(v for n, v in ratios.items() if n in ("onnxruntime", "openvino")))
        shown = "   ".join(f"{n} x {v:.2f}" for n, v in ratios.items())
        print(f"{narrow.name:28} {shown}   better peer x {found[-1]:.2f}", flush=True)
    print(f"{'geometric mean':28} best peer x {geometric_mean(found):.2f}, worst {max(found):.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
