"""Comparisons, logic, norms and variances of complex tensors."""

from __future__ import annotations

from typing import Any

from mgx_core import Instruction
from mgx_core import dtype as dt

from ..converter import Converter, converts, converts_complex
from ..node import Complex, Node
from .casts import cast
from .complex_numbers import pair, size
from .reduce import spread, truth, vector_norm

__all__: list[str] = []


@converts_complex("eq")
def equal(n: Node, x: Any, y: Any) -> Instruction:
    a, b = (pair(n, v, n.common_dtype(0, 1)) for v in (x, y))
    return n.add("logical_and", n.pointwise("equal", a.real, b.real), n.pointwise("equal", a.imag, b.imag))


@converts_complex("ne")
def unequal(n: Node, x: Any, y: Any) -> Instruction:
    return n.add("not", equal(n, x, y))


def either(name: str) -> Converter:
    """Returns True where a predicate holds for the real or imaginary part."""

    def convert(n: Node, x: Complex) -> Instruction:
        return n.add("logical_or", n.add(name, x.real), n.add(name, x.imag))

    return convert


converts_complex("isnan")(either("isnan"))
converts_complex("isinf")(either("isinf"))


def true(n: Node, x: Any) -> Instruction:
    """Returns True where any operand is not zero."""
    if not isinstance(x, Complex):
        return cast(n, n.tensor(x), dt.bool_)
    return n.add("logical_or", cast(n, x.real, dt.bool_), cast(n, x.imag, dt.bool_))


def logical(name: str) -> Converter:
    def convert(n: Node, *xs: Any) -> Instruction:
        return n.pointwise(name, *(true(n, x) for x in xs))

    return convert


for _name in ("logical_and", "logical_or", "logical_xor"):
    converts_complex(_name)(logical(_name))
converts_complex("logical_not")(logical("not"))


def reduced_truth(convert_truths: Converter) -> Converter:
    def convert(n: Node, x: Complex, dim: Any = None, keepdim: bool = False) -> Instruction:
        return convert_truths(n, true(n, x), dim, keepdim)

    return convert


converts_complex("any")(reduced_truth(truth("reduce_any")))
converts_complex("all")(reduced_truth(truth("reduce_all")))


@converts("isreal")
def isreal(n: Node, x: Instruction) -> Instruction:
    return n.filled(x.shape.dims, True, dt.bool_)


@converts_complex("linalg_vector_norm", "norm.ScalarOpt_dim", "norm.Scalar")
def norm(n: Node, x: Complex, order: Any = 2, dim: Any = None, keepdim: bool = False) -> Instruction:
    return vector_norm(n, size(n, x), order, dim, keepdim)


@converts_complex("var.correction")
def variance(n: Node, x: Complex, dim: Any = None, correction: Any = None, keepdim: bool = False) -> Instruction:
    """Returns the variance: the mean squared magnitude of the deviation."""
    return n.add("add", *(spread(n, part, dim, correction, keepdim)[0] for part in x))


@converts_complex("std.correction")
def deviation(n: Node, x: Complex, dim: Any = None, correction: Any = None, keepdim: bool = False) -> Instruction:
    return n.add("sqrt", variance(n, x, dim, correction, keepdim))
