"""Merges convolutions (sums of two, concatenations of several, factors on a slice of one), and simplifies single ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from ..errors import No
from ..ir.instruction import Instruction
from ..ops.broadcast import Multibroadcast
from ..ops.concat import Concat
from ..ops.convolution import Convolution, Windowed
from ..ops.linear import Dot
from ..ops.movement import Transpose
from ..ops.pointwise import Add, Mul
from ..ops.quantized_product import QuantConvolution
from ..ops.reshape import Reshape
from ..ops.scalar import convert, widen
from ..ops.slice import Slice
from ..types.argument import Array
from ..types.dim import Dim, compare, product
from .constants import aligned, along, finite, split, spread
from .engine import ROUNDING, Builder, Rules
from .matching import op_as
from .slices import cut, ranges

__all__ = ["CONVOLUTIONS"]

CONVOLUTIONS: Final = Rules("simplify-convolutions")


def weights(ins: Instruction) -> Array | None:
    """Returns the constant weights of a convolution."""
    if not isinstance(ins.op, Convolution):
        return None
    literal = ins.inputs[1].literal
    return None if literal is None or not isinstance(literal.value, np.ndarray) else literal.value


@CONVOLUTIONS.on(Convolution, QuantConvolution)
def taps_in_padding(i: Instruction, b: Builder) -> Instruction | No | None:
    """convolution(x, w), where taps of w read only padding -> convolution(x, slice(w)): windows beyond the image."""
    op = op_as(i, Windowed)
    x, w = i.inputs[:2]
    if not x.shape.ranked or not w.shape.ranked:
        return None
    dims = [d for d in x.shape.dims[2:] if isinstance(d, int) and d > 0]
    window = [k for k in w.shape.dims[2:] if isinstance(k, int) and k > 0]
    if len(dims) + len(window) < 2 * (x.shape.rank - 2):
        return None  # not known, or nothing to compute
    moves = op.sliding(dims, window)
    if not any((*moves.begins, *moves.ends)):
        return None
    found = moves.meeting(dims, window)
    if found is None:
        return No("no tap meets the image, or the padding would be negative")
    fewer, kept = found
    if kept == [(0, k) for k in window]:
        return None
    part = cut(b, w, {axis: (*taps, 1) for axis, taps in enumerate(kept, 2)})
    return b.add(op.replace(padding=(*fewer.begins, *fewer.ends), padding_mode="default"), x, part, *i.inputs[2:])


@CONVOLUTIONS.on(Convolution, changes=ROUNDING)
def windows_side_by_side(i: Instruction, b: Builder) -> Instruction | No | None:
    """convolution(x, w) in groups, whose windows touch and have fewer inputs than outputs -> dot(windows of x, w) per group.

    Embeddings of the patches of each variable are such convolutions: kernels of groups repeat or pad the inputs.
    """
    op, (x, w) = op_as(i, Convolution), i.inputs
    window = [k for k in w.shape.dims[2:] if isinstance(k, int)] if w.shape.ranked else []
    if op.group == 1 or not x.shape.ranked or len(window) + 2 < x.shape.rank or math.prod(window) == 1:
        return None
    (n, _, *extents), (results, inputs, *_) = x.shape.dims, w.shape.dims
    dims = [d for d in extents if isinstance(d, int) and d > 0]
    if len(dims) < len(extents) or not (isinstance(results, int) and isinstance(inputs, int)):
        return No("extents of images and weights are known only at run time")
    moves = op.sliding(dims, window)
    if moves.stride != tuple(window) or set(moves.dilation) != {1} or any((*moves.begins, *moves.ends)):
        return No("the windows overlap, or have gaps or padding")
    group, outputs, depth = op.group, results // op.group, inputs * math.prod(window)
    if outputs < depth:
        return No(f"windows have more inputs ({depth}) than outputs ({outputs})")
    counts = [d // k for d, k in zip(dims, window, strict=True)]
    whole = cut(b, x, {axis: (0, c * k, 1) for axis, (c, k) in enumerate(zip(counts, window, strict=True), 2)})
    rank = len(window)
    apart = b.add(Reshape(dims=(n, group, inputs, *itertools.chain(*zip(counts, window, strict=True)))), whole)
    order = (0, 1, *range(3, 3 + 2 * rank, 2), 2, *range(4, 4 + 2 * rank, 2))
    rows = b.add(Reshape(dims=(n, group, math.prod(counts), depth)), b.add(Transpose(permutation=order), apart))
    columns = b.add(Transpose(permutation=(0, 2, 1)), b.add(Reshape(dims=(group, outputs, depth)), w))
    columns = b.add(Multibroadcast(out_lens=(n, group, depth, outputs)), columns)
    sums = b.add(Transpose(permutation=(0, 1, 3, 2)), b.add(Dot(), rows, columns))
    return b.add(Reshape(dims=(n, results, *counts)), sums)


@CONVOLUTIONS.on(Add, reads=Convolution, changes=ROUNDING)
def add_of_convolutions(i: Instruction, b: Builder) -> Instruction | No | None:
    """convolution(x, w) + convolution(y, v) -> convolution(concat(x, y), concat(w, v)) for equal windows."""
    one, other = i.inputs
    w, v = weights(one), weights(other)
    if w is None or v is None or one is other:
        return None
    if len(one.users) > 1 or len(other.users) > 1:
        return No("a convolution has other users")
    op, second = one.op, other.op
    assert isinstance(op, Convolution)
    assert isinstance(second, Convolution)
    if op.group != 1 or second.group != 1 or w.shape[2:] != v.shape[2:]:
        return No("the windows differ, or there are groups")
    x, y = one.inputs[0], other.inputs[0]
    if op != second:
        walked = _same_stride(b, one, other)
        if walked is None:
            return No("the attributes differ")
        op, x, y = walked
    if (x.shape.dims[0], x.shape.dims[2:]) != (y.shape.dims[0], y.shape.dims[2:]):
        return No("the images have other extents")
    if not compare(product(x.shape.dims) + product(y.shape.dims), "<=", 2 * product(i.shape.dims)):
        return No("concatenating the inputs would cost more than is saved")
    return b.add(op, b.add(Concat(axis=1), x, y), b.literal(np.concatenate((w, v), 1)))


def _same_stride(
    b: Builder, one: Instruction, other: Instruction
) -> tuple[Convolution, Instruction, Instruction] | None:
    """Returns one op and both inputs for 1x1 convolutions; the input of the one with the smaller stride is subsampled."""
    first, second = one.op, other.op
    assert isinstance(first, Convolution)
    assert isinstance(second, Convolution)
    rank = one.shape.rank - 2
    if any(d != 1 for d in one.inputs[1].shape.dims[2:]) or any((*first.padding, *second.padding)):
        return None
    if first.padding_mode != "default" or second.padding_mode != "default":
        return None
    steps, other_steps = (s.stride or (1,) * rank for s in (first, second))
    x, y = one.inputs[0], other.inputs[0]
    if all(s % t == 0 for s, t in zip(steps, other_steps, strict=True)):
        return second, _thinned(b, x, steps, other_steps), y
    if all(t % s == 0 for s, t in zip(steps, other_steps, strict=True)):
        return first, x, _thinned(b, y, other_steps, steps)
    return None


def _thinned(b: Builder, x: Instruction, steps: Sequence[int], fewer: Sequence[int]) -> Instruction:
    dims = x.shape.dims
    return cut(b, x, {a + 2: (0, dims[a + 2], s // t) for a, (s, t) in enumerate(zip(steps, fewer, strict=True))})


@CONVOLUTIONS.on(Concat, changes=ROUNDING)
def concat_of_convolutions(i: Instruction, b: Builder) -> Instruction | No | None:
    """concat(convolution(x[a:b], w), convolution(x[b:c], v)) by channel -> one convolution with groups; biases are joined too."""
    if len(i.inputs) < 2 or op_as(i, Concat).axis % i.shape.rank != 1:
        return None
    found = [_biased(x) for x in i.inputs]
    parts = [f for f in found if f is not None]
    if len(parts) < len(found):
        return None
    first, kernels, bias = parts[0]
    if any(c.op != first.op or w.shape != kernels.shape or (v is None) != (bias is None) for c, w, v in parts):
        return No("the convolutions differ in more than their weights")
    if any(len(c.users) > 1 or len(x.users) > 1 for (c, _, _), x in zip(parts, i.inputs, strict=True)):
        return No("a convolution has other users")
    own = [ranges(c.inputs[0]) for c, _, _ in parts]
    source = first.inputs[0].inputs[0] if own[0] else None
    at = own[0][1][0] if own[0] and 1 in own[0] else 0
    joined = at
    for (c, _, _), r in zip(parts, own, strict=True):
        if r is None or list(r) != [1] or c.inputs[0].inputs[0] is not source or r[1][0] != joined or r[1][2] != 1:
            return No("the inputs are not adjacent slices of one tensor")
        joined = r[1][1]
    assert source is not None
    group = op_as(first, Convolution).group
    made = b.add(
        first.op.replace(group=group * len(parts)),
        cut(b, source, {1: (at, joined, 1)}),
        b.literal(np.concatenate([w for _, w, _ in parts])),
    )
    biases = [np.broadcast_to(v, (len(w),)) for _, w, v in parts if v is not None]
    if not biases:
        return made
    value = np.concatenate(biases).reshape(-1, *(1,) * (made.shape.rank - 2))
    return b.add(Add(), made, spread(b, value, made.shape.dims, made))


def _biased(ins: Instruction) -> tuple[Instruction, Array, Array | None] | None:
    """Returns a convolution with constant weights, its weights, and its per-channel bias."""
    w = weights(ins)
    if w is not None:
        return ins, w, None
    found = split(ins) if isinstance(ins.op, Add) else None
    w = None if found is None else weights(found[0])
    if found is None or w is None:
        return None
    bias = along(aligned(found[1]), ins.shape.rank, 1)
    return None if bias is None else (found[0], w, bias)


@CONVOLUTIONS.on(Mul, reads=Slice, changes=ROUNDING)
def factor_of_slice_into_convolution(i: Instruction, b: Builder) -> Instruction | No | None:
    """slice(convolution(x, w)) * s -> slice(convolution(x, w')), by channel, if all other users read other channels."""
    found = split(i)
    if found is None or not isinstance(found[0].op, Slice):
        return None
    part, s = found
    convolution = part.inputs[0]
    w, own = weights(convolution), ranges(part)
    if w is None or own is None:
        return None
    if convolution.parent is not i.parent or len(part.users) > 1 or not i.shape.dtype.is_float:
        return No("the slice has other users")
    if list(own) != [1]:
        return No("the slice is not along the channels")
    for user in convolution.users:
        theirs = ranges(user)
        if user is not part and (theirs is None or 1 not in theirs or not _apart(own[1], theirs[1])):
            return No("other users read these channels")
    factors = along(aligned(s), i.shape.rank, 1)
    start, end, step = own[1]
    if factors is None or step != 1 or not isinstance(start, int) or not isinstance(end, int):
        return No("the factor differs within a channel, or a bound is known only at run time")
    scaled = np.array(w)
    with np.errstate(all="ignore"):
        rows = widen(w[start:end]) * widen(factors).reshape(-1, *(1,) * (w.ndim - 1))
        scaled[start:end] = convert(rows, convolution.shape.dtype)
    if not finite(scaled):
        return No("the weights would overflow")
    made = b.literal(scaled)
    b.module.move(made, convolution)
    b.module.set_inputs(convolution, (convolution.inputs[0], made))
    return part


def _apart(one: tuple[Dim, Dim, int], other: tuple[Dim, Dim, int]) -> bool:
    """Returns True if two ranges are disjoint."""
    return compare(one[1], "<=", other[0]) is True or compare(other[1], "<=", one[0]) is True
