"""Gather and scatter ops, compared with the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt

rng = np.random.default_rng(3)
Check = Callable[..., None]
FLOATS = ["float32", "float64", "float16", "bfloat16"]
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
REDUCTIONS = ["none", "add", "mul", "min", "max"]


def numbers(name: str, *lens: int) -> Any:
    kind = dt.of(name).numpy
    if name in FLOATS:
        return rng.standard_normal(lens).astype(kind)
    if name == "bool":
        return rng.random(lens) < 0.5
    info = np.iinfo(kind)
    return rng.integers(info.min, info.max, lens, kind, endpoint=True)


@pytest.mark.pairs
@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS, "bool"])
@pytest.mark.parametrize("kind", [np.int32, np.int64, np.int8])
def test_taking(agrees: Check, name: str, kind: Any) -> None:
    x = numbers(name, 5, 6, 4)
    agrees(mgx.op("gather_elements", axis=1), x, rng.integers(-6, 6, (5, 9, 3)).astype(kind))
    agrees(mgx.op("gathernd"), x, rng.integers(-4, 4, (2, 7, 3)).astype(kind))
    agrees(mgx.op("gathernd", batch_dims=1), x, rng.integers(-4, 4, (5, 2, 1)).astype(kind))


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_elements_along_every_axis(agrees: Check, axis: int) -> None:
    x = numbers("float32", 3, 4, 5)
    for lens in ((3, 4, 5), (2, 4, 5), (1, 1, 1), (0, 4, 5)):
        lens = tuple(x.shape[a] if a == axis % 3 else n for a, n in enumerate(lens))
        at = rng.integers(-x.shape[axis], x.shape[axis], lens)
        agrees(mgx.op("gather_elements", axis=axis), x, at)
        for reduction in REDUCTIONS:
            agrees(mgx.op(f"scatter_{reduction}", axis=axis), x, at, numbers("float32", *lens), tolerance=1e-6)


@pytest.mark.parametrize("batch", [0, 1, 2])
@pytest.mark.parametrize("k", [1, 2])
def test_slices_of_every_rank(agrees: Check, batch: int, k: int) -> None:
    x = numbers("float32", 3, 4, 5, 6)
    for lead in ((), (7,), (2, 0), (2, 3)):
        agrees(mgx.op("gathernd", batch_dims=batch), x, rng.integers(-3, 3, (*x.shape[:batch], *lead, k)))


@pytest.mark.pairs
@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS, "bool"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_putting(agrees: Check, name: str, reduction: str) -> None:
    """Many updates of the same element; integers wrap, narrow floats are rounded once."""
    x, at = numbers(name, 5, 6, 4), rng.integers(-6, 6, (5, 17, 4))
    tolerance = 1e-6 if name == "float32" else 0
    agrees(mgx.op(f"scatter_{reduction}", axis=1), x, at, numbers(name, 5, 17, 4), tolerance=tolerance)
    rows = rng.integers(-5, 5, (9, 1)).astype(np.int32)
    agrees(mgx.op(f"scatternd_{reduction}"), x, rows, numbers(name, 9, 6, 4), tolerance=tolerance)
    single = rng.integers(-4, 4, (2, 30, 3))
    agrees(mgx.op(f"scatternd_{reduction}"), x, single, numbers(name, 2, 30), tolerance=tolerance)


@pytest.mark.parametrize("reduction", ["min", "max"])
def test_a_nan_on_either_side_stays(agrees: Check, reduction: str) -> None:
    x, updates = np.array([np.nan, 1, 2], np.float32), np.array([5, np.nan, -3, 7], np.float32)
    agrees(mgx.op(f"scatter_{reduction}"), x, np.array([0, 1, 2, 2]), updates)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_collisions_of_many_updates_keep_their_order_on_all_threads(agrees: Check, reduction: str) -> None:
    x, at = numbers("float32", 64, 300), rng.integers(0, 64, (512, 300))
    agrees(mgx.op(f"scatter_{reduction}", axis=0), x, at, numbers("float32", 512, 300), tolerance=1e-5)
    rows = rng.integers(0, 64, (2000, 1))
    agrees(mgx.op(f"scatternd_{reduction}"), x, rows, numbers("float32", 2000, 300), tolerance=1e-4)


def test_positions_outside_are_skipped_on_demand(agrees: Check) -> None:
    at = np.array([[9, -1, 2], [-9, 0, 3]])
    for reduction in REDUCTIONS:
        op = mgx.op(f"scatter_{reduction}", axis=1, skip_out_of_bounds=True)
        agrees(op, numbers("float32", 2, 3), at, numbers("float32", 2, 3))


@pytest.mark.parametrize("bad", [6, -7])
def test_a_position_outside_is_an_error(fails: Check, bad: int) -> None:
    x, good, at = numbers("float32", 5, 6), np.zeros((5, 2), np.int64), np.full((5, 2), bad)
    text = f"index {bad} is out of bounds"
    fails(f"gather_elements: {text}", mgx.op("gather_elements", axis=1), [x, at], [x, good])
    fails(f"gathernd: {text}", mgx.op("gathernd", batch_dims=1), [x, at[:, :1]], [x, good[:, :1]])
    updates = numbers("float32", 5, 2)
    fails(f"scatter_add: {text}", mgx.op("scatter_add", axis=1), [x, at, updates], [x, good, updates])
    more = numbers("float32", 5)
    fails(f"scatternd_none: {text}", mgx.op("scatternd_none"), [x.T, at, more], [x.T, good, more])


def test_a_position_above_all_of_int64_is_an_error(fails: Check) -> None:
    x, good, at = numbers("float32", 5, 6), np.zeros((5, 2), np.uint64), np.full((5, 2), (1 << 64) - 1, np.uint64)
    text, updates = f"got {(1 << 64) - 1}", numbers("float32", 5, 2)
    fails(text, mgx.op("gather"), [x, at], [x, good])
    fails(text, mgx.op("gather_elements", axis=1), [x, at], [x, good])
    fails(text, mgx.op("gathernd"), [x, at], [x, good])
    fails(text, mgx.op("scatter_add", axis=1), [x, at, updates], [x, good, updates])


def test_data_that_is_read_again_stays(agrees: Check) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [4, 3]))
    data = m.add(mgx.op("relu"), x)
    at = m.add_literal(np.array([[1], [3], [1]]))
    once = m.add(mgx.op("scatternd_add"), data, at, m.add(mgx.op("slice", axes=(0,), starts=(0,), ends=(3,)), data))
    m.add_return([m.add(mgx.op("scatternd_none"), once, at, m.add_literal(np.ones((3, 3), np.float32))), data])
    program.compile(mgx.get_target("cpu"))
    given = numbers("float32", 4, 3)
    kept = np.maximum(given, 0)
    wanted = kept.copy()
    np.add.at(wanted, [1, 3, 1], kept[:3])
    wanted[[1, 3]] = 1
    for _ in range(2):
        got = program.run({"x": given})
        np.testing.assert_allclose(got[0].to_numpy(), wanted, rtol=1e-6)
        np.testing.assert_array_equal(got[1].to_numpy(), kept)


@pytest.mark.parametrize("shape", [(), (1, 2, 8, 8), (1, 2, 9, 11)])
def test_unpooling(agrees: Check, fails: Check, shape: tuple[int, ...]) -> None:
    x = numbers("float32", 1, 2, 4, 4)
    at = rng.permutation(128)[:32].reshape(x.shape)
    op = mgx.op("max_unpool", lengths=(2, 2), stride=(2, 2), output_shape=shape)
    agrees(op, x, at)
    fails("index -1 is out of bounds", op, [x, np.where(at == at.max(), -1, at)], [x, at])
