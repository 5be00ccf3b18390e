"""Elementary functions of complex tensors, represented as pairs of real ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core.converting.arithmetic import turn

from ..node import Node
from ..values import Complex, Value

__all__ = ["FUNCTIONS", "magnitude"]


def _sum(n: Node, a: Complex, b: Complex, op: str) -> Complex:
    return Complex(n.pointwise(op, a.real, b.real), n.pointwise(op, a.imag, b.imag))


def _product(n: Node, a: Complex, b: Complex) -> Complex:
    real = n.pointwise("sub", n.pointwise("mul", a.real, b.real), n.pointwise("mul", a.imag, b.imag))
    return Complex(real, n.pointwise("add", n.pointwise("mul", a.real, b.imag), n.pointwise("mul", a.imag, b.real)))


def _largest_part(n: Node, a: Complex) -> Instruction:
    """Returns max(|Re a|, |Im a|)."""
    return n.pointwise("max", n.pointwise("abs", a.real), n.pointwise("abs", a.imag))


def _quotient(n: Node, a: Complex, b: Complex) -> Complex:
    """Returns a / b; both are first divided by max(|Re b|, |Im b|), unless it is 0 or infinite, to prevent overflow of |b|^2."""
    scale = _largest_part(n, b)
    zero, one, most = (n.literal(v, scale.shape.dtype) for v in (0, 1, np.inf))
    kept = n.pointwise("logical_and", n.pointwise("greater", scale, zero), n.pointwise("less", scale, most))
    scale = n.pointwise("where", kept, scale, one)
    a, b = (Complex(n.pointwise("div", v.real, scale), n.pointwise("div", v.imag, scale)) for v in (a, b))
    size = n.pointwise("add", n.pointwise("mul", b.real, b.real), n.pointwise("mul", b.imag, b.imag))
    top = _product(n, a, Complex(b.real, n.pointwise("neg", b.imag)))
    return Complex(n.pointwise("div", top.real, size), n.pointwise("div", top.imag, size))


def _with_real(n: Node, number: float, a: Complex, op: str = "add") -> Complex:
    """Returns a plus, or times, a real number."""
    real = n.pointwise(op, a.real, n.literal(number, a.real.shape.dtype))
    return Complex(real, n.pointwise(op, a.imag, n.literal(number, a.imag.shape.dtype)) if op == "mul" else a.imag)


def magnitude(n: Node, a: Complex) -> Instruction:
    """Returns |a|, computed from the ratio of both parts, since their squares may overflow or underflow."""
    real, imag = n.broadcast(n.pointwise("abs", a.real), n.pointwise("abs", a.imag))
    big, small = n.pointwise("max", real, imag), n.pointwise("min", real, imag)
    one = n.literal(1, big.shape.dtype)
    ratio = n.pointwise("where", n.pointwise("equal", small, big), one, n.pointwise("div", small, big))
    root = n.pointwise("sqrt", n.pointwise("add", n.pointwise("mul", ratio, ratio), one))
    return n.pointwise("mul", big, root)


def _times_i(n: Node, a: Complex) -> Complex:
    """Returns i a."""
    return Complex(n.pointwise("neg", a.imag), a.real)


def _part_products(n: Node, a: Complex, left: tuple[str, str], right: tuple[str, str]) -> Complex:
    """Returns f(Re a) g(Im a) for each part, e.g. sin x cosh y + i cos x sinh y."""
    parts = (n.pointwise("mul", n.pointwise(f, a.real), n.pointwise(g, a.imag)) for f, g in (left, right))
    return Complex(*parts)


def _exp(n: Node, a: Complex) -> Complex:
    size = n.pointwise("exp", a.real)
    turn = (n.pointwise(f, a.imag) for f in ("cos", "sin"))
    return Complex(*(n.pointwise("mul", size, t) for t in turn))


def _log(n: Node, a: Complex) -> Complex:
    return Complex(n.pointwise("log", magnitude(n, a)), turn(n, a.imag, a.real))


def _sqrt(n: Node, a: Complex) -> Complex:
    zero, half = (n.literal(v, a.real.shape.dtype) for v in (0, 0.5))
    # halved first so that the sum does not overflow
    halves = (n.pointwise("mul", v, half) for v in (magnitude(n, a), n.pointwise("abs", a.real)))
    long = n.pointwise("sqrt", n.pointwise("add", *halves))
    none = n.pointwise("equal", long, zero)
    safe = n.pointwise("where", none, n.literal(1, a.real.shape.dtype), long)
    short = n.pointwise("mul", n.pointwise("div", a.imag, safe), half)
    right = n.pointwise("greater_or_equal", a.real, zero)
    below = n.pointwise("less", a.imag, zero)
    signed = n.pointwise("where", below, n.pointwise("neg", long), long)
    return Complex(
        n.pointwise("where", right, long, n.pointwise("abs", short)), n.pointwise("where", right, short, signed)
    )


def _clipped(n: Node, a: Complex, least: float, most: float) -> Complex:
    """Returns a with its real part clipped to a range in which exp does not overflow and outside of which f is constant."""
    low, high = (n.literal(v, a.real.shape.dtype) for v in (least, most))
    return Complex(n.pointwise("min", n.pointwise("max", a.real, low), high), a.imag)


def _sigmoid(n: Node, a: Complex) -> Complex:
    most = 85 if a.real.shape.dtype.bits < 64 else 700
    return _inverse(n, _with_real(n, 1, _exp(n, _with_real(n, -1, _clipped(n, a, -most, most), "mul"))))


def _tanh(n: Node, a: Complex) -> Complex:
    a = _clipped(n, a, -40, 40)
    return _quotient(
        n,
        _part_products(n, a, ("sinh", "cos"), ("cosh", "sin")),
        _part_products(n, a, ("cosh", "cos"), ("sinh", "sin")),
    )


def _cos(n: Node, a: Complex) -> Complex:
    made = _part_products(n, a, ("cos", "cosh"), ("sin", "sinh"))
    return Complex(made.real, n.pointwise("neg", made.imag))


def _atan(n: Node, a: Complex) -> Complex:
    turned = _times_i(n, a)
    apart = _sum(
        n, _log(n, _with_real(n, 1, _with_real(n, -1, turned, "mul"))), _log(n, _with_real(n, 1, turned)), "sub"
    )
    return _with_real(n, 0.5, _times_i(n, apart), "mul")


def _inverse(n: Node, a: Complex) -> Complex:
    one = Complex(n.full_like(a.real, 1), n.full_like(a.real, 0))
    return _quotient(n, one, a)


def _real_matrix(n: Node, a: Complex) -> Instruction:
    """Returns the real matrix [[Re, -Im], [Im, Re]] of a complex one."""
    rank = a.real.shape.rank
    rows = [n.concat([a.real, n.pointwise("neg", a.imag)], rank - 1), n.concat([a.imag, a.real], rank - 1)]
    return n.concat(rows, rank - 2)


def _halves(n: Node, x: Instruction, rows: Any) -> Complex:
    axis = x.shape.rank - 2
    return Complex(n.slice(x, [axis], [0], [rows]), n.slice(x, [axis], [rows], [rows + rows]))


def _solved(n: Node, a: Complex, y: Complex) -> Complex:
    """Returns a^-1 y, by solving the equivalent real system of twice the size."""
    if n.flag("adjoint"):
        rank = a.real.shape.rank
        order = (*range(rank - 2), rank - 1, rank - 2)
        a = Complex(n.transpose(a.real, order), n.pointwise("neg", n.transpose(a.imag, order)))
    right = n.concat([y.real, y.imag], y.real.shape.rank - 2)
    made = n.add("tf_matrix", _real_matrix(n, a), right, function="MatrixSolve")
    return _halves(n, made, a.real.shape.dims[-1])


def _inverse_matrix(n: Node, a: Complex) -> Complex:
    rows = a.real.shape.dims[-1]
    made = n.add("inverse", _real_matrix(n, a))
    found = _halves(n, n.slice(made, [made.shape.rank - 1], [0], [rows]), rows)
    if not n.flag("adjoint"):
        return found
    rank = a.real.shape.rank
    order = (*range(rank - 2), rank - 1, rank - 2)
    return Complex(n.transpose(found.real, order), n.pointwise("neg", n.transpose(found.imag, order)))


def _einsum(n: Node, *xs: Complex) -> Complex:
    equation = n.string("equation")
    if len(xs) == 1:
        return Complex(*(n.add("einsum", v, equation=equation) for v in (xs[0].real, xs[0].imag)))
    if len(xs) > 2:
        n.unsupported("sums of products of more than two complex tensors")

    def product(a: Instruction, b: Instruction) -> Instruction:
        return n.add("einsum", a, b, equation=equation)

    x, y = xs
    real = n.pointwise("sub", product(x.real, y.real), product(x.imag, y.imag))
    return Complex(real, n.pointwise("add", product(x.real, y.imag), product(x.imag, y.real)))


def _same(n: Node, a: Complex, b: Complex) -> Instruction:
    return n.pointwise("logical_and", n.pointwise("equal", a.real, b.real), n.pointwise("equal", a.imag, b.imag))


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "Add": lambda n, a, b: _sum(n, a, b, "add"),
    "AddV2": lambda n, a, b: _sum(n, a, b, "add"),
    "Sub": lambda n, a, b: _sum(n, a, b, "sub"),
    "Mul": _product,
    "RealDiv": _quotient,
    "Div": _quotient,
    "Neg": lambda n, a: _with_real(n, -1, a, "mul"),
    "Square": lambda n, a: _product(n, a, a),
    "Exp": _exp,
    "Expm1": lambda n, a: _with_real(n, -1, _exp(n, a)),
    "Log": _log,
    "Log1p": lambda n, a: _log(n, _with_real(n, 1, a)),
    "Sqrt": _sqrt,
    "Rsqrt": lambda n, a: _inverse(n, _sqrt(n, a)),
    "Pow": lambda n, a, b: _exp(n, _product(n, b, _log(n, a))),
    "Reciprocal": _inverse,
    "Inv": _inverse,
    "Sigmoid": _sigmoid,
    "Sin": lambda n, a: _part_products(n, a, ("sin", "cosh"), ("cos", "sinh")),
    "Cos": _cos,
    "Sinh": lambda n, a: _part_products(n, a, ("sinh", "cos"), ("cosh", "sin")),
    "Cosh": lambda n, a: _part_products(n, a, ("cosh", "cos"), ("sinh", "sin")),
    "Tanh": _tanh,
    "Atan": _atan,
    "Equal": _same,
    "NotEqual": lambda n, a, b: n.pointwise("not", _same(n, a, b)),
    "MatrixInverse": _inverse_matrix,
    "MatrixSolve": _solved,
    "Einsum": _einsum,
    "XlaEinsum": _einsum,
}
