"""Products of matrices that are bound by memory, as reductions: with one column each, or of few terms; or of a single one."""

from __future__ import annotations

from math import prod
from typing import Final

from mgx_core import Instruction, No
from mgx_core import dtype as dt
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.builtin import Literal
from mgx_core.ops.convert import Convert
from mgx_core.ops.linear import Dot
from mgx_core.ops.pointwise import Mul
from mgx_core.ops.reduce import ReduceSum
from mgx_core.ops.reshape import Reshape, Squeeze, Unsqueeze
from mgx_core.rules.constants import is_constant
from mgx_core.rules.engine import ROUNDING, Builder, Rules
from mgx_core.rules.outline import through_views

from .softmax_products import beside_softmax

__all__ = ["COLUMNS"]

COLUMNS: Final = Rules("products-as-reductions")
FEWEST: Final = 16  # rows from which, or terms below which, a reduction keeps the device as busy as a product
MOST: Final = 1024  # terms of a sum that the threads of a row add
SMALL: Final = 12  # rows and terms up to which operands are read once from memory, and again from the cache
MANY: Final = 256  # matrices


@COLUMNS.on(Dot, changes=ROUNDING)
def product_with_column(i: Instruction, b: Builder) -> Instruction | No | None:
    """dot(x, column) of a batch -> reduce_sum(x * transpose(column)), which joins the pointwise work around it.

    A thread per sum read a row of x alone: 14.7 us for 8 x 8 matrices of 1,200 x 32 in float32, which are 9.8 MB (H200).
    """
    x, y = i.inputs
    dims, columns = x.shape.dims, y.shape.dims[-1]
    sizes = [n for n in dims if isinstance(n, int)]
    if columns != 1 or len(dims) < 3 or len(sizes) < len(dims) or prod(sizes[:-2]) < 2:
        return None
    if i.shape.dtype not in (dt.float32, dt.float16, dt.bfloat16) or isinstance(y.op, Multibroadcast):
        return None
    if is_constant(through_views(y)):
        return No("the columns are constant")
    if sizes[-2] < FEWEST <= sizes[-1] or sizes[-1] > MOST:
        return No(f"fewer than {FEWEST} rows of {FEWEST} or more terms, or sums of more than {MOST} terms")
    row = b.add(Reshape(dims=(*y.shape.dims[:-2], 1, sizes[-1])), y)
    wide = [v if v.shape.dtype is dt.float32 else b.add(Convert(target_type=dt.float32), v) for v in (x, row)]
    products = b.add(Mul(), wide[0], b.add(Multibroadcast(out_lens=dims), wide[1]))
    sums = b.add(ReduceSum(axes=(len(dims) - 1,)), products)
    return sums if i.shape.dtype is dt.float32 else b.add(Convert(target_type=i.shape.dtype), sums)


@COLUMNS.on(Dot, changes=ROUNDING)
def product_of_few_terms(i: Instruction, b: Builder) -> Instruction | No | None:
    """dot(x, y) of many matrices with few rows and terms each -> reduce_sum(x * y), which joins the pointwise work around it.

    Rotations of spherical features, 8,192 products of 9 x 9 and 9 x 128 elements, took 52 us in cublasLt, of 78 MB (H200).
    """
    x, y = i.inputs
    dims, others = x.shape.dims, y.shape.dims
    sizes = [n for n in (*dims, others[-1]) if isinstance(n, int)]
    if (
        len(sizes) <= len(dims)
        or len(dims) != len(others)
        or i.shape.dtype not in (dt.float32, dt.float16, dt.bfloat16)
    ):
        return None
    *batch, rows, terms, columns = sizes
    if max(rows, terms) > SMALL or columns < FEWEST or prod(batch) < MANY:
        return None
    if any(isinstance(through_views(v).op, Literal) or isinstance(v.op, Multibroadcast) for v in (x, y)):
        return No("all matrices share one operand")
    if beside_softmax(i, (x, y)):
        return No("attention has kernels of its own")
    wide = [v if v.shape.dtype is dt.float32 else b.add(Convert(target_type=dt.float32), v) for v in (x, y)]
    whole = (*batch, rows, terms, columns)
    left = b.add(Multibroadcast(out_lens=whole), b.add(Unsqueeze(axes=(len(dims),)), wide[0]))
    right = b.add(Multibroadcast(out_lens=whole), b.add(Unsqueeze(axes=(len(dims) - 2,)), wide[1]))
    sums = b.add(ReduceSum(axes=(len(dims) - 1,)), b.add(Mul(), left, right))
    made = b.add(Squeeze(axes=(len(dims) - 1,)), sums)
    return made if i.shape.dtype is dt.float32 else b.add(Convert(target_type=i.shape.dtype), made)


@COLUMNS.on(Dot)
def product_of_one_term(i: Instruction, b: Builder) -> Instruction | No | None:
    """dot(column, row) -> column * row, both broadcast: an outer product joins the pointwise work around it."""
    x, y = i.inputs
    sizes = [n for n in (*x.shape.dims, *y.shape.dims) if isinstance(n, int)]
    if x.shape.dims[-1] != 1 or len(sizes) < x.shape.rank + y.shape.rank or x.shape.dtype is not i.shape.dtype:
        return None
    if beside_softmax(i, (x, y)):
        return No("attention has kernels of its own")
    return b.add(Mul(), *(b.add(Multibroadcast(out_lens=i.shape.dims), v) for v in (x, y)))


@COLUMNS.on(Convert, reads=Squeeze)
def narrowing_before_squeeze(i: Instruction, b: Builder) -> Instruction | No | None:
    """convert(squeeze(sum)) to a narrower type -> squeeze(convert(sum)), so that the sum's kernel converts it."""
    view = i.inputs[0]
    if not isinstance(view.op, Squeeze) or len(view.users) > 1:
        return None
    total = view.inputs[0]
    if not isinstance(total.op, ReduceSum) or len(total.users) > 1 or i.shape.dtype.bits >= total.shape.dtype.bits:
        return None
    return b.add(view.op, b.add(i.op, total))
