"""Convolutions of volumes by Winograd's minimal filtering of images, one for each tap along the depth, added in place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, Final

from mgx_core import Kernels, No, Shape
from mgx_core.errors import Refused
from mgx_core.ops.convolution import Convolution
from mgx_core.ops.window import Moves
from mgx_core.targets.epilogue import Link
from mgx_core.targets.values import Value

from ..emitter import CpuEmitter
from ..native_library import native
from ..winograd import Problem, best_tile, tiles_for
from .anchors import float32_only, offer_anchor
from .epilogues import Epilogue
from .links import encode_links, input_and_result, result_extents, two_axes
from .winograd import MIN_CHANNELS, emit_filtering, transformed_weights

__all__ = ["PLANS"]

PLANS = Kernels("cpu")
MAX_SAMPLES: Final = 8  # each sample has steps of its own


@float32_only
def fits(op: Any, x: Shape, w: Shape) -> No | None:
    if x.rank != 5 or x.dynamic() or w.dynamic():
        return No(f"a volume and weights with static extents are required, got {x} and {w}")
    outputs, inputs, _, taps_down, taps_across = w.lens()
    if min(inputs, outputs // op.group) < MIN_CHANNELS:
        return No(f"at least {MIN_CHANNELS} inputs and outputs per group are required, got {w} in {op.group} groups")
    moves = op.sliding(x.lens()[2:], w.lens()[2:])
    _, down, across = moves.stride
    if down != across or (down > 1 and moves.dilation[1:] != (1, 1)) or not tiles_for(taps_down, taps_across, down):
        return No(f"there are no transforms for windows {w.lens()[3:]} with stride {moves.stride[1:]}")
    if x.lens()[0] > MAX_SAMPLES:
        return No(f"at most {MAX_SAMPLES} samples are supported, got {x.lens()[0]}")
    return None


def convolve(e: CpuEmitter, op: Any, x: Value, w: Value, epilogue: Epilogue | None) -> Value:
    """Emits the convolution of x [n, c, d, h, w] with constant w [o, c / group, ..]; operand and result are channels last."""
    if not e.fast_math:
        raise Refused("Winograd transforms require fast_math")
    lens = result_extents(e, op, x, w, epilogue)
    moves = op.sliding(x.lens[2:], w.lens[2:])
    if min(*moves.begins, *moves.ends) < 0:
        raise Refused("negative padding is not supported")
    (depth, height, width), (taps, *window) = lens[2:], w.lens[2:]
    sizes = depth, w.lens[1], lens[1] // op.group, height, width
    problem = Problem(*sizes, *two_axes(window, 1), moves.stride[1], op.group, *two_axes(moves.dilation[1:], 1))
    tile = best_tile(problem, native().winograd_lanes())
    if tile is None:
        raise Refused("direct summation is about as fast")
    if epilogue is not None:  # the sums of the first taps are written to the result
        epilogue = replace(epilogue, residual=None)
    x, out = input_and_result(e, x, w, lens, epilogue)
    for sample in range(lens[0]):
        for tap, begin, end, added, last in _parts(moves, taps, x.lens[2], depth):
            first = begin * moves.stride[0] + tap * moves.dilation[0] - moves.begins[0]
            images = _images(x, sample, first, end - begin, moves.stride[0])
            into = _images(out, sample, begin, end - begin)
            links: list[tuple[Link, Value | None]] = [(Link("binary", "add"), into)] if added else []
            if last and epilogue is not None:
                seen = partial(_images, sample=sample, first=begin, count=end - begin)
                links += epilogue.viewed(seen).links
            sums = Epilogue(out.shape.dtype, into.lens, links)
            weights = transformed_weights(e, _tap(w, tap), tile, op.group)
            numbers = encode_links(sums, into.lens)
            part = replace(problem, images=end - begin)
            emit_filtering(e, tile, part, images, weights, into, numbers, two_axes(moves.begins[1:], 0), added)
    return out


def _parts(moves: Moves, taps: int, depth: int, places: int) -> Iterator[tuple[int, int, int, bool, bool]]:
    """Yields tap, first and end of the places of the result, whether they have sums of other taps, and whether these are all.

    Errors: Refused if no tap meets the volume at all places.
    """
    (step, *_), (gap, *_), (before, *_) = moves.stride, moves.dilation, moves.begins
    met = [[p for p in range(places) if 0 <= p * step + t * gap - before < depth] for t in range(taps)]
    whole = next((t for t, at in enumerate(met) if len(at) == places), None)
    if whole is None:
        raise Refused("each tap along the depth reads padding")
    written: set[int] = set()
    for tap in (*(t for t in range(taps) if t != whole), whole):
        for added, run in groupby(met[tap], written.__contains__):
            found = list(run)
            yield tap, found[0], found[-1] + 1, added, tap == whole
        written.update(met[tap])


def _images(value: Value, sample: int, first: int, count: int, step: int = 1) -> Value:
    """Returns a view of every `step`-th image of a sample of [n, c, d, h, w], as [count, c, h, w]."""
    lens, (by_sample, by_channel, by_depth, *by) = value.lens, value.strides
    several = int(lens[2] > 1)  # else broadcast along the depth
    seen = Shape(value.shape.dtype, [count, lens[1], *lens[3:]], [several * step * by_depth, by_channel, *by])
    return value.view_at((sample * by_sample if lens[0] > 1 else 0) + several * first * by_depth, seen)


def _tap(w: Value, tap: int) -> Value:
    """Returns a view of the weights of one tap along the depth, [o, c, ..]."""
    lens, strides = w.lens, w.strides
    return w.view_at(tap * strides[2], Shape(w.shape.dtype, [*lens[:2], *lens[3:]], [*strides[:2], *strides[3:]]))


offer_anchor(PLANS, Convolution, convolve, "winograd", fits)
