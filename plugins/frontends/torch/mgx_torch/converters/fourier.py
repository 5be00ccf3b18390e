"""Fourier transforms of real and complex tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Instruction

from ..converter import converts_complex
from ..node import Complex, Node
from .complex_numbers import pair, parted, stacked

__all__: list[str] = []

# normalization: 0 none, 1 by sqrt(n), 2 by n


def _factor(n: Node, x: Instruction, axes: Sequence[int], dims: Sequence[Any], mode: int) -> Instruction:
    if mode == 0:
        return x
    count = n.convert(n.graph.scalar(n, _count(dims, axes)), x.shape.dtype)
    return n.pointwise("div", x, n.add("sqrt", count) if mode == 1 else count)


def _count(dims: Sequence[Any], axes: Sequence[int]) -> Any:
    total: Any = 1
    for a in axes:
        total = total * dims[a]
    return total


def _transformed(n: Node, x: Instruction, axis: int, inverse: bool = False, **given: Any) -> Instruction:
    """Transforms one axis; inverses are not normalized by n, as in torch."""
    length = given.get("dft_length") or x.shape.dims[axis]
    out = n.add("dft", x, axis=axis, inverse=inverse, **given)
    if inverse:
        out = n.pointwise("mul", out, n.convert(n.graph.scalar(n, length), out.shape.dtype))
    return out


@converts_complex("_fft_r2c")
def fft_r2c(n: Node, x: Instruction, dim: Sequence[int], normalization: int, onesided: bool) -> Complex:
    axes = n.axes(dim, x.shape.rank)
    out = n.unsqueeze(n.convert(x, n.dtype), [x.shape.rank])
    out = _transformed(n, out, axes[-1], onesided=onesided)
    for axis in axes[:-1]:
        out = _transformed(n, out, axis)
    return parted(n, _factor(n, out, axes, x.shape.dims, normalization))


@converts_complex("_fft_c2c")
def fft_c2c(n: Node, x: Any, dim: Sequence[int], normalization: int, forward: bool) -> Complex:
    z = pair(n, x)
    axes = n.axes(dim, z.real.shape.rank)
    out = stacked(n, z)
    for axis in axes:
        out = _transformed(n, out, axis, inverse=not forward)
    return parted(n, _factor(n, out, axes, z.real.shape.dims, normalization))


@converts_complex("_fft_c2r")
def fft_c2r(n: Node, x: Complex, dim: Sequence[int], normalization: int, last: Any) -> Instruction:
    axes = n.axes(dim, x.real.shape.rank)
    out = stacked(n, x)
    for axis in axes[:-1]:
        out = _transformed(n, out, axis, inverse=True)
    out = _transformed(n, out, axes[-1], inverse=True, onesided=True, dft_length=last)
    out = n.squeeze(out, [out.shape.rank - 1])
    return _factor(n, out, axes, out.shape.dims, normalization)
