"""Gather, pad, resize and pooling loops against the ops' own compute, in several layouts."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_core import dtype as dt
from mgx_core.errors import No
from mgx_core.ops.index import Gather
from mgx_core.ops.pad import Pad
from mgx_core.ops.pooling import Pooling
from mgx_core.ops.resize import Resize
from mgx_core.types.shape import Shape
from mgx_cpu_dnnl.jit.engine import Engine
from mgx_cpu_dnnl.jit.kernel import run_numpy
from mgx_cpu_dnnl.jit.move import compile_gather, compile_pad, compile_pooling, compile_resize


@pytest.fixture(scope="module", params=["host", "avx2"])
def engine(request):
    return Engine(cache=None) if request.param == "host" else Engine("x86-64-v3", cache=None)


def strided(array, order):
    memory = np.zeros([array.shape[a] for a in order], array.dtype)
    view = memory.transpose(np.argsort(order))
    view[...] = array
    return view


def shape_of(array):
    return Shape(array.dtype, array.shape, [s // array.itemsize for s in array.strides])


def image(dims, dtype=np.float32, seed=0):
    r = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        return r.integers(0, 100, dims).astype(dtype)
    return r.standard_normal(dims).astype(dtype)


LAYOUTS = [(0, 1, 2, 3), (0, 2, 3, 1)]


def both(engine, compile_, op, x, layout, rtol=0.0):
    expected = op.compute(x)
    given = strided(x, layout)
    out = strided(np.ones_like(expected), layout)
    kernel = compile_(op, shape_of(given), shape_of(out), engine)
    assert not isinstance(kernel, No), kernel
    run_numpy(kernel, [given, out], 3)
    np.testing.assert_allclose(out.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize(
    "pads", [(0, 0, 1, 2, 0, 0, 3, 1), (0, 1, 0, 0, 1, 2, 0, 0), (0, 0, 0, 5, 0, 0, 0, 4), (0, 0, 0, 0, 0, 0, 0, 0)]
)
def test_pad(engine, layout, mode, pads):
    both(engine, compile_pad, Pad(pads=pads, mode=mode, value=1.5), image((2, 5, 6, 7)), layout)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float64, np.int64], ids=lambda d: d.__name__)
def test_pad_types(engine, layout, dtype):
    both(engine, compile_pad, Pad(pads=(0, 0, -1, 2, 0, 70, 1, -1), value=3.0), image((2, 20, 6, 9), dtype), layout)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("op", [
    Resize(scales=(1.0, 1.0, 2.0, 2.0), coordinate_transformation_mode="asymmetric"),
    Resize(sizes=(2, 19, 5, 11), nearest_mode="round_prefer_ceil"),
    Resize(scales=(2.0, 3.0), axes=(2, 3), mode="linear"),
    Resize(sizes=(5, 13), axes=(2, 3), mode="linear", coordinate_transformation_mode="align_corners"),
    Resize(sizes=(5, 13), axes=(2, 3), mode="cubic"),
    Resize(scales=(0.5, 0.6), axes=(2, 3), mode="linear", antialias=True),
    Resize(sizes=(4, 4), axes=(2, 3), mode="linear", keep_aspect_ratio_policy="not_larger"),
], ids=str)  # fmt: skip
def test_resize(engine, layout, op):
    both(engine, compile_resize, op, image((2, 19, 7, 9)), layout, 0.0 if op.mode == "nearest" else 3e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64], ids=lambda d: d.__name__)
@pytest.mark.parametrize("op", [
    Pooling(mode="max", lengths=(3, 3), stride=(2, 2), padding=(1, 1)),
    Pooling(mode="average", lengths=(3, 2), stride=(1, 2), padding=(1, 0, 1, 1)),
    Pooling(mode="average", lengths=(3, 3), stride=(2, 2), padding=(1, 1), count_include_pad=True, ceil_mode=True),
    Pooling(mode="max", lengths=(2, 3), stride=(1, 1), dilations=(2, 1)),
    Pooling(mode="max", lengths=(3, 3), stride=(2, 2), padding_mode="same_upper"),
    Pooling(mode="average", dyn_global=True),
    Pooling(mode="max", dyn_global=True),
], ids=str)  # fmt: skip
def test_pooling(engine, layout, dtype, op):
    both(engine, compile_pooling, op, image((2, 35, 8, 9), dtype), layout, 1e-3 if dtype == np.float16 else 1e-6)


def test_pooling_integers(engine):
    op = Pooling(mode="max", lengths=(3, 3), stride=(2, 2), padding=(1, 1))
    both(engine, compile_pooling, op, image((1, 5, 8, 9), np.int8) - np.int8(50), LAYOUTS[1])
    refused = compile_pooling(
        Pooling(mode="lpnorm", lengths=(2,)), Shape("float32", (1, 1, 4)), Shape("float32", (1, 1, 3)), engine
    )
    assert isinstance(refused, No)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("dims", [(), (1,), (37,), (4, 5)])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int64, np.float16], ids=lambda d: d.__name__)
@pytest.mark.parametrize("kind", [np.int32, np.int64], ids=lambda d: d.__name__)
def test_gather(engine, axis, dims, dtype, kind):
    data = image((9, 6, 70), dtype)
    n = data.shape[axis]
    indices = np.asarray(np.random.default_rng(1).integers(-n, n, dims)).astype(kind)
    expected = Gather(axis=axis).compute(data, indices)
    for source in (data, strided(data, (1, 2, 0))):
        out = np.zeros_like(expected)
        flag = np.zeros(1, np.int32)
        kernel = compile_gather(axis, shape_of(source), Shape(kind, dims), shape_of(out), engine)
        run_numpy(kernel, [source, indices, out, flag], 2)
        assert np.array_equal(out, expected)
        assert flag[0] == 0


@pytest.mark.parametrize(("axis", "dims"), [(0, (20, 30)), (1, (30, 20))])
@pytest.mark.parametrize("bad", [20, -21, 1 << 40])
def test_gather_outside(engine, axis, dims, bad):
    data = image(dims)
    indices = np.array([3, 1, bad, 0], np.int64)
    out = np.zeros((4, 30) if axis == 0 else (30, 4), np.float32)
    flag = np.zeros(1, np.int32)
    kernel = compile_gather(axis, shape_of(data), Shape("int64", (4,)), shape_of(out), engine)
    run_numpy(kernel, [data, indices, out, flag])
    assert flag[0] == 1
    assert np.array_equal(np.take(out, 0, axis), np.take(data, 3, axis))


def test_gather_refusals(engine):
    shape = Shape("float32", (3, 3))
    assert isinstance(compile_gather(0, shape, Shape("float32", (2,)), Shape("float32", (2, 3)), engine), No)
    assert isinstance(
        compile_gather(0, Shape(dt.complex128, (3, 3)), Shape("int64", (2,)), Shape(dt.complex128, (2, 3)), engine), No
    )
