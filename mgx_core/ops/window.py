"""Sliding windows over spatial axes: padding and stride attributes, output extents, and strided views of all windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..named_tuples import NamedTuple
from ..types.argument import Array
from ..types.dim import Dim, ceil_div, compare, minimum

__all__ = ["Moves", "explicit_padding", "extent", "padded", "per_axis", "same_padding", "sides", "taps", "windows"]


class Moves(NamedTuple):
    """Stride, dilation and padding of windows along each spatial axis."""

    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    @classmethod
    def of(cls, stride: Sequence[int], dilation: Sequence[int], padding: Sequence[int], rank: int) -> Moves:
        """Reads the attributes of an op on a number of spatial axes.  Errors: ShapeError for another count of numbers."""
        return cls(per_axis(stride, rank, "stride"), per_axis(dilation, rank, "dilation"), *sides(padding, rank))

    def counts(self, dims: Sequence[Dim], lengths: Sequence[Dim]) -> list[Dim]:
        """Returns the number of windows along each axis.  Errors: ShapeError if not even one fits."""
        return [extent(n, k, s, d, b + e) for n, k, s, d, b, e in zip(dims, lengths, *self, strict=True)]

    def meeting(self, dims: Sequence[int], lengths: Sequence[int]) -> tuple[Moves, list[tuple[int, int]]] | None:
        """Returns the taps of each axis that read the image in some window, as ranges, and the moves of windows of only these.

        dims: the extents of the image; lengths: those of a window.  The other taps read only padding, for example two of three
        with a dilation of 36 on an image of 33.  None if the smaller windows would need negative padding, or no tap is left.
        """
        kept, begins, ends = [], [], []
        for n, k, s, d, b, e in zip(dims, lengths, *self, strict=True):
            reach = (extent(n, k, s, d, b + e) - 1) * s
            inside = [j for j in range(k) if j * d - b + reach >= 0 and j * d - b < n]
            if not inside:
                return None
            first, end = inside[0], inside[-1] + 1
            kept.append((first, end))
            begins.append(b - first * d)
            ends.append(min(e - (k - end) * d, max(reach + (end - first - 1) * d + 1 - n - begins[-1], 0)))
        if any(p < 0 for p in (*begins, *ends)):
            return None
        return Moves(self.stride, self.dilation, tuple(begins), tuple(ends)), kept


def per_axis(values: Sequence[int], rank: int, what: str, least: int = 1) -> tuple[int, ...]:
    """Returns one number for each spatial axis; by default, `least` everywhere.

    Errors: ShapeError for another count or a number below `least`.
    """
    if not values:
        return (least,) * rank
    if len(values) != rank:
        raise ShapeError(f"{what} needs {rank} numbers for {rank} spatial axes, got {list(values)}")
    if min(values) < least:
        raise ShapeError(f"{what} must be at least {least}, got {list(values)}")
    return tuple(values)


def sides(padding: Sequence[int], rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns padding before and after each spatial axis from no numbers, one per axis, or all begins then all ends."""
    if len(padding) not in (0, rank, 2 * rank):
        raise ShapeError(f"padding needs {rank} or {2 * rank} numbers for {rank} spatial axes, got {list(padding)}")
    if not padding:
        return (0,) * rank, (0,) * rank
    if len(padding) == rank:
        return tuple(padding), tuple(padding)
    return tuple(padding[:rank]), tuple(padding[rank:])


def extent(n: Dim, length: Dim, stride: int, dilation: int, around: int, begin: int = 0, ceil: bool = False) -> Dim:
    """Returns the number of windows that fit on an axis of `n` elements and `around` padding.

    With `ceil`, a last window may extend beyond the end if it starts before the padding at the end (`begin` is the part of
    `around` before the axis).  An empty axis has no window of one element.  Errors: ShapeError if no other window fits.
    """
    span = (length - 1) * dilation + 1
    room = n + around - span
    none = span == 1 and room == -1
    if compare(room, "<", 0) and not none and not (ceil and compare(room, ">", -stride)):
        raise ShapeError(f"a window over {span} elements does not fit on an axis of {n} with padding {around}")
    if ceil:
        return minimum(ceil_div(room, stride) + 1, (n + begin - 1) // stride + 1)
    return room // stride + 1


def same_padding(n: Dim, length: Dim, stride: int, dilation: int, lower: bool) -> tuple[int, int]:
    """Returns padding that makes ceil(n / stride) windows fit; the odd element is first if `lower`."""
    n, length = int(n), int(length)
    total = max((-(-n // stride) - 1) * stride + (length - 1) * dilation + 1 - n, 0)
    small = total // 2
    return (total - small, small) if lower else (small, total - small)


def explicit_padding(
    dims: Sequence[Dim],
    lengths: Sequence[Dim],
    stride: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    mode: str,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns padding before and after each axis of static extents for any padding mode."""
    if mode == "default":
        return sides(padding, len(dims))
    pairs = [
        same_padding(n, k, s, d, mode == "same_lower")
        for n, k, s, d in zip(dims, lengths, stride, dilation, strict=True)
    ]
    return tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)


def padded(x: Array, begins: Sequence[int], ends: Sequence[int], value: object = 0) -> Array:
    """Returns the last axes of x with `value` before and after; negative numbers crop.  Returns x itself if nothing changes."""
    if not any(begins) and not any(ends):
        return x
    lead = x.ndim - len(begins)
    sides = list(zip(x.shape[lead:], begins, ends, strict=True))
    out = np.full((*x.shape[:lead], *(n + b + e for n, b, e in sides)), value, dtype=x.dtype)
    kept = [max(n + min(b, 0) + min(e, 0), 0) for n, b, e in sides]
    source: list[Any] = [slice(max(-b, 0), max(-b, 0) + k) for b, k in zip(begins, kept, strict=True)]
    target: list[Any] = [slice(max(b, 0), max(b, 0) + k) for b, k in zip(begins, kept, strict=True)]
    out[(..., *target)] = x[(..., *source)]
    return out


def windows(
    x: Array, lengths: Sequence[int], stride: Sequence[int], dilation: Sequence[int], counts: Sequence[int]
) -> Array:
    """Returns a view [.., *lengths, *counts] of all windows over the last axes of x; no copy."""
    lead = x.ndim - len(lengths)
    for n, k, s, d, c in zip(x.shape[lead:], lengths, stride, dilation, counts, strict=True):
        if c and (c - 1) * s + (k - 1) * d >= n:
            raise ShapeError(f"{c} windows over {(k - 1) * d + 1} elements at stride {s} do not fit on {n}")
    steps = x.strides[lead:]
    return np.lib.stride_tricks.as_strided(
        x,
        (*x.shape[:lead], *lengths, *counts),
        (
            *x.strides[:lead],
            *(t * d for t, d in zip(steps, dilation, strict=True)),
            *(t * s for t, s in zip(steps, stride, strict=True)),
        ),
        writeable=False,
    )


def taps(axis: int, rank: int, length: int, stride: int, dilation: int, count: int) -> list[tuple[slice, ...]]:
    """Returns for each tap of the window the slice that selects it in all windows along one axis."""
    lead = (slice(None),) * axis
    tail = (slice(None),) * (rank - axis - 1)
    return [(*lead, slice(j * dilation, j * dilation + (count - 1) * stride + 1, stride), *tail) for j in range(length)]
