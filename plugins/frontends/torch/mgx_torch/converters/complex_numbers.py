"""Complex tensors as pairs of real ones: construction, parts, arithmetic, sums and products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import DType, Instruction

from ..converter import Converter, converts_complex
from ..node import Complex, Node
from .creation import eye as unit_matrix
from .linear import einsum, product
from .pointwise import atan2, hypot

__all__ = ["div", "mul", "pair", "parted", "polar", "size", "stacked"]


def pair(n: Node, x: Any, dtype: DType | None = None) -> Complex:
    """Returns an operand as a complex one, in the result's type or a given one."""
    dtype = n.dtype if dtype is None else dtype
    if isinstance(x, Complex):
        return Complex(n.convert(x.real, dtype), n.convert(x.imag, dtype))
    if isinstance(x, complex):
        return Complex(n.literal(x.real, dtype), n.literal(x.imag, dtype))
    real = n.tensor(x, dtype)
    return Complex(real, n.full_like(real, 0))


def stacked(n: Node, x: Complex) -> Instruction:
    """Returns real and imaginary parts stacked along a new last axis."""
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
    "alias",
    "alias_copy",
    "clone",
    "detach",
    "contiguous",
    "lift_fresh",
    "lift_fresh_copy",
    "resolve_conj",
    "resolve_neg",
    "_to_copy",
    "to",
)
def same(n: Node, x: Any, *_: Any) -> Any:
    if not n.result().is_complex():
        return n.convert(x.real if isinstance(x, Complex) else x, n.dtype)
    return pair(n, x)


@converts_complex("conj", "_conj", "_conj_physical", "conj_physical")
def conj(n: Node, x: Any) -> Complex:
    a = pair(n, x)
    return Complex(a.real, n.add("neg", a.imag))


@converts_complex("neg", "_neg_view")
def neg(n: Node, x: Complex) -> Complex:
    return Complex(n.add("neg", x.real), n.add("neg", x.imag))


@converts_complex("add")
def add(n: Node, x: Any, y: Any, alpha: Any = 1) -> Complex:
    return _sum(n, x, y, alpha, "add")


@converts_complex("sub")
def sub(n: Node, x: Any, y: Any, alpha: Any = 1) -> Complex:
    return _sum(n, x, y, alpha, "sub")


def _sum(n: Node, x: Any, y: Any, alpha: Any, op: str) -> Complex:
    a, b = pair(n, x), pair(n, y)
    if alpha != 1:
        b = mul(n, b, alpha)
    return Complex(n.pointwise(op, a.real, b.real), n.pointwise(op, a.imag, b.imag))


@converts_complex("rsub")
def rsub(n: Node, x: Any, y: Any, alpha: Any = 1) -> Complex:
    return _sum(n, y, x, alpha, "sub")


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
    """Returns the quotient; the divisor is scaled by its larger part to avoid overflow (Smith's method)."""
    a, b = pair(n, x), pair(n, y)
    largest = n.add("max", n.add("abs", b.real), n.add("abs", b.imag))
    zero = n.add("equal", largest, n.full_like(largest, 0))
    scale = n.add("where", zero, n.full_like(largest, 1), largest)
    real, imag = n.add("div", b.real, scale), n.add("div", b.imag, scale)
    square = n.add("add", n.add("mul", real, real), n.add("mul", imag, imag))
    top = mul(n, a, Complex(real, n.add("neg", imag)))
    bottom = n.add("mul", square, scale)
    return Complex(n.pointwise("div", top.real, bottom), n.pointwise("div", top.imag, bottom))


@converts_complex("reciprocal")
def reciprocal(n: Node, x: Complex) -> Complex:
    return div(n, Complex(n.full_like(x.real, 1), n.full_like(x.imag, 0)), x)


@converts_complex("abs")
def size(n: Node, x: Complex) -> Instruction:
    return hypot(n, x.real, x.imag)


