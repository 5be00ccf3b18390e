"""Backward operators of torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.types.argument import Array

from ..converter import Converter, converts
from ..node import Node
from .attention import masked_products
from .convolution import filled
from .linear import product

__all__: list[str] = []


@converts("convolution_backward")
def convolution_backward(
    n: Node,
    grad: Instruction,
    x: Instruction,
    w: Instruction,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    mask: Any,
) -> tuple[Instruction | None, ...]:
    rank = w.shape.rank - 2
    stride, padding, dilation = (filled(v, rank) for v in (stride, padding, dilation))
    if transposed:
        added = filled(output_padding, rank)
        if any(extra >= step for extra, step in zip(added, stride, strict=True)):  # some windows reach no element of x
            ends = (p - extra // step * step for p, extra, step in zip(padding, added, stride, strict=True))
            padding = (*padding, *ends)
    found: list[Instruction | None] = [None, None, None]
    given: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "group": groups}
    if mask[0]:
        found[0] = n.add("convolution", grad, w, **given) if transposed else _adjoint(n, grad, x, w, given)
    if mask[1]:
        image, moving = (grad, x) if transposed else (x, grad)
        found[1] = _weight_gradient(n, image, moving, w, given)
    if mask[2]:
        axes = [a for a in range(grad.shape.rank) if a != 1]
        found[2] = n.reduce("reduce_sum", grad, axes, False)
    return tuple(found)


def _adjoint(n: Node, grad: Instruction, x: Instruction, w: Instruction, given: dict[str, Any]) -> Instruction:
    """Returns the image's gradient; elements at its end that no window reached are zero."""
    extra = []
    for axis, d in enumerate(x.shape.dims[2:]):
        o, k = grad.shape.dims[axis + 2], w.shape.dims[axis + 2]
        span = given["stride"][axis] * (o - 1) + given["dilation"][axis] * (k - 1) + 1 - 2 * given["padding"][axis]
        extra.append(n.static(d - span, "the part of an image beyond the last stride"))
    return n.add("convolution_backwards", grad, w, output_padding=tuple(extra) if any(extra) else (), **given)


def _weight_gradient(n: Node, x: Instruction, grad: Instruction, w: Instruction, given: dict[str, Any]) -> Instruction:
    lengths = tuple(n.static(d, "the length of windows") for d in w.shape.dims[2:])
    if given["group"] == 1 and not any(given["padding"]):
        if set(lengths) == {1}:
            return _point_gradient(n, x, grad, w, given["stride"])
        if lengths == tuple(given["stride"]) and set(given["dilation"]) == {1}:
            return _patch_gradient(n, x, grad, w, lengths)
    return n.add("convolution_weights", x, grad, lengths=lengths, **given)


def _patch_gradient(n: Node, x: Instruction, grad: Instruction, w: Instruction, lengths: Sequence[int]) -> Instruction:
    """Returns the weight gradient for windows that adjoin each other: a product over all windows."""
    rank, counts = x.shape.rank, grad.shape.dims[2:]
    axes = range(2, rank)
    ends = tuple(count * length for count, length in zip(counts, lengths, strict=True))
    if ends != x.shape.dims[2:]:
        x = n.slice(x, list(axes), [0] * len(axes), list(ends))
    apart = n.reshape(x, (*x.shape.dims[:2], *(d for pair in zip(counts, lengths, strict=True) for d in pair)))
    taps_last = [0, *range(2, 2 * rank - 2, 2), 1, *range(3, 2 * rank - 2, 2)]
    windows = n.size(grad, [0, *axes])
    rows = n.reshape(n.transpose(apart, taps_last), (windows, n.size(w, range(1, rank))))
    grads = n.reshape(n.transpose(grad, [1, 0, *axes]), (grad.shape.dims[1], windows))
    return n.reshape(n.add("dot", grads, rows), w.shape.dims)


def _point_gradient(n: Node, x: Instruction, grad: Instruction, w: Instruction, stride: Sequence[int]) -> Instruction:
    """Returns the weight gradient for windows of one element: a product over all places, which is faster than a convolution."""
    axes = [a for a, step in enumerate(stride, 2) if step != 1]
    if axes:
        steps = tuple(stride[a - 2] for a in axes)
        ends = tuple((grad.shape.dims[a] - 1) * step + 1 for a, step in zip(axes, steps, strict=True))
        x = n.add("slice", x, axes=tuple(axes), starts=(0,) * len(axes), ends=ends, steps=steps)
    rank = x.shape.rank
    flat = [
        n.reshape(n.transpose(v, [1, 0, *range(2, rank)]), (v.shape.dims[1], n.size(v, [0, *range(2, rank)])))
        for v in (grad, x)
    ]
    return n.reshape(n.add("dot", flat[0], n.transpose(flat[1], [1, 0])), w.shape.dims)


