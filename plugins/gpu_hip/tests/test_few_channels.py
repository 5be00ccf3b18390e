"""Convolutions of few input channels on matrix units, compared with the reference."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from emulated_device import HostDevice
from kernel_trial import channels_last, placed, same, seen, tensor
from opened_program import opened

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.errors import DeviceError, No
from mgx_core.ops.convolution import Convolution
from mgx_core.ops.quantized_product import QuantConvolution
from mgx_core.types.dim import symbol
from mgx_gpu_hip.codegen.few_channels import few_channels
from mgx_gpu_hip.codegen.few_channels_tiles import Filters, Tile, runs_of
from mgx_gpu_hip.codegen.source import DeviceTraits, KernelSource
from mgx_gpu_hip.compile.build import build
from mgx_gpu_hip.compile.compilers import compiler_for
from mgx_gpu_hip.emitter import GpuEmitter
from mgx_gpu_hip.guarded import BackwardsTarget, GuardedTarget
from mgx_gpu_hip.kernel import GpuKernel
from mgx_gpu_hip.plans import PLANS
from mgx_gpu_hip.plans.few_channels import is_few_channels, order_weights
from mgx_gpu_hip.target import GpuTarget

UNITS = {"mma": (32, 1), "mfma": (64, 2), "wmma": (32, 3), "scalar32": (32, 0), "scalar64": (64, 0)}
ARCHITECTURES = ["gfx908", "gfx90a", "gfx942", "gfx1100", "sm_80", "sm_90"]
Array = np.ndarray[Any, Any]

# channels, filters, window, stride, dilation, padding before, image
CASES = {
    "resnet": (3, 24, (7, 7), (2, 2), (1, 1), (3, 3), (29, 37)),
    "mobilenet": (3, 32, (3, 3), (2, 2), (1, 1), (1, 1), (31, 18)),
    "vgg": (3, 16, (3, 3), (1, 1), (1, 1), (1, 1), (11, 35)),
    "swin": (3, 96, (4, 4), (4, 4), (1, 1), (0, 0), (24, 20)),
    "vit": (3, 40, (16, 16), (16, 16), (1, 1), (0, 0), (64, 48)),
    "two by two": (3, 20, (2, 2), (2, 2), (1, 1), (0, 0), (17, 13)),
    "one channel": (1, 12, (5, 3), (1, 2), (1, 1), (2, 0), (14, 15)),
    "four channels": (4, 48, (3, 5), (2, 1), (1, 1), (0, 2), (12, 19)),
    "six channels": (6, 17, (3, 3), (1, 1), (1, 1), (1, 0), (9, 8)),
    "eight channels": (8, 8, (1, 1), (1, 1), (1, 1), (0, 0), (5, 7)),
    "dilated": (2, 7, (3, 3), (1, 1), (2, 3), (2, 3), (13, 12)),
    "alexnet": (3, 160, (11, 11), (4, 4), (1, 1), (2, 2), (31, 33)),
}


def case(name: str) -> tuple[Filters, Convolution, tuple[int, ...], tuple[int, ...]]:
    c, o, window, stride, dilation, begins, image = CASES[name]
    return (
        runs_of(c, window, stride, dilation, begins),
        Convolution(padding=(*begins, *begins), stride=stride, dilation=dilation),
        (2, c, *image),
        (o, c, *window),
    )


def launched(
    source: KernelSource,
    x: Array,
    w: Array,
    ins: Any,
    out: Any,
    wave: int,
    flags: tuple[str, ...] = (),
    order: str = "backward",
) -> Array:
    made = np.full(out.space * out.dtype.size, 0xFF, np.uint8).view(out.dtype.numpy)
    (launch,) = source.launches
    kernel = HostDevice(wave, flags=flags).compile(source.text, source.name)
    kernel.launch(launch.grid, launch.block, launch.shared_bytes, [placed(x, ins[0]), w, made, 0], order)
    return seen(made, out)


def operands(name: str, of: str, kind: str, last: bool) -> Any:
    """Returns an image in one of two layouts and any type, weights, and the exact result; integers, so that sums are exact."""
    filters, op, x_lens, w_lens = case(name)
    rng = np.random.default_rng(1)
    x = rng.integers(-4, 5, x_lens).astype(dt.of(kind).numpy)
    w = rng.integers(-2, 3, w_lens).astype(dt.of(of).numpy)
    exact = op.compute(x.astype(np.float32), w.astype(np.float32))
    packed = order_weights(w, filters)
    ins = [tensor(kind, x_lens, channels_last(x_lens) if last else None), tensor(of, packed.shape)]
    out = tensor(of, exact.shape, channels_last(exact.shape))
    return filters, x, packed, ins, out, exact


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("unit", UNITS)
def test_each_unit_and_window(unit: str, name: str) -> None:
    wave, kind = UNITS[unit]
    filters, x, w, ins, out, exact = operands(name, "float16", "float16", unit in ("mma", "scalar64"))
    source = few_channels(ins, [out], None, filters, DeviceTraits(wave=wave, sm_count=4, shared_most=65536))
    assert isinstance(source, KernelSource), source
    got = launched(source, x, w, ins, out, wave, (f"-DFRAG={kind}",))
    np.testing.assert_array_equal(got.astype(np.float32), exact.astype(np.float16).astype(np.float32))


def test_the_fewest_runs_are_chosen_and_of_these_the_best_aligned() -> None:
    def taken(c: int, k: int, s: int, d: int = 1) -> tuple[int, int, int]:
        f = runs_of(c, (k, k), (s, s), (d, d), (0, 0))
        return f.taken, f.per_row, f.align

    assert taken(3, 7, 2) == (3, 3, 4)  # 21 elements of a row; four per pixel would be 28
    assert taken(3, 3, 2) == (4, 2, 16)
    assert taken(3, 3, 1) == (4, 2, 8)
    assert taken(3, 16, 16) == (3, 6, 16)
    assert taken(1, 3, 1) == (2, 1, 4)
    assert taken(2, 3, 1, 2) == (8, 3, 16)  # one run of elements per pixel
    assert taken(8, 1, 1) == (8, 1, 16)


SHAPES = [(4, 2, 2, 4, 6, 3), (2, 1, 1, 2, 16, 3), (4, 1, 2, 3, 20, 3), (4, 4, 1, 16, 16, 1), (2, 2, 2, 5, 11, 1)]


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "x".join(map(str, s)))
def test_tiles_with_all_rows_of_the_window_and_some(shape: Any, wave: int) -> None:
    """Blocks of several tiles, edges on both axes and among the filters, blocks of two filters."""
    filters = runs_of(3, (3, 3), (1, 2), (1, 1), (1, 1))
    op = Convolution(padding=(1, 1), stride=(1, 2))
    rng = np.random.default_rng(6)
    x, w = rng.integers(-4, 5, (3, 3, 17, 45)), rng.integers(-2, 3, (43, 3, 3, 3))
    exact = op.compute(x.astype(np.float32), w.astype(np.float32))
    ins = [tensor("float16", x.shape), tensor("float16", (48, filters.depth))]
    out = tensor("float16", exact.shape, channels_last(exact.shape))
    tile = Tile(filters, *shape)
    source = few_channels(ins, [out], None, filters, DeviceTraits(wave=wave, sm_count=1), tile)
    assert isinstance(source, KernelSource) and source.grid[0] < 3 * 17 * 23 // (tile.high * tile.wide)
    for order in ("forward", "backward"):
        got = launched(
            source, x.astype(np.float16), order_weights(w.astype(np.float16), filters), ins, out, wave, order=order
        )
        np.testing.assert_array_equal(got.astype(np.float32), exact)


@pytest.mark.parametrize("unit", UNITS)
def test_elements_after_a_run_do_not_count(unit: str) -> None:
    """Runs are padded to whole vectors: they extend past the window, where the image may have any value."""
    wave, kind = UNITS[unit]
    filters = runs_of(3, (1, 7), (1, 7), (1, 1), (0, 0))
    x = np.random.default_rng(1).integers(-4, 5, (1, 3, 4, 28)).astype(np.float16)
    x[..., 14:21] = np.inf  # the third of four windows
    x[..., 7] = np.nan  # the second starts with this
    w = np.full((8, 3, 1, 7), 1, np.float16)
    ins = [tensor("float16", x.shape), tensor("float16", (16, filters.depth))]
    out = tensor("float16", (1, 8, 4, 4), channels_last((1, 8, 4, 4)))
    source = few_channels(ins, [out], None, filters, DeviceTraits(wave=wave, sm_count=1))
    assert isinstance(source, KernelSource)
    got = launched(source, x, order_weights(w, filters), ins, out, wave, (f"-DFRAG={kind}",))
    assert np.isnan(got[..., 1]).all() and np.isinf(got[..., 2]).all()
    for place in (0, 3):
        wanted = x[..., place * 7 : place * 7 + 7].astype(np.float32).sum((1, 3))
        np.testing.assert_array_equal(got[0, 3, :, place], wanted[0])


def test_a_device_without_matrix_units_uses_other_kernels() -> None:
    filters, _, _, ins, out, _ = operands("resnet", "float16", "float16", False)
    refused = few_channels(ins, [out], None, filters, DeviceTraits(arch="gfx1030"))
    assert isinstance(refused, mgx.No) and "no matrix units" in refused.why


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_architectures_compile_it(arch: str) -> None:
    try:
        compiler = compiler_for(arch)
    except DeviceError as why:
        pytest.skip(str(why))
    wave = 64 if arch.startswith("gfx9") else 32
    most = 232448 if arch == "sm_90" else 65536
    for name, of in (("resnet", "float16"), ("vit", "bfloat16")):
        filters, _, _, ins, out, _ = operands(name, of, "float32", False)
        source = few_channels(ins, [out], None, filters, DeviceTraits(wave=wave, arch=arch, shared_most=most))
        assert isinstance(source, KernelSource)
        flags = () if arch.startswith("sm") else (f"-DWAVE={wave}",)
        given = SimpleNamespace(name=source.name, text=source.text, flags=flags)
        assert build([given], arch, compiler=compiler)[0].image[:4] == b"\x7fELF"


def programmed(
    wave: int,
    x: Array,
    w: Array,
    op: Convolution,
    of: str,
    behind: str = "",
    permuted: bool = False,
    target: Any = None,
    batch: Any = 0,
) -> tuple[Array, list[str], Any]:
    """Returns a program on the emulated device: the image, permuted and converted, its convolution and its epilogue."""
    program = mgx.Program()
    m = program.get_main_module()
    lens = [batch or x.shape[0], *x.shape[1:]]
    rank = len(lens)
    if permuted:
        given = m.add_parameter("x", mgx.Shape(dt.of(x.dtype), [lens[0], *lens[2:], lens[1]]))
        image = m.add(mgx.op("transpose", permutation=[0, rank - 1, *range(1, rank - 1)]), given)
    else:
        image = given = m.add_parameter("x", mgx.Shape(dt.of(x.dtype), lens))
    if str(dt.of(x.dtype)) != of:
        image = m.add(mgx.op("convert", target_type=of), image)
    y = m.add(op, image, m.add_literal(w))
    feed = {"x": np.ascontiguousarray(np.moveaxis(x, 1, -1)) if permuted else x}
    if behind:
        dims = y.shape.dims
        bias = m.add_literal(np.linspace(-2, 2, w.shape[0]).astype(dt.of(of).numpy))
        y = m.add(mgx.op("add"), y, m.add(mgx.op("broadcast", axis=1, out_lens=dims), bias))
        if behind == "residual":
            other = np.random.default_rng(4).integers(-3, 4, [x.shape[0], *dims[1:]]).astype(dt.of(of).numpy)
            feed["r"] = other
            y = m.add(mgx.op("add"), y, m.add_parameter("r", mgx.Shape(dt.of(of), dims)))
            y = m.add(mgx.op("relu"), y)
        elif behind == "silu":
            y = m.add(mgx.op("mul"), y, m.add(mgx.op("sigmoid"), y))
        else:
            y = m.add(mgx.op(behind), y)
    m.add_return([y])
    wanted = program.clone()
    wanted.compile(mgx.get_target("ref"))
    program.compile(target or GpuTarget("host", {32: 1, 64: 0}[wave]))
    (got,) = program.run(feed)
    (exact,) = wanted.run(feed)
    steps = [s.name for s in program.executable.instances()[-1].runner.schedule.steps]
    same([got.to_numpy()], [np.asarray(exact)], terms=w[0].size)
    return got.to_numpy(), steps, program


KINDS = [
    ("float32", "float16", "relu", False), ("float32", "float16", "", True), ("float16", "float16", "residual", False),
    ("float16", "float16", "", False), ("uint8", "float16", "silu", True), ("float32", "bfloat16", "gelu_erf", True),
    ("bfloat16", "bfloat16", "residual", False),
]  # fmt: skip


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: "-".join(map(str, k)))
def test_conversion_convolution_and_epilogue_are_one_launch(kind: tuple[str, str, str, bool], wave: int) -> None:
    given, of, behind, permuted = kind
    rng = np.random.default_rng(3)
    x = rng.integers(0, 9, (2, 3, 13, 22)).astype(dt.of(given).numpy)
    w = (rng.standard_normal((24, 3, 3, 3)) / 4).astype(dt.of(of).numpy)
    op = Convolution(padding=(1, 1), stride=(2, 2))
    _, steps, _ = programmed(wave, x, w, op, of, behind, permuted)
    assert steps[0].startswith("convolution_few_channels") and all(s.startswith("contiguous") for s in steps[1:])


@pytest.mark.parametrize("target", [GuardedTarget, BackwardsTarget])
@pytest.mark.parametrize("seed", range(4))
def test_random_windows_in_guarded_memory(seed: int, target: Any) -> None:
    rng = np.random.default_rng(seed)
    c, filters = int(rng.integers(1, 9)), int(rng.integers(1, 70))
    window, stride, dilation, padding = (tuple(map(int, rng.integers(1, n, 2))) for n in (8, 4, 3, 4))
    padding = tuple(p - 1 for p in padding)
    image = [int(rng.integers((k - 1) * d + 1, 40)) for k, d in zip(window, dilation, strict=True)]
    x = rng.standard_normal((2, c, *image)).astype(np.float16 if seed % 2 else np.float32)
    w = (rng.standard_normal((filters, c, *window)) / np.sqrt(c * np.prod(window))).astype(np.float16)
    op = Convolution(padding=padding, stride=stride, dilation=dilation)
    _, steps, _ = programmed(0, x, w, op, "float16", "relu" if seed < 2 else "residual", seed > 1, target())
    assert steps[0].startswith("convolution_few_channels")


BYTES = [
    ("int8", "int8", False),
    ("uint8", "int8", True),
    ("int8", "int8", True),
    ("float8_e4m3fn", "float8_e5m2", False),
]


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("kind", BYTES, ids=lambda k: "-".join(map(str, k)))
@pytest.mark.parametrize("rounded", [False, True])
def test_bytes_are_multiplied_exactly(kind: tuple[str, str, bool], rounded: bool, wave: int) -> None:
    rng, (of, weights, moved) = np.random.default_rng(5), kind
    whole = dt.of(of).is_integer

    def drawn(name: str, lens: tuple[int, ...]) -> Array:
        t = dt.of(name)
        return (rng.integers(int(t.lowest), int(t.highest) + 1, lens) if whole else rng.standard_normal(lens)).astype(
            t.numpy
        )

    x, w = drawn(of, (2, 3, 17, 22)), drawn(weights, (24, 3, 7, 7))
    zero = [drawn(of, ())] if moved else []
    program = mgx.Program()
    m = program.get_main_module()
    op = QuantConvolution(padding=(3, 3), stride=(2, 2))
    y = m.add(
        op, m.add_parameter("x", mgx.Shape(dt.of(of), list(x.shape))), m.add_literal(w), *map(m.add_literal, zero)
    )
    if rounded:
        factor = m.add_literal(np.float32(2.0**-14 if whole else 2.0))
        y = m.add(mgx.op("mul"), m.add(mgx.op("convert", target_type="float32"), y), m.add(
            mgx.op("multibroadcast", out_lens=y.shape.dims), factor))  # fmt: skip
        y = m.add(mgx.op("convert", target_type="float16"), m.add(mgx.op("relu"), y))
    m.add_return([y])
    wanted = program.clone()
    wanted.compile(mgx.get_target("ref"))
    program.compile(GpuTarget("host", {32: 1, 64: 0}[wave]))
    (got,), (exact,) = program.run({"x": x}), wanted.run({"x": x})
    first, *others = program.executable.instances()[-1].runner.schedule.steps
    assert first.name.startswith("convolution_few_channels") and all(s.name.startswith("contiguous") for s in others)
    assert ("i32 v[" in first.source.text) is (whole and not rounded)  # converting sums to integers and back takes long
    same([got.to_numpy()], [np.asarray(exact)], terms=w[0].size)  # equal if they are integers


@pytest.mark.parametrize("wrong", ["terms", "channels", "zero point"])
def test_bytes_of_inexact_sums_stay_with_the_other_kernels(wrong: str) -> None:
    x = mgx.Shape(dt.uint8, [1, 16 if wrong == "channels" else 4, 32, 32])
    w = mgx.Shape(dt.int8, [8, x.dims[1], *((12, 12) if wrong == "terms" else (3, 3))])
    zero = mgx.Shape(dt.uint8, [])
    zeros = [zero, mgx.Shape(dt.int8, [])] if wrong == "zero point" else [zero]
    assert isinstance(is_few_channels(QuantConvolution(), [x, w, *zeros]), No)
    assert (
        is_few_channels(QuantConvolution(), [mgx.Shape(dt.uint8, [1, 4, 32, 32]), mgx.Shape(dt.int8, [8, 4, 8, 8])])
        is None
    )


def test_one_axis() -> None:
    rng = np.random.default_rng(7)
    x, w = rng.standard_normal((2, 1, 203)).astype(np.float32), rng.standard_normal((40, 1, 10)).astype(np.float16) / 3
    _, steps, _ = programmed(32, x, w, Convolution(padding=(0,), stride=(5,), dilation=(1,)), "float16", "gelu_erf")
    assert steps[0].startswith("convolution_few_channels")


def test_a_batch_that_varies_is_an_argument() -> None:
    rng = np.random.default_rng(8)
    w = (rng.standard_normal((24, 3, 5, 5)) / 9).astype(np.float16)
    op, texts = Convolution(padding=(2, 2), stride=(2, 2)), set()
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [symbol("n", 1, 64), 3, 40, 40]))
    y = m.add(op, m.add(mgx.op("convert", target_type=dt.float16), x), m.add_literal(w))
    m.add_return([m.add(mgx.op("relu"), y)])
    program.compile(GpuTarget("host", 1))
    for n in (5, 6, 7, 8):
        given = rng.standard_normal((n, 3, 40, 40), np.float32)
        (got,) = program.run({"x": given})
        exact = np.maximum(op.compute(given.astype(np.float16), w), 0)
        same([got.to_numpy()], [exact], terms=75)
        step = program.executable.instances()[-1].runner.schedule.steps[0]
        assert step.name.startswith("convolution_few_channels")
        texts.add(step.source.text)
    assert len(texts) <= 2  # of two tiles


def test_an_image_that_others_read_is_converted_once() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    half = m.add(mgx.op("convert", target_type=dt.float16), m.add_parameter("x", mgx.Shape("float32", [1, 3, 8, 8])))
    y = m.add(Convolution(padding=(1, 1)), half, m.add_literal(np.ones((8, 3, 3, 3), np.float16)))
    m.add_return([m.add(mgx.op("relu"), y), half])
    program.compile(GpuTarget("host", 1))
    names = [s.name for s in program.executable.instances()[0].runner.schedule.steps]
    assert sum(n.startswith("convolution_few_channels") for n in names) == 1
    assert sum("convert" in n for n in names) == 1


def test_computed_weights_and_float32_stay_with_the_other_kernels() -> None:
    for of, literal in (("float16", False), ("float32", True)):
        program = mgx.Program()
        m = program.get_main_module()
        x = m.add_parameter("x", mgx.Shape(dt.of(of), [1, 3, 8, 8]))
        w = np.ones((8, 3, 3, 3), dt.of(of).numpy)
        weights = m.add_literal(w) if literal else m.add_parameter("w", mgx.Shape(dt.of(of), list(w.shape)))
        m.add_return([m.add(Convolution(padding=(1, 1)), x, weights)])
        program.compile(GpuTarget("host", 1))
        feed = {"x": np.ones((1, 3, 8, 8), dt.of(of).numpy), **({} if literal else {"w": w})}
        assert program.run(feed)[0].to_numpy()[0, 0, 4, 4] == 27
        names = [s.name for s in program.executable.instances()[0].runner.schedule.steps]
        assert not any("few_channels" in n for n in names)


@pytest.mark.parametrize(
    ("name", "arch", "ours"),
    [
        ("resnet", "sm_90", True),
        ("vit", "sm_90", False),
        ("eight channels", "sm_90", False),
        ("resnet", "gfx90a", False),
    ],
)
def test_the_library_is_tried_first_if_it_was_faster_or_nothing_was_measured(name: str, arch: str, ours: bool) -> None:
    filters, op, x, w = case(name)
    assert filters.depth == 768 or name != "vit"
    context = GpuTarget().get_context()
    context.compile_for(arch)
    context.__dict__.update(libraries=object(), tuner=None)
    e = GpuEmitter(PLANS, context)
    weights = e.literal(np.ones(w, np.float16))
    image = e.input(mgx.Shape(dt.float16, x), 0)
    kernel = next(k for _, k in PLANS.offers(op, [image.shape, weights.shape], None) if isinstance(k, GpuKernel))
    assert kernel.name == "few channels convolution"
    assert isinstance(e.attempt(kernel, op, (), [image, weights]), mgx.No) is not ours
    assert ours == any("few_channels" in s.name for s in e.steps)


@pytest.mark.parametrize("wave", [32, 64])
def test_one_program_is_for_any_number_of_images(wave: int) -> None:
    """Fewer tiles than resident blocks, and more, which each compute several."""
    rng = np.random.default_rng(9)
    w = (rng.standard_normal((24, 3, 3, 3)) / 4).astype(np.float16)
    op = Convolution(padding=(1, 1), stride=(2, 2))
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [symbol("n", 0, 999), 3, 13, 22]))
    m.add_return(
        [m.add(mgx.op("relu"), m.add(op, m.add(mgx.op("convert", target_type="float16"), x), m.add_literal(w)))]
    )
    program.compile(GpuTarget("host", {32: 1, 64: 0}[wave]))
    one = opened(program, n=4)
    assert any(s.name.startswith("convolution_few_channels") for s in one.runner.schedule.steps)
    for n in (2, 4, 75, 9):
        assert one.fits({"n": n})
        given = rng.integers(-4, 5, (n, 3, 13, 22)).astype(np.float32)
        exact = np.maximum(op.compute(given, w.astype(np.float32)), 0)
        same([one.runner.run([given])[0]], [exact.astype(np.float16)], terms=27)
