"""Diagonals of matrices with symbolic extents, compared with numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx

F32 = np.dtype(np.float32)


def run(g: Any, target: str, **given: np.ndarray) -> np.ndarray:
    program = mgx.parse_buffer(g.data, "tf", output_names=["y"])
    program.compile(mgx.get_target(target))
    return np.asarray(program.run(given)[0])


def numbers(*dims: int) -> np.ndarray:
    return np.arange(1, 1 + np.prod(dims), dtype=np.float32).reshape(dims)


@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize("k", [-2, 0, 1])
def test_matrices_of_one_diagonal(k: int, target: str, new_graph: Any):
    g = new_graph()
    g.placeholder("x", F32, [-1, -1])
    shape = [g.const("k", k, np.int32), g.const("r", -1, np.int32), g.const("c", -1, np.int32), g.const("p", 7.0, F32)]
    g.node("MatrixDiagV3", "y", "x", *shape, T=F32, align="RIGHT_LEFT")
    x = numbers(2, 4)
    wanted = np.where(np.eye(4 + abs(k), k=k) > 0, [np.diag(row, k) for row in x], 7)
    np.testing.assert_array_equal(run(g, target, x=x), wanted)


@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize("k", [-2, 0, 1])
@pytest.mark.parametrize("dims", [(2, 3, 3), (1, 3, 5), (2, 4, 3)])
def test_diagonals_taken_out(dims: tuple[int, ...], k: int, target: str, new_graph: Any):
    g = new_graph()
    g.placeholder("x", F32, [-1, -1, -1])
    g.node("MatrixDiagPartV3", "y", "x", g.const("k", k, np.int32), g.const("p", 0.0, F32), T=F32, align="RIGHT_LEFT")
    x = numbers(*dims)
    np.testing.assert_array_equal(run(g, target, x=x), np.diagonal(x, k, 1, 2))


@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize("k", [-1, 0, 2])
@pytest.mark.parametrize("dims", [(2, 3, 3), (1, 3, 4), (2, 4, 3)])
def test_diagonals_put_in(dims: tuple[int, ...], k: int, target: str, new_graph: Any):
    g = new_graph()
    g.placeholder("x", F32, [-1, -1, -1])
    g.placeholder("d", F32, [-1, -1])
    g.node("MatrixSetDiagV3", "y", "x", "d", g.const("k", k, np.int32), T=F32, align="RIGHT_LEFT")
    x = numbers(*dims)
    d = -numbers(dims[0], np.diagonal(x, k, 1, 2).shape[1])
    wanted = x.copy()
    for matrix, row in zip(wanted, d, strict=True):
        at = np.arange(len(row))
        matrix[at + max(-k, 0), at + max(k, 0)] = row
    np.testing.assert_array_equal(run(g, target, x=x, d=d), wanted)


def test_several_diagonals_of_unknown_extents_are_refused(new_graph: Any):
    g = new_graph()
    g.placeholder("x", F32, [-1, -1])
    g.node("MatrixDiagPartV3", "y", "x", g.const("k", [-1, 1], np.int32), g.const("p", 0.0, F32), T=F32)
    with pytest.raises(mgx.UnsupportedError, match="several diagonals"):
        mgx.parse_buffer(g.data, "tf", output_names=["y"])


@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize(("k", "count"), [(0, 2), (0, 4), (1, 3)])
def test_diagonals_that_do_not_fit_are_refused(k: int, count: int, target: str, new_graph: Any):
    g = new_graph()
    g.placeholder("x", F32, [-1, -1])
    g.placeholder("d", F32, [-1])
    g.node("MatrixSetDiagV3", "y", "x", "d", g.const("k", k, np.int32), T=F32, align="RIGHT_LEFT")
    with pytest.raises(mgx.ShapeError, match="cannot be reshaped"):
        run(g, target, x=numbers(3, 3), d=numbers(count))
