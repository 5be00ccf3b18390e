"""Rewrites transposed convolutions as convolutions with stride^d times the channels, and a pixel shuffle (sub-pixel form)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final

import numpy as np

from ..errors import No
from ..ir.instruction import Instruction
from ..named_tuples import NamedTuple
from ..ops.broadcast import Broadcast
from ..ops.convolution import Convolution, ConvolutionBackwards
from ..ops.movement import Reverse, Transpose
from ..ops.pad import Pad
from ..ops.pointwise import Add
from ..ops.reshape import Reshape
from ..ops.slice import Slice
from ..types.argument import Argument, Array
from ..types.dim import Dim, bounds
from .constants import aligned
from .engine import ROUNDING, Builder, Rules
from .matching import either
from .slices import ranges

__all__ = ["PhaseAxis", "phase_axis", "phase_kernels", "transposed_convolutions"]

MOST: Final = 4  # the most multiplications by padding zeros per useful multiplication


class PhaseAxis(NamedTuple):
    """One spatial axis: its stride, taps per phase, padding on both sides, and the start and length of the result."""

    stride: int
    taps: int
    padding: int
    begin: int
    extent: Dim


def transposed_convolutions(
    name: str, declined: Callable[[Instruction], No | None] = lambda i: None, computed: bool = False
) -> Rules:
    """Returns rules for a target, by the name of the set.

    declined: why a convolution stays as it is; computed: weights that are not constant are rearranged at run time.
    """
    rules = Rules(name)

    @rules.on(ConvolutionBackwards)
    def convolution_for_each_place(i: Instruction, b: Builder) -> Instruction | No | None:
        """convolution_backwards(x, w) of stride s -> convolution(x, w') with s times the channels, then a pixel shuffle."""
        return declined(i) or _convolved(i, b, False, computed)

    @rules.on(ConvolutionBackwards, changes=ROUNDING)
    def convolution_with_filled_windows(i: Instruction, b: Builder) -> Instruction | No | None:
        """The same with kernels padded by zeros, which turn an infinity that the result does not depend on into NaN."""
        return declined(i) or _convolved(i, b, True, computed)

    @rules.on(Add, reads=(Reshape, Slice))
    def bias_before_pixel_shuffle(i: Instruction, b: Builder) -> Instruction | None:
        """shuffle(convolution(x, w)) + bias per channel -> shuffle(convolution(x, w) + bias'), and the same before a slice."""
        return next((made for x, bias in either(i) if (made := _biased(i, x, bias, b)) is not None), None)

    return rules


def _biased(i: Instruction, x: Instruction, bias: Instruction, b: Builder) -> Instruction | None:
    """Returns x with a constant per channel added before its pixel shuffle, in the convolution's epilogue."""
    chain, reader, at = [], i, x
    while isinstance(at.op, (Slice, Reshape, Transpose)) and len(at.inputs) == 1 and at.users == (reader,):
        chain.append(at)
        reader, at = at, at.inputs[0]
    if not isinstance(at.op, Convolution) or at.users != (reader,) or len(chain) < 3:
        return None
    *cut, whole, turned, split = chain
    if not isinstance(whole.op, Reshape) or not isinstance(turned.op, Transpose) or not isinstance(split.op, Reshape):
        return None
    rank, apart = at.shape.rank - 2, split.shape.dims
    if whole.shape.rank != at.shape.rank or turned.op.order(len(apart)) != _order(rank):
        return None
    if any((spans := ranges(ins)) is None or 1 in spans for ins in cut):  # channels must keep their places
        return None
    per = tuple(n for n in apart[1 : 3 + rank] if isinstance(n, int))  # groups, steps, channels of the result
    channels, value = whole.shape.dims[1], aligned(bias)
    if (apart[0], *apart[3 + rank :]) != (at.shape.dims[0], *at.shape.dims[2:]) or whole.shape.dims[0] != apart[0]:
        return None
    if len(per) < 2 + rank or per[0] * per[-1] != channels or value is None:
        return None
    if value.size != channels or value.shape[-1 - rank :] != (channels, *[1] * rank):
        return None
    spread = np.broadcast_to(value.reshape(per[0], *[1] * rank, per[-1]), per)
    terms = b.literal(np.ascontiguousarray(spread).reshape(-1))
    made = b.add(Add(), at, b.add(Broadcast(axis=1, out_lens=at.shape.dims), terms))
    for ins in reversed(chain):
        made = b.add(ins.op, made)
    return made


def _order(rank: int) -> tuple[int, ...]:
    """Returns the order of a pixel shuffle's axes: from [n, group, *steps, channels, *image], steps go behind their extents."""
    return (0, 1, 2 + rank, *(axis for n in range(rank) for axis in (3 + rank + n, 2 + n)))


def _convolved(i: Instruction, b: Builder, zeros: bool, computed: bool) -> Instruction | No:
    op = i.op
    assert isinstance(op, ConvolutionBackwards)
    x, weights = i.inputs
    w = None if weights.literal is None else weights.literal.value
    if not isinstance(w, np.ndarray) and not computed:
        return No("the weights are not constant")
    lengths = [n for n in weights.shape.dims[2:] if isinstance(n, int)]
    dims, out = x.shape.dims, i.shape.dims
    if len(lengths) + 2 < len(dims):
        return No("the windows are known only at run time")
    strides, dilations, begins, _, _ = op.plan(len(dims) - 2, lengths)
    if not isinstance(w, np.ndarray) and set(dilations) != {1}:
        return No("the weights are not constant, and dilated")
    if any(isinstance(n, int) and n == 0 for n in (*dims, *out)):
        return No("there are no elements")
    axes = []
    for n, out_extent, *each in zip(dims[2:], out[2:], lengths, strides, dilations, begins, strict=True):
        axis = phase_axis(n, out_extent, int(bounds(n)[0]), *each)
        if axis is None:
            return No("the extents of the result do not follow from those of x")
        axes.append(axis)
    products, needed = prod(a.taps * a.stride for a in axes), prod(lengths)
    if products > needed and not zeros:
        return No("zeros would fill up windows")
    if products > MOST * needed:
        return No("most multiplications would be by zero")
    padding = tuple(a.padding for a in axes)
    if isinstance(w, np.ndarray):
        kernels = b.literal(Argument.from_value(phase_kernels(w, op.group, axes, dilations)))
    else:
        kernels = _computed_kernels(b, weights, op.group, axes)
    made = b.add(Convolution(padding=(*padding, *padding), group=op.group), x, kernels)
    steps = [a.stride for a in axes]
    if prod(steps) > 1:
        image = made.shape.dims[2:]
        apart = (dims[0], op.group, *steps, out[1] // op.group, *image)
        empty = any(bounds(n)[0] < 1 for n in apart)  # perhaps
        made, rank = b.add(Reshape(dims=apart, allowzero=empty), made), len(axes)
        made = b.add(Transpose(permutation=_order(rank)), made)
        whole = (*out[:2], *(n * s for n, s in zip(image, steps, strict=True)))
        made = b.add(Reshape(dims=whole, allowzero=empty), made)
    cut = [(n + 2, a) for n, a in enumerate(axes) if (a.begin, a.extent) != (0, made.shape.dims[n + 2])]
    if cut:
        ends = tuple(a.begin + a.extent for _, a in cut)
        made = b.add(Slice(axes=tuple(n for n, _ in cut), starts=tuple(a.begin for _, a in cut), ends=ends), made)
    return made


def phase_axis(n: Dim, out: Dim, least: int, k: int, stride: int, dilation: int, begin: int) -> PhaseAxis | None:
    """Returns how windows of length k along an axis are split by phase; None if the result's extent does not follow from n.

    least: the lower bound of n; begin: of the padding that is cut off.
    """
    taps = -(-((k - 1) * dilation + 1) // stride)
    end = out - 1 + begin - stride * (n - 1)  # of the result, from the start of the last window
    if not isinstance(end, int):
        return None
    # steps of the stride that the result touches, before the first and after the last of x
    first, last = begin // stride, end // stride
    # so that a window of several elements fits the lower bound of a symbolic extent; that of (n - m) / 3 is negative
    room = 0 if taps == 1 else -(-(taps - max(least, 0)) // 2)
    padding = max(taps - 1 - first, last, room, 0)
    return PhaseAxis(stride, taps, padding, begin - (taps - 1 - padding) * stride, out)


def phase_kernels(w: Array, group: int, axes: Sequence[PhaseAxis], dilations: tuple[int, ...]) -> Array:
    """Returns w [c, m, *k] as [group s m, c / group, *taps]: flipped, and split by phase within the stride."""
    channels, outer, *lengths = w.shape
    spread = np.zeros((channels, outer, *(a.taps * a.stride for a in axes)), w.dtype)
    taps = tuple(slice(0, (k - 1) * d + 1, d) for k, d in zip(lengths, dilations, strict=True))
    spread[(slice(None), slice(None), *taps)] = w
    split = spread.reshape(group, channels // group, outer, *(n for a in axes for n in (a.taps, a.stride)))
    turned = np.flip(split, _taps(len(axes)))
    made = turned.transpose(_phases(len(axes)))
    return np.ascontiguousarray(made.reshape(-1, channels // group, *(a.taps for a in axes)))


def _computed_kernels(b: Builder, w: Instruction, group: int, axes: list[PhaseAxis]) -> Instruction:
    """Returns the same as `phase_kernels` for weights that are not constant and not dilated."""
    channels, outer, *lengths = w.shape.dims
    apart = (group, channels // group, outer, *(n for a in axes for n in (a.taps, a.stride)))
    more = (a.taps * a.stride - n for a, n in zip(axes, lengths, strict=True))
    made = b.add(Pad(pads=(*[0] * (len(axes) + 4), *more)), w)
    made = b.add(Reshape(dims=apart), made)
    made = b.add(Reverse(axes=_taps(len(axes))), made)
    made = b.add(Transpose(permutation=_phases(len(axes))), made)
    filters = outer * group * prod(a.stride for a in axes)
    return b.add(Reshape(dims=(filters, channels // group, *(a.taps for a in axes))), made)


def _taps(rank: int) -> tuple[int, ...]:
    """Returns the axes of taps in weights [group, channels / group, filters, *(taps, phases)]."""
    return tuple(3 + 2 * n for n in range(rank))


def _phases(rank: int) -> tuple[int, ...]:
    """Returns the order of these axes as [group, *phases, filters, channels / group, *taps]."""
    return (0, *(4 + 2 * n for n in range(rank)), 2, 1, *_taps(rank))
