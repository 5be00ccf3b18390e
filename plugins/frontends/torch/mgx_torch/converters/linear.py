"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.converting.arithmetic import matrix_product
from mgx_core.types.dim import Sym

from ..converter import converts
from ..node import Node, Scalar

__all__ = ["product"]


def product(n: Node, a: Instruction, b: Instruction) -> Instruction:
    """Returns matmul.  Errors: UnsupportedError for mixed element types, which torch rejects at run time."""
    if a.shape.dtype is not b.shape.dtype:
        n.unsupported(
            f"a product requires operands of one element type, got {a.shape.dtype} and {b.shape.dtype}; convert one"
        )
    a, b = n.convert(a, n.dtype), n.convert(b, n.dtype)
    dropped = []
    if b.shape.rank == 1:
        b, dropped = n.unsqueeze(b, [1]), [-1]
    if a.shape.rank == 1:
        a = n.unsqueeze(a, [0])
        dropped.append(-2)
    rank = max(a.shape.rank, b.shape.rank)
    if b.shape.rank == 2 and a.shape.rank > 2:
        flat = n.reshape(a, (n.size(a, range(a.shape.rank - 1)), a.shape.dims[-1]))
        out = n.reshape(n.add("dot", flat, b), (*a.shape.dims[:-1], b.shape.dims[-1]))
    else:
        out = matrix_product(n, a, b)
    return n.squeeze(out, sorted(rank + d for d in dropped)) if dropped else out


@converts("mm", "bmm", "matmul", "mv", "dot", "vdot")
def matmul(n: Node, a: Instruction, b: Instruction) -> Instruction:
    return product(n, a, b)


@converts("mm.dtype", "bmm.dtype")
def matmul_into(n: Node, a: Instruction, b: Instruction, out_dtype: Any) -> Instruction:
    """Returns a matrix product in the node's element type, which differs from the operands'."""
    return product(n, a, b)


@converts("outer", "ger")
def outer(n: Node, a: Instruction, b: Instruction) -> Instruction:
    return n.pointwise("mul", n.unsqueeze(n.convert(a, n.dtype), [1]), n.convert(b, n.dtype))


def combined(n: Node, x: Instruction, y: Instruction, beta: Scalar, alpha: Scalar) -> Instruction:
    """Returns beta * x + alpha * y; x is not read if beta is 0, so that its NaN and infinities have no effect.

    With factors, narrow floats are computed in float32, as torch does: the factors are not rounded to the narrow type.
    """
    dtype = n.dtype if alpha == 1 and beta in (0, 1) else n.rounded_once()
    y = n.convert(y, dtype)
    if alpha != 1:
        y = n.pointwise("mul", y, n.tensor(alpha, dtype))
    if beta == 0:
        return n.convert(y, n.dtype)
    x = n.convert(x, dtype)
    if beta != 1:
        factor = n.tensor(beta, dtype)
        x = n.pointwise("mul", x, factor)
        if isinstance(beta, (Instruction, Sym)):  # it may become 0
            zero = n.literal(0, dtype)
            x = n.pointwise("where", n.pointwise("equal", factor, zero), zero, x)
    return n.convert(n.pointwise("add", y, x), n.dtype)


@converts("addmm", "baddbmm", "addmv")
def addmm(n: Node, x: Instruction, a: Instruction, b: Instruction, beta: Scalar = 1, alpha: Scalar = 1) -> Instruction:
    return combined(n, x, product(n, a, b), beta, alpha)


@converts("addmm.dtype", "baddbmm.dtype")
def addmm_into(
    n: Node, x: Instruction, a: Instruction, b: Instruction, out_dtype: Any, beta: Scalar = 1, alpha: Scalar = 1
) -> Instruction:
    return addmm(n, x, a, b, beta, alpha)


@converts("addbmm")
def addbmm(n: Node, x: Instruction, a: Instruction, b: Instruction, beta: Scalar = 1, alpha: Scalar = 1) -> Instruction:
    """Returns the sum of a batch of matrix products, as one product with the batch merged into the inner axis."""
    batch, rows, inner = a.shape.dims
    long = batch * inner
    left = n.reshape(n.transpose(a, [1, 0, 2]), (rows, long))
    return combined(n, x, product(n, left, n.reshape(b, (long, b.shape.dims[2]))), beta, alpha)


@converts("_int_mm")
def int_mm(n: Node, a: Instruction, b: Instruction) -> Instruction:
    return n.add("quant_dot", a, b)


# Composite operators: compiled graphs leave their parts to torch, which raises its own errors for singular matrices.
@converts("linalg_inv", "inverse")
def inverse(n: Node, x: Instruction) -> Instruction:
    return n.add("inverse", x)


@converts("linalg_det", "det")
def determinant(n: Node, x: Instruction) -> Instruction:
    return n.add("det", x)


@converts("linalg_solve")
def solve(n: Node, a: Instruction, b: Instruction, left: bool = True) -> Instruction:
    """Returns x with a x = b, or x a = b.  Computed by the inverse in float64, which for float32 is more exact than torch."""
    vector = b.shape.rank == 1 or b.shape.dims == a.shape.dims[:-1]
    inverted, wide = n.add("inverse", n.convert(a, dt.float64)), n.convert(b, dt.float64)
    if vector:
        wide = n.unsqueeze(wide, [-1])
    found = matrix_product(n, inverted, wide) if left or vector else matrix_product(n, wide, inverted)
    return n.convert(n.squeeze(found, [-1]) if vector else found, n.dtype)


@converts("addr")
def addr(n: Node, x: Instruction, a: Instruction, b: Instruction, beta: Scalar = 1, alpha: Scalar = 1) -> Instruction:
    return combined(n, x, outer(n, a, b), beta, alpha)


@converts("linear")
def linear(n: Node, x: Instruction, weight: Instruction, bias: Instruction | None = None) -> Instruction:
    if weight.shape.rank == 1:
        out = product(n, x, weight)
    else:
        out = product(n, x, n.transpose(weight, [1, 0]))
    return out if bias is None else n.pointwise("add", out, bias)


@converts("bilinear", "_trilinear_bilinear")
def bilinear(
    n: Node, a: Instruction, b: Instruction, weight: Instruction, bias: Instruction | None = None
) -> Instruction:
    out = n.add("einsum", a, weight, b, equation="...i,oij,...j->...o")
    return out if bias is None else n.pointwise("add", out, bias)


@converts("einsum")
def einsum(
    n: Node, equation: str, xs: Sequence[Instruction], *, path: Sequence[int] | None = None, **given: Any
) -> Instruction:
    """Converts without the order of products, which torch chooses for more than two operands if opt_einsum is installed."""
    return n.add("einsum", *(n.convert(x, n.dtype) for x in xs), equation=equation.replace(" ", ""))
