"""Macros of matrix products, convolutions, einsum, tile and rotary embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ParameterError, ShapeError
from ..ir.instruction import Instruction
from ..types.dim import Dim
from .builder import MacroBuilder

__all__ = ["convolution", "dot", "einsum", "gemm", "quant_convolution", "quant_dot", "rotary_embedding", "tile"]


def gemm(
    b: MacroBuilder,
    x: Instruction,
    y: Instruction,
    bias: Instruction | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: bool = False,  # noqa: N803
    transB: bool = False,  # noqa: N803
) -> Instruction:
    """alpha * x @ y + beta * bias on matrices, each optionally transposed first."""
    if x.shape.rank != 2 or y.shape.rank != 2:
        raise ShapeError(f"matrices are required, got {x.shape} and {y.shape}")
    kind = x.shape.dtype
    if alpha != 1:
        x = b.convert(b.common("mul", x, b.literal(alpha, kind)), kind)
    made = b.add("dot", _turned(b, x, transA), _turned(b, y, transB))
    if bias is None or beta == 0:
        return made
    bias = b.broadcast_to(bias, made.shape.dims)
    if beta != 1:
        bias = b.common("mul", bias, b.literal(beta, bias.shape.dtype))
    return b.add("add", made, b.convert(bias, kind))


def _turned(b: MacroBuilder, x: Instruction, transposed: bool) -> Instruction:
    return b.transpose(x, (1, 0)) if transposed else x


def dot(b: MacroBuilder, x: Instruction, y: Instruction) -> Instruction:
    """Returns a matrix product with broadcast batch axes."""
    return b.add("dot", *b.batched(x, y))


def quant_dot(
    b: MacroBuilder, x: Instruction, y: Instruction, x_in: Instruction | None = None, y_in: Instruction | None = None
) -> Instruction:
    """Returns a matrix product of 8-bit integers; x_in, y_in: replacements of x and y."""
    return b.add("quant_dot", *b.batched(x if x_in is None else x_in, y if y_in is None else y_in))


def einsum(b: MacroBuilder, *xs: Instruction, equation: str) -> Instruction:
    """Einstein summation."""
    return b.add("einsum", *xs, equation=equation)


def convolution(
    b: MacroBuilder,
    x: Instruction,
    w: Instruction,
    bias: Instruction | None = None,
    *,
    auto_pad: str = "NOTSET",
    paddings: Sequence[int] = (),
    strides: Sequence[int] = (),
    dilations: Sequence[int] = (),
    group: int = 1,
    padding_mode: int | str = "default",
) -> Instruction:
    """Returns a convolution with an optional per-channel bias."""
    attributes = _window(x, auto_pad, paddings, strides, dilations, group, padding_mode)
    made = b.add("convolution", x, w, **attributes)
    return made if bias is None else b.add("add", made, b.along(bias, made, 1))


def quant_convolution(
    b: MacroBuilder,
    x: Instruction,
    w: Instruction,
    x_zero_point: Instruction | None = None,
    w_zero_point: Instruction | None = None,
    *,
    auto_pad: str = "NOTSET",
    paddings: Sequence[int] = (),
    strides: Sequence[int] = (),
    dilations: Sequence[int] = (),
    group: int = 1,
    padding_mode: int | str = "default",
) -> Instruction:
    """Returns a convolution of 8-bit integers minus their zero points."""
    attributes = _window(x, auto_pad, paddings, strides, dilations, group, padding_mode)
    return b.add("quant_convolution", x, w, x_zero_point, w_zero_point, **attributes)


def _window(
    x: Instruction,
    auto_pad: str,
    paddings: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    group: int,
    padding_mode: int | str,
) -> dict[str, Any]:
    spatial = x.shape.rank - 2
    for what, given, lengths in (
        ("paddings", paddings, (0, spatial, 2 * spatial)),
        ("strides", strides, (0, spatial)),
        ("dilations", dilations, (0, spatial)),
    ):
        if len(given) not in lengths:
            raise ParameterError(f"{what} must be {' or '.join(map(str, lengths[1:]))} numbers, got {list(given)}")
    modes = ("default", "same_lower", "same_upper")
    mode = modes[padding_mode] if isinstance(padding_mode, int) else padding_mode
    if auto_pad.startswith("SAME"):
        mode = auto_pad.lower()
    return {
        "padding": tuple(paddings) or (0,) * spatial,
        "stride": tuple(strides) or (1,) * spatial,
        "dilation": tuple(dilations) or (1,) * spatial,
        "group": group,
        "padding_mode": mode,
    }


def tile(b: MacroBuilder, x: Instruction, *, repeats: Sequence[Dim]) -> Instruction:
    """Returns a tensor repeated along each axis."""
    return b.add("tile", x, repeats=tuple(repeats))


def rotary_embedding(
    b: MacroBuilder,
    x: Instruction,
    positions: Instruction,
    cos: Instruction,
    sin: Instruction,
    *,
    interleaved: bool = False,
) -> Instruction:
    """Returns x with pairs of elements rotated by position-dependent angles (RoPE).

    x: [batch, heads, length, size]; positions: one of each element of the sequences, or the first one of each or of all.
    """
    batch, _, length, _ = x.shape.dims
    if positions.shape.elements() != 1 or length == 1:
        if positions.shape.sym_elements() == batch * length:
            positions = b.reshape(positions, (batch, length))
        elif isinstance(length, int):
            steps = b.literal(np.arange(length)[None], positions.shape.dtype)
            positions = b.pointwise("add", b.reshape(positions, (batch, 1)), steps)
    else:
        positions = b.reshape(positions, (1,))
    return b.add("rotary_embedding", x, cos, sin, positions, interleaved=interleaved)
