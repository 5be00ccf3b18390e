"""Convolutions of long rows in pieces: values at the borders of pieces, epilogues, and steps that do not exceed a piece."""

from __future__ import annotations

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.ir.interpreter import Interpreter
from mgx_cpu_dnnl.plans.long_rows import PIECE
from mgx_cpu_dnnl.target import CpuTarget

rng = np.random.default_rng(3)


def steps_of(
    lens: list[int], weights: list[int], stride: int, dilation: int, padding: tuple[int, int], residual: bool
) -> list[str]:
    """Compares a convolution with bias, with or without a residual, with the reference; returns the names of its steps."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", lens))
    w = m.add_literal((rng.standard_normal(weights) * np.prod(weights[1:]) ** -0.5).astype(np.float32))
    made = m.add(mgx.op("convolution", stride=[stride], dilation=[dilation], padding=list(padding)), x, w)
    dims = made.shape.lens()
    given = {"x": rng.standard_normal(lens).astype(np.float32)}
    bias = m.add_literal(rng.standard_normal(weights[0]).astype(np.float32))
    made = m.add(mgx.op("add"), made, m.add(mgx.op("broadcast", axis=1, out_lens=dims), bias))
    if residual:
        r = m.add_parameter("r", mgx.Shape("float32", dims))
        given["r"] = rng.standard_normal(dims).astype(np.float32)
        made = m.add(mgx.op("relu"), m.add(mgx.op("add"), made, m.add(mgx.op("tanh"), r)))
    m.add_return([made])
    (wanted,) = Interpreter().run(m, list(given.values()))
    program.compile(CpuTarget())
    for _ in range(2):
        (found,) = program.run(given)
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-5, atol=1e-5)
    return [s.name for s in program.executable.instances()[0].runner.schedule.steps if s.name.startswith("conv")]


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize(
    ("stride", "dilation", "padding"), [(1, 1, (1, 1)), (1, 4, (8, 0)), (2, 3, (3, 5)), (3, 1, (0, 0))]
)
def test_a_long_row_is_computed_in_pieces(
    stride: int, dilation: int, padding: tuple[int, int], images: int, residual: bool
) -> None:
    steps = steps_of([images, 8, (2 * PIECE + 77) * stride + 20], [8, 8, 3], stride, dilation, padding, residual)
    assert len(steps) == 3 * images, steps


def test_a_row_of_two_pieces_is_computed_at_once() -> None:
    assert len(steps_of([1, 8, 2 * PIECE], [8, 8, 3], 1, 1, (1, 1), False)) == 1


@pytest.mark.parametrize(
    ("width", "kernel", "padding"),
    [
        (3 * PIECE - 19, 3, (2, 20)),  # the last piece is one result, of padding alone
        (2 * PIECE + 800, 1, (PIECE, 0)),  # the first piece is
        (2 * PIECE + 800, 1, (0, PIECE)),
        (10, 3, (PIECE, PIECE)),
        (2 * PIECE, 3, (PIECE + 3, 0)),
    ],
)
def test_rows_are_computed_at_once_if_a_piece_is_padding(width: int, kernel: int, padding: tuple[int, int]) -> None:
    assert len(steps_of([1, 8, width], [8, 8, kernel], 1, 1, padding, False)) == 1


def test_padding_of_nearly_a_piece_is_computed_in_pieces() -> None:
    assert len(steps_of([1, 8, 2 * PIECE], [8, 8, 3], 1, 1, (PIECE - 1, 0), False)) == 3
