"""Copies from channels-first to channels-last layout, for channel counts and element types with and without interleaving code."""

from __future__ import annotations

import numpy as np
import pytest
from run_loops import run_numpy, shape_of

from mgx_core.types.shape import Shape
from mgx_cpu_dnnl.jit.interleave import compile_interleave
from mgx_cpu_dnnl.jit.pointwise import compile_copy


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.uint8, np.float16])
@pytest.mark.parametrize("lens", [(1, 3, 70, 70), (2, 3, 17, 1), (3, 2, 5, 9), (1, 7, 4, 5), (2, 5, 4100)])
def test_channels_come_together(engine, lens, kind):
    r = np.random.default_rng(1)
    room = (r.standard_normal((lens[0], lens[1] + 2, *lens[2:])) * 50).astype(kind)
    source = room[:, 1:-1]  # images are not contiguous
    target = np.moveaxis(np.full((lens[0], *lens[2:], lens[1]), 77, kind), -1, 1)
    assert compile_interleave(shape_of(source), shape_of(target), engine, "copy") is not None
    kernel = compile_copy(shape_of(source), shape_of(target), engine)
    run_numpy(kernel, [source, target], chunks=3)
    assert (target == source).all()


@pytest.mark.parametrize("lens", [(1, 3, 2, 3), (1, 8, 40, 40), (1, 1, 40, 40)])
def test_cases_that_are_copied_otherwise(engine, lens):
    source = np.random.default_rng(2).standard_normal(lens).astype(np.float32)
    target = np.moveaxis(np.zeros((lens[0], *lens[2:], lens[1]), np.float32), -1, 1)
    assert compile_interleave(shape_of(source), shape_of(target), engine, "copy") is None
    run_numpy(compile_copy(shape_of(source), shape_of(target), engine), [source, target])
    assert (target == source).all()


def test_no_images(engine):
    kernel = compile_copy(Shape("float32", [0, 3, 40, 40]), Shape("float32", [0, 3, 40, 40], [4800, 1, 120, 3]), engine)
    assert kernel.work == 0


def test_results_with_gaps_keep_them(engine):
    source = np.random.default_rng(3).standard_normal((1, 3, 40)).astype(np.float32)
    room = np.full((1, 40, 4), 5, np.float32)
    target = np.moveaxis(room[:, :, :3], -1, 1)
    assert compile_interleave(shape_of(source), shape_of(target), engine, "copy") is None
    run_numpy(compile_copy(shape_of(source), shape_of(target), engine), [source, target])
    assert (target == source).all() and (room[:, :, 3] == 5).all()


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.uint8, np.float16])
@pytest.mark.parametrize("lens", [(1, 3, 70, 70), (2, 3, 17, 1), (3, 2, 5, 9), (1, 7, 4, 5), (2, 5, 4100)])
def test_channels_come_apart(engine, lens, kind):
    r = np.random.default_rng(4)
    source = np.moveaxis((r.standard_normal((lens[0], *lens[2:], lens[1])) * 50).astype(kind), -1, 1)
    room = np.full((lens[0], lens[1] + 2, *lens[2:]), 77, kind)
    target = room[:, 1:-1]
    assert compile_interleave(shape_of(source), shape_of(target), engine, "copy") is not None
    run_numpy(compile_copy(shape_of(source), shape_of(target), engine), [source, target], chunks=3)
    assert (target == source).all() and (room[:, [0, -1]] == 77).all()
