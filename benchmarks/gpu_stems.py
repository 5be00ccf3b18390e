"""First layers of image networks in float16 on a GPU, by all available kernels: python benchmarks/gpu_stems.py [--only a,b]

Each converts a float32 channels-first image, and computes its convolution with a bias and an activation; the result is
channels-last. Candidates are the library's plans including conversion and copies, our kernel for few channels in the tiles that
its cost model ranks first, and torch (from a channels-last float16 image, hence without the conversion) if it is installed.
Times are microseconds of one of 20 launches in a graph, the minimum over interleaved rounds; errors are relative to the largest
result in float64. The floor is the time of reading the image and writing the result at 4 TB/s.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import mgx_core as mgx
from mgx_core import Kernels, Shape
from mgx_core import dtype as dt
from mgx_core.errors import MgxError
from mgx_core.ops.control import Group
from mgx_core.ops.convolution import Convolution
from mgx_core.targets.kernel import Kernel
from mgx_gpu_hip.codegen.few_channels_tiles import microseconds, runs_of, tiles_by_time
from mgx_gpu_hip.kernel_tuning import GpuTuning
from mgx_gpu_hip.plans.few_channels import TILE_RANKS, offer_tile
from mgx_gpu_hip.runtime import DeviceArray
from mgx_gpu_hip.target import GpuTarget

RUNS, ROUNDS = 20, 5


class Stem(NamedTuple):
    """A first layer: channels, filters, window, stride, padding, extents of the image, activation."""

    channels: int
    filters: int
    window: int
    stride: int
    padding: int
    image: int
    after: str = "relu"


STEMS = {
    "resnet": Stem(3, 64, 7, 2, 3, 224),
    "mobilenet": Stem(3, 32, 3, 2, 1, 224),
    "mobilenetv3": Stem(3, 16, 3, 2, 1, 224, "hard_swish"),
    "inception": Stem(3, 32, 3, 2, 0, 299),
    "efficientnet_b3": Stem(3, 40, 3, 2, 1, 300, "silu"),
    "rexnet": Stem(3, 27, 3, 2, 1, 224, "silu"),
    "convnext": Stem(3, 96, 4, 4, 0, 224, ""),
    "vit": Stem(3, 768, 16, 16, 0, 224, ""),
    "two_by_two": Stem(3, 64, 2, 2, 0, 224),
    "vgg": Stem(3, 64, 3, 1, 1, 224),
    "gray": Stem(1, 64, 7, 2, 3, 224),
    "latent": Stem(4, 320, 3, 1, 1, 64, ""),
    "alexnet": Stem(3, 64, 11, 4, 2, 224),
}


class Wanted(GpuTuning):
    """Selects the kernel with the requested name instead of the fastest."""

    wanted = ""

    def concerns(self, e: Any, op: Any, modules: Any) -> bool:
        return isinstance(op, Group) and op.tag == Convolution.name

    def choice(self, e: Any, kernels: Sequence[Kernel], op: Any, modules: Any, args: Any) -> str | None:
        return next((k.name for k in kernels if k.name.split(" group")[0] == self.wanted), None)


@cache
def _shared() -> dict[str, Any]:
    """Returns the device, its libraries and the tuner of their plans, created once for all contexts."""
    context = GpuTarget().get_context()
    if context.tuner is not None:
        context.tuner.budget = 1 << 20  # sets of shapes for which plans are timed
    return {"device": context.device, "libraries": context.libraries, "tuner": context.tuner}


class Stems(GpuTarget):
    """The target with a single kernel, which applies to first layers only."""

    def __init__(self, wanted: str, tiles: int) -> None:
        super().__init__()
        self.wanted, self.tiles = wanted, tiles

    def get_context(self) -> Any:
        context = super().get_context()
        context.__dict__.update(_shared())
        context.kernel_tuning = Wanted(context)
        context.kernel_tuning.wanted = self.wanted
        return context

    def kernels(self, context: Any) -> Kernels:
        more = Kernels("gpu")
        for place in range(TILE_RANKS, self.tiles):
            offer_tile(more, place)
        return super().kernels(context) + more


def program_of(stem: Stem, batch: int, weights: Any, bias: Any) -> mgx.Program:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", Shape("float32", [batch, stem.channels, stem.image, stem.image]))
    half = m.add(mgx.op("convert", target_type=dt.float16), x)
    y = m.add(Convolution(padding=(stem.padding,) * 2, stride=(stem.stride,) * 2), half, m.add_literal(weights))
    y = m.add(mgx.op("add"), y, m.add(mgx.op("broadcast", axis=1, out_lens=y.shape.dims), m.add_literal(bias)))
    if stem.after == "silu":
        y = m.add(mgx.op("mul"), y, m.add(mgx.op("sigmoid"), y))
    elif stem.after:
        y = m.add(mgx.op(stem.after), y)
    m.add_return([m.add(mgx.op("transpose", permutation=[0, 2, 3, 1]), y)])
    return program


class Way:
    """A compiled program of one candidate, with its measurements."""

    def __init__(self, name: str, stem: Stem, batch: int, data: Any, tiles: int) -> None:
        self.name, self.times, self.why, self.tile = name, [], "", None
        self.program = program_of(stem, batch, data[1], data[2])
        try:
            self.program.compile(Stems(name, tiles), offload_copy=False)
        except MgxError as error:
            self.why = str(error)

    @property
    def runner(self) -> Any:
        return self.program.executable.instances()[-1].runner

    @property
    def step(self) -> Any:
        return self.runner.schedule.steps[-1]

    @property
    def forced(self) -> bool:
        """True if the requested kernel runs."""
        return any(s.kernel.split(" group")[0] == self.name for s in self.runner.schedule.steps)

    def ran(self, x: Any) -> Any:
        device = self.runner.device
        self.args = [DeviceArray(device.upload(x), dt.float32, x.shape)]
        (got,) = self.program.run({"x": self.args[0]})
        return got.to_numpy() if hasattr(got, "to_numpy") else np.asarray(got)

    def time(self) -> None:
        self.times.append(self.runner.seconds(self.args, RUNS) * 1e6)


def exact(stem: Stem, x: Any, w: Any, bias: Any) -> Any:
    """Returns the result in float64, channels-last; of the first two images if torch is not installed."""
    half = x.astype(np.float16).astype(np.float64)
    try:
        import torch

        on = "cuda" if torch.cuda.is_available() else "cpu"
        a, b, c = (torch.from_numpy(v.astype(np.float64)).to(on) for v in (half, w, bias))
        y = torch.nn.functional.conv2d(a, b, c, stem.stride, stem.padding)
        act = torch.nn.functional
        y = {"": lambda v: v, "relu": act.relu, "silu": act.silu, "hard_swish": act.hardswish}[stem.after](y)
        return y.permute(0, 2, 3, 1).cpu().numpy()
    except ImportError:
        op = Convolution(padding=(stem.padding,) * 2, stride=(stem.stride,) * 2)
        y = op.compute(half[:2], w.astype(np.float64)) + bias.astype(np.float64)[:, None, None]
        share = {"": 1.0, "relu": y > 0, "silu": 1 / (1 + np.exp(-y)), "hard_swish": np.clip(y / 6 + 0.5, 0, 1)}
        return np.moveaxis(y * share[stem.after], 1, -1)


def by_torch(stem: Stem, x: Any, w: Any, bias: Any) -> float | None:
    """Returns microseconds of torch's convolution and activation, by its fastest engine, in a graph."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.backends.cudnn.benchmark = True
    act = torch.nn.functional
    a, b = (torch.from_numpy(v).cuda().half().to(memory_format=torch.channels_last) for v in (x, w))
    c = torch.from_numpy(bias).cuda().half()
    after = {
        "": lambda v: v,
        "relu": torch.relu_,
        "silu": lambda v: act.silu(v, inplace=True),
        "hard_swish": act.hardswish,
    }

    def run() -> Any:
        return after[stem.after](act.conv2d(a, b, c, stem.stride, stem.padding))

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(RUNS):
            run()
    times = []
    for _ in range(ROUNDS + 1):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / RUNS)
    return min(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(STEMS))
    parser.add_argument("--batch", default="1,32")
    parser.add_argument("--tiles", type=int, default=3)
    parser.add_argument("--threads", type=int, default=12)
    parser.add_argument("--image", type=int, help="another image size, to test the script without a GPU")
    given = parser.parse_args()
    ours = ["few channels", *(f"few channels, tile {n + 1}" for n in range(1, given.tiles))]
    cases = [(name, int(b)) for b in given.batch.split(",") for name in given.only.split(",")]
    stems = {n: s._replace(image=given.image or s.image) for n, s in STEMS.items()}
    rng, data = np.random.default_rng(0), {}
    for name, batch in cases:
        s = stems[name]
        w = rng.standard_normal((s.filters, s.channels, s.window, s.window)) * (s.channels * s.window**2) ** -0.5
        x = rng.standard_normal((batch, s.channels, s.image, s.image), np.float32)
        data[name, batch] = x, w.astype(np.float16), rng.standard_normal(s.filters).astype(np.float16)
    _shared()
    with ThreadPoolExecutor(given.threads) as pool:
        made = {
            (case, way): pool.submit(Way, way, stems[case[0]], case[1], data[case], given.tiles)
            for case in cases
            for way in ours
        }
    print(
        "stem batch floor | library torch | error of the library, the largest of ours | waves.down.across high x wide / taps"
    )
    shares = []
    for case in cases:
        stem, (x, w, bias) = stems[case[0]], data[case]
        ways = [
            Way("library", stem, case[1], data[case], given.tiles),
            *(made.pop((case, way)).result() for way in ours),
        ]
        right = exact(stem, x, w, bias)
        errors = []
        for way in ways:
            if not way.why and not way.forced:
                way.why = "another kernel"
            if way.why:
                errors.append(np.nan)
                continue
            got = way.ran(x)[: len(right)].astype(np.float64)
            errors.append(np.abs(got - right).max() / np.abs(right).max())
        for _ in range(ROUNDS):
            for way in ways:
                if not way.why:
                    way.time()
        us = [min(way.times) if way.times else np.nan for way in ways]
        torch_us = by_torch(stem, x, w, bias) or np.nan
        size = right.shape[1] * right.shape[2] * right.shape[3] * case[1]
        floor = (x.nbytes + 2 * size) / 4e6
        if any(way.times for way in ways[1:]):
            shares.append(np.nanmin(us[1:]) / us[0])
        worst = max((e for e in errors[1:] if e == e), default=np.nan)
        tiles = tiles_of(stem, case[1])
        parts = [f"{t.waves}.{t.down}.{t.across} {t.high}x{t.wide}/{t.taps}: {u:.1f} ({g:.1f})"
                 for (t, g), u in zip(tiles, us[1:], strict=False) if u == u]  # fmt: skip
        print(f"{case[0]} {case[1]} {floor:.1f} | {us[0]:.1f} {torch_us:.1f} | {errors[0]:.1e} {worst:.1e} | "
              + ", ".join(parts), flush=True)  # fmt: skip
        wrong = {way.why[:60] for way in ways if way.why and "room for" not in way.why}
        if wrong:
            print("    not measured:", "; ".join(sorted(wrong)))
    print(f"our fastest over the library's, geometric mean: {np.exp(np.nanmean(np.log(shares))):.3f}")


def tiles_of(stem: Stem, batch: int) -> list[tuple[Any, float]]:
    """Returns the tiles in the cost model's order, with its estimates."""
    two = (stem.window,) * 2, (stem.stride,) * 2, (1, 1), (stem.padding,) * 2
    f = runs_of(stem.channels, *two)
    image = (stem.image + 2 * stem.padding - stem.window) // stem.stride + 1
    traits = GpuTarget().get_context().traits
    tiles = tiles_by_time(f, stem.filters, (image, image), batch, traits)
    return [(t, microseconds(t, stem.filters, (image, image), batch, traits)) for t in tiles]


if __name__ == "__main__":
    main()
