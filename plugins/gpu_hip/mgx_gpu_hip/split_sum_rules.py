"""Products with few results of long sums, as more products of parts of the sums."""

from __future__ import annotations

from math import prod
from typing import Final

from mgx_core import Instruction, No
from mgx_core import dtype as dt
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.convert import Convert
from mgx_core.ops.linear import Dot
from mgx_core.ops.movement import Transpose
from mgx_core.ops.quantized_product import QuantDot
from mgx_core.ops.reduce import ReduceSum
from mgx_core.ops.reshape import Reshape, Squeeze
from mgx_core.rules.constants import is_constant
from mgx_core.rules.engine import ROUNDING, Builder, Rules
from mgx_core.rules.outline import through_views

from .softmax_products import beside_softmax

__all__ = ["SPLIT_SUMS"]

SPLIT_SUMS: Final = Rules("split-sums")
TILE: Final = 64  # rows and columns of the smallest tile of a library
FEW: Final = 32  # tiles that keep a fraction of the device busy
BUSY: Final = 256  # tiles that keep all of it busy
LEAST: Final = 256  # terms of a part
KINDS: Final = (dt.float32, dt.float16, dt.bfloat16)


@SPLIT_SUMS.on(Dot, changes=ROUNDING)
def sums_in_parts(i: Instruction, b: Builder) -> Instruction | No | None:
    """dot(x, y) of a batch with few results and many terms -> sums of products of parts of the terms, in float32.

    Libraries split sums of one product, but not of a batch: 8 products of 7 x 4,096 and 4,096 x 64 elements took 43.6 us in
    cublasLt, which read 4.7 MB (H200).
    """
    x, y = i.inputs
    sizes = [n for n in (*x.shape.dims, y.shape.dims[-1]) if isinstance(n, int)]
    if len(sizes) <= x.shape.rank or x.shape.rank != y.shape.rank or i.shape.dtype not in KINDS:
        return None
    *batch, rows, terms, columns = sizes
    tiles = prod(batch) * -(-rows // TILE) * -(-columns // TILE)
    parts = 1
    while terms % (2 * parts) == 0 and terms // (2 * parts) >= LEAST and tiles * 2 * parts <= BUSY:
        parts *= 2
    if prod(batch) < 2 or tiles > FEW or parts < 4:
        return None
    if any(is_constant(through_views(v)) or isinstance(v.op, Multibroadcast) for v in (x, y)):
        return No("all products share one operand")
    if beside_softmax(i, (x, y)):
        return No("attention has kernels of its own")
    rank, part = x.shape.rank, terms // parts
    left = b.add(Reshape(dims=(*batch, rows, parts, part)), x)
    left = b.add(Transpose(permutation=(*range(rank - 2), rank - 1, rank - 2, rank)), left)
    right = b.add(Reshape(dims=(*batch, parts, part, columns)), y)
    wide = i.shape.dtype is dt.float32
    sums = b.add(ReduceSum(axes=(rank - 2,)), b.add(Dot() if wide else QuantDot(), left, right))
    return b.add(Squeeze(axes=(rank - 2,)), sums if wide else b.add(Convert(target_type=i.shape.dtype), sums))
