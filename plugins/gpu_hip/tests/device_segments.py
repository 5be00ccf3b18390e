"""A detector's tail on a real GPU: python device_segments.py MODELS

MODELS contains yolo_nms.onnx and yolo_nms.in.npz.  The selected boxes equal those that NonMaxSuppression's reference selects
from the boxes and scores of the same run; inputs of different magnitudes give different numbers of boxes.  Then programs
with varying row counts are compared with their references, and new row counts are timed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import mgx_core as mgx
from mgx_core.ir.interpreter import Interpreter


def detector(models: Path, half: bool) -> None:
    program = mgx.parse_onnx(models / "yolo_nms.onnx")
    constants = next(i.inputs[2:] for i in program.get_main_module() if i.op.name == "nonmaxsuppression")
    if half:
        mgx.quantize_fp16(program)
    program.compile(mgx.get_target("gpu"))
    instance = program.executable.instances()[0]
    host = [p for p in instance.placements if p.place == "host"]
    feed = dict(np.load(models / "yolo_nms.in.npz"))
    ((name, image),) = feed.items()
    given = [c.literal.value for c in constants if c.literal is not None]
    seen, times, wrong = [], [], 0
    for strength in (1.0, 0.0, 0.3, 0.7, 1.3, 2.0, 1.0, 0.5, 3.0):
        start = time.perf_counter()
        boxes, scores, selected, kept = (
            r.to_numpy() for r in program.run({name: (image * strength).astype(image.dtype)})
        )
        times.append((time.perf_counter() - start) * 1e3)
        wanted = mgx.op("nonmaxsuppression").evaluate([boxes, scores, *given])
        right = np.array_equal(selected, wanted) and np.array_equal(kept, boxes[0][selected[:, 2]])
        wrong += not right
        seen.append(len(selected))
    runner = instance.runner
    whole = runner.continuation is not None and runner.continuation.whole(runner.continued_whole) is not None
    print(
        f"yolo_nms {'fp16' if half else 'fp32'}: on the host {host}, one program for all row counts: {whole}, boxes {seen}, "
        f"wrong {wrong}, ms {[round(t, 1) for t in times]}",
        flush=True,
    )


def rows(name: str, build: Any, feeds: list[dict[str, Any]]) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    m.add_return(build(m))
    plain = m.clone()
    program.compile(mgx.get_target("gpu"))
    runner = program.executable.instances()[0].runner
    times, worst = [], 0.0
    for feed in feeds:
        start = time.perf_counter()
        results = [r.to_numpy() for r in program.run(feed)]
        times.append((time.perf_counter() - start) * 1e3)
        for got, wanted in zip(results, Interpreter().run(plain, list(feed.values())), strict=True):
            assert got.shape == wanted.shape and got.dtype == wanted.dtype, (got.shape, wanted.shape)
            worst = max(worst, float(np.abs(got.astype(np.float64) - wanted).max(initial=0)))
    hosted = [p for p in program.executable.instances()[0].placements if p.place == "host"]
    start = time.perf_counter()
    for _ in range(20):
        program.run(feeds[-1])
    known = (time.perf_counter() - start) / 20 * 1e3
    print(
        f"{name}: on the host {hosted}, largest error {worst:.1e}, first {times[0]:.1f} ms, new row counts "
        f"{np.median(times[1:]):.2f} (largest {max(times[1:]):.1f}) ms, a known one {known:.2f} ms, "
        f"{len(list(runner.continuation.runners()))} programs cached",
        flush=True,
    )


def counted(m: mgx.Module) -> list[mgx.Instruction]:
    x = m.add_parameter("x", mgx.shape(type="float32", lens=(64, 256)))
    found = m.add(mgx.op("transpose", permutation=[1, 0]), m.add(mgx.op("nonzero"), m.add(mgx.op("relu"), x)))
    picked = m.add(mgx.op("gathernd", batch_dims=0), x, found)
    return [found, picked, m.add(mgx.op("softmax", axis=0), picked)]


def kept(m: mgx.Module) -> list[mgx.Instruction]:
    x = m.add_parameter("x", mgx.shape(type="float32", lens=(512, 64)))
    keep = m.add_parameter("keep", mgx.shape(type="bool", lens=(512,)))
    weights = m.add_literal(np.random.default_rng(0).standard_normal((64, 96)).astype(np.float32) * 0.1)
    return [m.add(mgx.op("tanh"), m.add(mgx.op("dot"), m.add(mgx.op("compress", axis=0), x, keep), weights))]


def main() -> None:
    models = Path(sys.argv[1])
    rng = np.random.default_rng(1)
    for half in (False, True):
        detector(models, half)
    feeds = [{"x": (rng.random((64, 256)) - p).astype(np.float32)} for p in np.linspace(0.02, 0.98, 25)]
    rows("nonzero, softmax over the rows", counted, [*feeds, {"x": -np.ones((64, 256), np.float32)}])
    x = rng.standard_normal((512, 64)).astype(np.float32)
    rows("compress, dot, tanh", kept, [{"x": x, "keep": rng.random(512) < p} for p in np.linspace(0, 1, 25)])


if __name__ == "__main__":
    main()
