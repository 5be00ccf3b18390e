"""Grid sampling: kernels compared with the reference, and programs without host steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from kernel_trial import channels_last, generate, run, same, tensor, traits

import mgx_core as mgx
from mgx_core import No
from mgx_core import dtype as dt
from mgx_core.errors import DeviceError
from mgx_core.ops.sample import GridSample
from mgx_core.types.shape import row_major
from mgx_gpu_hip.codegen.extents import SymbolicInt
from mgx_gpu_hip.codegen.source import KernelSource, Tensor
from mgx_gpu_hip.compile.compilers import compiler_for
from mgx_gpu_hip.guarded import GuardedTarget
from mgx_gpu_hip.target import GpuTarget

Array = np.ndarray[Any, Any]
TOLERANCE = {"float32": 4e-6, "float64": 4e-15, "float16": 1e-3, "bfloat16": 8e-3}
modes = pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
paddings = pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
ARCHITECTURES = ["gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100", "sm_90"]


def image(of: str, *lens: int) -> Array:
    kind = dt.of(of)
    rng = np.random.default_rng(5)
    values = rng.uniform(-2, 2, lens) if kind.kind == "f" else rng.integers(0, 2 if of == "bool" else 120, lens)
    return values.astype(kind.numpy)


def places(of: str, *lens: int, far: float = 2.5) -> Array:
    """Returns a grid with coordinates inside and outside; some at edges, half way between elements, or not finite."""
    made = np.random.default_rng(6).uniform(-far, far, lens)
    some = [np.nan, np.inf, -np.inf, -1e30, 1e9, -1, 1, 0, 0.5, -0.5, 1 / 3, 0.2]
    flat = made.reshape(-1)[: 2 * len(some) : 2]
    flat[:] = some[: len(flat)]
    with np.errstate(over="ignore"):
        return made.astype(dt.of(of).numpy)


def check(
    op: GridSample, x: Array, grid: Array, wave: int = 32, layout: Any = None, multiprocessors: int = 4
) -> KernelSource:
    """Compares the generated kernel with the reference."""
    with np.errstate(invalid="ignore"):
        wanted = op.evaluate([x, grid])
    xs = [tensor(x.dtype, x.shape, layout and layout(x.shape)), tensor(grid.dtype, grid.shape)]
    y = tensor(wanted.dtype, wanted.shape, layout and layout(wanted.shape))
    source = generate(op, xs, [y], traits(wave, multiprocessors))
    same(run(source, [x, grid], xs, [y], wave), wanted, tolerance=TOLERANCE.get(str(dt.of(x.dtype)), 0))
    assert isinstance(source, KernelSource) and len(source.launches) == 1
    return source


@pytest.mark.pairs
@modes
@paddings
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("wave", [32, 64])
def test_every_mode(mode: Any, padding: Any, corners: bool, wave: int) -> None:
    op = GridSample(mode=mode, padding_mode=padding, align_corners=corners)
    for lens in ((7,), (5, 9), (1, 4), (3, 4, 5)):
        grid = places("float32", 2, *(7,) * len(lens), len(lens))
        check(op, image("float32", 2, 3, *lens), grid, wave)
        check(op, image("float32", 2, 8, *lens), grid, wave, channels_last)


@pytest.mark.parametrize(("mode", "padding"), [("linear", "reflection"), ("nearest", "border"), ("cubic", "zeros")])
@pytest.mark.parametrize("of", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("grid", ["float32", "float64", "float16", "bfloat16"])
def test_every_float(mode: Any, padding: Any, of: str, grid: str) -> None:
    op = GridSample(mode=mode, padding_mode=padding)
    for layout in (None, channels_last):
        check(op, image(of, 2, 8, 6, 5), places(grid, 2, 4, 5, 2, far=1.3), layout=layout)


@modes
@pytest.mark.parametrize("of", ["int8", "uint8", "int32", "int64", "bool"])
def test_integers_of_which_none_is_between_two_others(mode: Any, of: str) -> None:
    """At integer positions, since interpolated values are truncated, which would reveal their rounding."""
    x = image(of, 1, 3, 5, 5)
    grid = np.stack(np.meshgrid(*[np.linspace(-1.5, 1.5, 7)] * 2), -1)[None]
    check(GridSample(mode=mode, align_corners=True), x, grid)


@modes
@paddings
def test_elements_that_are_not_finite(mode: Any, padding: Any) -> None:
    """Elements outside do not contribute; elements inside do, whatever their weight."""
    x = image("float32", 1, 2, 5, 6)
    x[0, 0, 0, 0], x[0, 0, 2, 3], x[0, 1, 4, 5] = np.nan, np.inf, -np.inf
    grid = places("float32", 1, 30, 40, 2, far=1.6)
    for corners in (False, True):
        check(GridSample(mode=mode, padding_mode=padding, align_corners=corners), x, grid)


@modes
@pytest.mark.parametrize("size", [7, 12, 49])
def test_places_in_the_middle_between_elements(mode: Any, size: int) -> None:
    """A coordinate that is rounded differently selects another neighbor."""
    steps = (np.arange(4 * size + 1) / (4 * size) * 2.4 - 1.2).astype(np.float32)
    halves = ((np.arange(2 * size + 1) + 0.5) / size - 1).astype(np.float32)
    grid = np.concatenate([steps, halves]).reshape(1, -1, 1)
    for corners in (False, True):
        check(GridSample(mode=mode, align_corners=corners), image("float32", 1, 2, size), grid)


@pytest.mark.parametrize("channels", [1, 2, 3, 5, 8, 12, 19])
@pytest.mark.parametrize("layout", [None, channels_last])
def test_channels_are_spread_over_threads(channels: int, layout: Any) -> None:
    for multiprocessors in (1, 132):
        for mode in ("linear", "cubic"):
            x, grid = image("float16", 2, channels, 6, 7), places("float32", 2, 30, 40, 2)
            check(GridSample(mode=mode), x, grid, layout=layout, multiprocessors=multiprocessors)  # type: ignore[arg-type]


def test_a_place_is_computed_once_for_its_channels() -> None:
    x, grid = image("float16", 1, 16, 6, 7), places("float32", 1, 64, 64, 2)
    turned = check(GridSample(), x, grid, layout=channels_last, multiprocessors=1)
    assert "ldv<half_t, 8>" in turned.text and "stv<half_t, 8>" in turned.text
    plain = check(GridSample(), x, grid, multiprocessors=1)
    assert "float acc[8];" in plain.text


def test_any_strides() -> None:
    x, grid = image("float32", 3, 4, 5, 6), places("float32", 3, 7, 5, 2)
    xs = [tensor("float32", x.shape, (1, 700, 100, 9)), tensor("float32", grid.shape, (2, 50, 7, 1))]
    wanted = GridSample().evaluate([x, grid])
    y = tensor("float32", wanted.shape, (5, 200, 15, 1000))
    same(run(generate(GridSample(), xs, [y], traits()), [x, grid], xs, [y]), wanted, tolerance=4e-6)


def opened(x: Tensor, *names: str) -> Tensor:
    lens = tuple(SymbolicInt.symbol(s, n) if s else n for s, n in zip(names, x.lens, strict=True))
    return x._replace(lens=lens, strides=row_major(lens))


@paddings
@pytest.mark.parametrize("multiprocessors", [1, 132])
def test_one_text_for_many_extents(padding: Any, multiprocessors: int) -> None:
    op, texts = GridSample(padding_mode=padding), set()
    for n, c, h, w in ((3, 5, 7, 6), (2, 9, 4, 5), (4, 2, 9, 3), (2, 17, 5, 5)):
        x, grid = image("float32", n, c, h, w), places("float32", n, 30 + h, 20 + w, 2)
        wanted = op.evaluate([x, grid])
        xs, y = [tensor(a.dtype, a.shape) for a in (x, grid)], tensor(wanted.dtype, wanted.shape)
        named = [opened(xs[0], "n", "c", "h", "w"), opened(xs[1], "n", "k", "l", "")]
        source = generate(op, named, [opened(y, "n", "c", "k", "l")], traits(32, multiprocessors))
        assert isinstance(source, KernelSource)
        texts.add(source.text)
        same(run(source, [x, grid], xs, [y]), wanted, tolerance=4e-6)
    assert len(texts) == 1


def test_errors_of_invalid_input() -> None:
    for x, grid, why in (
        ((1, 1, 2, 2, 2, 2), (1, 3, 3, 3, 3, 4), "4 spatial axes"),
        ((1, 1, 2, 1 << 30), (1, 3, 3, 2), "elements is too long"),
        ((1, 1, 2, 0), (1, 3, 3, 2), "requires an operand with elements"),
    ):
        wanted = tensor("float32", (*x[:2], *grid[1:-1]))
        refused = generate(GridSample(), [tensor("float32", x), tensor("float32", grid)], [wanted], traits())
        assert isinstance(refused, No) and why in refused.why


def warped(mode: str, batch: Any, of: str) -> mgx.Program:
    """Returns a convolution, whose result is warped by a flow that another convolution computes from it, and a convolution
    after it.
    """
    rng = np.random.default_rng(3)
    program = mgx.Program()
    m = program.get_main_module()
    near = mgx.op("convolution", padding=[1, 1], stride=[1, 1], dilation=[1, 1])

    def weights(*dims: int) -> mgx.Instruction:
        return m.add_literal((rng.standard_normal(dims) * 0.2).astype(dt.of(of).numpy))

    x = m.add(near, m.add_parameter("x", mgx.Shape(of, [batch, 3, 8, 10])), weights(8, 3, 3, 3))
    flow = m.add(mgx.op("tanh"), m.add(near, x, weights(2, 8, 3, 3)))
    grid = m.add(mgx.op("transpose", permutation=[0, 2, 3, 1]), flow)
    sampled = m.add(mgx.op("grid_sample", mode=mode, padding_mode="border"), x, grid)
    m.add_return([m.add(near, sampled, weights(4, 8, 3, 3))])
    return program


@pytest.mark.pairs
@modes
@pytest.mark.parametrize("of", ["float32", "float16"])
@pytest.mark.parametrize("open_batch", [False, True])
@pytest.mark.parametrize("wave", [0, 1])
def test_no_step_of_a_warping_program_is_on_the_host(mode: str, of: str, open_batch: bool, wave: int) -> None:
    batch: Any = mgx.dim.symbol("n", 1, 8) if open_batch else 2
    ours, wanted = warped(mode, batch, of), warped(mode, batch, of)
    ours.compile(GpuTarget("host", wave))
    wanted.compile(mgx.get_target("ref"))
    x = image(of, 2, 3, 8, 10)
    got, right = (p.run({"x": x})[0].to_numpy().astype(np.float64) for p in (ours, wanted))
    # nearest: a differently rounded flow may select another element
    wrong = np.abs(got - right) > (2e-2 if of == "float16" else 1e-4) * np.abs(right).max()
    assert wrong.mean() <= (0.2 if mode == "nearest" else 0)
    steps = on_device(ours)
    assert any("grid_sample" in s for s in steps)


def on_device(program: mgx.Program) -> Sequence[str]:
    """Returns the names of all steps, after checking that none is on the host."""
    (instance,) = program.executable.instances()
    names = [s.name for s in instance.runner.schedule.steps]
    assert not [s for s in names if s.startswith("host")], names
    assert {p.place for p in instance.placements} <= {"target"}
    return names


@modes
@paddings
def test_guarded_memory(mode: Any, padding: Any) -> None:
    """Nothing outside the image is read, whatever the coordinates."""
    op = mgx.op("grid_sample", mode=mode, padding_mode=padding)
    program = mgx.Program()
    m = program.get_main_module()
    x, grid = image("float32", 1, 3, 4, 5), places("float32", 1, 9, 8, 2, far=40)
    m.add_return([m.add(op, *(m.add_parameter(n, mgx.Shape("float", a.shape)) for n, a in (("x", x), ("grid", grid))))])
    program.compile(GuardedTarget())
    same([program.run({"x": x, "grid": grid})[0].to_numpy()], op.evaluate([x, grid]), tolerance=4e-6)


@modes
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_it_compiles_for_devices_that_are_not_here(mode: str, arch: str) -> None:
    try:
        compiler_for(arch)
    except DeviceError as why:
        pytest.skip(str(why))
    program = mgx.Program()
    m = program.get_main_module()
    made, given = [], {}
    kinds = [(of, rank) for of in ("float32", "float16", "bfloat16", "float64") for rank in (2, 3)]
    for n, (of, rank) in enumerate(kinds):
        x, grid = (2, 4, *(6,) * rank), (2, *(5,) * rank, rank)
        given |= {f"x{n}": np.zeros(x, dt.of(of).numpy), f"grid{n}": np.zeros(grid, "d" if of == "float64" else "f")}
        batch: Any = mgx.dim.symbol("n", 1, 8) if rank == 3 else 2
        pair = [m.add_parameter(k, mgx.Shape(dt.of(a.dtype), [batch, *a.shape[1:]])) for k, a in [*given.items()][-2:]]
        padding, corners = ("zeros", "border", "reflection")[n % 3], n % 2 == 0
        made.append(m.add(mgx.op("grid_sample", mode=mode, padding_mode=padding, align_corners=corners), *pair))
    m.add_return(made)
    program.compile(GpuTarget(), target=arch)
    with pytest.raises(DeviceError, match=f"compiled for {arch}"):
        program.run(given)
    (instance,) = program.executable.instances()
    assert all(c.image[:4] == b"\x7fELF" for c in instance.runner.codes)
    on_device(program)
