"""Recognizes products of matrices that are written as sums of broadcast elementwise products or as einsums."""

from __future__ import annotations

from math import prod
from typing import Final

from ..errors import No
from ..ir.instruction import Instruction
from ..named_tuples import NamedTuple
from ..ops.broadcast import Multibroadcast
from ..ops.linear import Dot
from ..ops.movement import Transpose
from ..ops.pointwise import Mul
from ..ops.reduce import ReduceSum
from ..ops.reshape import Reshape
from ..types.dtype import float32, float64
from ..types.shape import Shape
from .engine import ROUNDING, Builder, Rules
from .matching import one_user, op_as

__all__ = ["SUMS_OF_PRODUCTS"]

SUMS_OF_PRODUCTS: Final = Rules("raise-products")

SMALLEST: Final = 8  # extent of rows, columns and sums from which a product is faster than a reduction


class _Axes(NamedTuple):
    """Axes of an elementwise product by role: kept and in both operands, in the first only, in the second only, summed."""

    batch: list[int]
    rows: list[int]
    columns: list[int]
    summed: int


@SUMS_OF_PRODUCTS.on(ReduceSum, changes=ROUNDING)
def product_from_broadcast_sum(i: Instruction, b: Builder) -> Instruction | No | None:
    """sum(x * y) along an axis, where x and y are broadcast along different other axes -> dot of transposed x and y."""
    product = i.inputs[0]
    if len(i.inputs) > 1 or not isinstance(product.op, Mul) or not isinstance(product.result, Shape):
        return None
    if product.shape.dtype not in (float32, float64) or product.shape.dynamic():
        return None  # narrower floats round each product
    dims = product.shape.lens()
    operands = [_below(x, len(dims)) for x in product.inputs]
    summed = op_as(i, ReduceSum).reduced_axes(len(dims))
    if any(x is None for x in operands) or len(summed) != 1:
        return None
    (x, first), (y, second) = (o for o in operands if o is not None)
    axes = _axes(dims, first, second, summed[0])
    if axes is None or not axes.rows or not axes.columns:
        return None
    sizes = [prod(dims[a] for a in group) for group in (axes.rows, axes.columns, [axes.summed])]
    if min(sizes) < SMALLEST:
        return No(f"a product of {sizes[0]} x {sizes[2]} x {sizes[1]} is not faster than the reduction")
    if not one_user(product):
        return No("the elementwise products have other users")
    batch = [dims[a] for a in axes.batch]
    left = _matrix(b, x, first, [*axes.batch, *axes.rows, axes.summed], [*batch, sizes[0], sizes[2]])
    right = _matrix(b, y, second, [*axes.batch, axes.summed, *axes.columns], [*batch, sizes[2], sizes[1]])
    order = [*axes.batch, *axes.rows, *axes.columns]
    made = b.add(Reshape(dims=tuple(dims[a] for a in order)), b.add(Dot(), left, right))
    if order != sorted(order):
        made = b.add(Transpose(permutation=tuple(order.index(a) for a in sorted(order))), made)
    return b.add(Reshape(dims=i.shape.dims), made)


@SUMS_OF_PRODUCTS.on("mgx_core.ops.einsum:Einsum", changes=ROUNDING)
def products_of_einsum(i: Instruction, b: Builder) -> Instruction | No | None:
    """einsum(x, y) -> dot of transposed x and y, and sums: work around the parts fuses with them."""
    assert i.op.decompose is not None
    made = i.op.decompose(b, *i.inputs)
    return made if isinstance(made, Instruction) else No("it does not decompose for these operands")


def _below(x: Instruction, rank: int) -> tuple[Instruction, list[int]] | None:
    """Returns the operand of a broadcast and its extents, padded with leading ones; None if they are not static."""
    if isinstance(x.op, Multibroadcast):
        if len(x.inputs) > 1:
            return None
        x = x.inputs[0]
    if not isinstance(x.result, Shape) or x.shape.dynamic():
        return None
    lens = x.shape.lens()
    return x, [1] * (rank - len(lens)) + lens


def _axes(dims: list[int], first: list[int], second: list[int], summed: int) -> _Axes | None:
    """Returns the axes by role; None if both operands broadcast an axis longer than 1, or only one has the summed axis."""
    found = _Axes([], [], [], summed)
    for a, (n, p, q) in enumerate(zip(dims, first, second, strict=True)):
        if n == 1:
            continue
        if (a == summed and not p == q == n) or (p != n and q != n):
            return None
        if a != summed:
            (found.batch if p == q else found.rows if p == n else found.columns).append(a)
    return found


def _matrix(b: Builder, x: Instruction, lens: list[int], order: list[int], dims: list[int]) -> Instruction:
    """Returns an operand as matrices: its axes in the given order, without those of extent 1."""
    if list(x.shape.lens()) != lens:
        x = b.add(Reshape(dims=tuple(lens)), x)
    rest = [a for a in range(len(lens)) if a not in order]
    if [*order, *rest] != sorted(order + rest):
        x = b.add(Transpose(permutation=(*order, *rest)), x)
    return b.add(Reshape(dims=tuple(dims)), x)
