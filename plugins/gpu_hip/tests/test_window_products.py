"""Convolutions as products of windows that a kernel gathers, of extents that are its arguments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from kernel_trial import channels_last, run, traits
from opened_program import opened

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.types.dim import symbol
from mgx_gpu_hip.codegen import window_products
from mgx_gpu_hip.codegen.narrow_operands import Windows
from mgx_gpu_hip.codegen.source import KernelSource, Tensor
from mgx_gpu_hip.codegen.window_products import TILES, window_product
from mgx_gpu_hip.compile.build import build
from mgx_gpu_hip.compile.compilers import compiler_for
from mgx_gpu_hip.target import GpuTarget

CASES = {
    "padded": ((2, 16, 9, 7), 24, Windows((3, 3), (1, 1), (1, 1), (1, 1))),
    "strided and dilated": ((1, 24, 13, 10), 40, Windows((3, 2), (2, 3), (2, 1), (2, 0))),
    "groups": ((1, 32, 6, 7), 40, Windows((3, 3), (1, 1), (1, 1), (1, 1), 2)),
    "a row": ((2, 8, 33), 9, Windows((7,), (1,), (3,), (9,))),
    "a volume": ((1, 8, 3, 4, 5), 16, Windows((1, 2, 3), (1, 1, 2), (1, 1, 1), (0, 1, 1))),
}


def case(of: str, lens: tuple[int, ...], filters: int, w: Windows) -> tuple[list[Any], list[Tensor], Tensor, Any]:
    """Returns the kernel's operands, their layouts, that of the result, and the result."""
    rng = np.random.default_rng(5)
    inner = lens[1] // w.group
    kind = dt.of(of).numpy
    x, weights = (rng.standard_normal(d).astype(kind) for d in (lens, (filters, inner, *w.kernel)))
    op = mgx.op("convolution", padding=list(w.begins), stride=list(w.stride), dilation=list(w.dilation), group=w.group)
    wanted = op.compute(x, weights)
    order = (0, *range(2, len(lens)), 1)
    rows = np.ascontiguousarray(weights.transpose(order)).reshape(filters, -1)
    ins = [Tensor(dt.of(of), lens, channels_last(lens)), Tensor(dt.of(of), rows.shape, (rows.shape[1], 1))]
    return [x, rows], ins, Tensor(dt.of(of), wanted.shape, channels_last(wanted.shape)), wanted


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("of", ["float32", "float16"])
@pytest.mark.parametrize("name", CASES)
def test_products_are_those_of_the_definition(name: str, of: str, wave: int) -> None:
    lens, filters, windows = CASES[name]
    given, ins, out, wanted = case(of, lens, filters, windows)
    source = window_product(ins, [out], None, windows, traits(wave))
    assert isinstance(source, KernelSource)
    (got,) = run(source, given, ins, [out], wave)
    tolerance = {"float32": 2e-6, "float16": 2e-3}[of] * math.sqrt(ins[1].lens[1])
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("of", ["float32", "float16"])
@pytest.mark.parametrize("tile", TILES, ids=lambda t: f"{t.rows}x{t.columns}")
def test_tiles_of_any_size_agree_and_compile_for_devices(tile: Any, of: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_products, "TILES", (tile,))
    given, ins, out, wanted = case(of, (1, 40, 9, 15), 72, windows := Windows((3, 3), (1, 1), (1, 1), (1, 1)))
    device = traits()._replace(shared_most=232448)
    source = window_product(ins, [out], None, windows, device)
    assert isinstance(source, KernelSource)
    (got,) = run(source, given, ins, [out], 32)
    tolerance = {"float32": 4e-5, "float16": 4e-2}[of]
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)
    try:
        compiler_for("sm_90")
    except mgx.DeviceError as why:
        pytest.skip(str(why))
    (code,) = build([source], "sm_90")
    assert code.image[:4] == b"\x7fELF"


def network(kind: str) -> mgx.Program:
    """Returns a detector's parts: a first layer, a split and joined block, pooled windows, an enlarged image, and a depthwise layer."""
    rng = np.random.default_rng(6)
    program = mgx.Program()
    m = program.get_main_module()

    def add(name: str, *xs: Any, **attributes: Any) -> Any:
        return m.add(mgx.op(name, **attributes), *xs)

    def convolution(x: Any, filters: int, k: int, stride: int = 1, group: int = 1) -> Any:
        channels = x.shape.dims[1] // group
        scale = (channels * k * k) ** -0.5
        w = m.add_literal((rng.standard_normal((filters, channels, k, k)) * scale).astype(kind))
        y = add("convolution", x, w, padding=[k // 2] * 2, stride=[stride] * 2, group=group)
        bias = m.add_literal(rng.standard_normal(filters).astype(kind))
        y = add("add", y, add("broadcast", bias, axis=1, out_lens=list(y.shape.dims)))
        return add("mul", y, add("sigmoid", y))

    x = m.add_parameter("x", mgx.Shape(kind, [symbol("n", 0, 99), 3, symbol("h", 0, 999), symbol("w", 0, 999)]))
    x = convolution(convolution(x, 16, 3, 2), 32, 1)
    left, right = (add("slice", x, axes=[1], starts=[s], ends=[s + 16]) for s in (0, 16))
    x = add("concat", left, add("add", right, convolution(right, 16, 3)), axis=1)
    pools = [x, add("pooling", x, mode="max", lengths=[5, 5], stride=[1, 1], padding=[2, 2])]
    x = convolution(convolution(add("concat", *pools, axis=1), 24, 1), 24, 3, 1, 24)
    large = add("resize", x, scales=[1.0, 1.0, 2.0, 2.0], coordinate_transformation_mode="asymmetric")
    m.add_return([convolution(x, 10, 1), add("reduce_mean", large, axes=[2, 3])])
    return program


@pytest.mark.parametrize(("kind", "wave"), [("float32", 1), ("float16", 0), ("float16", 1)])
def test_a_network_runs_for_images_of_any_size(kind: str, wave: int) -> None:
    program, reference = network(kind), network(kind)
    program.compile(GpuTarget("host", wave))
    reference.compile(mgx.get_target("ref"))
    one = opened(program, n=2, h=13, w=18)
    rng = np.random.default_rng(7)
    for n, h, w in ((2, 13, 18), (3, 40, 5), (2, 9, 9), (5, 3, 31), (2, 13, 18)):
        assert one.fits({"n": n, "h": h, "w": w})
        x = rng.standard_normal((n, 3, h, w)).astype(kind)
        for got, want in zip(one.runner.run([x]), reference.run({"x": x}), strict=True):
            close = 2e-5 if kind == "float32" else 1e-2
            np.testing.assert_allclose(np.asarray(got), want.to_numpy(), rtol=close, atol=close)
