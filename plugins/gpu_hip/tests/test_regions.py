"""RoI align: kernels compared with the reference in every layout, and placement on the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_trial import channels_last, generate, run, same, tensor, traits

import mgx_core as mgx
from mgx_core import DeviceError, No
from mgx_core import dtype as dt
from mgx_core.ir.interpreter import Interpreter
from mgx_core.types.dim import symbol
from mgx_core.types.shape import row_major
from mgx_gpu_hip.codegen.extents import SymbolicInt
from mgx_gpu_hip.codegen.source import KernelSource, Tensor
from mgx_gpu_hip.compile.build import build
from mgx_gpu_hip.compile.compilers import compiler_for
from mgx_gpu_hip.guarded import GuardedTarget
from mgx_gpu_hip.target import GpuTarget

Array = np.ndarray[Any, Any]
TOLERANCE = {"float32": 2e-5, "float64": 1e-12, "float16": 2e-3, "bfloat16": 1.6e-2}
ARCHITECTURES = ["gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100", "sm_80", "sm_90"]
MODES = [(mode, place) for mode in ("avg", "max") for place in ("half_pixel", "output_half_pixel")]


def made(mode: str = "avg", place: str = "half_pixel", ratio: int = 0, scale: float = 0.75, cells: Any = (3, 4)) -> Any:
    return mgx.op(
        "roialign", mode=mode, coordinate_transformation_mode=place, output_height=cells[0], output_width=cells[1],
        sampling_ratio=ratio, spatial_scale=scale,
    )  # fmt: skip


def operands(of: str, count: int = 9, lens: Any = (2, 8, 11, 13), kind: str = "int64", seed: int = 3) -> list[Array]:
    """Returns an image with regions inside and outside of it, some empty or inverted."""
    rng = np.random.default_rng(seed)
    corners = rng.random((count, 2)) * 20 - 4
    boxes = np.concatenate([corners, corners + rng.random((count, 2)) * 15 - 1], 1)
    for row, box in enumerate([[-50, -60, 90, 70], [3, 4, 3, 4], [40, 2, 60, 9], [-1, -1, 17, 14]][: count // 2]):
        boxes[row] = box
    x, numbers = rng.standard_normal(lens), rng.integers(0, lens[0], count)
    return [x.astype(dt.of(of).numpy), boxes.astype(dt.of(of).numpy), numbers.astype(kind)]


def check(op: Any, arrays: list[Array], wave: int = 32, last: bool = False, sm_count: int = 4) -> KernelSource:
    """Compares the kernel with `compute`; last: image and result are channels-last."""
    ins = [tensor(a.dtype, a.shape) for a in arrays]
    wanted = op.evaluate(arrays)
    out = tensor(wanted.dtype, wanted.shape, channels_last(wanted.shape) if last else None)
    if last:
        ins[0] = tensor(arrays[0].dtype, arrays[0].shape, channels_last(arrays[0].shape))
    source = generate(op, ins, [out], traits(wave, sm_count))
    same(run(source, arrays, ins, [out], wave), wanted, tolerance=TOLERANCE[str(dt.of(wanted.dtype))])
    assert isinstance(source, KernelSource) and len(source.launches) == 1
    return source


@pytest.mark.pairs
@pytest.mark.parametrize(("mode", "place"), MODES)
@pytest.mark.parametrize("ratio", [0, 1, 2, 5])
@pytest.mark.parametrize("of", TOLERANCE)
def test_every_attribute(mode: str, place: str, ratio: int, of: str) -> None:
    op = made(mode, place, ratio)
    check(op, operands(of))
    check(op, operands(of, kind="int32"), 64, True, 0)


@pytest.mark.parametrize("channels", [1, 3, 6, 16])
@pytest.mark.parametrize("wave", [32, 64])
def test_channels_of_a_thread(channels: int, wave: int) -> None:
    """Vectors for channels-last, several channels apart otherwise, one if their number is odd."""
    for of in ("float32", "float16"):
        for mode in ("avg", "max"):
            arrays = operands(of, lens=(3, channels, 7, 6))
            check(made(mode, cells=(2, 2)), arrays, wave, False, 0)
            source = check(made(mode, cells=(2, 2)), arrays, wave, True, 0)
            assert ("ldv<" in source.text or "load_many<" in source.text) == (channels % 2 == 0)


def test_images_and_results_in_any_layout() -> None:
    arrays, op = operands("float32"), made(ratio=2)
    wanted = op.evaluate(arrays)
    for order in ((0, 1, 2, 3), (0, 2, 3, 1), (3, 1, 0, 2), (1, 0, 3, 2)):
        ins = [tensor(a.dtype, a.shape) for a in arrays]
        ins[0] = tensor("float32", arrays[0].shape, permuted(arrays[0].shape, order))
        ins[1], ins[2] = tensor("float32", (9, 4), (1, 10)), tensor("int64", (9,), (3,))
        for target in ((0, 1, 2, 3), (0, 2, 3, 1), (2, 1, 0, 3)):
            out = tensor("float32", wanted.shape, permuted(wanted.shape, target))
            same(run(generate(op, ins, [out], traits(sm_count=0)), arrays, ins, [out]), wanted, tolerance=2e-5)


def permuted(lens: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """Returns strides of a tensor with permuted axes in memory and a gap after each row."""
    packed = row_major([lens[a] + (n == 3) for n, a in enumerate(order)])
    return tuple(packed[order.index(a)] for a in range(4))


def test_points_on_the_rims() -> None:
    """A sample counts from one pixel before the image to its end, both inclusive."""
    x = np.arange(1.0, 31.0, dtype=np.float32).reshape(1, 1, 5, 6)
    at = np.arange(-3, 9, dtype=np.float32)
    boxes = np.stack([at - 0.5, np.full(12, 1.0, np.float32), at + 0.5, np.full(12, 3.0, np.float32)], 1)
    boxes = np.concatenate([boxes, boxes[:, [1, 0, 3, 2]]]).astype(np.float32)
    for ratio in (0, 1, 2, 3):
        for mode, place in MODES:
            check(made(mode, place, ratio, 1.0, (2, 1)), [x, boxes, np.zeros(24, np.int64)])


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_vast_regions_end_soon(mode: str) -> None:
    """An adaptive number of samples is evaluated only inside the image; uninitialized rows may contain any corners."""
    ins = [tensor("float32", (1, 4, 5, 6)), tensor("float32", (4, 4)), tensor("int64", (4,))]
    out = tensor("float32", (4, 4, 1, 1))
    big = 3.0e38
    boxes = np.array(
        [[-big, -big, big, big], [0, 0, big, big], [-1e5, -1e5, 1e5, 1e5], [1e9, 1e9, 3e9, 3e9]], np.float32
    )
    boxes[2] += np.float32(0.25)
    x = np.ones((1, 4, 5, 6), np.float32)
    op = made(mode, cells=(1, 1), scale=1.0)
    (got,) = run(generate(op, ins, [out], traits()), [x, boxes, np.zeros(4, np.int64)], ins, [out])
    assert np.isfinite(got).all() and got.min() >= 0 and got.max() <= 1 and not got[3].any()
    within = op.evaluate([x, boxes[2:3], np.zeros(1, np.int64)]) if mode == "avg" else np.ones((1, 4, 1, 1))
    np.testing.assert_allclose(got[2:3], within, rtol=1e-5)


def test_positions_out_of_range_are_clamped() -> None:
    """Image indices out of range are clamped; a non-finite region gives NaN and does not affect its neighbors."""
    x = operands("float32", lens=(3, 4, 5, 6))[0]
    boxes = np.array([[0, 0, 4, 4]] * 5 + [[0, 0, np.inf, 4], [np.nan, 0, 4, 4]], np.float32)
    numbers = np.array([0, 2, 99, -99, 1 << 40, 1, 1])
    ins = [tensor(a.dtype, a.shape) for a in (x, boxes, numbers)]
    for ratio in (0, 2):
        out, op = tensor("float32", (7, 4, 3, 4)), made(ratio=ratio)
        (got,) = run(generate(op, ins, [out], traits()), [x, boxes, numbers], ins, [out])
        wanted = op.evaluate([x, boxes[:5], np.array([0, 2, 2, 0, 2])])
        np.testing.assert_allclose(got[:5], wanted, rtol=1e-4, atol=1e-5)
        assert np.isnan(got[5:]).all()


def test_one_text_for_many_numbers_of_regions() -> None:
    op, texts = made(ratio=0), set[str]()
    for count in (1, 5, 7, 12, 33):
        arrays = operands("float32", count, (2, 3, 9, 8))
        wanted = op.evaluate(arrays)
        ins, out = [tensor(a.dtype, a.shape) for a in arrays], tensor("float32", wanted.shape)
        n = SymbolicInt.symbol("n", count)
        lens = [(2, 3, 9, 8), (n, 4), (n,), (n, 3, 3, 4)]
        opened = [Tensor(t.dtype, s, row_major(s)) for t, s in zip([*ins, out], lens, strict=True)]
        source = generate(op, opened[:3], opened[3:], traits())
        assert isinstance(source, KernelSource)
        texts.add(source.text)
        same(run(source, arrays, ins, [out]), wanted, tolerance=2e-5)
    assert len(texts) <= 3  # one region, some, many


def program_of(count: Any, of: str, **attributes: Any) -> mgx.Program:
    """Returns a program of an activation, its regions, and ops after them."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape(of, (2, 8, 11, 13)))
    boxes, numbers = (
        m.add_parameter("boxes", mgx.Shape(of, (count, 4))),
        m.add_parameter("at", mgx.Shape("int64", (count,))),
    )
    found = m.add(made(**attributes), m.add(mgx.op("tanh"), x), boxes, numbers)
    m.add_return([m.add(mgx.op("relu"), found)])
    return program


