"""Operators that ONNX Runtime kept from before ONNX's standard had them, or that the standard withdrew."""

from __future__ import annotations

import numpy as np

from mgx_core import Instruction
from mgx_core import dim as dims_
from mgx_core import dtype as dt

from ..converter import converts
from ..node import Node
from .contrib_quant import MS
from .linear import product
from .slice import pad_11

__all__: list[str] = []


@converts("ExpandDims", domain=MS)
def expand_dims(n: Node, x: Instruction, axis: Instruction) -> Instruction:
    (at,) = n.whole(n.reshape(axis, (1,)), "axis")
    return n.unsqueeze(x, n.axes([at], x.shape.rank + 1))


@converts("SampleOp", domain=MS)
@converts("MemcpyFromHost")
@converts("MemcpyToHost")
def identity(_n: Node, x: Instruction) -> Instruction:
    """The operator of ONNX Runtime's instructions for new ones, and copies between devices in files that it saved."""
    return x


@converts("TorchEmbedding", domain=MS)
def torch_embedding(
    n: Node,
    weight: Instruction,
    indices: Instruction,
    _padding_idx: Instruction | None = None,
    _scale_grad_by_freq: Instruction | None = None,
) -> Instruction:
    """The rows of a table; the other operands concern its gradient."""
    return n.add("gather", weight, indices, axis=0)


@converts("Pad", domain=MS)
def pad(n: Node, x: Instruction, pads: Instruction, value: Instruction | None = None) -> Instruction:
    """Pad-11, whose pads may also be [1, 2 rank]."""
    return pad_11(n, x, n.reshape(pads, (-1,)) if pads.shape.rank != 1 else pads, value)


@converts("Unique", domain=MS)
def unique(n: Node, x: Instruction) -> tuple[Instruction, ...]:
    """Returns the values in order of first occurrence, the place of each input among them, and their counts."""
    values, _, places, counts = n.items(n.add("unique", x, sorted=False))
    return values, places, counts


@converts("MatMulInteger16", domain=MS)
def matmul_integer16(n: Node, a: Instruction, b: Instruction) -> Instruction:
    return product(n, n.convert(a, dt.int32), n.convert(b, dt.int32))


@converts("UnfoldTensor", domain=MS)
def unfold_tensor(n: Node, x: Instruction) -> Instruction:
    """Returns all slices of `size` elements along an axis, `step` apart, as a last axis."""
    (axis,) = n.axes([n.attr("dim", -1)], x.shape.rank)
    size, step, extent = n.attr("size"), n.attr("step", 1), x.shape.dims[axis]
    if not isinstance(extent, int):
        n.unsupported(f"the extent of axis {axis} must be static, got {x.shape}")
    if step < 1 or not 0 < size <= extent:
        n.fail(f"size must lie in 1..{extent} and step be positive, got {size} and {step}")
    places = np.arange(0, extent - size + 1, step)[:, None] + np.arange(size)
    parts = n.add("gather", x, n.literal(places, dt.int64), axis=axis)
    kept = [a for a in range(parts.shape.rank) if a != axis + 1]
    return n.transpose(parts, [*kept, axis + 1])


@converts("NGramRepeatBlock", domain=MS)
def ngram_repeat_block(n: Node, ids: Instruction, scores: Instruction) -> Instruction:
    """Sets the scores of words to -inf that would repeat a sequence of `ngram_size` words of the text.

    ids: int64 [b, s], the text; scores: float [b, words] -> the same shape.
    """
    size = n.attr("ngram_size")
    if size < 1 or ids.shape.rank != 2 or scores.shape.rank != 2:
        n.fail(
            f"ngram_size must be positive, input_ids [b, s] and scores [b, words], got {size}, {ids.shape} and {scores.shape}"
        )
    length = ids.shape.dims[1]
    if isinstance(length, int) and length < size:
        return scores
    starts = dims_.maximum(length - size + 1, 0)  # places at which a sequence can start
    words = n.slice(ids, [1], [size - 1], [length])  # the last word of each sequence
    repeated = n.full_like(n.convert(words, dt.bool_), 1)
    for k in range(size - 1):
        last = n.slice(ids, [1], [starts + k], [starts + k + 1])
        repeated = n.pointwise(
            "logical_and", repeated, n.pointwise("equal", n.slice(ids, [1], [k], [starts + k]), last)
        )
    none = n.broadcast_to(n.literal(0, dt.int32), scores.shape.dims)
    found = n.add("scatter_max", none, words, n.convert(repeated, dt.int32), axis=1)
    lowest = n.literal(-np.inf, scores.shape.dtype)
    return n.pointwise("where", n.convert(found, dt.bool_), lowest, scores)


@converts("BiasDropout", domain=MS)
def bias_dropout(
    n: Node,
    x: Instruction,
    bias: Instruction,
    residual: Instruction | None = None,
    ratio: Instruction | None = None,
    training: Instruction | None = None,
) -> tuple[Instruction, ...]:
    """Adds a bias and a residual; dropout in training mode is not supported."""
    mode = n.constant(training)
    if training is not None and (mode is None or mode.reshape(-1)[0]):
        n.unsupported("training_mode must be a constant false")
    y = n.pointwise("add", x, bias)
    y = y if residual is None else n.pointwise("add", y, residual)
    return y, n.full_like(n.convert(x, dt.bool_), 1)


# operators of ONNX that were experimental until version 1.5 and that ONNX Runtime still runs


@converts("Affine")
@converts("Scale")
def affine(n: Node, x: Instruction) -> Instruction:
    """Returns alpha x + beta (Affine) or scale x (Scale)."""
    y = n.pointwise("mul", x, n.literal(n.attr("scale", n.attr("alpha", 1.0)), x.shape.dtype))
    return n.pointwise("add", y, n.literal(n.attr("beta", 0.0), x.shape.dtype)) if n.has("beta") else y


@converts("ScaledTanh")
def scaled_tanh(n: Node, x: Instruction) -> Instruction:
    """Returns alpha tanh(beta x)."""
    inner = n.add("tanh", n.pointwise("mul", x, n.literal(n.attr("beta", 1.0), x.shape.dtype)))
    return n.pointwise("mul", inner, n.literal(n.attr("alpha", 1.0), x.shape.dtype))


@converts("ParametricSoftplus")
def parametric_softplus(n: Node, x: Instruction) -> Instruction:
    """Returns alpha ln(1 + exp(beta x))."""
    inner = n.add("softplus", n.pointwise("mul", x, n.literal(n.attr("beta", 1.0), x.shape.dtype)))
    return n.pointwise("mul", inner, n.literal(n.attr("alpha", 1.0), x.shape.dtype))


@converts("Crop")
def crop(n: Node, x: Instruction) -> Instruction:
    """Cuts `border` (left, top, right, bottom) off images [n, c, h, w]; `scale`, if given, is the result's height and width."""
    border, scale = n.attr("border"), n.attr("scale", None)
    if x.shape.rank != 4 or len(border) != 4 or (scale is not None and len(scale) != 2):
        n.fail(f"input must be [n, c, h, w], border 4 numbers and scale 2, got {x.shape}, {border} and {scale}")
    left, top, right, bottom = border
    height, width = x.shape.dims[2:]
    ends = (height - bottom, width - right) if scale is None else (top + scale[0], left + scale[1])
    for start, end, extent in ((top, ends[0], height), (left, ends[1], width)):
        if isinstance(end, int) and isinstance(extent, int) and not 0 <= start < end <= extent:
            n.fail(f"border {border} and scale {scale} leave no part of an image of {x.shape}")
    return n.slice(x, [2, 3], [top, left], list(ends))
