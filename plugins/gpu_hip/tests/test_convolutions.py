"""Convolutions of fixed extents: padding of channels to whole vectors, and the choice between a library and our kernel."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mgx_core import No, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.convolution import Convolution
from mgx_core.ops.quantized_product import QuantConvolution
from mgx_core.targets.values import channels_last
from mgx_gpu_hip.emitter import GpuEmitter
from mgx_gpu_hip.library.epilogue import Activation
from mgx_gpu_hip.plans import PLANS, narrow_library
from mgx_gpu_hip.plans.convolutions import library_convolution
from mgx_gpu_hip.plans.epilogues import Steps
from mgx_gpu_hip.steps import KernelStep, LibraryStep
from mgx_gpu_hip.target import GpuTarget
from mgx_gpu_hip.tuning import TimedPlan

ODD = 12.0  # microseconds if channels are not whole vectors


class Tuner:
    """Stands for times on a device: `us` for whole vectors of channels, in products or in convolutions.

    symmetric: the library requires equal padding before and after, as MIOpen does.
    """

    measures = True

    def __init__(self, us: float, symmetric: bool = False) -> None:
        self.us = us
        self.symmetric = symmetric

    def estimate(self, problem: Any, exhaustive: bool) -> None:
        return None  # everything is timed

    def _timed(self, problem: Any, odd: bool, us: float | None = None) -> TimedPlan:
        plan = SimpleNamespace(name=str(problem), problem=problem, workspace=0, choice={"library": "stand-in"})
        return TimedPlan.of(plan, ODD if odd else self.us if us is None else us)

    def gemm(self, problem: Any, compiled: bool, exhaustive: bool) -> TimedPlan:
        return self._timed(problem, problem.k % 8 > 0)

    def convolution(self, problem: Any, exhaustive: bool) -> TimedPlan | No:
        if self.symmetric and any(before != after for before, after in problem.pads):
            return No("equal padding is required")
        if any(n < 0 for pad in problem.pads for n in pad):
            return No("negative padding")
        return self._timed(problem, problem.dims[1] % 8 > 0) if set(problem.kernel) != {1} else No("none")


def emitter(us: float, symmetric: bool = False) -> GpuEmitter:
    context = GpuTarget().get_context()
    context.compile_for("sm_90")
    context.__dict__.update(libraries=object(), tuner=Tuner(us, symmetric))
    return GpuEmitter(PLANS, context)


def emitted(channels: int, window: int, us: float) -> tuple[list[Any], Any]:
    """Returns the steps for a channels-last image of so many channels with 40 filters of ones, and the result."""
    e = emitter(us)
    weights = e.literal(np.ones((40, channels, window, window), np.float16))
    lens = [4, channels, 56, 56]
    x = e.input(Shape(dt.float16, [4, 56, 56, channels]), 0)
    image = x.view_at(0, Shape(dt.float16, lens, channels_last(lens)))
    return e.steps, library_convolution(e, Convolution(), image, weights)


@pytest.mark.parametrize("window", [1, 3])
def test_channels_become_whole_vectors_where_that_is_faster(window: int) -> None:
    """21 channels to 126 at 112 x 112, batch 32, took 210 us on an H200."""
    (copy, step), made = emitted(21, window, 4.0)
    assert isinstance(copy, KernelStep) and copy.outputs[0].lens == [4, 24, 56, 56]
    assert isinstance(step, LibraryStep)
    problem, given = step.plan.problem, step.operands["b" if window == 1 else "w"]
    assert (problem.k if window == 1 else problem.dims[1]) == 24
    held = given.buffer.array.reshape(40, window * window, 24)
    assert held[..., :21].all() and not held[..., 21:].any()
    assert made.lens == [4, 40, 57 - window, 57 - window]


@pytest.mark.parametrize("window", [1, 3])
def test_channels_stay_where_a_copy_costs_more_than_it_gains(window: int) -> None:
    (step,), _ = emitted(21, window, ODD - 1.0)
    assert (step.plan.problem.k if window == 1 else step.plan.problem.dims[1]) == 21


def test_whole_vectors_are_left_alone() -> None:
    (step,), _ = emitted(24, 1, 4.0)
    assert step.plan.problem.k == 24


@pytest.mark.parametrize("zeros", [True, False])
def test_padding_channels_written_by_a_product_are_read(zeros: bool) -> None:
    """Its filters were padded with rows of zeros; padding from a slice of a wider image has arbitrary values and is not read."""
    e = emitter(4.0)
    filters = np.ones((21 if zeros else 24, 16, 1, 1), np.float16)
    x = e.input(Shape(dt.float16, [4, 56, 56, 16]), 0)
    image = x.view_at(0, Shape(dt.float16, [4, 16, 56, 56], channels_last([4, 16, 56, 56])))
    made = library_convolution(e, Convolution(), image, e.literal(filters))
    part = made.view_at(0, Shape(dt.float16, [4, 21, 56, 56], made.strides))
    library_convolution(e, Convolution(), part, e.literal(np.ones((40, 21, 1, 1), np.float16)))
    if zeros:
        first, second = e.steps
        assert second.operands["a"].buffer is first.operands["d"].buffer
        assert second.operands["a"].lens == [4, 24, 56, 56]
    else:
        first, copy, second = e.steps
        assert copy.outputs[0].buffer is second.operands["a"].buffer
    assert second.plan.problem.k == 24


@pytest.mark.parametrize(("dims", "channels"), [((9,), 16), ((9, 7), 16), ((9, 7), 13), ((4, 9, 7), 16)])
@pytest.mark.parametrize("symmetric", [True, False])
def test_a_library_without_asymmetric_padding_reads_a_padded_copy(
    symmetric: bool, dims: tuple[int, ...], channels: int
) -> None:
    """Keras pads images of even extents at their ends alone where it halves them; 13 channels are rounded to whole vectors."""
    e, rank = emitter(0.0, symmetric), len(dims)
    x = e.input(Shape(dt.float16, [2, channels, *dims]), 0)
    op = Convolution(padding=(0,) * rank + (1,) * rank, stride=(2,) * rank, dilation=(1,) * rank)
    made = library_convolution(e, op, x, e.literal(np.ones((8, channels, *(3,) * rank), np.float16)))
    *copies, step = e.steps
    problem, image = step.plan.problem, dims if rank > 1 else (1, *dims)
    assert made.lens == [2, 8, *((n - 2) // 2 + 1 for n in dims)]
    assert [n for n in step.operands["x"].lens if n > 1] == [n for n in problem.dims if n > 1]
    if symmetric:
        (copy,) = copies
        assert copy.outputs[0].buffer is step.operands["x"].buffer
        assert problem.dims == (2, 16, *(n + (n > 1 or rank > 1) for n in image)) and not any(map(any, problem.pads))
    else:
        assert problem.dims == (2, 16, *image) and problem.pads[-1] == (0, 1)


@pytest.mark.parametrize("padding", [(-1, 0, -1, 0), (-1, -1, 2, 1)])
def test_padding_that_crops_is_part_of_a_copy(padding: tuple[int, ...]) -> None:
    e = emitter(0.0)
    x = e.input(Shape(dt.float16, [2, 16, 9, 8]), 0)
    made = library_convolution(e, Convolution(padding=padding), x, e.literal(np.ones((8, 16, 3, 3), np.float16)))
    copy, step = e.steps
    image = [n + padding[a] + padding[a + 2] for a, n in enumerate((9, 8))]
    assert copy.outputs[0].buffer is step.operands["x"].buffer and copy.outputs[0].lens == [2, 16, *image]
    assert step.plan.problem.dims == (2, 16, *image) and not any(map(any, step.plan.problem.pads))
    assert made.lens == [2, 8, *(n - 2 for n in image)]


def test_padding_that_crops_bytes_is_left_to_the_generated_kernel() -> None:
    e = emitter(0.0)
    x = e.input(Shape(dt.int8, [2, 16, 9, 8]), 0)
    w = e.literal(np.ones((16, 16, 3, 3), np.int8))
    with pytest.raises(Refused, match="padding of at least 0"):
        narrow_library.emit_single(e, QuantConvolution(padding=(0, 0, -1, 0)), (), [x, w])


@pytest.mark.parametrize(
    ("of", "image", "window", "arch", "exhaustive", "tried"),
    [
        ("int8", (8, 256, 28), 3, "sm_90", False, True),
        ("int8", (32, 512, 7), 3, "sm_90", False, True),
        ("int8", (32, 128, 28), 3, "sm_90", False, False),
        ("int8", (8, 256, 28), 1, "sm_90", False, False),
        ("float8_e4m3fn", (8, 256, 28), 3, "sm_90", False, False),
        ("int8", (8, 256, 28), 1, "sm_90", True, True),
        ("int8", (8, 256, 28), 1, "sm_80", False, True),
    ],
)
def test_libraries_are_tried_for_bytes_where_they_were_faster(
    of: str, image: tuple[int, int, int], window: int, arch: str, exhaustive: bool, tried: bool
) -> None:
    """Building four plans for each of resnet50's convolutions of bytes took 9 seconds on an H200's machine."""
    e = emitter(0.0)
    e.context.compile_for(arch)
    e.context.__dict__.update(libraries=object(), tuner=NarrowTuner(0.0))
    e.exhaustive, e.measured = exhaustive, True
    batch, channels, size = image
    x = e.input(Shape(dt.of(of), [batch, channels, size, size]), 0)
    w = e.literal(np.ones((channels, channels, window, window), dt.of(of).numpy))
    op = QuantConvolution(padding=(window // 2,) * 2)
    if tried:
        narrow_library.emit_single(e, op, (), [x, w])
        assert any("stand-in" in str(s.plan.choice) for s in e.steps if isinstance(s, LibraryStep))
    else:
        with pytest.raises(Refused, match="generated kernels are faster"):
            narrow_library.emit_single(e, op, (), [x, w])
        assert not e.steps


class NarrowTuner(Tuner):
    def narrow(self, problem: Any, exhaustive: bool) -> TimedPlan:
        return self._timed(problem, False)


class GroupTuner(Tuner):
    """Stands for a library whose time follows the operations, 20 times as long for groups that are not whole vectors."""

    def convolution(self, problem: Any, exhaustive: bool) -> TimedPlan | No:
        each = problem.dims[1] // problem.groups
        return self._timed(problem, False, problem.flops / 4e8 * (20 if each % 8 else 1))


@pytest.mark.parametrize(("channels", "groups", "merged"), [(80, 8, 4), (160, 8, 2), (256, 8, 1)])
def test_slow_groups_of_few_channels_are_merged(channels: int, groups: int, merged: int) -> None:
    """ResNeSt's 3 x 3 convolutions of eight groups of 10 channels, 56 x 56, batch 32, took 346 us on an H200."""
    e, each, filters = emitter(0.0), channels // groups, 4 * channels
    vars(e.context).update(tuner=GroupTuner(0.0))
    x = e.input(Shape(dt.float16, [32, 56, 56, channels]), 0)
    image = x.view_at(0, Shape(dt.float16, [32, channels, 56, 56], channels_last([32, channels, 56, 56])))
    given = np.random.default_rng(0).integers(1, 9, (filters, each, 3, 3)).astype(np.float16)
    library_convolution(e, Convolution(group=groups, padding=(1, 1)), image, e.literal(given))
    (step,) = e.steps
    assert step.plan.problem.groups == groups // merged
    held = step.operands["w"].buffer.array.reshape(filters, 3, 3, each * merged).transpose(0, 3, 1, 2)
    for g in range(groups):
        rows, first = slice(g * filters // groups, (g + 1) * filters // groups), g % merged * each
        own = held[rows, first : first + each]
        assert (own == given[rows]).all() and held[rows].sum(dtype=np.float64) == given[rows].sum(dtype=np.float64)


class GeluTuner(Tuner):
    """Stands for a library whose fused convolution takes `us`, and whose bare product takes 30."""

    def gemm(self, problem: Any, compiled: bool, exhaustive: bool) -> TimedPlan | No:
        return No("not fused") if problem.epilogue else self._timed(problem, False, 30.0)

    def convolution(self, problem: Any, exhaustive: bool) -> TimedPlan | No:
        return self._timed(problem, False)


@pytest.mark.parametrize(
    ("kind", "us", "apart"), [("gelu_erf", 76.0, True), ("gelu_erf", 50.0, False), ("relu", 76.0, False)]
)
def test_an_exact_gelu_is_a_launch_of_its_own_where_fusing_it_costs_more(kind: str, us: float, apart: bool) -> None:
    """632 channels of 14 x 14 to 2,528, batch 32, took 76 us on an H200 fused, and the product alone about 30."""
    e = emitter(0.0)
    vars(e.context).update(tuner=GeluTuner(us))
    x = e.input(Shape(dt.float16, [32, 14, 14, 632]), 0)
    image = x.view_at(0, Shape(dt.float16, [32, 632, 14, 14], channels_last([32, 632, 14, 14])))
    weights, epilogue = e.literal(np.ones((2528, 632, 1, 1), np.float16)), Steps([Activation(kind)])
    if apart:
        with pytest.raises(Refused, match="separate launch"):
            library_convolution(e, Convolution(), image, weights, epilogue)
    else:
        library_convolution(e, Convolution(), image, weights, epilogue)
        assert e.steps[-1].plan.problem.epilogue == (Activation(kind),)


@pytest.mark.parametrize(
    ("us", "measured", "name"),
    [(1.0, True, "library"), (100.0, True, "matrix units"), (100.0, False, "library")],
)
def test_the_generated_kernel_is_used_where_libraries_take_longer(
    us: float, measured: bool, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """24 to 144 channels at 56 x 56, batch 32, took 19.8 us instead of cuDNN's 29.6 on an H200.

    After many sets of extents nothing is measured, or compiled, where a library has a plan.
    Weights padded for the comparison are not kept.
    """
    if not measured:
        monkeypatch.setattr(Tuner, "estimate", lambda *_: 1.0)
    e = emitter(us)
    x = e.input(Shape(dt.float16, [4, 56, 56, 24]), 0)
    image = x.view_at(0, Shape(dt.float16, [4, 24, 56, 56], channels_last([4, 24, 56, 56])))
    weights = e.literal(np.ones((44, 24, 3, 3), np.float16))
    op = Convolution(padding=(1, 1, 1, 1))
    offers = PLANS.offers(op, [image.shape, weights.shape], None, ())
    for _, kernel in offers:
        if not isinstance(kernel, No) and kernel.emit is not None:
            try:
                kernel.emit(e, op, (), [image, weights])
            except Refused:
                continue
            break
    assert kernel.name == f"{name} convolution"
    assert isinstance(e.steps[-1], LibraryStep if name == "library" else KernelStep)
    assert any(len(array) == 48 for array, _ in e.literals.values()) is (name == "library")
