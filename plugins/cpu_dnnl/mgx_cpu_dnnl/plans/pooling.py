"""Pooling: max pooling by native loops that propagate NaN; everything else through oneDNN, channels last."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

from mgx_core import Kernels, Module, No, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.named_tuples import NamedTuple
from mgx_core.ops.pooling import Pooling
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value, channels_last
from mgx_core.types.shape import AnyShape
from mgx_core.types.traced_int import larger, usual

from ..emitter import CpuEmitter, is_traced
from ..layout import as_channels_last, descriptor, is_channels_last
from ..native_library import native
from .native_loops import grain_of, native_loop
from .offer import FLOATS, offer, only

__all__ = ["PLANS", "Axis", "encode_windows"]

PLANS = Kernels("cpu")
BYTES: Final = frozenset({dt.int8, dt.uint8})
MAX_ROW_CHANNELS: Final = 8  # one vector: images with more channels are pooled channels last
MIN_ROW: Final = 96  # but for rows of this many elements, for which conversions of layouts cost more
MIN_RATIO: Final = 2  # minimum ratio of elements read for which passes per axis outweigh their intermediate results


def supported(op: Any, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    return No("oneDNN does not support lpnorm pooling") if op.mode == "lpnorm" else only(FLOATS)(op, inputs, modules)


def _geometry(op: Any, x: Value) -> tuple[list[int], tuple[Sequence[int], ...]]:
    """Returns the result's extents, and the windows' lengths, strides, dilations, padding before and after (with overhang)."""
    lens, spatial = op.infer(Shape(x.shape.dtype, x.lens)).lens(), x.lens[2:]
    rank = len(spatial)
    if op.dyn_global:
        return lens, (tuple(spatial), (1,) * rank, (1,) * rank, (0,) * rank, (0,) * rank)
    begin, end, over = op.around(spatial, lens[2:])
    return lens, (*op.numbers(rank), begin, [a + b for a, b in zip(end, over, strict=True)])


def _overhangs(op: Any, x: Value, lens: Sequence[int]) -> bool:
    """Returns True if a window extends beyond the padding (ceil mode)."""
    return not op.dyn_global and any(op.around(x.lens[2:], lens[2:])[2])


def max_pooling(op: Any, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    return No("the loop supports only max pooling") if op.mode != "max" else only(FLOATS | BYTES)(op, inputs, modules)


@offer(PLANS, Pooling, when=max_pooling, name="native")
def emit_maxima(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    """Emits max pooling that propagates NaN, which oneDNN's ignores."""
    x = args[0]
    lens, windows = _geometry(op, x)
    if 0 in lens:
        return e.allocate(x.shape.dtype, lens)
    rows = x.strides[-1] == 1 and not is_channels_last(x)
    short = x.lens[1] > MAX_ROW_CHANNELS and usual(x.lens[-1]) < MIN_ROW
    in_rows = x.shape.dtype is dt.float32 and rows and not short
    x = x if in_rows else as_channels_last(e, x)
    pool = _max_pool_rows if in_rows else _max_pool
    lengths, strides, dilations, begin, _ = windows
    axes = [Axis(*n) for n in zip(lens[2:], lengths, strides, dilations, begin, strict=True)]
    for some in _passes(axes, x.lens[2:], in_rows):
        x = pool(e, op.name, x, some)
    return x


class Axis(NamedTuple):
    """Windows along one axis: their number, length, stride and dilation, and the padding before the first."""

    windows: int
    length: int = 1
    stride: int = 1
    dilation: int = 1
    begin: int = 0


def _passes(axes: Sequence[Axis], extents: Sequence[int], in_rows: bool) -> list[list[Axis]]:
    """Returns the windows of each pass: one pass over all axes, or one per axis if that reads far fewer elements.

    in_rows: the loop reduces whole rows over the outer axes first, then along the rows, so that the costs of both add up.
    """
    # axes with windows of one element also need a pass if they have strides or padding
    wide = [n for n, axis in enumerate(axes) if axis._replace(dilation=1) != Axis(extents[n])]
    passes, now, reads = [], list(extents), 0
    lengths = [usual(a.length) for a in axes]
    for n in sorted(wide, key=lambda n: usual(extents[n]) / usual(axes[n].windows), reverse=True):
        now[n] = axes[n].windows
        passes.append([axes[k] if k == n else Axis(windows) for k, windows in enumerate(now)])
        reads += prod(map(usual, now)) * lengths[n]
    *others, last = lengths
    lines = prod(others)
    at_once = prod(usual(a.windows) for a in axes) * (lines + last if in_rows else lines * last)
    return passes if MIN_RATIO * reads <= at_once and len(wide) > 1 else [list(axes)]


