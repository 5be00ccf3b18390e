"""int8 products and convolutions with constant weights, for processors without VNNI or where oneDNN cannot use it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mgx_core import Kernels, Module, No, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.quantized_product import QuantConvolution
from mgx_core.ops.window import Moves
from mgx_core.targets.values import Value
from mgx_core.types.argument import Array
from mgx_core.types.shape import AnyShape

from ..emitter import CpuEmitter
from ..layout import as_channels_last
from ..packing import Derived
from .byte_products import offer_bytes, with_epilogue
from .convolution import expand_multiplier
from .integer_epilogues import BYTES
from .integer_operands import accumulates_int32, known_bug
from .packed_products import EmitFused

__all__ = ["PLANS"]

if TYPE_CHECKING:
    from ..jit.byte_pairs import Windows
    from ..jit.gemm_epilogue import Product
    from ..jit.kernel import JitKernel

PLANS = Kernels("cpu")

MAX_AXES: Final = 3  # maximum spatial axes
CHANNELS: Final = 16  # minimum channels of minimal filtering
TRANSFORM_COST: Final = 40  # cost of transforming one element of a Winograd tile, forward or back, in multiplications
MAX_RATIO: Final = 0.9  # maximum cost relative to the direct convolution: margin for costs not modeled


def fits(op: Any, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    x, w = inputs[:2]
    if not isinstance(x, Shape) or not isinstance(w, Shape) or not {x.dtype, w.dtype} <= BYTES:
        return No(f"8-bit operands are required, got {x} and {w}")
    return None


def prepare(e: CpuEmitter, op: Any, operands: Sequence[Value | None]) -> EmitFused:
    """Returns the function that emits a product or convolution with a pointwise body.  Errors: Refused."""
    x, w, x_zero, w_zero = (*operands, None, None)[:4]
    assert x is not None and w is not None
    if accumulates_int32() and not known_bug(op, operands):
        raise Refused("oneDNN uses VNNI or AMX on this processor")
    weights = e.constant(w)
    if weights is None:
        raise Refused("the weights are not constant")
    if 0 in x.lens or 0 in w.lens:
        raise Refused("an extent is 0")
    if x_zero is not None and prod(x_zero.lens) != 1:
        raise Refused("the left operand has more than one zero point")
    points = None
    if w_zero is not None and (points := e.constant(w_zero)) is None:
        raise Refused("the weights' zero points are not constant")
    zero = e.literal(np.zeros(1, x.shape.dtype.numpy)) if x_zero is None else x_zero
    if zero.shape.dtype is not x.shape.dtype:
        raise Refused(f"a zero point of type {x.shape.dtype} is required, got {zero.shape.dtype}")
    if isinstance(op, QuantConvolution):
        return convolution(e, op, x, w, weights, zero, points)
    return product(e, x, w, weights, zero, points)


# matrices ------------------------------------------------------------------------------------------------------------


def product(e: CpuEmitter, x: Value, w: Value, weights: Array, zero: Value, points: Array | None) -> EmitFused:
    """Emits the product of x [.., m, k] and w [k, n]."""
    from ..jit.byte_pairs import compile_pairs
    from ..jit.gemm_epilogue import row_step

    *batch, k, n = w.lens
    if any(d != 1 for d in batch):
        raise Refused("batched weights are not supported")
    if points is not None and prod(points.shape[:-1]) != 1:
        raise Refused("the weights' zero points vary along the depth")
    m, step = prod(x.lens[:-1]), row_step(x.lens, x.strides)
    if step is None or (x.strides[-1] != 1 and k > 1) or (step < k and m > 1):
        x = e.row_major(x)
        step = k
    rows = x.view_at(0, Shape(x.shape.dtype, [m, k], [step if m > 1 else k, 1]))
    lens = [*([1] * (len(w.lens) - len(x.lens))), *x.lens[:-1], n]
    packed = pack_matrices(e, weights, points, "matrix")

    def compiled(made: Product) -> JitKernel | No:
        return compile_pairs(made, e.engine, x.shape.dtype is dt.int8, fast=e.fast_math)

    return with_epilogue(e, rows.shape, [rows, packed, zero], lens, -1, ("pairs", n), compiled, "matmul pairs")


# convolutions --------------------------------------------------------------------------------------------------------


def convolution(
    e: CpuEmitter, op: Any, x: Value, w: Value, weights: Array, zero: Value, points: Array | None
) -> EmitFused:
    """Emits the convolution of x [n, c, ..] with w [o, c / group, ..]; operand and result are channels last."""
    lens = op.infer(Shape(x.shape.dtype, x.lens), Shape(w.shape.dtype, w.lens)).lens()
    if 0 in lens:
        raise Refused("an extent is 0")
    if points is not None and points.size != 1 and points.size != w.lens[0]:
        raise Refused("the weights' zero points must be per tensor or per output channel")
    moves = moves_of(op, x, w)
    x = as_channels_last(e, x)
    if x.strides[1] != 1 and x.lens[1] > 1:
        raise Refused("the channels are not contiguous")
    if w.lens[1] == 1 and op.group > 1:
        x, _ = expand_multiplier(e, x, lens[1], op.group)
        return depthwise(e, x, w, lens, moves, weights, zero, points)
    if _winograd_pays_off(lens, w.lens, op.group, moves):
        filters = pack_winograd(e, weights, points)
        if filters is not None:
            return winograd(e, x, w, lens, moves, filters, zero)
    return implicit_gemm(e, op, x, w, lens, moves, weights, zero, points)


def moves_of(op: Any, x: Value, w: Value) -> Moves:
    """Returns the window geometry of a convolution.  Errors: Refused."""
    window = w.lens[2:]
    if len(window) > MAX_AXES:
        raise Refused(f"at most {MAX_AXES} spatial axes are supported, got a window {window}")
    moves: Moves = op.sliding(x.lens[2:], window)
    if min((*moves.begins, *moves.ends), default=0) < 0:
        raise Refused("negative padding is not supported")
    return moves


def windows_of(x: Value, w: Value, lens: Sequence[int], moves: Moves, channels: int) -> Windows:
    """Encodes the window geometry for loops, with leading axes of extent 1 up to AXES; channels: per tap."""
    from ..jit.byte_pairs import Windows

    missing = MAX_AXES - len(w.lens[2:])
    ones, zeros = [1] * missing, [0] * missing
    taps = [*ones, *w.lens[2:]]
    numbers = [
        channels, x.strides[0], x.strides[-1], *zeros, *x.strides[2:], *ones, *x.lens[2:], *ones, *lens[2:], *taps,
        *ones, *moves.stride, *ones, *moves.dilation, *zeros, *moves.begins, int(x.shape.dtype is dt.int8),
    ]  # fmt: skip
    return Windows(tuple(numbers), taps[0] * taps[1], taps[2] * w.lens[1], prod(taps))


def depthwise(
    e: CpuEmitter, x: Value, w: Value, lens: list[int], moves: Moves, weights: Array, zero: Value, points: Array | None
) -> EmitFused:
    """Emits a depthwise convolution."""
    from ..jit.byte_pairs import compile_channels

    windows = windows_of(x, w, lens, moves, w.lens[0])
    table, totals = pack_depthwise(e, weights, points)
    rows = Shape(x.shape.dtype, [prod(lens) // lens[1], w.lens[0]])

    def compiled(made: Product) -> JitKernel | No:
        return compile_channels(made, e.engine, windows, e.fast_math)

    return with_epilogue(e, rows, [x, table, totals, zero], lens, 1, ("channels", windows), compiled, "conv channels")


def winograd(
    e: CpuEmitter, x: Value, w: Value, lens: list[int], moves: Moves, filters: Value, zero: Value
) -> EmitFused:
    """Emits a Winograd convolution F(2 x 2, 3 x 3) with filters of `pack_winograd`."""
    from ..jit.byte_pairs import compile_filters

    windows = windows_of(x, w, lens, moves, w.lens[1])
    rows = Shape(x.shape.dtype, [prod(lens) // lens[1], 9 * w.lens[1]])

    def compiled(made: Product) -> JitKernel | No:
        return compile_filters(made, e.engine, windows, [lens[0], *lens[2:]], e.fast_math)

    return with_epilogue(e, rows, [x, filters, zero], lens, 1, ("filters", windows), compiled, "conv filters")


def implicit_gemm(
    e: CpuEmitter,
    op: Any,
    x: Value,
    w: Value,
    lens: list[int],
    moves: Moves,
    weights: Array,
    zero: Value,
    points: Array | None,
) -> EmitFused:
    """Emits a convolution as an implicit GEMM over windows, or as a plain GEMM over pixels for 1 x 1 windows."""
    from ..jit.byte_pairs import compile_pairs

    windows = windows_of(x, w, lens, moves, w.lens[1])
    packed = pack_matrices(e, weights, points, "convolution", op.group)
    pointwise = (
        op.group == 1 and windows.taps == 1 and all(s == 1 for s in moves.stride) and not any(moves.begins + moves.ends)
    )
    apart = _pixel_stride(x) if pointwise else None
    depth = w.lens[1] * windows.taps
    rows = Shape(x.shape.dtype, [prod(lens) // lens[1], depth], [depth if apart is None else apart, 1])
    moved = windows if apart is None else None

    def compiled(made: Product) -> JitKernel | No:
        return compile_pairs(made, e.engine, x.shape.dtype is dt.int8, moved, op.group, e.fast_math)

    settings = "pairs", w.lens[0], moved, op.group, rows
    return with_epilogue(e, rows, [x, packed, zero], lens, 1, settings, compiled, "conv pairs")


def _winograd_pays_off(lens: Sequence[int], w: Sequence[int], groups: int, moves: Moves) -> bool:
    """Returns True if Winograd pays off for these 3 x 3 windows, transforms included."""
    if list(w[2:]) != [3, 3] or groups != 1 or w[1] < CHANNELS or any(n != 1 for n in moves.stride + moves.dilation):
        return False
    tiles = lens[0] * -(-lens[2] // 2) * -(-lens[3] // 2)
    panels = -(-w[0] // 16) * 16
    filtered = tiles * (16 * w[1] * panels + TRANSFORM_COST * (w[1] + panels))
    return filtered < MAX_RATIO * 9 * prod(lens) // lens[1] * w[1] * panels


def _pixel_stride(x: Value) -> int | None:
    """Returns the stride between pixels of a channels-last image, or None if it is not constant."""
    from ..jit.gemm_epilogue import row_step

    step = row_step([x.lens[0], *x.lens[2:], x.lens[1]], [x.strides[0], *x.strides[2:], x.strides[1]])
    return None if step is None or step < x.lens[1] else step


# weights -------------------------------------------------------------------------------------------------------------


def pack_matrices(e: CpuEmitter, array: Array, points: Array | None, how: str, groups: int = 1) -> Value:
    """Packs weights minus zero points into zero-padded panels [groups, panels, depth / 2, 16, 2]."""

    def pack() -> list[Array]:
        wide = array.astype(np.int16)
        if how == "matrix":
            matrix = wide.reshape(1, *array.shape[-2:])
            if points is not None:
                matrix = matrix - points.astype(np.int16).reshape(-1)
        else:
            if points is not None:
                wide = wide - points.astype(np.int16).reshape(-1, *[1] * (array.ndim - 1))
            kernels = wide.reshape(groups, array.shape[0] // groups, array.shape[1], -1)
            matrix = kernels.transpose(0, 3, 2, 1).reshape(groups, -1, kernels.shape[1])
        return [pack_panels(matrix)]

    [packed] = e.derived_literals([array, points], ("pairs", how, groups), pack)
    return packed


def pack_panels(matrix: Array) -> Array:
    """Packs matrices [groups, depth, columns] into panels [groups, panels, depth / 2, 16, 2]."""
    from ..jit.byte_pairs_loops import COLUMNS, STEP

    groups, k, n = matrix.shape
    depth, panels = -(-k // STEP) * STEP, -(-n // COLUMNS)
    whole = np.zeros((groups, depth, panels * COLUMNS), np.int16)
    whole[:, :k, :n] = matrix
    apart = whole.reshape(groups, depth // 2, 2, panels, COLUMNS)
    return np.ascontiguousarray(apart.transpose(0, 3, 1, 4, 2))


def pack_depthwise(e: CpuEmitter, array: Array, points: Array | None) -> tuple[Value, Value]:
    """Packs depthwise weights minus zero points for `PairChannels`; also returns their sums per channel."""
    from ..jit.byte_pairs import LANES

    def pack() -> list[Array]:
        channels, columns = array.shape[0], array.shape[-1]
        wide = array.astype(np.int16).reshape(channels, -1, columns)
        if points is not None:
            wide = wide - points.astype(np.int16).reshape(-1, 1, 1)
        totals = wide.sum((1, 2), dtype=np.int32)
        upright = wide.shape[1] > 1
        if not upright:
            wide = wide.swapaxes(1, 2)
        lines, columns = wide.shape[1:]
        starts, pairs = (2, lines // 2 + 1) if upright else (1, -(-lines // 2))
        padding = -channels % LANES  # the last block of channels is read in whole vectors
        whole = np.zeros((starts, channels + padding, 2 * pairs, columns), np.int16)
        for start in range(starts):
            whole[start, :channels, start : start + lines] = wide
        apart = whole.reshape(starts, -1, pairs, 2, columns).transpose(0, 2, 4, 1, 3)
        return [np.ascontiguousarray(apart), np.pad(totals, (0, padding))]

    packed, totals = e.derived_literals([array, points], "pairs of channels", pack)
    return packed, totals


def pack_winograd(e: CpuEmitter, array: Array, points: Array | None) -> Value | None:
    """Returns Winograd-transformed 3 x 3 filters, scaled by 4 to be integers, as panels [panels, 16, channels / 2, 16, 2].

    None if four times a sum could overflow int32.
    """
    from ..jit.byte_pairs_loops import COLUMNS

    def pack() -> Derived:
        wide = array.astype(np.int32)
        if points is not None:
            wide = wide - points.astype(np.int32).reshape(-1, 1, 1, 1)
        if 4 * 255 * int(np.abs(wide).sum((1, 2, 3), dtype=np.int64).max()) >= 1 << 31:
            return Derived([array, points], np.zeros(0, np.int16))
        transform = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]], np.int32)
        made = np.einsum("ai,ocij,bj->abco", transform, wide, transform).astype(np.int16)
        panels = pack_panels(made.reshape(16, *made.shape[2:]))
        assert panels.shape[3] == COLUMNS
        return Derived([array, points], np.ascontiguousarray(panels.swapaxes(0, 1)))

    held = e.shared.weights.derived([array, points], "pairs of filters", pack)
    return e.literal(held.array, held) if held.array.size else None


offer_bytes(PLANS, "pairs", fits, prepare)
