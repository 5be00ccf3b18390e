"""Depthwise convolutions, and groups of 2, 4 and 8 channels, by a native loop for processors with AVX-512.

oneDNN 3.2 loads an input for each of its multiplications.  Here the window's weights and the sums of up to 14 columns, in one
or two rows, stay in registers, so that each input is loaded once for all its multiplications.
"""

from __future__ import annotations

import math
import struct
from math import prod
from typing import Any, Final

import numpy as np

from mgx_core import Kernels, No, Shape
from mgx_core.errors import Refused
from mgx_core.ops.convolution import Convolution
from mgx_core.targets.values import Value
from mgx_core.types.argument import Array

from ..emitter import CpuEmitter
from ..native_library import native
from ..packing import Derived
from .anchors import of_float32, offer_anchor
from .epilogues import Epilogue
from .links import KINDS, bits, images, links_of, plane, weights_and_extents
from .native_loops import native_loop

__all__ = ["PLANS"]

PLANS = Kernels("cpu")
LANES: Final = 16
ACROSS: Final = {
    1: (3, 5, 7, 9, 11),
    2: (3,),
    4: (3,),
    8: (3,),
}  # by channels of a group: widths of windows for which there are loops
FOUR: Final = 4  # channels of a group whose weights lie together
TWO: Final = 2  # channels of a group, which are done as half of a group of four
NEAR: Final = 400 * 1024  # bytes of rows of inputs that stay in the second cache
FAR: Final = 3 << 19  # bytes of inputs that do not
CROWDED: Final = 1024  # bytes between pixels of which the first cache holds few: they meet in four of its sets
SHARES: Final = 4  # items for each thread, so that one that is done early finds more
COLUMN: Final = 12  # bytes that the loop keeps for each column of inputs
NUMBERS: Final = 8  # of a link


@of_float32
def fits(op: Any, x: Shape, w: Shape) -> No | None:
    if w.dynamic():
        return No(f"weights {w}, whose extents depend on data")
    channels, per = w.lens()[:2]
    if x.rank not in (3, 4) or op.group == 1 or op.group * per != channels or (per == TWO and channels % FOUR):
        return No(f"{op.group} groups of {per} channels that give {channels} in all, {x.rank} axes")
    return None if w.lens()[-1] in ACROSS.get(per, ()) else No(f"groups of {per} channels, a window {w.lens()[2:]}")


