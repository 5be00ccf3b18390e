"""int8 products and convolutions with constant weights and any pointwise epilogue, on AMX tiles or with VNNI."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from mgx_core import Kernels, Module, No, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.quantized_product import QuantConvolution
from mgx_core.targets.values import Value
from mgx_core.types.argument import Array
from mgx_core.types.shape import AnyShape
from mgx_core.types.traced_int import surely_equal

from ..emitter import CpuEmitter, is_traced
from ..int8_depthwise import has_avx512_vnni
from ..native_library import native
from ..tile_panels import pack_panels
from .byte_products import offer_bytes, with_epilogue
from .integer_epilogues import BYTES
from .packed_products import EmitFused
from .pointwise_convolution import as_matrices
from .window_products import copied_windows

__all__ = ["PLANS"]

PLANS = Kernels("cpu")

# Fewer rows leave tiles mostly empty.  The product is then refused if its weights exceed CACHED_BYTES, since reading them
# dominates; with smaller weights a tile kernel still beats the cost of calling a oneDNN primitive.
MIN_ROWS: Final = 8
CACHED_BYTES: Final = 1 << 18
MIN_DEPTH: Final = 24  # depth below which a tile is mostly padding
# Compute-bound 1 x 1 convolutions, for which oneDNN is as fast: more than MANY_PIXELS pixels with at least as many input as
# output channels, or a depth of at least LARGE_DEPTH with more than MANY_PRODUCTS multiplications.
MANY_PIXELS: Final = 512
LARGE_DEPTH: Final = 512
MANY_PRODUCTS: Final = 30_000_000


def fits(op: Any, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    x, w = inputs[:2]
    if not native().multiplies_tiles() and not has_avx512_vnni():
        return No("the processor has neither AMX nor VNNI for 8-bit integers")
    if not isinstance(x, Shape) or not isinstance(w, Shape) or x.dtype not in BYTES or w.dtype is not dt.int8:
        return No(f"8-bit operands with int8 weights are required, got {x} and {w}")
    return None


def prepare(e: CpuEmitter, op: Any, operands: Sequence[Value | None]) -> EmitFused:
    """Returns the function that emits a product or convolution with a pointwise body.  Errors: Refused."""
    from ..jit.byte_gemm import compile_byte_gemm
    from ..jit.byte_gemm_loops import FOUR, TILE

    x, w, x_zero, w_zero = (*operands, None, None)[:4]
    assert x is not None and w is not None
    if w_zero is not None:
        raise Refused("the weights have a zero point")
    if not e.is_constant(w):
        raise Refused("the weights are not constant")
    if 0 in x.lens or 0 in w.lens:
        raise Refused("an extent is 0")
    zero = 0 if x_zero is None else scalar_zero_point(e, x_zero)
    tiled = native().multiplies_tiles()
    if not tiled and x.shape.dtype is dt.int8:
        zero += 128  # VNNI multiplies unsigned by signed bytes
    window = isinstance(op, QuantConvolution)
    several = window and any(d != 1 for d in w.lens[2:])
    if window and (op.group != 1 or (several and not is_traced(x.shape))):
        raise Refused(
            f"one group and a window of one element are required, got {op.group} groups and a window {w.lens[2:]}"
        )
    if several:
        a, b = windows_of_bytes(e, op, x, w, x_zero)
    else:
        a, b = as_matrices(e, op, x, w) if window else (x, w)
    rows, matrix, lens = product(a, b)
    m, depth = rows.shape.lens()
    n = matrix.lens[-1]
    if window:
        if tiled and depth % 64 == 0 and _is_large(m, depth, n) and not is_traced(x.shape):
            raise Refused(f"oneDNN is as fast for {m} pixels of {depth} channels and {n} results")
        lens = [lens[0], n, *lens[1:-1]]
    axis = 1 if window else -1
    packed, start = panels(e, matrix, zero, TILE if tiled else FOUR)

    label = f"{'conv' if window else 'matmul'} {'tiles' if tiled else 'dots'}"
    return with_epilogue(
        e,
        rows.shape,
        [rows, packed, start],
        lens,
        axis,
        ("bytes", n),
        lambda made: compile_byte_gemm(made, e.engine, tiled, e.fast_math),
        label,
    )


def _is_large(m: int, depth: int, n: int) -> bool:
    """Returns True for convolutions of m pixels that are bound by computing, for which oneDNN is as fast."""
    return (m > MANY_PIXELS and depth >= n) or (depth >= LARGE_DEPTH and m * depth * n > MANY_PRODUCTS)


def windows_of_bytes(e: CpuEmitter, op: Any, x: Value, w: Value, x_zero: Value | None) -> tuple[Value, Value]:
    """Returns copies of the windows of x as rows, and the weights [o, c, ..] as a matrix.  Errors: Refused for negative padding.

    Padding has the value of the zero point.
    """
    window = w.lens[2:]
    moves = op.sliding(x.lens[2:], window)
    if min(*moves.begins, *moves.ends) < 0:
        raise Refused("negative padding is not supported")
    array = e.constant(w)
    assert array is not None

    def matrix() -> list[Array]:
        return [np.ascontiguousarray(np.moveaxis(array, (0, 1), (-1, -2)).reshape(-1, len(array)))]

    [weights] = e.derived_literals([array], "rows of windows", matrix)
    e.replaced = True
    filler = 0 if x_zero is None else scalar_zero_point(e, x_zero)
    return copied_windows(e, moves, x, w, moves.counts(x.lens[2:], window), filler), weights


def scalar_zero_point(e: CpuEmitter, zero: Value) -> int:
    """Returns the value of a zero point.  Errors: Refused unless it is a single constant."""
    if prod(zero.lens) != 1:
        raise Refused("the left operand has more than one zero point")
    array = e.constant(zero)
    if array is None:
        raise Refused("the left operand's zero point is not constant")
    return int(array.reshape(()))


# operands ------------------------------------------------------------------------------------------------------------


def product(a: Value, b: Value) -> tuple[Value, Value, list[int]]:
    """Returns a [.., m, k] as one matrix, b as [k, n], and the extents of the result.  Errors: Refused."""
    from ..jit.gemm_epilogue import row_step

    *batch, k, n = b.lens
    if is_traced(a.shape) and surely_equal(batch, a.lens[:-2]) and not any(b.strides[:-2]):
        batch = []  # oneDNN, which is as fast for the same weights in all batches, takes no traced extents
    if any(d != 1 for d in batch):
        raise Refused("batched weights are not supported")
    m, step = prod(a.lens[:-1]), row_step(a.lens, a.strides)
    step = k if m == 1 else step
    if (k * n > CACHED_BYTES and m < MIN_ROWS) or (k < MIN_DEPTH and native().multiplies_tiles()):
        raise Refused(f"{m} rows of depth {k} leave tiles mostly empty")
    if step is None or a.strides[-1] != 1 or step < k:
        raise Refused("the rows are not contiguous or overlap")
    rows = a.view_at(0, Shape(a.shape.dtype, [m, k], [step, 1]))
    lens = [*([1] * (len(b.lens) - len(a.lens))), *a.lens[:-1], n]
    return rows, b.view_at(0, Shape(b.shape.dtype, [k, n], b.strides[-2:])), lens


def panels(e: CpuEmitter, w: Value, zero: int, step: int) -> tuple[Value, Value]:
    """Returns weights [k, n] in panels, and the initial sums: for each column, minus the zero point times the column sum.

    step: as of `pack_panels`.
    """
    array = e.constant(w)
    assert array is not None

    def begin() -> list[Array]:
        n = array.shape[1]
        made = np.zeros(-(-n // 16) * 16, np.int32)
        if zero:
            made[:n] = (array.astype(np.int64).sum(0) * -zero).astype(np.int32)
        return [made]

    [weights] = e.derived_literals([array], ("panels of bytes", step), lambda: [pack_panels(array, step)])
    [start] = e.derived_literals([array], ("sums of columns", zero), begin)
    return weights, start


offer_bytes(PLANS, "tiles", fits, prepare)
