"""Complex numbers as pairs of reals, and Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Instruction
from mgx_core import dtype as dt

from ..converter import converts, converts_complex
from ..node import Complex, Node
from .linear import einsum, product
from .placing import copy, select_scatter, slice_scatter
from .pointwise import atan2

__all__: list[str] = []


def pair(n: Node, x: Any) -> Complex:
    """Any operand as a complex one of the result's type."""
    if isinstance(x, Complex):
        return x
    if isinstance(x, complex):
        return Complex(n.literal(x.real, n.dtype), n.literal(x.imag, n.dtype))
    real = n.tensor(x, n.dtype)
    return Complex(real, n.full_like(real, 0))


def stacked(n: Node, x: Complex) -> Instruction:
    """Real and imaginary parts along a new last axis."""
    rank = x.real.shape.rank
    return n.add("concat", n.unsqueeze(x.real, [rank]), n.unsqueeze(x.imag, [rank]), axis=rank)


def parted(n: Node, x: Instruction) -> Complex:
    axis = x.shape.rank - 1
    real, imag = (n.squeeze(n.slice(x, [axis], [i], [i + 1]), [axis]) for i in (0, 1))
    return Complex(real, imag)


@converts_complex("view_as_complex", "view_as_complex_copy")
def view_as_complex(n: Node, x: Instruction) -> Complex:
    return parted(n, x)


@converts_complex("view_as_real", "view_as_real_copy")
def view_as_real(n: Node, x: Complex) -> Instruction:
    return stacked(n, x)


@converts_complex("complex")
def complex_(n: Node, real: Instruction, imag: Instruction) -> Complex:
    return Complex(*n.broadcast(real, imag))


@converts_complex("polar")
def polar(n: Node, size: Instruction, angle: Instruction) -> Complex:
    a, b = n.broadcast(size, angle)
    return Complex(n.add("mul", a, n.add("cos", b)), n.add("mul", a, n.add("sin", b)))


@converts_complex("real")
def real(n: Node, x: Complex) -> Instruction:
    return x.real


@converts_complex("imag")
def imag(n: Node, x: Complex) -> Instruction:
    return x.imag


@converts_complex(
    "alias", "clone", "detach", "contiguous", "lift_fresh_copy", "resolve_conj", "resolve_neg", "_to_copy", "to"
)
def same(n: Node, x: Any, *_: Any) -> Any:
    if not n.result().is_complex():
        return n.convert(x.real if isinstance(x, Complex) else x, n.dtype)
    found = pair(n, x)
    return Complex(n.convert(found.real, n.dtype), n.convert(found.imag, n.dtype))


@converts_complex("conj", "_conj", "_conj_physical", "conj_physical")
def conj(n: Node, x: Complex) -> Complex:
    return Complex(x.real, n.add("neg", x.imag))


@converts_complex("neg")
def neg(n: Node, x: Complex) -> Complex:
    return Complex(n.add("neg", x.real), n.add("neg", x.imag))


@converts_complex("add")
def add(n: Node, x: Any, y: Any, alpha: Any = 1) -> Complex:
    return _sum(n, x, y, alpha, "add")


@converts_complex("sub")
def sub(n: Node, x: Any, y: Any, alpha: Any = 1) -> Complex:
    return _sum(n, x, y, alpha, "sub")


def _sum(n: Node, x: Any, y: Any, alpha: Any, op: str) -> Complex:
    if alpha != 1:
        n.unsupported("alpha for complex numbers")
    a, b = pair(n, x), pair(n, y)
    return Complex(n.pointwise(op, a.real, b.real), n.pointwise(op, a.imag, b.imag))


@converts_complex("mul")
def mul(n: Node, x: Any, y: Any) -> Complex:
    if not isinstance(x, Complex) or not isinstance(y, Complex):
        z, other = (x, y) if isinstance(x, Complex) else (y, x)
        if isinstance(z, Complex) and not isinstance(other, complex):
            factor = n.tensor(other, n.dtype)
            return Complex(n.pointwise("mul", z.real, factor), n.pointwise("mul", z.imag, factor))
    a, b = pair(n, x), pair(n, y)
    return Complex(
        n.add("sub", n.pointwise("mul", a.real, b.real), n.pointwise("mul", a.imag, b.imag)),
        n.add("add", n.pointwise("mul", a.real, b.imag), n.pointwise("mul", a.imag, b.real)),
    )