@converts_complex("sgn")
def sgn(n: Node, x: Complex) -> Complex:
    """Returns x / |x|; 0 for 0."""
    length = size(n, x)
    length = n.add("where", n.add("equal", length, n.full_like(length, 0)), n.full_like(length, 1), length)
    return Complex(n.add("div", x.real, length), n.add("div", x.imag, length))


@converts_complex("angle")
def angle(n: Node, x: Complex) -> Instruction:
    return atan2(n, x.imag, x.real)


@converts_complex("sum")
def sum_(n: Node, x: Complex, dim: Any = None, keepdim: bool = False) -> Complex:
    axes = n.reduced_axes(x.real, dim)
    return Complex(n.reduce("reduce_sum", x.real, axes, keepdim), n.reduce("reduce_sum", x.imag, axes, keepdim))


@converts_complex("mean")
def mean(n: Node, x: Complex, dim: Any = None, keepdim: bool = False) -> Complex:
    axes = n.reduced_axes(x.real, dim)
    return Complex(n.reduce("reduce_mean", x.real, axes, keepdim), n.reduce("reduce_mean", x.imag, axes, keepdim))


@converts_complex("mm", "bmm", "matmul", "mv", "dot")
def matmul(n: Node, x: Any, y: Any) -> Complex:
    a, b = pair(n, x), pair(n, y)
    return Complex(
        n.add("sub", product(n, a.real, b.real), product(n, a.imag, b.imag)),
        n.add("add", product(n, a.real, b.imag), product(n, a.imag, b.real)),
    )


@converts_complex("addmm", "baddbmm", "addmv")
def addmm(n: Node, x: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Complex:
    found = matmul(n, a, b)
    if alpha != 1:
        found = mul(n, found, alpha)
    if beta == 0:
        return found
    return add(n, x if beta == 1 else mul(n, x, beta), found)


@converts_complex("vdot")
def vdot(n: Node, x: Complex, y: Complex) -> Complex:
    return matmul(n, conj(n, x), y)


@converts_complex("einsum")
def einsum_(n: Node, equation: str, xs: Sequence[Any], **given: Any) -> Complex:
    """Returns the einsum of one or two complex operands, as einsums of all combinations of their parts."""
    if len(xs) == 1:
        return Complex(einsum(n, equation, [xs[0].real]), einsum(n, equation, [xs[0].imag]))
    if len(xs) != 2:
        n.unsupported(f"at most two complex operands are supported, got {len(xs)}")
    a, b = pair(n, xs[0]), pair(n, xs[1])
    return Complex(
        n.add("sub", einsum(n, equation, [a.real, b.real]), einsum(n, equation, [a.imag, b.imag])),
        n.add("add", einsum(n, equation, [a.real, b.imag]), einsum(n, equation, [a.imag, b.real])),
    )


def filled(n: Node, value: Any) -> Complex | Instruction:
    """Returns a tensor of one value: a real one if only an operand is complex, whose sizes alone are used."""
    real, imag = (n.broadcast_to(part, n.result_dims()) for part in pair(n, value))
    return Complex(real, imag) if n.result().is_complex() else real


def constant(value: int) -> Converter:
    def convert(n: Node, *_: Any) -> Complex | Instruction:
        return filled(n, value)

    return convert


for _kind, _value in (("zeros", 0), ("ones", 1), ("empty", 0)):
    converts_complex(_kind, f"{_kind}_like", f"new_{_kind}")(constant(_value))
converts_complex("empty_permuted", "empty_strided", "new_empty_strided")(constant(0))


@converts_complex("full", "full_like", "fill")
def full(n: Node, x: Any, value: Any) -> Complex | Instruction:
    return filled(n, value)


@converts_complex("new_full")
def new_full(n: Node, x: Any, dims: Any, value: Any) -> Complex | Instruction:
    return filled(n, value)


@converts_complex("eye")
def eye(n: Node, *_: Any) -> Complex:
    return pair(n, unit_matrix(n))


@converts_complex("scalar_tensor")
def scalar_tensor(n: Node, value: Any) -> Complex | Instruction:
    return filled(n, value)
