"""Pads and nearest resampling by native line copies: which of them qualify, and that results equal the reference."""

from __future__ import annotations

import numpy as np
import pytest
from run_loops import run_numpy

from mgx_core.ops.pad import Pad
from mgx_core.ops.resize import Resize
from mgx_core.types.shape import Shape
from mgx_cpu_dnnl.jit.engine import Engine
from mgx_cpu_dnnl.jit.lines import compile_lines
from mgx_cpu_dnnl.jit.move import compile_pad, resize_taps
from mgx_cpu_dnnl.jit.native_loop import NativeLoop
from mgx_cpu_dnnl.jit.taps import compile_taps
from mgx_cpu_dnnl.jit.taps_plan import Taps


def image(dims, dtype=np.float32):
    return (np.random.default_rng(0).standard_normal(dims) * 50).astype(dtype)


def moved(op, x, chunks=1):
    """Returns the result of a pad or nearest resampling, and whether the native module's line copies computed it."""
    wanted = op.compute(x)
    given, out = Shape(x.dtype, x.shape), np.full_like(wanted, 77)
    engine, result = Engine(cache=None), Shape(out.dtype, out.shape)
    if isinstance(op, Pad):
        kernel = compile_pad(op, given, result, engine)
    else:
        kernel = compile_taps(given, result, resize_taps(op, given, result), "copy", engine, "resize")
    run_numpy(kernel, [x, out], chunks)
    np.testing.assert_array_equal(out, wanted)
    return isinstance(kernel.code, NativeLoop)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.float16, np.int64])
@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize(("dims", "pads"), [
    ((2, 3, 9, 80), (0, 0, 3, 2, 0, 0, 1, 4)), ((400,), (30, 50)), ((2, 9, 70), (0, 2, -3, 0, -2, 5)),
    ((2, 40, 30, 4), (0, 0, 2, 0, 0, 0, 1, 0)), ((3, 90), (1, 0, 2, 0)), ((3, 12, 400), (0, -2, 0, 0, 5, 0)),
])  # fmt: skip
def test_pads(dims, pads, mode, dtype):
    value = 3.0 if np.dtype(dtype).kind == "i" else 200.0
    assert moved(Pad(pads=pads, mode=mode, value=value), image(dims, dtype), 3)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.float64])
@pytest.mark.parametrize("times", [2, 3, 4])
def test_repeated_pixels(times, dtype):
    scales = (1.0, 1.0, float(times), float(times))
    op = Resize(scales=scales, coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    assert moved(op, image((2, 3, 9, 40), dtype), 2)


def test_cases_that_are_moved_otherwise():
    assert not moved(Resize(sizes=(1, 1, 9, 67)), image((1, 1, 9, 40)))  # every run is one or two pixels
    assert not moved(Pad(pads=(0, 1, 0, 1)), image((100, 4)))  # short lines
    x, out = Shape("uint32", [4, 64], [1, 4]), Shape("uint32", [6, 64])  # rows are not contiguous in x
    assert compile_lines(x, out, {0: Taps([[], [0], [1], [2], [3], []])}, 0, "pad") is None


def test_a_filler_of_all_bits():
    x = np.zeros((2, 70), np.uint8)
    assert moved(Pad(pads=(0, 1, 0, 1), value=255.0), x)


@pytest.mark.parametrize(("dims", "pads"), [((3,), (-1, -2)), ((1, 300), (-1, 0, 0, 0)), ((2, 3), (0, -3, 1, 0))])
def test_nothing_is_left(dims, pads):
    assert not moved(Pad(pads=pads), image(dims))
