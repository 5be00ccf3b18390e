"""Grouped convolutions by native loops.

oneDNN 3.2 has no grouped kernels for AVX2: groups of 4, 8 and 32 channels reach 3, 18 and 30 GFLOP/s at a peak of 97.  On
AVX-512, it wastes half a vector per group of 24 channels; here two groups fill three vectors.
"""

from __future__ import annotations

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
from .anchors import float32_only, offer_anchor
from .epilogues import Epilogue
from .links import encode_links, input_and_result, two_axes, weights_and_extents
from .native_loops import native_loop

__all__ = ["PLANS"]

PLANS = Kernels("cpu")
LANES: Final = 8  # of AVX2; AVX-512 has twice as many
PAIRED_AVX2: Final = 4  # channels per group: two groups fill a vector of AVX2
PAIRED_AVX512: Final = 24  # channels per group: two groups fill three vectors of AVX-512
ITEM_CHANNELS: Final = 64  # channels read and written per work item: whole cache lines
MAX_COPIED_BYTES: Final = 128 * 1024  # maximum bytes of inputs copied per work item of more than one output row
VECTORS: Final = (3, 2, 1)  # output vectors computed together: more vectors reload fewer inputs
GAP: Final = 8  # padding between copied pixels, in floats
ITEMS_PER_THREAD: Final = 4  # work items per thread, for load balance


@float32_only
def fits(op: Any, x: Shape, w: Shape) -> No | None:
    if w.dynamic():
        return No(f"the weights {w} have data-dependent extents")
    if op.group == 1 or x.rank not in (3, 4):
        return No(
            f"more than one group and one or two spatial axes are required, got {op.group} groups and {x.rank} axes"
        )
    if not _groups_per_unit(op.group, w):
        return No(f"{op.group} groups of {w.dims[1]} inputs with {w.dims[0]} outputs in total do not fit vectors")
    return None


def _groups_per_unit(group: int, w: Shape) -> int:
    """Returns the number of groups computed together; 0 for unsupported group sizes."""
    channels, outputs = w.lens()[1], w.lens()[0] // group
    if channels == outputs == PAIRED_AVX2 and group % 2 == 0:
        return 2
    return int(channels % 4 == 0 and outputs % LANES == 0)


def convolve(e: CpuEmitter, op: Any, x: Value, w: Value, epilogue: Epilogue | None) -> Value:
    """Emits the convolution of x [n, c, ..] with constant w [o, c / group, ..]; operand and result are channels last."""
    wide, per, each = e.engine.wide, w.lens[1], w.lens[0] // op.group
    if wide and not per == each == PAIRED_AVX512:
        raise Refused(f"oneDNN has AVX-512 kernels for groups of {per} inputs and {each} outputs")
    weights, lens = weights_and_extents(e, op, x, w, epilogue)
    window = w.lens[2:]
    strides, gaps, begin, _ = op.sliding(x.lens[2:], window)
    if min(begin) < 0:
        raise Refused("negative padding is not supported")
    x, out = input_and_result(e, x, w, lens, epilogue)
    links, operands = encode_links(epilogue, lens)
    together = 2 if wide else _groups_per_unit(op.group, w.shape)
    units = -(-op.group // together)
    inputs, outputs = together * per, together * each
    vectors = per // LANES if wide else next(n for n in VECTORS if outputs % (n * LANES) == 0)
    block = outputs if wide else vectors * LANES
    [packed] = e.derived_literals(
        [weights], ("groups", op.group, wide), lambda: [_pack(weights, op.group, together, block)]
    )
    height, width = two_axes(lens[2:], 1)
    (down, across), (gap_down, gap_across) = two_axes(window, 1), two_axes(gaps, 1)
    step_down, step_across = two_axes(strides, 1)
    adjacent = max(
        n for n in range(1, units + 1) if units % n == 0 and (n == 1 or n * max(inputs, outputs) <= ITEM_CHANNELS)
    )
    line = (adjacent * inputs + GAP) * ((width - 1) * step_across + (across - 1) * gap_across + 1)
    reach = (down - 1) * gap_down + 1
    threads = e.threads or native().thread_count()
    blocks = lens[0] * units // adjacent
    wanted = -(-ITEMS_PER_THREAD * threads // blocks)  # work items per image and block of units
    fitting = (MAX_COPIED_BYTES // (4 * line) - reach) // step_down + 1
    rows = max(1, min(fitting, -(-height // wanted)))
    parts = -(-height // rows)
    rows = -(-height // parts)
    numbers = [
        units, adjacent, inputs, outputs, int(together > 1), op.group % together, vectors,
        *two_axes(x.lens[2:], 1), x.strides[0], *two_axes(x.strides[2:], 0), height, width,
        out.strides[0], *two_axes(out.strides[2:], 0),
        down, across, step_down, step_across, gap_down, gap_across, *two_axes(begin, 0), rows, parts, len(links) // 8, *links,
    ]  # fmt: skip
    native_loop(
        e,
        "conv groups",
        "grouped_convolution_avx512" if wide else "grouped_convolution_avx2",
        [x, packed, out, *operands],
        [out],
        numbers,
        blocks * parts,
        1,
        4 * line * ((rows - 1) * step_down + reach),
        updated=epilogue is not None and epilogue.residual is not None,
        flops=2 * prod(lens) * prod(w.lens[1:]),
    )
    return out


def _pack(w: Array, group: int, together: int, block: int) -> Array:
    """Packs weights [o, c / group, ..] as [unit, output block, taps, channel, outputs per block]."""
    each, channels, units, taps = w.shape[0] // group, w.shape[1], -(-group // together), prod(w.shape[2:])
    whole = np.zeros((units * together * each, channels, taps), np.float32)  # zero-padded to whole units
    whole[: len(w)] = w.reshape(-1, channels, taps)
    apart = whole.reshape(units, -1, block, channels, taps)
    return np.ascontiguousarray(apart.transpose(0, 1, 4, 3, 2))


offer_anchor(PLANS, Convolution, convolve, "groups", fits)