def convolve(e: CpuEmitter, op: Any, x: Value, w: Value, epilogue: Epilogue | None) -> Value:
    """x [n, c, ..] with constant weights [c, c / group, ..], channels last in and out."""
    if not e.engine.wide:
        raise Refused("a loop of AVX-512")
    weights, lens = weights_and_extents(e, op, x, w, epilogue)
    window = w.lens[2:]
    strides, gaps, begin, _ = op.sliding(x.lens[2:], window)
    if strides[-1] > 2 or gaps[-1] > 1 or min(begin) < 0:
        raise Refused(f"steps of {strides[-1]} and {gaps[-1]} columns, {begin} before them")
    if _waits(x, w, strides[-1]):
        raise Refused("few products for inputs from afar, which oneDNN waits less for")
    if not np.isfinite(weights).all():
        raise Refused("zeros beyond the images times what is not finite")
    per = w.lens[1]
    if per == TWO:
        if not e.fast_math:
            raise Refused("zeros times infinities of other channels, which takes fast_math")
        per = FOUR
    x, out = images(e, x, w, lens, epilogue)
    links, operands = links_of(epilogue, lens)
    around, links = _bounded(links)
    held = e.shared.weights.derived(
        [weights], ("depthwise", LANES), lambda: Derived([weights], _packed(_in_fours(weights)))
    )
    height, width = plane(lens[2:], 1)
    down, across = plane(window, 1)
    vectors = -(-lens[1] // LANES)
    block, rows = _cut(lens[0], vectors, height, down * plane(x.lens[2:], 1)[1], e.threads or native().thread_count())
    parts = -(-height // rows)
    numbers = [
        lens[1], per, block, *plane(x.lens[2:], 1), x.strides[0], *plane(x.strides[2:], 0), height, width, out.strides[0],
        *plane(out.strides[2:], 0), down, across, *plane(strides, 1), plane(gaps, 1)[0], *plane(begin, 0), rows, parts,
        *around, len(links) // NUMBERS, *links,
    ]  # fmt: skip
    native_loop(
        e,
        "conv depthwise" if per == 1 else "conv narrow groups",
        "depthwise_convolution_avx512",
        [x, e.literal(held.array, owner=held), out, *operands],
        [out],
        numbers,
        lens[0] * -(-vectors // block) * parts,
        1,
        COLUMN * ((width - 1) * plane(strides, 1)[1] + across),
        updated=epilogue is not None and epilogue.residual is not None,
        flops=2 * prod(lens) * prod(w.lens[1:]),
    )
    return out


def _waits(x: Value, w: Value, step: int) -> bool:
    """Returns True where it is loading inputs from beyond the second cache that takes the time, and oneDNN does that faster."""
    apart, few = 4 * x.lens[1], w.lens[1] == 1 and w.lens[-1] == 3
    return few and 4 * x.shape.elements() > FAR and (step == 2 or apart % CROWDED == 0)


def _cut(images: int, vectors: int, height: int, near: int, threads: int) -> tuple[int, int]:
    """Returns the vectors of channels and the rows of an item.

    near: pixels that the windows of a row reach: of as many vectors together as the first cache holds them for.
    """
    block = max(1, min(vectors, NEAR // (4 * LANES * near)))
    blocks = -(-vectors // block)
    parts = 1 if threads == 1 else min(height, -(-SHARES * threads // (images * blocks)))
    return -(-vectors // blocks), -(-height // parts)


def _bounded(links: list[int]) -> tuple[list[int], list[int]]:
    """Returns what sums begin at and the bounds on them, as the loop is told these, and the links that are left.

    Sums begin at a number for each channel and at an image (buffers, 0: none; and its strides).
    """
    bias, added, low, high, rest = 0, [0, 0, 0, 0], -math.inf, math.inf, links
    while rest and rest[0] == KINDS["add"] and rest[NUMBERS - 1] == 1:
        buffer, *strides = rest[3 : NUMBERS - 1]
        if not any(strides) and not bias:
            bias = buffer
        elif not added[0]:
            added = [buffer, *strides]
        else:
            break
        rest = rest[NUMBERS:]
    if rest and rest[0] == KINDS["relu"] and rest[1] == 0:
        low, rest = 0.0, rest[NUMBERS:]
    elif rest and rest[0] == KINDS["clip"]:
        low, high, rest = _number(rest[1]), _number(rest[2]), rest[NUMBERS:]
    return [bias, *added, bits(low), bits(high)], rest


def _number(stored: int) -> float:
    return float(struct.unpack("<f", struct.pack("<i", stored))[0])


def _in_fours(w: Array) -> Array:
    """Returns weights of groups of two channels as groups of four, with zeros for the other two; any others as they are."""
    channels, per = w.shape[:2]
    if per != TWO:
        return w
    wide = np.zeros((channels // FOUR, FOUR, FOUR, *w.shape[2:]), w.dtype)
    apart = w.reshape(channels // FOUR, FOUR, TWO, *w.shape[2:])
    wide[:, :TWO, :TWO], wide[:, TWO:, TWO:] = apart[:, :TWO], apart[:, TWO:]
    return wide.reshape(channels, FOUR, *w.shape[2:])


def _packed(w: Array) -> Array:
    """Returns weights [c, per, ..] as [vector, tap down, channels of a group by four, tap across, 4, 16].

    Depthwise: [vector, taps, 16], with zeros for channels that there are not.
    """
    channels, per = w.shape[:2]
    down, across = plane(w.shape[2:], 1)
    near = min(per, FOUR)
    wide = np.zeros((-(-channels // LANES) * LANES, *w.shape[1:]), np.float32)
    wide[:channels] = w
    apart = wide.reshape(-1, LANES, per // near, near, down, across)
    return np.ascontiguousarray(apart.transpose(0, 4, 2, 5, 3, 1))


offer_anchor(PLANS, Convolution, convolve, "depthwise", fits)