@converts_complex("div")
def div(n: Node, x: Any, y: Any) -> Complex:
    a, b = pair(n, x), pair(n, y)
    size = n.add("add", n.add("mul", b.real, b.real), n.add("mul", b.imag, b.imag))
    top = mul(n, a, Complex(b.real, n.add("neg", b.imag)))
    return Complex(n.pointwise("div", top.real, size), n.pointwise("div", top.imag, size))


@converts_complex("abs")
def abs_(n: Node, x: Complex) -> Instruction:
    return n.add("sqrt", n.add("add", n.add("mul", x.real, x.real), n.add("mul", x.imag, x.imag)))


@converts_complex("angle")
def angle(n: Node, x: Complex) -> Instruction:
    return atan2(n, x.imag, x.real)


@converts_complex("exp")
def exp(n: Node, x: Complex) -> Complex:
    return polar(n, n.add("exp", x.real), x.imag)


@converts_complex("sum")
def sum_(n: Node, x: Complex, dim: Any = None, keepdim: bool = False) -> Complex:
    axes = n.reduced_axes(x.real, dim)
    return Complex(n.reduce("reduce_sum", x.real, axes, keepdim), n.reduce("reduce_sum", x.imag, axes, keepdim))


@converts_complex("mean")
def mean(n: Node, x: Complex, dim: Any = None, keepdim: bool = False) -> Complex:
    axes = n.reduced_axes(x.real, dim)
    return Complex(n.reduce("reduce_mean", x.real, axes, keepdim), n.reduce("reduce_mean", x.imag, axes, keepdim))


@converts_complex("mm", "bmm", "matmul")
def matmul(n: Node, x: Any, y: Any) -> Complex:
    a, b = pair(n, x), pair(n, y)
    return Complex(
        n.add("sub", product(n, a.real, b.real), product(n, a.imag, b.imag)),
        n.add("add", product(n, a.real, b.imag), product(n, a.imag, b.real)),
    )


@converts_complex("einsum")
def einsum_(n: Node, equation: str, xs: Sequence[Any], **given: Any) -> Complex:
    """Of one or two operands: each part of one meets each part of the other."""
    if len(xs) == 1:
        return Complex(einsum(n, equation, [xs[0].real]), einsum(n, equation, [xs[0].imag]))
    if len(xs) != 2:
        n.unsupported(f"at most two complex operands are supported, got {len(xs)}")
    a, b = pair(n, xs[0]), pair(n, xs[1])
    return Complex(
        n.add("sub", einsum(n, equation, [a.real, b.real]), einsum(n, equation, [a.imag, b.imag])),
        n.add("add", einsum(n, equation, [a.real, b.imag]), einsum(n, equation, [a.imag, b.real])),
    )


def _writes(convert: Any) -> Any:
    def both(n: Node, x: Any, source: Any, *where: Any, **given: Any) -> Complex:
        a, b = pair(n, x), pair(n, source)
        return Complex(convert(n, a.real, b.real, *where, **given), convert(n, a.imag, b.imag, *where, **given))

    return both


for _name, _convert in (("copy", copy), ("slice_scatter", slice_scatter), ("select_scatter", select_scatter)):
    converts_complex(_name)(_writes(_convert))


@converts_complex("where")
def where(n: Node, mask: Instruction, x: Any, y: Any) -> Complex:
    a, b = pair(n, x), pair(n, y)
    found = [n.add("where", *n.broadcast(mask, p, q)) for p, q in ((a.real, b.real), (a.imag, b.imag))]
    return Complex(found[0], found[1])


@converts_complex("zeros", "ones", "empty", "full", "zeros_like", "ones_like", "empty_like")
def constant(n: Node, x: Any, value: Any = None, *_: Any) -> Complex:
    if value is None or isinstance(value, (list, tuple)):
        value = 1 if "ones" in str(n.fx.target) else 0
    value = complex(value)
    dims = n.result_dims()
    return Complex(n.filled(dims, value.real, n.dtype), n.filled(dims, value.imag, n.dtype))


# Fourier transforms; norm: 0 as it is, 1 by the root of the number of points, 2 by the number


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
    """One axis; an inverse is not divided by the number of points, as torch has it."""
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


@converts("isreal")
def isreal(n: Node, x: Instruction) -> Instruction:
    return n.filled(x.shape.dims, True, dt.bool_)