def encode_windows(x: Value, axes: Sequence[Axis]) -> list[int]:
    """Encodes the windows along each axis as arguments of a native loop."""
    numbers = [len(axes)]
    for extent, a, step in zip(x.lens[2:], axes, x.strides[2:], strict=True):
        numbers += [extent, a.length, a.stride, a.dilation, a.begin, step]
    return numbers + [a.windows for a in axes]


def _max_pool_rows(e: CpuEmitter, name: str, x: Value, axes: Sequence[Axis]) -> Value:
    """Emits max pooling of a value with a contiguous last axis: reduces over the outer axes first, then along the rows."""
    *others, last = axes
    lens = [*x.lens[:2], *(a.windows for a in axes)]
    out = e.allocate(x.shape.dtype, lens)
    numbers = [lens[1], *x.strides[:2], *encode_windows(x, axes)]
    lines = prod(a.length for a in others)
    reach = max(last.begin + x.lens[-1], (last.windows - 1) * last.stride + (last.length - 1) * last.dilation + 1)
    work = prod(lens[:-1])
    grain = larger(1, grain_of(work, [x]) // (lines + last.length))
    native_loop(e, name, "max_pool_rows", [x, out], [out], numbers, work, grain, 8 * lines + 4 * (reach + 32))
    return out


def _max_pool(e: CpuEmitter, name: str, x: Value, axes: Sequence[Axis]) -> Value:
    """Emits max pooling of a channels-last value."""
    lens = [*x.lens[:2], *(a.windows for a in axes)]
    out = e.allocate(x.shape.dtype, lens, channels_last(lens))
    numbers = [lens[1], *encode_windows(x, axes), x.strides[0]]
    reads = prod(a.length for a in axes)
    work = lens[0] * prod(lens[2:-1])
    grain = larger(1, grain_of(work, [x]) // reads)
    native_loop(e, name, f"max_pool_{x.shape.dtype}", [x, out], [out], numbers, work, grain, 8 * reads)
    return out


def _means(e: CpuEmitter, op: Any, x: Value, lens: Sequence[int], axes: Sequence[Axis]) -> Value:
    """Emits average pooling of a channels-last value with traced extents."""
    if op.mode != "average" or x.shape.dtype is not dt.float32:
        raise Refused(f"the loop averages float32, got {op.mode} pooling of {x.shape.dtype}")
    if op.count_include_pad and _overhangs(op, x, lens):
        raise Refused("windows that extend beyond the padding are averaged over different counts")
    out = e.allocate(x.shape.dtype, lens, channels_last(lens))
    reads = prod(a.length for a in axes)
    numbers = [reads if op.count_include_pad or op.dyn_global else 0, lens[1], *encode_windows(x, axes), x.strides[0]]
    work = lens[0] * prod(lens[2:-1])
    grain = larger(1, grain_of(work, [x]) // reads)
    scratch = 8 * prod(a.length for a in axes[:-1])
    native_loop(e, op.name, "average_pool_float32", [x, out], [out], numbers, work, grain, scratch)
    e.replaced = True
    return out


@offer(PLANS, Pooling, when=supported, name="onednn")
def emit_pooling(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    _native = native()
    x = args[0]
    lens, (lengths, strides, dilations, begin, ends) = _geometry(op, x)
    if 0 in lens:
        return e.allocate(x.shape.dtype, lens)
    x = as_channels_last(e, x)
    if is_traced(x.shape):
        return _means(
            e, op, x, lens, [Axis(*n) for n in zip(lens[2:], lengths, strides, dilations, begin, strict=True)]
        )
    mode = "max"
    if op.mode == "average":
        mode = "average_with_padding" if op.count_include_pad else "average"
        if op.count_include_pad and _overhangs(op, x, lens):
            raise Refused("oneDNN averages windows that extend beyond the padding over different counts")
    out = e.allocate(x.shape.dtype, lens, channels_last(lens))
    made = e.made(
        "pooling",
        descriptor(x),
        descriptor(out),
        mode=mode,
        kernel=lengths,
        strides=strides,
        dilations=dilations,
        padding_begin=begin,
        padding_end=ends,
    )
    e.primitive(f"pool {made.impl}", made, {_native.ARG_SRC: x, _native.ARG_DST: out})
    return out
