"""Native programs for all values of changing extents: what refuses them, buffers that grow, and choices for usual extents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
import mgx_cpu_dnnl.open_run
from mgx_core import Kernels
from mgx_core import dtype as dt
from mgx_core.ops.movement import Reverse
from mgx_core.types.dim import symbol
from mgx_cpu_dnnl.open_program import open_program
from mgx_cpu_dnnl.plans import PLANS
from mgx_cpu_dnnl.plans.native_loops import native_loop
from mgx_cpu_dnnl.plans.offer import offer
from mgx_cpu_dnnl.shared import shared
from mgx_cpu_dnnl.target import CpuTarget


def opened(program: mgx.Program, **known: int) -> Any:
    """Returns the program opened for extents of all symbols, or None."""
    made = program.executable
    return open_program(made.parameters, known, frozenset(known), made._lowered)


def net(op: str, target: Any, **attributes: Any) -> mgx.Program:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [symbol("n"), 40]))
    y = m.add(mgx.op(op, **attributes), x)
    m.add_return([m.add(mgx.op("softmax", axis=0), m.add(mgx.op("prefix_scan_sum", axis=0), y))])
    program.compile(target)
    return program


class WithPlan(CpuTarget):
    """The cpu target with a plan of `reverse` before its own."""

    def __init__(self, emit: Callable[..., Any]) -> None:
        super().__init__()
        self._own = Kernels("cpu")
        offer(self._own, Reverse, name="own")(emit)

    def kernels(self, context: Any) -> Kernels:
        return self._own + PLANS


def scaled(factor: Callable[[int], int], e: Any, args: Sequence[Any]) -> Any:
    """Emits a copy whose number of elements is computed by `factor`."""
    (x,) = args
    out = e.allocate(x.shape.dtype, x.lens)
    count = factor(x.lens[0]) * x.lens[1]
    native_loop(e, "copy", "copy_4", [x, out], [out], [1, count, 1, 1], count)
    return out


@pytest.mark.parametrize(
    ("factor", "opens"),
    [
        (lambda n: n, True), (int, False), (lambda n: len(range(n)), False), (lambda n: int(np.arange(n).size), False),
        (lambda n: n - 1 + len(range(n % 2)), False), (lambda n: n - len(range(n % 3)), False),
        (lambda n: n - 3 + len(range(n // 3)) if 8 <= n < 13 else n, False),
    ],
)  # fmt: skip
def test_numbers_that_lose_their_extents_are_noticed(factor: Callable[[int], int], opens: bool) -> None:
    program = net("reverse", WithPlan(lambda e, op, modules, args: scaled(factor, e, args)), axes=[0])
    assert (opened(program, n=9) is not None) is opens


def test_buffers_grow_by_doubling(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []
    library = mgx_cpu_dnnl.open_run.native()

    class Counting:
        def __getattr__(self, name: str) -> Any:
            if name == "NativeProgram":
                return lambda title, arena: built.append(arena) or library.NativeProgram(title, arena)
            return getattr(library, name)

    monkeypatch.setattr(mgx_cpu_dnnl.open_run, "native", Counting)
    run = opened(net("tanh", mgx.get_target("cpu")), n=9).runner.run
    for rows in range(2, 400):
        x = np.full((rows, 40), 0.5, np.float32)
        (y,) = run([x])
        power = np.exp(np.cumsum(np.tanh(x.astype(np.float64)), 0) - rows)
        np.testing.assert_allclose(y, power / power.sum(0), rtol=1e-3, atol=1e-30)
    assert len(built) <= 9 and built == sorted(built)
    for rows in (3, 90, 399, 17):
        run([np.zeros((rows, 40), np.float32)])
    assert len(built) <= 9


def test_sizes_for_larger_extents_may_have_no_value() -> None:
    """Those for the next power of two divide by 0."""

    def emit(e: Any, op: Any, modules: Any, args: Sequence[Any]) -> Any:
        (x,) = args
        extra = e.allocate(dt.float32, [640 // (16 - x.lens[0])])
        native_loop(e, "fill", "fill_4", [extra], [extra], [0], extra.lens[0])
        return scaled(lambda n: n, e, args)

    made = opened(net("reverse", WithPlan(emit), axes=[0]), n=9)
    for rows in (9, 12, 5):
        (y,) = made.runner.run([np.zeros((rows, 40), np.float32)])
        assert made.fits({"n": rows}) and y.shape == (rows, 40)
    assert not made.fits({"n": 16})


def test_conditions_decide_which_extents_fit() -> None:
    program = opened(net("tanh", mgx.get_target("cpu")), n=9)
    assert program.fits({"n": 9}) and program.fits({"n": 200})
    assert not program.fits({"n": 1}) and not program.fits({"n": 0})


def test_numbers_of_results_depend_on_extents() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    n = symbol("n", 0, 99)
    x = m.add_parameter("x", mgx.Shape("float32", [n]))
    y = m.add(mgx.op("topk", k=n // 2, axis=0), x)
    m.add_return([m.add(mgx.op("get_tuple_elem", index=0), y)])
    program.compile(mgx.get_target("cpu"))
    made = opened(program, n=9)
    for length in range(4, 40):
        (found,) = made.runner.run([np.arange(length, dtype=np.float32)])
        assert made.fits({"n": length}) and found.tolist() == [*reversed(range(length))][: length // 2]


def test_rows_that_become_short_are_copied_without_their_neighbors() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [40, 3, symbol("n")]))
    m.add_return([m.add(mgx.op("slice", axes=[1], starts=[1], ends=[2]), x)])
    program.compile(mgx.get_target("cpu"))
    made = opened(program, n=70)
    assert made.fits({"n": 4}) and made.fits({"n": 900})
    for length in (70, 2, 3, 4, 5, 900):
        x = np.arange(40 * 3 * length, dtype=np.float32).reshape(40, 3, length)
        if made.fits({"n": length}):
            np.testing.assert_array_equal(made.runner.run([x])[0], x[:, 1:2])


def test_times_are_measured_by_step() -> None:
    runner = opened(net("tanh", mgx.get_target("cpu")), n=9).runner
    assert runner.time([np.zeros((33, 40), np.float32)], 2, 1)


def test_constants_are_no_results_of_an_open_program() -> None:
    """They may have been computed from the extents that it was opened for."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [symbol("n")]))
    m.add_return([m.add(mgx.op("tanh"), x), m.add_literal(np.array([9]))])
    program.compile(mgx.get_target("cpu"))
    assert opened(program, n=9) is None


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_bytes_with_a_zero_point_of_run_time(kind: Any) -> None:
    rng = np.random.default_rng(8)
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape(np.dtype(kind).name, [symbol("n"), 40]))
    zero = m.add_parameter("zero", mgx.Shape(np.dtype(kind).name, []))
    weights = rng.integers(-128, 128, (40, 24)).astype(np.int8)
    m.add_return([m.add(mgx.op("quant_dot"), x, m.add_literal(weights), zero)])
    program.compile(mgx.get_target("cpu"))
    made = opened(program, n=9)
    assert made is not None
    limits = np.iinfo(kind)
    for rows in (
        (9, 2, 33, 130, 500, 7) if shared().engine.wide else (9, 33, 130, 7)
    ):  # others have kernels of their own
        given = rng.integers(limits.min, limits.max + 1, (rows, 40)).astype(kind)
        point = np.array(rng.integers(limits.min, limits.max + 1), kind)
        assert made.fits({"n": rows})
        (got,) = made.runner.run([given, point])
        np.testing.assert_array_equal(got, (given.astype(np.int32) - point) @ weights.astype(np.int32))