def max_pool_backward(n: Node, grad: Instruction, x: Instruction, indices: Instruction, axes: int) -> Instruction:
    """Scatters each maximum's gradient to its flat index in the last axes."""
    dims = x.shape.dims
    kept = len(dims) - axes
    flat = (*dims[:kept], n.size(x, range(kept, len(dims))))
    places = n.reshape(indices, (*indices.shape.dims[:kept], n.size(indices, range(kept, len(dims)))))
    values = n.reshape(grad, places.shape.dims)
    zeros = n.filled(flat, 0, grad.shape.dtype)
    return n.reshape(n.add("scatter_add", zeros, n.convert(places, dt.int64), values, axis=kept), dims)


@converts("max_pool2d_with_indices_backward", "adaptive_max_pool2d_backward")
def max_pool2d_backward(n: Node, grad: Instruction, x: Instruction, *rest: Any) -> Instruction:
    return max_pool_backward(n, grad, x, rest[-1], 2)


@converts("max_pool3d_with_indices_backward", "adaptive_max_pool3d_backward")
def max_pool3d_backward(n: Node, grad: Instruction, x: Instruction, *rest: Any) -> Instruction:
    return max_pool_backward(n, grad, x, rest[-1], 3)


def average_pool_backward(axes: int) -> Converter:
    def convert(
        n: Node,
        grad: Instruction,
        x: Instruction,
        size: Any,
        stride: Any,
        padding: Any,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor: int | None,
    ) -> Instruction:
        size, padding = filled(size, axes), filled(padding, axes)
        stride = filled(stride, axes) if stride else size
        tables = []
        for axis in range(axes):
            length, out = _lengths(n, x, grad, axis - axes)
            starts = np.arange(out) * stride[axis] - padding[axis]
            ends = np.minimum(starts + size[axis], length + padding[axis])
            table = _members(starts, ends, length)
            counts = ends - starts if count_include_pad else table.sum(1)
            tables.append(table if divisor else table / counts[:, None])
        found = _spread(n, grad, tables)
        return n.add("mul", found, n.full_like(found, 1 / divisor)) if divisor else found

    return convert


converts("avg_pool2d_backward")(average_pool_backward(2))
converts("avg_pool3d_backward")(average_pool_backward(3))


def adaptive_pool_backward(axes: int) -> Converter:
    def convert(n: Node, grad: Instruction, x: Instruction) -> Instruction:
        tables = []
        for axis in range(axes):
            length, out = _lengths(n, x, grad, axis - axes)
            starts, ends = np.arange(out) * length // out, -(-(np.arange(out) + 1) * length // out)
            tables.append(_members(starts, ends, length) / (ends - starts)[:, None])
        return _spread(n, grad, tables)

    return convert


converts("_adaptive_avg_pool2d_backward")(adaptive_pool_backward(2))
converts("_adaptive_avg_pool3d_backward")(adaptive_pool_backward(3))


def _lengths(n: Node, x: Instruction, grad: Instruction, axis: int) -> tuple[int, int]:
    """Returns the extents of an image and of its pooled image along an axis, counted from the end."""
    found = [n.static(v.shape.dims[axis], "the extent of an image whose pooling is differentiated") for v in (x, grad)]
    return found[0], found[1]


def _members(starts: Array, ends: Array, length: int) -> Array:
    """Returns a 0/1 matrix [cell, element] of which elements of an axis belong to each cell."""
    places = np.arange(length)
    return ((places >= starts[:, None]) & (places < ends[:, None])).astype(np.float64)


def _spread(n: Node, grad: Instruction, tables: Sequence[Array]) -> Instruction:
    """Distributes each cell's gradient to its elements by shares [cell, element], axis by axis.

    Cells that overlap or differ in length need a matrix product, which spreads infinities and NaN over the axis.
    """
    rank, first = grad.shape.rank, grad.shape.rank - len(tables)
    cells = [cell for table in tables if (cell := _adjoining(table))]
    if len(cells) == len(tables):
        return _expanded(n, grad, [table.shape[1] for table in tables], cells)
    turned = [*range(first), rank - 1, *range(first, rank - 1)]  # the last axis before the others
    for table in reversed(tables):
        grad = n.transpose(product(n, grad, n.literal(table, n.dtype)), turned)
    return grad


