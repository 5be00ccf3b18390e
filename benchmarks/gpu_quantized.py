"""Networks in int8 and fp8 compared with float16, and 4-bit weights, on a GPU.

    python benchmarks/gpu_quantized.py NETS [--only a,b]

NETS contains NAME.onnx with a symbolic batch; NAME.json lists names and extents of weights missing from the file, which are
generated at random.  Prints the time of a run on device buffers (events around graph replays) and that of float16, by batch:
in bursts of 0.2 s, half of which is measured, and of 10 replays; and the seconds to quantize and to compile.  Bursts of all
alternate; short ones run at the clock frequency to which the power of their predecessors has led.  Kinds: int8, uint8
(activations with zero points, the default of quantize_int8), fp8, and with "-faster" only the products that become faster
(`only_faster` of quantize).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import mgx_core as mgx
from mgx_core.quantize import quantize_fp8, quantize_fp16, quantize_int4_weights, quantize_int8
from mgx_gpu_hip.target import GpuTarget

WORDS = 128  # tokens per sentence
BURST = 0.2  # seconds
ROUNDS = 9  # of short bursts; of long ones half as many


def restored(path: Path) -> Path:
    """Returns the file with its missing weights."""
    listed = path.with_suffix(".json")
    if not listed.exists():
        return path
    import onnx

    model, rng = onnx.load(path), np.random.default_rng(0)
    missing = dict(json.loads(listed.read_text()))
    for tensor in model.graph.initializer:
        if tensor.name in missing:
            dims = missing[tensor.name]
            fan = max(int(np.prod(dims[1:])) if len(dims) == 4 else dims[0], 1)
            spread = (2.0 if len(dims) == 4 else 1.0) / fan
            tensor.raw_data = (rng.standard_normal(dims, np.float32) * np.float32(spread**0.5)).tobytes()
    out = Path("/tmp") / f"whole_{path.name}"
    onnx.save(model, out)
    return out


def inputs(program: mgx.Program, batch: int) -> dict[str, Any]:
    rng, made = np.random.default_rng(1), {}
    for name, shape in program.get_parameter_shapes().items():
        dims = [d if isinstance(d, int) else batch if n == 0 else WORDS for n, d in enumerate(shape.dims)]
        if shape.dtype.is_float:
            made[name] = rng.standard_normal(dims, np.float32)
        else:
            high = 2 if "type" in name else 1000
            made[name] = np.ones(dims, np.int64) if "mask" in name else rng.integers(0, high, dims)
    return made


class Replay:
    """A program that ran once: its results, and the time of a graph replay."""

    def __init__(self, program: mgx.Program, feed: dict[str, Any]) -> None:
        self.results = [r.to_numpy() for r in program.run(feed)]
        self.runner: Any = program.executable.instances()[-1].runner
        self.graph = self.runner.graphs.last()
        device = self.runner.device
        self.begin, self.end = device.event(timing=True), device.event(timing=True)
        self.times: list[float] = []

    def burst(self, runs: int = 10, before: int = 0) -> None:
        """Times some runs after others."""
        stream = self.runner.device.default_stream
        for _ in range(before):
            self.graph.launch(stream.handle)
        self.begin.record(stream)
        for _ in range(runs):
            self.graph.launch(stream.handle)
        self.end.record(stream)
        self.end.wait()
        self.times.append(self.end.since(self.begin) / runs)

    @property
    def steps(self) -> list[Any]:
        return list(self.runner.schedule.steps)


def milliseconds(replays: Sequence[Replay], seconds: float = 0.0) -> list[float]:
    """Returns the median time of a graph replay of each program; bursts of all alternate, and the first of each is discarded.

    seconds: of a burst, half of which is measured; 0: all of 10 replays.
    """
    for one in replays:
        one.burst()
    runs = [max(1, int(seconds * 500 / one.times[-1])) if seconds else 0 for one in replays]
    for one in replays:
        one.times.clear()
    for _ in range(ROUNDS // 2 if seconds else ROUNDS):
        for one, half in zip(replays, runs, strict=True):
            one.burst(half or 10, half)
    return [float(np.median(one.times)) for one in replays]


def variant(path: Path, kind: str, batch: int) -> tuple[mgx.Program, dict[str, Any]]:
    program = mgx.parse_onnx(path)
    feed = inputs(program, batch)
    program = mgx.parse_onnx(path, map_input_dims={name: list(a.shape) for name, a in feed.items()})
    quantize_fp16(program)
    kind, _, faster = kind.partition("-")
    settings: dict[str, Any] = {"only_faster": bool(faster)}
    if kind in ("int8", "uint8"):
        quantize_int8(program, GpuTarget(), [feed], activations=kind, **settings)
    elif kind == "fp8":
        quantize_fp8(program, GpuTarget(), [feed], **settings)
    return program, feed


def compare(path: Path, batches: list[int], kinds: list[str], show: bool) -> None:
    for batch in batches:
        made: dict[str, tuple[Replay, float, float]] = {}
        for kind in ("fp16", *kinds):
            start = time.perf_counter()
            try:
                program, feed = variant(path, kind, batch)
                between = time.perf_counter()
                program.compile(GpuTarget())
                made[kind] = Replay(program, feed), between - start, time.perf_counter() - between
            except Exception as error:
                print(f"{path.stem} b{batch} {kind} FAILED {type(error).__name__}: {str(error)[:300]}", flush=True)
                continue
        replays = [replay for replay, *_ in made.values()]
        brief = dict(zip(made, milliseconds(replays), strict=True))
        times = dict(zip(made, milliseconds(replays, BURST), strict=True))
        wanted = made["fp16"][0].results[0].astype(np.float64)
        for kind, (replay, quantized, compiled) in made.items():
            ratio = times[kind] / times["fp16"]
            noise = float(np.linalg.norm(replay.results[0] - wanted) / (np.linalg.norm(wanted) + 1e-30))
            print(
                f"{path.stem} b{batch} {kind}: {times[kind]:.3f} ms, of fp16 {ratio:.2f}, in bursts of 10 {brief[kind]:.3f} ms, "
                f"{brief[kind] / brief['fp16']:.2f}, off by {noise:.1e}, "
                f"{len(replay.steps)} steps, {quantized:.1f} s to parse and quantize, {compiled:.1f} s to compile and run once, "
                f"host {[s.name for s in replay.runner.hosted]}",
                flush=True,
            )
            for step in replay.steps if show else ():
                print("   ", step.name, flush=True)


def decoder(hidden: int, inner: int, layers: int, vocabulary: int, gated: bool) -> mgx.Program:
    """Returns the products of one decode step, with the pointwise ops between them; keys and values are omitted."""
    rng = np.random.default_rng(0)
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float", [1, hidden]))

    def linear(value: Any, to: int) -> Any:
        k = value.shape.dims[-1]
        w = rng.standard_normal((k, to), np.float32) * np.float32(k**-0.5)
        return m.add(mgx.op("dot"), value, m.add_literal(w))

    for _ in range(layers):
        y = linear(x, hidden if gated else 3 * hidden)
        y = y if gated else m.add(mgx.op("slice", axes=[1], starts=[0], ends=[hidden]), y)
        x = m.add(mgx.op("add"), x, linear(y, hidden))
        up = m.add(mgx.op("sigmoid"), linear(x, inner))
        up = m.add(mgx.op("mul"), up, linear(x, inner)) if gated else up
        x = m.add(mgx.op("tanh"), m.add(mgx.op("add"), x, linear(up, hidden)))
    m.add_return([linear(x, vocabulary)])
    return program


def decode(name: str, *shape: Any) -> None:
    whole = decoder(*shape)
    feed = {"x": np.random.default_rng(2).standard_normal((1, shape[0]), np.float32)}
    coded = whole.clone()
    quantize_int4_weights(coded, 128, "max")
    took = []
    for program in (whole, coded):
        quantize_fp16(program)
        program.compile(GpuTarget())
        took.append(Replay(program, feed))
    fp16, int4 = milliseconds(took, BURST)
    x, y = (t.results[0].astype(np.float64) for t in reversed(took))
    print(
        f"{name} one step, batch 1: int4 {int4:.3f} ms, fp16 {fp16:.3f} ms, ratio {int4 / fp16:.2f}, "
        f"off by {np.linalg.norm(x - y) / np.linalg.norm(y):.1e}, {len(took[1].steps)} steps",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nets", type=Path)
    parser.add_argument("--only", default="resnet50,vit_base,bert_base,decode")
    parser.add_argument("--batch", default="1,32")
    parser.add_argument("--kinds", default="int8,fp8,int8-faster")
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    for name in given.only.split(","):
        if name == "decode":
            decode("gpt2-medium's shape", 1024, 4096, 24, 50257, False)
            decode("llama-1B's shape", 2048, 8192, 16, 32000, True)
        else:
            path = restored(given.nets / f"{name}.onnx")
            compare(path, [int(b) for b in given.batch.split(",")], given.kinds.split(","), given.show)


if __name__ == "__main__":
    main()
