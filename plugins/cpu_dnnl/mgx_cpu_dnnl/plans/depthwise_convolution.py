"""Depthwise convolutions, and groups of 2, 4 and 8 channels, by a native loop for processors with AVX-512.

oneDNN 3.2 loads an input for every multiplication.  This loop keeps the window's weights and the sums of up to 14 columns of one
or two rows in registers, and loads each input once for all its multiplications.  Images are float32 or bfloat16.  Long windows of
one axis are computed in rows: of an image whose rows are the same memory, each beginning where the taps of the one before end.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from mgx_core import Kernels, No, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.convolution import Convolution
from mgx_core.targets.values import Value
from mgx_core.types.argument import Array
from mgx_core.types.dtype import DType
from mgx_core.types.traced_int import usual

from ..emitter import CpuEmitter, is_traced
from ..jit.native_loop import bits_of
from ..native_library import native
from .anchors import of_one_type, offer_anchor
from .convolution import padded_image
from .epilogues import Epilogue
from .links import KINDS, encode_links, input_and_result, two_axes, weights_and_extents
from .native_loops import native_loop
from .offer import FLOATS

__all__ = ["PLANS"]

PLANS = Kernels("cpu")
LANES: Final = 16
WIDTHS: Final = {1: (3, 5, 7, 9, 11), 2: (3,), 4: (3,), 8: (3,)}  # supported window widths by channels per group
MIN_NARROW_WIDTH: Final = 5  # minimum width of depthwise windows of bfloat16, for which converting inputs pays off
FOUR: Final = 4  # channels per group whose weights are packed together
TWO: Final = 2  # channels per group, computed as half of a group of four
CACHED_BYTES: Final = 400 * 1024  # bytes of input rows that stay in the L2 cache
UNCACHED_BYTES: Final = 3 << 19  # bytes of an input that exceeds the L2 cache
CONFLICT_STRIDE: Final = 1024  # stride between pixels whose multiples map to four sets of the L1 cache
ITEMS_PER_THREAD: Final = 4  # work items per thread, for load balance
COLUMN_BYTES: Final = 12  # scratch bytes per input column
LINK_INTEGERS: Final = 8  # integers per encoded link


@of_one_type(FLOATS)
def fits(op: Any, x: Shape, w: Shape) -> No | None:
    if w.dynamic():
        return No(f"the weights {w} have data-dependent extents")
    channels, per = w.lens()[:2]
    if x.rank not in (3, 4) or op.group == 1 or op.group * per != channels or (per == TWO and channels % FOUR):
        return No(
            f"groups with as many outputs as inputs are required, "
            f"got {op.group} groups of {per} inputs, {channels} outputs and {x.rank} axes"
        )
    if w.lens()[-1] not in WIDTHS.get(per, ()) and not _is_long(x.rank, w.lens()):
        return No(f"there is no loop for groups of {per} channels and a window {w.lens()[2:]}")
    return None


def convolve(e: CpuEmitter, op: Any, x: Value, w: Value, epilogue: Epilogue | None) -> Value:
    """Emits the convolution of x [n, c, ..] with constant w [c, c / group, ..]; operand and result are channels last."""
    if not e.engine.wide:
        raise Refused("the processor has no AVX-512")
    weights, lens = weights_and_extents(e, op, x, w, epilogue)
    window = w.lens[2:]
    strides, gaps, begin, end = op.sliding(x.lens[2:], window)
    long = _is_long(len(x.lens), w.lens)
    if strides[-1] > (1 if long else 2) or gaps[-1] > 1 or min(begin) < 0 or (long and end[-1] < 0):
        raise Refused(f"stride {strides[-1]}, dilation {gaps[-1]} and padding {begin} are not supported")
    per = w.lens[1]
    if x.shape.dtype is dt.bfloat16 and (per > FOUR or (per > 1 and "amx_bf16" in native().cpu_features())):
        raise Refused(f"oneDNN multiplies groups of {per} channels of bfloat16 faster")
    if x.shape.dtype is dt.bfloat16 and per == 1 and (strides[-1] > 1 or window[-1] < MIN_NARROW_WIDTH):
        raise Refused(f"oneDNN is faster for bfloat16 with a window of {window} and stride {strides[-1]}")
    if not is_traced(x.shape) and _is_memory_bound(x, w, strides[-1]):
        raise Refused("the input exceeds the L2 cache, which makes oneDNN faster")
    if not np.isfinite(weights).all():
        raise Refused("the padding is multiplied by weights that are not finite")
    down, across = _rows_of(window[-1], x.shape.dtype) if long else two_axes(window, 1)
    if not e.fast_math and (per == TWO or (long and down * across > window[-1])):
        raise Refused("zeros that complete groups or windows are multiplied by infinities, which requires fast_math")
    if per == TWO:
        per = FOUR
    x, out = input_and_result(e, x, w, lens, epilogue)
    links, operands = encode_links(epilogue, lens)
    around, links = _extract_bounds(links)
    key = ("depthwise", LANES, across)
    [packed] = e.derived_literals(
        [weights], key, lambda: [_pack(_merge_pairs(_in_rows(weights, down, across) if long else weights))]
    )
    if long:
        x, begin = _as_rows(e, x, down, across, begin[-1], end[-1] + down * across - window[-1]), (0,)
    height, width = two_axes(lens[2:], 1)
    vectors = -(-lens[1] // LANES)
    near = usual(x.shape.dtype.size * LANES * down * two_axes(x.lens[2:], 1)[1])
    block, rows = _partition(lens[0], vectors, height, near, e.threads or native().thread_count())
    parts = -(-height // rows)
    numbers = [
        lens[1], per, block, *two_axes(x.lens[2:], 1), x.strides[0], *two_axes(x.strides[2:], 0), height, width,
        out.strides[0], *two_axes(out.strides[2:], 0), down, across, *two_axes(strides, 1), two_axes(gaps, 1)[0],
        *two_axes(begin, 0), rows, parts, *around, len(links) // LINK_INTEGERS, *links,
    ]  # fmt: skip
    native_loop(
        e,
        "conv depthwise" if per == 1 else "conv narrow groups",
        f"depthwise_convolution_avx512_{x.shape.dtype}",
        [x, packed, out, *operands],
        [out],
        numbers,
        lens[0] * -(-vectors // block) * parts,
        1,
        COLUMN_BYTES * ((width - 1) * two_axes(strides, 1)[1] + across),
        updated=epilogue is not None and epilogue.residual is not None,
        flops=2 * prod(lens) * prod(w.lens[1:]),
    )
    return out


def _is_long(rank: int, w: Sequence[int]) -> bool:
    """Returns True for windows of one axis that are computed in rows; w: extents of the weights."""
    return rank == 3 and w[1] == 1 and w[-1] > WIDTHS[1][-1]


def _rows_of(taps: int, dtype: DType) -> tuple[int, int]:
    """Returns the rows and the taps in each, which together are the fewest that hold this many."""
    widths = [n for n in WIDTHS[1] if dtype is not dt.bfloat16 or n >= MIN_NARROW_WIDTH]
    across = min(widths, key=lambda n: (-(-taps // n) * n, -n))
    return -(-taps // across), across


def _in_rows(w: Array, down: int, across: int) -> Array:
    """Returns weights [c, 1, taps] as [c, 1, down, across], zero-padded."""
    return np.pad(w, ((0, 0), (0, 0), (0, down * across - w.shape[2]))).reshape(-1, 1, down, across)


def _as_rows(e: CpuEmitter, x: Value, down: int, across: int, begin: int, end: int) -> Value:
    """Emits x [n, c, w], zero-padded, and returns it as an image of `down` rows, each beginning `across` columns further."""
    padded = padded_image(e, x, [begin], [end])
    (n, c, width), (by_image, by_channel, by_column) = padded.lens, padded.strides
    lens, by = [n, c, down, width - (down - 1) * across], [by_image, by_channel, across * by_column, by_column]
    return padded.view_at(0, Shape(x.shape.dtype, lens, by))


def _is_memory_bound(x: Value, w: Value, step: int) -> bool:
    """Returns True if the convolution is bound by loading inputs from beyond the L2 cache, at which oneDNN is faster."""
    size, few = x.shape.dtype.size, w.lens[1] == 1 and w.lens[-1] == 3
    far = size * x.shape.elements() > UNCACHED_BYTES
    return few and far and (step == 2 or size * x.lens[1] % CONFLICT_STRIDE == 0)


def _partition(images: int, vectors: int, height: int, near: int, threads: int) -> tuple[int, int]:
    """Returns the channel vectors and the rows of a work item.

    near: bytes of one vector of channels read for one row of outputs; as many vectors are processed together as keep these in the
    L2 cache.
    """
    block = max(1, min(vectors, CACHED_BYTES // near))
    blocks = -(-vectors // block)
    parts = 1 if threads == 1 else min(height, -(-ITEMS_PER_THREAD * threads // (images * blocks)))
    return -(-vectors // blocks), -(-height // parts)


def _extract_bounds(links: list[int]) -> tuple[list[int], list[int]]:
    """Extracts initial values and clipping bounds of the sums from leading links; returns their encoding and the other links.

    Encoding: bias buffer (0: none), buffer and strides of an added image (0: none), bits of the lower and upper bound.
    """
    bias, added, low, high, rest = 0, [0, 0, 0, 0], -math.inf, math.inf, links
    while rest and rest[0] == KINDS["add"] and rest[LINK_INTEGERS - 1] == 1:
        buffer, *strides = rest[3 : LINK_INTEGERS - 1]
        if not any(strides) and not bias:
            bias = buffer
        elif not added[0]:
            added = [buffer, *strides]
        else:
            break
        rest = rest[LINK_INTEGERS:]
    if rest and rest[0] == KINDS["relu"] and rest[1] == 0:
        low, rest = 0.0, rest[LINK_INTEGERS:]
    elif rest and rest[0] == KINDS["clip"]:
        low, high, rest = _float_of(rest[1]), _float_of(rest[2]), rest[LINK_INTEGERS:]
    return [bias, *added, bits_of(low), bits_of(high)], rest


def _float_of(stored: int) -> float:
    return float(struct.unpack("<f", struct.pack("<i", stored))[0])


def _merge_pairs(w: Array) -> Array:
    """Merges groups of two channels into zero-padded groups of four; returns other weights unchanged."""
    channels, per = w.shape[:2]
    if per != TWO:
        return w
    wide = np.zeros((channels // FOUR, FOUR, FOUR, *w.shape[2:]), w.dtype)
    apart = w.reshape(channels // FOUR, FOUR, TWO, *w.shape[2:])
    wide[:, :TWO, :TWO], wide[:, TWO:, TWO:] = apart[:, :TWO], apart[:, TWO:]
    return wide.reshape(channels, FOUR, *w.shape[2:])


def _pack(w: Array) -> Array:
    """Packs weights [c, per, ..] as [channel vector, window row, per / 4, window column, 4, 16], zero-padded to whole vectors.

    Depthwise: [channel vector, taps, 16].
    """
    channels, per = w.shape[:2]
    down, across = two_axes(w.shape[2:], 1)
    near = min(per, FOUR)
    wide = np.zeros((-(-channels // LANES) * LANES, *w.shape[1:]), np.float32)
    wide[:channels] = w
    apart = wide.reshape(-1, LANES, per // near, near, down, across)
    return np.ascontiguousarray(apart.transpose(0, 4, 2, 5, 3, 1))


offer_anchor(PLANS, Convolution, convolve, "depthwise", fits)
