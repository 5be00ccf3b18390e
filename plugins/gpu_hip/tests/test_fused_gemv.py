"""Products of one row, fused with a preceding reduction and pointwise ops after it, on the emulated device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_gpu_hip.target import GpuTarget

Array = Any


@dataclass
class Built:
    """A program with a float64 reference."""

    kind: Any
    program: mgx.Program = field(default_factory=mgx.Program)
    feed: dict[str, Array] = field(default_factory=dict)
    rng: Any = field(default_factory=lambda: np.random.default_rng(5))

    def add(self, name: str, *xs: Any, **attributes: Any) -> Any:
        return self.program.get_main_module().add(mgx.op(name, **attributes), *xs)

    def given(self, *dims: int) -> tuple[Any, Array]:
        array = self.rng.standard_normal(dims).astype(self.kind.numpy)
        name = f"x{len(self.feed)}"
        self.feed[name] = array
        main = self.program.get_main_module()
        return main.add_parameter(name, mgx.Shape(self.kind, dims)), array.astype(np.float64)

    def constant(self, *dims: int, scale: float = 1.0) -> tuple[Any, Array]:
        array = (self.rng.standard_normal(dims) * scale).astype(self.kind.numpy)
        return self.program.get_main_module().add_literal(array), array.astype(np.float64)

    def weights(self, k: int, n: int) -> tuple[Any, Array]:
        w, wide = self.constant(k, n, scale=k**-0.5)
        return self.add("multibroadcast", w, out_lens=[1, k, n]), wide

    def normed(self, x: Any, wide: Array, centered: bool) -> tuple[Any, Array]:
        """RMS norm or layer norm without weights, decomposed in float32."""
        lens = list(wide.shape)
        y = self.add("convert", x, target_type=dt.float32)
        if centered:
            mean = self.add("multibroadcast", self.add("reduce_mean", y, axes=[2]), out_lens=lens)
            y = self.add("sub", y, mean)
            wide = wide - wide.mean(-1, keepdims=True)
        square = self.add("reduce_mean", self.add("mul", y, y), axes=[2])
        small = self.program.get_main_module().add_literal(np.full((1, 1, 1), 1e-5, np.float32))
        factor = self.add("rsqrt", self.add("add", square, small))
        y = self.add("mul", y, self.add("multibroadcast", factor, out_lens=lens))
        wide = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5)
        return self.add("convert", y, target_type=self.kind), wide

    def swiglu(self, x: Any, wide: Array, parts: int = 2) -> tuple[Any, Array]:
        n = wide.shape[-1] // parts
        cut = [self.add("slice", x, axes=[2], starts=[p * n], ends=[(p + 1) * n]) for p in range(parts)]
        cuts = [wide[..., p * n : (p + 1) * n] for p in range(parts)]
        y, made = self.add("mul", cut[0], self.add("sigmoid", cut[0])), cuts[0] / (1 + np.exp(-cuts[0]))
        for c, w in zip(cut[1:], cuts[1:], strict=True):
            y, made = self.add("mul", y, c), made * w
        return y, made


def rms_norm(b: Built, k: int, n: int) -> list[tuple[Any, Array]]:
    x, wide = b.normed(*b.given(1, 1, k), centered=False)
    w, right = b.weights(k, n)
    return [(b.add("dot", x, w), wide @ right)]


def layer_norm_with_residual(b: Built, k: int, n: int) -> list[tuple[Any, Array]]:
    (x, one), (r, other) = b.given(1, 1, k), b.given(1, 1, k)
    s, total = b.add("add", x, r), one + other
    y, wide = b.normed(s, total, centered=True)
    w, right = b.weights(k, n)
    c, bias = b.constant(1, 1, n)
    z = b.add("relu", b.add("add", b.add("dot", y, w), c))
    back, left = b.weights(n, k)
    return [(b.add("add", s, b.add("dot", z, back)), total + np.maximum(wide @ right + bias, 0) @ left)]


def normed_row_read_again(b: Built, k: int, n: int) -> list[tuple[Any, Array]]:
    y, wide = b.normed(*b.given(1, 1, k), centered=True)
    w, right = b.weights(k, n)
    back, left = b.weights(n, k)
    return [(b.add("add", y, b.add("dot", b.add("dot", y, w), back)), wide + wide @ right @ left)]


def gated(b: Built, k: int, n: int) -> list[tuple[Any, Array]]:
    x, wide = b.given(1, 1, k)
    w, right = b.weights(k, 2 * n)
    return [b.swiglu(b.add("dot", x, w), wide @ right)]


def three_parts(b: Built, k: int, n: int) -> list[tuple[Any, Array]]:
    y, wide = b.normed(*b.given(1, 1, k), centered=False)
    w, right = b.weights(k, 3 * n)
    return [b.swiglu(b.add("dot", y, w), wide @ right, 3)]


def normed_and_gated(b: Built, k: int, n: int) -> list[tuple[Any, Array]]:
    (x, one), (r, other) = b.given(1, 1, k), b.given(1, 1, k)
    s, total = b.add("add", x, r), one + other
    y, wide = b.normed(s, total, centered=False)
    w, right = b.weights(k, 2 * n)
    z, gate = b.swiglu(b.add("dot", y, w), wide @ right)
    back, left = b.weights(n, k)
    return [(b.add("add", s, b.add("dot", z, back)), total + gate @ left)]


Network = Callable[[Built, int, int], "list[tuple[Any, Array]]"]
CASES: list[tuple[Network, int, int, list[str]]] = [  # k, n, kernels
    (rms_norm, 2048, 40, ["single_row_made"]),
    (rms_norm, 4104, 33, ["single_row_made"]),
    (layer_norm_with_residual, 768, 96, ["single_row_made", "single_row"]),
    (normed_row_read_again, 264, 256, ["single_row_made", "single_row"]),
    (gated, 1024, 40, ["single_row"]),
    (gated, 264, 251, ["single_row"]),
    (three_parts, 520, 64, ["single_row_made"]),
    (normed_and_gated, 1032, 72, ["single_row_made", "single_row"]),
]


@pytest.mark.parametrize(("of", "device"), [("float32", 1), ("float16", 1), ("float16", 0), ("bfloat16", 1)])
@pytest.mark.parametrize(("network", "k", "n", "kernels"), CASES, ids=lambda v: getattr(v, "__name__", str(v)))
def test_joined(network: Network, k: int, n: int, kernels: list[str], of: str, device: int) -> None:
    built = Built(dt.of(of))
    made = network(built, k, n)
    built.program.get_main_module().add_return([y for y, _ in made])
    built.program.compile(GpuTarget("host", device), validate=True)
    results = built.program.run(built.feed)
    (instance,) = built.program.executable.instances()
    assert [s.name.rpartition("_")[0] for s in instance.runner.schedule.steps] == kernels
    for got, (_, wanted) in zip(results, made, strict=True):
        bound = np.abs(wanted).max() * max(4 * built.kind.epsilon, 4e-6)
        np.testing.assert_allclose(got.to_numpy().astype(np.float64), wanted, rtol=0, atol=bound)


@pytest.mark.parametrize(("k", "n"), [(64, 64), (2047, 64), (8200, 64)], ids=["few weights", "odd row", "long row"])
def test_others_run_separately(k: int, n: int) -> None:
    built = Built(dt.float16)
    made = rms_norm(built, k, n)
    built.program.get_main_module().add_return([y for y, _ in made])
    built.program.compile(GpuTarget("host", 1))
    got = built.program.run(built.feed)[0].to_numpy().astype(np.float64)
    (instance,) = built.program.executable.instances()
    assert not any(s.name.startswith("single_row_made") for s in instance.runner.schedule.steps)
    np.testing.assert_allclose(got, made[0][1], rtol=0, atol=np.abs(made[0][1]).max() * 4e-3)
