"""Depthwise convolutions of volumes, computed as convolutions of images, since oneDNN has depthwise kernels only for images.

If the window has height and width 1, the volume is viewed as an image [depth, height * width].  Otherwise the result is the sum
of one two-dimensional convolution per depth of the window; each but the first accumulates into the result, and the last, which
covers all depths, applies the epilogue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Final

from mgx_core import Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.records import dataclass
from mgx_core.targets.epilogue import Link
from mgx_core.targets.values import Value, channels_last

from ..emitter import CpuEmitter
from .anchors import onednn_convolution
from .epilogues import Epilogue
from .loop_products import fill_zeros

__all__ = ["Depthwise", "depthwise_volumes"]

ADD: Final = Link("binary", "add")

Windows = dict[str, tuple[int, ...]]  # strides, dilations, padding_begin, padding_end, each by axis


@dataclass(frozen=True)
class Depthwise:
    """A depthwise convolution of x [n, c, d, h, w], channels last, with weights w [c, 1, ..].

    permute: permutes weights to oneDNN's order; lens: the result's extents; windows: window geometry by axis.
    """

    x: Value
    w: Value
    permute: Callable[[Value], Value]
    lens: list[int]
    epilogue: Epilogue | None
    windows: Windows


def depthwise_volumes(e: CpuEmitter, job: Depthwise) -> Value:
    """Emits a depthwise convolution of volumes; returns its result.  Errors: Refused."""
    w, lens, windows = job.w, job.lens, job.windows
    flat = w.lens[3:] == [1, 1] and all(
        set(windows[name][1:]) == {neutral}
        for name, neutral in (("strides", 1), ("padding_begin", 0), ("padding_end", 0))
    )
    if not flat:
        return _sum_over_depths(e, job)
    flops = 2 * prod(lens) * prod(w.lens[1:])
    planar = {name: (*numbers[:1], 0 if name.startswith("padding") else 1) for name, numbers in windows.items()}
    seen = None if job.epilogue is None else job.epilogue.viewed(_flat)
    image = [*lens[:3], prod(lens[3:])]
    out = onednn_convolution(e, "convolution", _flat(job.x), _flat(w), job.permute, image, seen, flops, None, **planar)
    return out.view_at(0, Shape(out.shape.dtype, lens, channels_last(lens)))


def _flat(value: Value) -> Value:
    """Returns a view of [n, c, d, h, w] as [n, c, d, h * w].  Errors: Refused if strides do not allow it."""
    *lens, height, width = value.lens
    *strides, by_row, by_column = value.strides
    if height > 1 and width > 1 and by_row != by_column * width:
        raise Refused(f"{value.shape} cannot be viewed as an image of {height * width} columns")
    return Value(
        Shape(value.shape.dtype, [*lens, height * width], [*strides, by_column if width > 1 else by_row]),
        value.buffer,
        value.offset,
    )


def _sum_over_depths(e: CpuEmitter, job: Depthwise) -> Value:
    """Emits one convolution of images per volume and depth of the window, accumulated in the result.  Errors: Refused."""
    x, w, lens, epilogue, windows = job.x, job.w, job.lens, job.epilogue, job.windows
    if any(dtype is not dt.float32 for dtype in (x.shape.dtype, *(() if epilogue is None else (epilogue.dtype,)))):
        raise Refused("sums over the depths of a window require float32")
    step, gap, border = (windows[name][0] for name in ("strides", "dilations", "padding_begin"))
    planar = {name: numbers[1:] for name, numbers in windows.items()}
    taps = [_valid_outputs(t * gap - border, step, x.lens[2], lens[2]) for t in range(w.lens[2])]
    last = next((t for t, covered in enumerate(taps) if covered == (0, lens[2])), None)
    if last is None:
        raise Refused("no depth of the window covers all depths of the result")
    order = [t for t, (begin, end) in enumerate(taps) if t != last and begin < end] + [last]
    out = e.allocate(x.shape.dtype if epilogue is None else epilogue.dtype, lens, channels_last(lens))
    for n in range(lens[0]):
        begin, end = taps[order[0]]
        for first, beyond in ((0, begin), (end, lens[2])):
            if first < beyond:
                line = out.strides[2]
                at = out.offset + n * out.strides[0] + first * line
                fill_zeros(e, out.buffer, (beyond - first) * line * out.shape.dtype.size, at * out.shape.dtype.size)
        for t in order:
            begin, end = taps[t]
            images = _images(x, n, begin * step + t * gap - border, end - begin, step)
            if step > 1:  # oneDNN's depthwise kernels require densely stored images
                images = e.copy(images, channels_last(images.lens))
            target = _images(out, n, begin, end - begin)
            seen = None
            if epilogue is not None and t == last:
                seen = replace(epilogue.viewed(lambda v, n=n: _images(v, n, 0, lens[2])), residual=None)  # type: ignore[misc]
            if t != order[0]:
                rest = seen.links if seen is not None else []
                seen = Epilogue(out.shape.dtype, target.lens, [(ADD, target), *rest], residual=target)
            weights = Value(
                Shape(w.shape.dtype, [*w.lens[:2], *w.lens[3:]], [*w.strides[:2], *w.strides[3:]]),
                w.buffer,
                w.offset + t * w.strides[2],
            )
            flops = 2 * prod(target.lens) * prod(w.lens[3:])
            onednn_convolution(
                e, "convolution", images, weights, job.permute, target.lens, seen, flops, target, **planar
            )
    return out


def _valid_outputs(start: int, step: int, depth: int, count: int) -> tuple[int, int]:
    """Returns the outputs [begin, end) of `count` whose input start + output * step is within [0, depth)."""
    begin = max(0, -(start // step))
    return begin, max(begin, min(count, -((start - depth) // step)))


def _images(value: Value, n: int, depth: int, count: int, step: int = 1) -> Value:
    """Returns a view of `count` depths of volume n as a batch of images; axes of extent 1 (broadcast) are not sliced."""
    lens, strides = value.lens, value.strides
    at = value.offset + (n * strides[0] if lens[0] > 1 else 0)
    if lens[2] > 1:
        at += depth * strides[2]
    shape = Shape(
        value.shape.dtype,
        [count if lens[2] > 1 else 1, lens[1], *lens[3:]],
        [strides[2] * step, strides[1], *strides[3:]],
    )
    return Value(shape, value.buffer, at)
