"""Matrix products: MatMul, Gemm, Einsum and their fused forms, Det, Inverse, CDist."""

from __future__ import annotations

from typing import Any, cast

from mgx_core import Instruction
from mgx_core import dim as dims_
from mgx_core import op as make_op
from mgx_core.types.dtype import float64

from ..converter import converts
from ..node import Node
from .activation_names import activate

__all__ = ["product"]


def product(n: Node, a: Instruction, b: Instruction) -> Instruction:
    """Returns numpy's matmul: batches broadcast, vectors are a row (a) or a column (b)."""
    row, column = a.shape.rank == 1, b.shape.rank == 1
    if not a.shape.rank or not b.shape.rank:
        n.fail(f"a matrix product requires operands of rank 1 or more, got {a.shape} and {b.shape}")
    if row:
        a = n.unsqueeze(a, [0])
    if column:
        b = n.unsqueeze(b, [1])
    rank = max(a.shape.rank, b.shape.rank) - 2
    batch: list[dims_.Dim] = [1] * rank
    for x in (a, b):
        lead = x.shape.dims[:-2]
        for axis, d in enumerate(lead, rank - len(lead)):
            batch[axis] = dims_.broadcast(batch[axis], d)
    a, b = (n.broadcast_to(x, (*batch, *x.shape.dims[-2:])) for x in (a, b))
    out = n.add("dot", a, b)
    axes = ([rank] if row else []) + ([rank + 1] if column else [])
    return n.squeeze(out, axes) if axes else out


def turned(n: Node, x: Instruction) -> Instruction:
    """Returns x with its last two axes transposed."""
    rank = x.shape.rank
    return n.transpose(x, [*range(rank - 2), rank - 1, rank - 2])


def scaled(n: Node, x: Instruction, factor: float) -> Instruction:
    """Returns x times a number, which must be an integer for integer x."""
    if factor == 1:
        return x
    if x.shape.dtype.is_integer and factor != int(factor):
        wide = n.convert(x, float64)
        return n.convert(n.add("mul", wide, n.full_like(wide, factor)), x.shape.dtype)
    return n.add("mul", x, n.full_like(x, factor))


@converts("MatMul")
def matmul(n: Node, a: Instruction, b: Instruction) -> Instruction:
    return product(n, a, b)


def general(n: Node, a: Instruction, b: Instruction, c: Instruction | None) -> Instruction:
    """Returns alpha A' B' + beta C of matrices (Gemm)."""
    if a.shape.rank != 2 or b.shape.rank != 2:
        n.fail(f"A and B must be matrices, got {a.shape} and {b.shape}")
    a = turned(n, a) if n.attr("transA", 0) else a
    b = turned(n, b) if n.attr("transB", 0) else b
    out = scaled(n, n.add("dot", a, b), n.attr("alpha", 1.0))
    beta = n.attr("beta", 1.0)
    if c is None or beta == 0:
        return out
    if c.shape.dtype is not out.shape.dtype:
        n.fail(f"C must have the type of A, {out.shape.dtype}, got {c.shape.dtype}")
    for d, wanted in zip(reversed(c.shape.dims), reversed(out.shape.dims), strict=False):
        if c.shape.rank > 2 or not (dims_.may_equal(d, 1) or dims_.may_equal(d, wanted)):
            n.fail(f"C must broadcast to {out.shape}, got {c.shape}")
    return n.add("add", out, n.broadcast_to(scaled(n, c, beta), out.shape.dims))


@converts("Gemm")
def gemm(n: Node, a: Instruction, b: Instruction, c: Instruction | None = None) -> Instruction:
    return general(n, a, b, c)


@converts("FusedGemm", domain="com.microsoft")
def fused_gemm(n: Node, a: Instruction, b: Instruction, c: Instruction | None = None) -> Instruction:
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    return activate(n, general(n, a, b, c), n.attr("activation", ""), [n.attr(k) for k in names if n.has(k)])


@converts("FusedMatMul", "TransposeMatMul", domain="com.microsoft")
def fused_matmul(n: Node, a: Instruction, b: Instruction) -> Instruction:
    def arranged(x: Instruction, side: str) -> Instruction:
        rank = x.shape.rank
        if n.attr("transBatch" + side, 0) and rank > 2:
            x = n.transpose(x, [*range(1, rank - 1), 0, rank - 1])
        return turned(n, x) if n.attr("trans" + side, 0) and rank > 1 else x

    return scaled(n, product(n, arranged(a, "A"), arranged(b, "B")), n.attr("alpha", 1.0))


@converts("Einsum")
def einsum(n: Node, *xs: Instruction) -> Instruction:
    # by name: the op's module is imported only for models that need it
    op: Any = make_op("einsum", equation=n.attr("equation"))
    op.result([x.shape for x in xs])
    builder: Any = n  # Node is an InstructionBuilder
    return cast(Instruction, op.decompose(builder, *xs))


@converts("Det")
def det(n: Node, x: Instruction) -> Instruction:
    return n.add("det", x)


@converts("Inverse", domain="com.microsoft")
def inverse(n: Node, x: Instruction) -> Instruction:
    return n.add("inverse", x)


@converts("CDist", domain="com.microsoft")
def cdist(n: Node, a: Instruction, b: Instruction) -> Any:
    metric = n.attr("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        n.unsupported(f"metric {metric!r}; known are euclidean and sqeuclidean")
    # rows of b side by side: loops over many of them are vectorized, loops over their few elements are not
    apart = n.pointwise("sqdiff", n.unsqueeze(a, [2]), n.unsqueeze(n.transpose(b, [1, 0]), [0]))
    total = n.squeeze(n.add("reduce_sum", apart, axes=(1,)), [1])
    return n.add("sqrt", total) if metric == "euclidean" else total