def test_products_of_fixed_rows_stay_primitives() -> None:
    """Each emission creates its own primitives, which are equal."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [symbol("n")]))
    y = m.add_parameter("y", mgx.Shape("float32", [2, 64, 48, 48]))
    weights = m.add_literal(np.random.default_rng(1).standard_normal((64, 64, 5, 5)).astype(np.float32))
    m.add_return([m.add(mgx.op("tanh"), x), m.add(mgx.op("convolution", stride=[2, 2]), y, weights)])
    program.compile(mgx.get_target("cpu"))
    made = opened(program, n=9)
    assert made is not None and not made.replaced
    assert "onednn convolution" in [p.kernel for p in made.placements]


@pytest.mark.parametrize("channels", [3, 45, 64])
@pytest.mark.parametrize(("window", "stride", "dilation"), [((3, 4), (1, 3), (2, 1)), ((3, 3), (1, 1), (2, 3))])
def test_depthwise_windows_with_any_distance_of_taps(channels: int, window: Any, stride: Any, dilation: Any) -> None:
    """Windows reach beyond the image on all sides, by whole rows of taps at the top."""
    rng = np.random.default_rng(3)
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [2, channels, symbol("h"), symbol("w")]))
    weights = rng.standard_normal((channels, 1, *window)).astype(np.float32)
    how = mgx.op("convolution", padding=[4, 2, 1, 3], stride=stride, dilation=dilation, group=channels)
    m.add_return([m.add(how, x, m.add_literal(weights))])
    program.compile(mgx.get_target("cpu"))
    made = opened(program, h=9, w=14)
    assert "conv taps" in [s.name for s in made.runner.program._schedule.steps]
    for h, w in ((9, 14), (31, 8), (6, 50)):
        given = rng.standard_normal((2, channels, h, w)).astype(np.float32)
        assert made.fits({"h": h, "w": w})
        (got,) = made.runner.run([given])
        np.testing.assert_allclose(got, how.evaluate([given, weights]), rtol=0, atol=1e-5)
