"""Matrix products, einsum and linear algebra."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import Instruction, TupleShape
from mgx_core import dtype as dt
from mgx_core.converting.arithmetic import last_two_transposed, matrix_product
from mgx_core.converting.filling import filled

from ..converter import converts, converts_values
from ..node import Node
from ..values import Complex, Value


def _matmul(n: Node, x: Value, y: Value, turn_x: bool, turn_y: bool, conjugate: bool) -> Value:
    if isinstance(x, Instruction) and isinstance(y, Instruction):
        return matrix_product(n, last_two_transposed(n, x, turn_x), last_two_transposed(n, y, turn_y))
    if not isinstance(x, Complex) or not isinstance(y, Complex):
        return n.fail("both operands must be tensors of one type")

    def parts(v: Complex, turn: bool) -> tuple[Instruction, Instruction]:
        imag = n.pointwise("neg", v.imag) if turn and conjugate else v.imag
        return last_two_transposed(n, v.real, turn), last_two_transposed(n, imag, turn)

    (a, b), (c, d) = parts(x, turn_x), parts(y, turn_y)
    real = n.pointwise("sub", matrix_product(n, a, c), matrix_product(n, b, d))
    return Complex(real, n.pointwise("add", matrix_product(n, a, d), matrix_product(n, b, c)))


@converts_values("MatMul")
def matmul(n: Node, x: Value, y: Value) -> Value:
    return _matmul(n, x, y, n.flag("transpose_a"), n.flag("transpose_b"), False)


@converts_values("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_matmul(n: Node, x: Value, y: Value) -> Value:
    if isinstance(x, Instruction) and isinstance(y, Instruction) and n.has("Tout"):
        out = n.dtype("Tout")
        if out is not x.shape.dtype:
            x, y = n.convert(x, out), n.convert(y, out)
    return _matmul(n, x, y, n.flag("adj_x"), n.flag("adj_y"), True)


@converts("_FusedMatMul")
def fused_matmul(n: Node, x: Instruction, y: Instruction, *args: Instruction) -> Instruction:
    made = matrix_product(
        n, last_two_transposed(n, x, n.flag("transpose_a")), last_two_transposed(n, y, n.flag("transpose_b"))
    )
    for name in n.strings("fused_ops"):
        match name:
            case "BiasAdd":
                made = n.pointwise("add", made, args[0])
            case "Relu" | "Elu" | "Tanh" | "Sigmoid":
                made = n.pointwise(name.lower(), made)
            case "Relu6":
                made = n.pointwise("clip", made, n.literal(0, made.shape.dtype), n.literal(6, made.shape.dtype))
            case "GeluExact":
                made = n.pointwise("gelu_erf", made)
            case "GeluApproximate":
                made = n.pointwise("gelu_tanh", made)
            case _:
                n.unsupported(f"a fused {name}")
    return made


@converts("Einsum", "XlaEinsum")
def einsum(n: Node, *xs: Instruction) -> Instruction:
    return n.add("einsum", *xs, equation=n.string("equation"))


@converts("Cross")
def cross(n: Node, x: Instruction, y: Instruction) -> Instruction:
    axis = x.shape.rank - 1

    def turned(v: Instruction, by: int) -> Instruction:
        return n.concat([n.slice(v, [axis], [by], [3]), n.slice(v, [axis], [0], [by])], axis)

    left = n.pointwise("mul", turned(x, 1), turned(y, 2))
    return n.pointwise("sub", left, n.pointwise("mul", turned(x, 2), turned(y, 1)))


@converts("MatrixBandPart", "BatchMatrixBandPart")
def band_part(n: Node, x: Instruction, lower: Instruction, upper: Instruction) -> Instruction:
    below, above = n.whole(lower, "num_lower")[0], n.whole(upper, "num_upper")[0]
    rows, columns = x.shape.dims[-2:]
    if not isinstance(rows, int) or not isinstance(columns, int):
        if above < 0 and below >= 0:
            return n.add("trilu", x, upper=True, k=-below)
        if below < 0 and above >= 0:
            return n.add("trilu", x, upper=False, k=above)
        if below < 0:
            return x
        return n.add("trilu", n.add("trilu", x, upper=True, k=-below), upper=False, k=above)
    apart = np.arange(columns)[None, :] - np.arange(rows)[:, None]
    keep = ((apart >= -below) | (below < 0)) & ((apart <= above) | (above < 0))
    return n.pointwise("where", n.literal(keep), x, n.literal(0, x.shape.dtype))


@converts("MatrixInverse", "BatchMatrixInverse")
def inverse(n: Node, x: Instruction) -> Instruction:
    return n.add("inverse", last_two_transposed(n, x, n.flag("adjoint")))


@converts("MatrixDeterminant", "BatchMatrixDeterminant")
def determinant(n: Node, x: Instruction) -> Instruction:
    return n.add("det", x)


MATRIX = (
    "Cholesky", "MatrixSolve", "MatrixTriangularSolve", "LogMatrixDeterminant", "SelfAdjointEigV2", "Svd", "Qr", "Lu",
    "MatrixSquareRoot", "TridiagonalSolve", "BandedTriangularSolve",
)  # fmt: skip


@converts(*MATRIX, *(f"Batch{name}" for name in MATRIX[:6]))
def decomposition(n: Node, *xs: Instruction) -> Any:
    words = ("adjoint", "lower", "full_matrices", "compute_uv", "compute_v")
    flags = tuple(w for w in words if n.flag(w, w in ("lower", "compute_v", "compute_uv")))
    made = n.add("tf_matrix", *xs, function=n.op_type.removeprefix("Batch"), flags=flags)
    return n.items(made) if isinstance(made.result, TupleShape) else made


@converts("MatrixSolveLs", "BatchMatrixSolveLs")
def least_squares(n: Node, x: Instruction, y: Instruction, regular: Instruction) -> Instruction:
    by = float(n.require(regular, "the regularizer").reshape(()))
    return n.add("tf_matrix", x, y, function="MatrixSolveLs", regular=by)


@converts_values("Eig")
def eig(n: Node, x: Instruction) -> Any:
    parts = n.items(n.add("tf_matrix", x, function="Eig"))
    values = Complex(*parts[:2])
    return values, Complex(*parts[2:]) if n.flag("compute_v", True) else values


@converts("TridiagonalMatMul")
def tridiagonal_product(
    n: Node, above: Instruction, middle: Instruction, below: Instruction, y: Instruction
) -> Instruction:
    """Returns the product of a tridiagonal matrix and y: each row is a weighted sum of the row of y and its two neighbors."""
    rank, rows = y.shape.rank, y.shape.dims[-2]
    axis = rank - 2

    def factor(v: Instruction) -> Instruction:
        return n.transpose(v, (*range(v.shape.rank - 2), v.shape.rank - 1, v.shape.rank - 2))

    def moved(by: int) -> Instruction:
        part = n.slice(y, [axis], [max(by, 0)], [rows + min(by, 0)])
        return n.padded(part, [((max(-by, 0), max(by, 0)) if a == axis else (0, 0)) for a in range(rank)])

    made = n.pointwise("mul", factor(middle), y)
    made = n.pointwise("add", made, n.pointwise("mul", factor(above), moved(1)))
    return n.pointwise("add", made, n.pointwise("mul", factor(below), moved(-1)))


@converts("SparseMatMul")
def sparse_matmul(n: Node, x: Instruction, y: Instruction) -> Instruction:
    x, y = n.convert(x, dt.float32), n.convert(y, dt.float32)
    return matrix_product(
        n, last_two_transposed(n, x, n.flag("transpose_a")), last_two_transposed(n, y, n.flag("transpose_b"))
    )


@converts("SparseTensorDenseMatMul")
def sparse_product(
    n: Node, indices: Instruction, values: Instruction, dims: Instruction, y: Instruction
) -> Instruction:
    """Returns the product of a COO matrix and y: rows of y gathered by column index, scaled, and summed by row index."""
    if n.flag("adjoint_b"):
        y = n.transpose(y, (1, 0))
    row, column = (1, 0) if n.flag("adjoint_a") else (0, 1)
    places = n.convert(indices, dt.int64)
    at = [n.squeeze(n.slice(places, [1], [k], [k + 1]), [1]) for k in (row, column)]
    parts = n.pointwise("mul", n.add("gather", y, at[1], axis=0), n.unsqueeze(values, [1]))
    rows = n.slice(n.convert(dims, dt.int64), [0], [row], [row + 1])
    width = n.add("dimensions_of", y, start=1, end=2)
    base = filled(n, n.add("concat", rows, width, axis=0), n.literal(0, y.shape.dtype))
    return n.add("scatternd_add", base, n.unsqueeze(at[0], [1]), parts)