def _adjoining(table: Array) -> tuple[int, float] | None:
    """Returns length and share of equal cells that adjoin each other from the beginning of an axis; None for others."""
    cells, length = table.shape
    width, share = int(np.count_nonzero(table[0])), float(table[0].max())
    starts = np.arange(cells) * width
    regular = width > 0 and np.array_equal(table, share * _members(starts, starts + width, length))
    return (width, share) if regular and cells * width <= length else None


def _expanded(n: Node, grad: Instruction, lengths: Sequence[int], cells: Sequence[tuple[int, float]]) -> Instruction:
    """Repeats each element of the last axes as a cell of its shares; elements behind the last cell are 0."""
    first = grad.shape.rank - len(lengths)
    front, counts = grad.shape.dims[:first], grad.shape.dims[first:]
    widths = [width for width, _ in cells]
    share = math.prod(share for _, share in cells)
    grad = n.add("mul", grad, n.full_like(grad, share))
    apart = n.unsqueeze(grad, [first + 2 * k + 1 for k in range(len(lengths))])
    wide = n.broadcast_to(apart, (*front, *(d for pair in zip(counts, widths, strict=True) for d in pair)))
    covered = [count * width for count, width in zip(counts, widths, strict=True)]
    made = n.reshape(wide, (*front, *covered))
    rest = [length - end for length, end in zip(lengths, covered, strict=True)]
    return n.add("pad", made, pads=(*[0] * (2 * first + len(rest)), *rest)) if any(rest) else made


@converts("_weight_norm_interface_backward")
def weight_norm_backward(
    n: Node, grad: Instruction, v: Instruction, g: Instruction, norms: Instruction, axis: int
) -> tuple[Instruction, Instruction]:
    """Returns the gradients of w = g v / |v|, the norm taken over all axes but one."""
    axes = [a for a in range(v.shape.rank) if a != axis]
    norms = n.convert(norms, v.shape.dtype)
    along = n.pointwise("div", n.reduce("reduce_sum", n.add("mul", grad, v), axes, True), norms)
    rest = n.add("sub", grad, n.pointwise("mul", v, n.pointwise("div", along, norms)))
    return n.pointwise("mul", rest, n.pointwise("div", g, norms)), along


@converts("_scaled_dot_product_flash_attention_for_cpu_backward")
def attention_backward(
    n: Node,
    grad: Instruction,
    q: Instruction,
    k: Instruction,
    v: Instruction,
    out: Instruction,
    logsumexp: Instruction,
    dropout_p: float,
    is_causal: bool,
    attn_mask: Instruction | None = None,
    scale: float | None = None,
) -> tuple[Instruction, ...]:
    width = n.static(q.shape.dims[-1], "the width of attention's heads")
    factor = 1 / width**0.5 if scale is None else scale
    narrow, wide = q.shape.dtype, logsumexp.shape.dtype
    q, k, v, grad, out = (n.convert(x, wide) for x in (q, k, v, grad, out))
    logits = masked_products(n, q, k, v, attn_mask, is_causal, scale, wide)
    shares = n.add("exp", n.pointwise("sub", logits, n.unsqueeze(logsumexp, [3])))
    dims, heads = q.shape.dims, k.shape.dims[1]
    if heads != dims[1]:  # the heads of q that share one of k: rows of a single head, over which products sum
        shared = n.static(dims[1], "the number of heads") // n.static(heads, "the number of heads of keys")
        q, grad, out, shares = (
            n.reshape(x, (dims[0], heads, dims[2] * shared, x.shape.dims[3])) for x in (q, grad, out, shares)
        )
    swap = [0, 1, 3, 2]
    grad_v = n.add("dot", n.transpose(shares, swap), grad)
    back = n.add("dot", grad, n.transpose(v, swap))
    row = n.reduce("reduce_sum", n.add("mul", grad, out), [3], True)
    step = n.add("mul", shares, n.pointwise("sub", back, row))
    step = n.add("mul", step, n.full_like(step, factor))
    found = n.reshape(n.add("dot", step, k), dims), n.add("dot", n.transpose(step, swap), q), grad_v
    return tuple(n.convert(x, narrow) for x in found)