@pytest.mark.parametrize("target", [GpuTarget("host", 0), GpuTarget("host", 1), GuardedTarget()])
@pytest.mark.parametrize("of", ["float32", "float16"])
@pytest.mark.parametrize("count", [9, symbol("n")])
def test_programs_stay_on_the_device(target: GpuTarget, of: str, count: Any) -> None:
    program = program_of(count, of)
    plain = program.get_main_module().clone()
    program.compile(target)
    for given in (9,) if count == 9 else (9, 4, 0, 1):
        arrays = operands(of, given)
        (wanted,) = Interpreter().run(plain, arrays)
        same(
            [program.run(dict(zip(("x", "boxes", "at"), arrays, strict=True)))[0].to_numpy()],
            wanted,
            tolerance=TOLERANCE[of],
        )
    assert program.executable is not None
    for instance in program.executable.instances():
        assert not instance.runner.hosted and [p for p in instance.placements if p.place == "host"] == []


def test_regions_of_nothing_are_left_to_the_host() -> None:
    ins = [tensor("float32", (2, 3, 0, 4)), tensor("float32", (1, 4)), tensor("int64", (1,))]
    found = generate(made(), ins, [tensor("float32", (1, 3, 3, 4))], traits())
    assert isinstance(found, No) and "requires an operand with elements" in found.why


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_architecture_has_code(arch: str) -> None:
    try:
        compiler = compiler_for(arch)
    except DeviceError as why:
        pytest.skip(str(why))
    lens = (2, 16, 9, 8)
    for of, mode, ratio in (
        ("float16", "avg", 0),
        ("bfloat16", "max", 2),
        ("float32", "max", 0),
        ("float64", "avg", 3),
    ):
        ins = [tensor(of, lens, channels_last(lens)), tensor(of, (5, 4)), tensor("int32", (5,))]
        out = tensor(of, (5, 16, 3, 4), channels_last((5, 16, 3, 4)))
        source = generate(made(mode, ratio=ratio), ins, [out], traits(64 if arch.startswith("gfx9") else 32, 0))
        assert isinstance(source, KernelSource)
        assert build([source], arch, compiler=compiler)[0].image[:4] == b"\x7fELF"
