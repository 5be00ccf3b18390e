"""Depthwise convolutions with fused epilogues in one kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_trial import channels_last, generate, run, same, tensor, traits, values

import mgx_core as mgx
from mgx_core import Module, No, Shape
from mgx_core import dtype as dt
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ops.broadcast import Broadcast, Multibroadcast
from mgx_core.ops.control import Group, PointwiseGroup
from mgx_core.ops.convolution import Convolution
from mgx_core.ops.pointwise import Add, Clip
from mgx_core.ops.quantized_product import QuantConvolution
from mgx_gpu_hip.codegen import depthwise
from mgx_gpu_hip.codegen.depthwise import Tile
from mgx_gpu_hip.codegen.source import KernelSource
from mgx_gpu_hip.emitter import GpuEmitter
from mgx_gpu_hip.plans import PLANS
from mgx_gpu_hip.plans.depthwise import emit_single
from mgx_gpu_hip.target import GpuTarget

LIMITS = {"float32": 1e-5, "float16": 1e-2}


@pytest.mark.parametrize("of", LIMITS)
@pytest.mark.parametrize("sm", [1, 400])  # strips of adjacent outputs, or one output per thread
@pytest.mark.parametrize(
    "attributes",
    [
        dict(padding=(1, 1)),
        dict(padding=(1, 1), stride=(2, 2)),
        dict(padding=(2, 0), dilation=(2, 1), stride=(1, 2)),
        dict(padding_mode="same_upper", stride=(2, 1)),
        dict(),
    ],
)
def test_alone(of: str, sm: int, attributes: dict[str, Any]) -> None:
    rng = np.random.default_rng(2)
    kind = dt.of(of)
    for k, lens in ((3, (2, 16, 9, 11)), (5, (1, 24, 17, 13))):
        x, w = values(rng, kind, lens), values(rng, kind, (lens[1], 1, k, k))
        op = Convolution(group=lens[1], **attributes)
        wanted = op.compute(x, w)
        c = lens[1]
        for strides in (None, (1, 1, k * c, c)):
            ins = [tensor(of, lens, channels_last(lens)), tensor(of, w.shape, strides)]
            outs = [tensor(of, wanted.shape, channels_last(wanted.shape))]
            source = generate(op, ins, outs, traits(sm_count=sm))
            assert isinstance(source, KernelSource) and source.name.startswith("convolution_depthwise")
            same(run(source, [x, w], ins, outs), wanted, tolerance=LIMITS[of])


@pytest.mark.parametrize("of", LIMITS)
@pytest.mark.parametrize("sm", [1, 400])
@pytest.mark.parametrize(
    ("window", "attributes"),
    [(31, dict(padding=(15,))), (4, dict(padding=(3, 0))), (5, dict(stride=(2,), dilation=(3,)))],
)
def test_one_axis(of: str, sm: int, window: int, attributes: dict[str, Any]) -> None:
    """Speech encoders (31 wide) and state space models (4 wide, only to the past) ran with one thread per output."""
    rng, lens, kind = np.random.default_rng(9), (2, 24, 37), dt.of(of)
    x, w = values(rng, kind, lens), values(rng, kind, (24, 1, window))
    op = Convolution(group=24, **attributes)
    wanted = op.compute(x, w)
    ins = [tensor(of, lens, channels_last(lens)), tensor(of, w.shape, (1, 1, 24))]
    outs = [tensor(of, wanted.shape, channels_last(wanted.shape))]
    source = generate(op, ins, outs, traits(sm_count=sm))
    assert isinstance(source, KernelSource) and source.name.startswith("convolution_depthwise")
    same(run(source, [x, w], ins, outs), wanted, tolerance=LIMITS[of])


BYTES = {
    "int8": ("int8", "int8", False, (2, 24, 13, 11), (24, 1, 3, 3), dict(padding=(1, 1))),
    "uint8": ("uint8", "int8", False, (1, 16, 9, 14), (16, 1, 5, 5), dict(padding=(2, 2), stride=(2, 2))),
    "zero point": ("uint8", "int8", True, (2, 20, 9, 8), (20, 1, 3, 3), dict(padding=(1, 0), dilation=(1, 2))),
    "fp8": ("float8_e4m3fn", "float8_e5m2", False, (1, 8, 10, 12), (8, 1, 3, 3), dict(padding=(1, 1), stride=(1, 2))),
    "two filters": ("int8", "int8", True, (1, 12, 9, 9), (24, 1, 3, 3), dict(padding=(1, 1))),
    "odd": ("int8", "int8", False, (1, 7, 9, 9), (7, 1, 3, 3), dict()),
    "one axis": ("int8", "int8", True, (2, 16, 30), (16, 1, 5), dict(padding=(4, 0))),
}


@pytest.mark.parametrize("device", [0, 1], ids=["wave32", "wave64"])
@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("name", BYTES)
def test_bytes(name: str, rounded: bool, device: int) -> None:
    """A tile of matrix units per channel loaded single bytes."""
    of, weights, moved, x_lens, w_lens, attributes = BYTES[name]
    rng, whole = np.random.default_rng(3), dt.of(of).is_integer

    def drawn(kind: str, lens: tuple[int, ...]) -> Any:
        t = dt.of(kind)
        values = rng.integers(int(t.lowest), int(t.highest) + 1, lens) if whole else rng.standard_normal(lens)
        return np.asarray(values).astype(t.numpy)

    x, w = drawn(of, x_lens), drawn(weights, w_lens)
    program = mgx.Program()
    m = program.get_main_module()
    given = [m.add_parameter("x", Shape(dt.of(of), list(x_lens))), m.add_literal(w)]
    given += [m.add_literal(drawn(of, ()))] if moved else []
    y = m.add(QuantConvolution(group=x_lens[1], **attributes), *given)
    if rounded:
        factor = m.add(
            mgx.op("multibroadcast", out_lens=y.shape.dims), m.add_literal(np.float32(2.0**-8 if whole else 2.0))
        )
        y = m.add(mgx.op("mul"), m.add(mgx.op("convert", target_type=dt.float32), y), factor)
        y = m.add(mgx.op("convert", target_type=dt.float16), m.add(mgx.op("relu"), y))
    m.add_return([y])
    wanted = program.clone()
    wanted.compile(mgx.get_target("ref"))
    program.compile(GpuTarget("host", device))
    (got,), (exact,) = program.run({"x": x}), wanted.run({"x": x})
    steps = [s.name for s in program.executable.instances()[0].runner.schedule.steps]
    assert sum(s.startswith("convolution_depthwise") for s in steps) == 1
    assert all(s.startswith(("convolution_depthwise", "contiguous")) for s in steps)
    same([got.to_numpy()], [np.asarray(exact)], terms=w[0].size)  # equal if they are integers


@pytest.mark.parametrize("columns", [depthwise.MOST_COLUMNS, depthwise.MOST_COLUMNS + 1])
def test_long_filters_have_one_thread_per_output(columns: int) -> None:
    """Filters of sounds have thousands of elements; a source with a term for each took 36 s to compile for 2,047."""
    rng, lens, kind = np.random.default_rng(9), (1, 4, 80), dt.float32
    x, w = values(rng, kind, lens), values(rng, kind, (4, 1, columns))
    op = Convolution(group=4)
    wanted = op.compute(x, w)
    ins = [tensor("float32", lens, channels_last(lens)), tensor("float32", w.shape, (1, 1, 4))]
    outs = [tensor("float32", wanted.shape, channels_last(wanted.shape))]
    source = generate(op, ins, outs, traits())
    assert isinstance(source, KernelSource)
    assert source.name.startswith("convolution_depthwise") == (columns <= depthwise.MOST_COLUMNS)
    same(run(source, [x, w], ins, outs), wanted, tolerance=LIMITS["float32"])
    body = Module("convolution_0")
    p = [body.add_parameter(n, Shape.of(kind, t.lens)) for n, t in zip("xw", ins, strict=True)]
    body.add_return([body.add(op, *p)])
    group = generate(Group(tag="convolution"), ins, outs, traits(), [body])
    if columns <= depthwise.MOST_COLUMNS:
        assert isinstance(group, KernelSource)
    else:
        assert isinstance(group, No) and f"{depthwise.MOST_COLUMNS} columns, got {columns}" in group.why


def test_one_axis_with_its_epilogue() -> None:
    """Bias, SiLU and a residual in the launch of the convolution."""
    program = mgx.Program()
    m = program.get_main_module()
    rng = np.random.default_rng(5)
    x, r = (m.add_parameter(n, Shape.of(dt.float16, (2, 24, 37))) for n in "xr")
    w, b = (m.add_literal(rng.standard_normal(d).astype(np.float16)) for d in ((24, 1, 4), (24,)))
    y = m.add(Convolution(group=24, padding=(3, 0)), x, w)
    y = m.add(mgx.op("add"), y, m.add(Broadcast(axis=1, out_lens=(2, 24, 37)), b))
    y = m.add(mgx.op("mul"), y, m.add(mgx.op("sigmoid"), y))
    m.add_return([m.add(mgx.op("add"), y, r)])
    reference = m.clone()
    program.compile(GpuTarget("host", 1))
    feed = {n: rng.standard_normal((2, 24, 37)).astype(np.float16) for n in "xr"}
    (found,) = program.run(feed)
    (wanted,) = Interpreter().run(reference, [feed[n] for n in reference.parameters])
    np.testing.assert_allclose(found.to_numpy().astype(float), np.asarray(wanted).astype(float), atol=2e-2)
    assert program.executable is not None
    kernels = [s.kernel for s in program.executable.instances()[-1].plan.steps]
    assert "depthwise group" in kernels and not any("pointwise" in k for k in kernels), kernels


@pytest.mark.parametrize("tile", [Tile(8, 2, 2), Tile(4, 8, 2), Tile(2, 3, 3), Tile(4, 1, 4)])
@pytest.mark.parametrize("attributes", [dict(padding=(2, 1)), dict(stride=(1, 2)), dict(padding=(3, 3), stride=(2, 1))])
def test_tiles(tile: Tile, attributes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depthwise, "tile_of", lambda *given: tile)
    rng, lens, window = np.random.default_rng(3), (2, 16, 9, 12), (16, 1, 5, 3)
    x, w = values(rng, dt.float16, lens), values(rng, dt.float16, window)
    op = Convolution(group=16, **attributes)
    wanted = op.compute(x, w)
    ins = [tensor("float16", lens, channels_last(lens)), tensor("float16", window, (1, 1, 3 * 16, 16))]
    outs = [tensor("float16", wanted.shape, channels_last(wanted.shape))]
    source = generate(op, ins, outs, traits())
    assert isinstance(source, KernelSource) and f"// {tile.width} channels of {tile.tall} x {tile.strip}" in source.text
    same(run(source, [x, w], ins, outs), wanted, tolerance=LIMITS["float16"])


@pytest.mark.parametrize("of", LIMITS)
@pytest.mark.parametrize("sm", [1, 400])
@pytest.mark.parametrize("filters", [2, 4, 16])
def test_several_filters_of_a_channel(of: str, sm: int, filters: int) -> None:
    kind, lens, count = dt.of(of), (2, 12, 9, 10), 12 * filters
    rng = np.random.default_rng(6)
    x, w = values(rng, kind, lens), values(rng, kind, (count, 1, 5, 3))
    op = Convolution(group=12, padding=(2, 1), stride=(2, 1))
    wanted = op.compute(x, w)
    ins = [tensor(of, lens, channels_last(lens)), tensor(of, w.shape, (1, 1, 3 * count, count))]
    outs = [tensor(of, wanted.shape, channels_last(wanted.shape))]
    source = generate(op, ins, outs, traits(sm_count=sm))
    assert isinstance(source, KernelSource) and source.name.startswith("convolution_depthwise")
    same(run(source, [x, w], ins, outs), wanted, tolerance=LIMITS[of])


@pytest.mark.parametrize("of", LIMITS)
@pytest.mark.parametrize("sm", [1, 400])
@pytest.mark.parametrize(("channels", "filters"), [(13, 1), (8, 3), (3, 5)])
def test_odd_channel_counts_and_filters(of: str, sm: int, channels: int, filters: int) -> None:
    """57 channels of 56 x 56 took 174 us on an H200 with one thread per output and the epilogue apart."""
    kind, lens, count = dt.of(of), (2, channels, 9, 10), channels * filters
    rng = np.random.default_rng(7)
    x, w = values(rng, kind, lens), values(rng, kind, (count, 1, 3, 5))
    op = Convolution(group=channels, padding=(1, 2))
    wanted = op.compute(x, w)
    gap = (30 * 90, 1, 30 * 10, 30)  # a slice of an image of 30 channels
    for strides in (channels_last(lens), gap):
        ins = [tensor(of, lens, strides), tensor(of, w.shape, (1, 1, 5 * count, count))]
        outs = [tensor(of, wanted.shape, channels_last(wanted.shape))]
        source = generate(op, ins, outs, traits(sm_count=sm))
        assert isinstance(source, KernelSource) and source.name.startswith("convolution_depthwise")
        same(run(source, [x, w], ins, outs), wanted, tolerance=LIMITS[of])


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("of", LIMITS)
def test_with_bias_activation_and_residual(of: str, wave: int) -> None:
    kind, lens = dt.of(of), (2, 16, 10, 14)
    inner = Module("pointwise_0")
    sums = inner.add_parameter("x0", Shape.of(kind, lens))
    bias = inner.add(Broadcast(axis=1, out_lens=lens), inner.add_parameter("x1", Shape.of(kind, (16,))))
    low, high = (inner.add(Multibroadcast(out_lens=lens), inner.add_literal(kind.numpy.type(v))) for v in (0, 6))
    other = inner.add_parameter("x2", Shape.of(kind, lens))
    inner.add_return([inner.add(Add(), inner.add(Clip(), inner.add(Add(), sums, bias), low, high), other)])
    body = Module("convolution_0")
    x, w, b, r = (
        body.add_parameter(n, Shape.of(kind, dims))
        for n, dims in (("x", lens), ("w", (16, 1, 3, 3)), ("b", (16,)), ("r", lens))
    )
    conv = body.add(Convolution(group=16, padding=(1, 1)), x, w)
    body.add_return([body.add(PointwiseGroup(), conv, b, r, modules=[inner])])
    rng = np.random.default_rng(4)
    arrays = [values(rng, kind, p.shape.lens()) for p in body.parameters.values()]
    wanted = Interpreter().run(body, arrays)
    ins = [
        tensor(of, lens, channels_last(lens)),
        tensor(of, (16, 1, 3, 3), (1, 1, 48, 16)),
        tensor(of, (16,)),
        tensor(of, lens, channels_last(lens)),
    ]
    outs = [tensor(of, lens, channels_last(lens))]
    source = generate(Group(tag="convolution"), ins, outs, traits(wave, 1), [body])
    assert isinstance(source, KernelSource) and len(source.launches) == 1
    same(run(source, arrays, ins, outs, wave), wanted, tolerance=LIMITS[of])


def test_refusals_give_reasons() -> None:
    x, w = tensor("float32", (1, 8, 5, 5)), tensor("float32", (8, 1, 3, 3))
    body = Module("convolution_0")
    p = [body.add_parameter(n, Shape.of(dt.float32, t.lens)) for n, t in (("x", x), ("w", w))]
    body.add_return([body.add(Convolution(group=8), *p)])
    y = tensor("float32", (1, 8, 3, 3))
    assert "channels last" in str(generate(Group(tag="convolution"), [x, w], [y], traits(), [body]))


@pytest.mark.parametrize("wave", [32, 64])
def test_strided_pixels_are_read_in_place(wave: int) -> None:
    """A product whose columns were padded to whole vectors leaves gaps, which no copy needs to remove."""
    lens, pitch = [2, 30, 9, 11], 32
    context = GpuTarget("host", {32: 1, 64: 0}[wave]).get_context()
    e = GpuEmitter(PLANS, context)
    x = e.input(Shape(dt.float16, [2, 9, 11, pitch]), 0)
    image = x.view_at(0, Shape(dt.float16, lens, [9 * 11 * pitch, 1, 11 * pitch, pitch]))
    rng = np.random.default_rng(7)
    w = values(rng, dt.float16, (30, 1, 3, 3))
    op = Convolution(group=30, padding=(1, 1))
    emit_single(e, op, (), [image, e.literal(w)])
    (step,) = e.steps
    memory = values(rng, dt.float16, (2, 9, 11, pitch))
    wanted = op.compute(np.moveaxis(memory[..., :30], -1, 1), w)
    ins = [tensor("float16", lens, image.strides), tensor("float16", w.shape, step.inputs[1].strides)]
    outs = [tensor("float16", wanted.shape, channels_last(wanted.shape))]
    same(run(step.source, [np.moveaxis(memory[..., :30], -1, 1), w], ins, outs, wave), wanted, tolerance=1e-2)


def test_an_odd_slice_of_channels_is_read_without_a_copy() -> None:
    """CoaT convolves 38, 57 and 57 of 152 channels apart."""
    context = GpuTarget("host").get_context()
    e = GpuEmitter(PLANS, context)
    x = e.input(Shape(dt.float16, [2, 9, 11, 152]), 0)
    image = x.view_at(38, Shape(dt.float16, [2, 57, 9, 11], [9 * 11 * 152, 1, 11 * 152, 152]))
    emit_single(e, Convolution(group=57, padding=(1, 1)), (), [image, e.literal(np.ones((57, 1, 3, 3), np.float16))])
    (step,) = e.steps
    assert step.inputs[0].buffer is x.buffer and step.source.name.startswith("convolution_depthwise")


@pytest.mark.parametrize(("channels", "strip"), [(57, 8), (31, 4), (64, 4), (128, 8)])
def test_strips_are_long_where_adjacent_threads_read_whole_sectors(channels: int, strip: int) -> None:
    y = tensor("float16", (32, channels, 56, 56), channels_last((32, channels, 56, 56)))
    assert depthwise.tile_of(1 if channels % 2 else 2, y, 1, traits()).strip == strip
