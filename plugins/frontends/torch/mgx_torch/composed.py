"""Decompositions of operators without converters: fused `torch.nn` layers and rare operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .bags import embedding_bag, embedding_bag_backward, embedding_renorm, per_sample_weights_backward
from .composed_bessel import (
    airy_ai,
    bessel_i0,
    bessel_i0e,
    bessel_i1,
    bessel_i1e,
    bessel_j0,
    bessel_j1,
    bessel_k0,
    bessel_k0e,
    bessel_k1,
    bessel_k1e,
    bessel_y0,
    bessel_y1,
    spherical_bessel_j0,
)
from .composed_functions import (
    copysign,
    copysign_of_number,
    digamma,
    erfinv,
    fft_frequencies,
    lgamma,
    logcumsumexp,
    nonzero_static,
    real_fft_frequencies,
    running_maximum,
    running_minimum,
    searchsorted,
    searchsorted_number,
    unique_consecutive,
)
from .composed_gradients import (
    distances_backward,
    embedding_backward,
    masked_scatter_backward,
    pairwise_distances_backward,
    reflection_pad_backward,
    replication_pad_backward,
)
from .composed_numbers import frexp, gcd, lcm, nextafter
from .composed_polynomials import polynomials
from .composed_pooling import fractional_max_pool
from .composed_quantized import fake_quantize, fake_quantize_by_tensors, fake_quantize_channels
from .composed_segments import histogram, histogram_between, segment_reduce
from .composed_special import erfcx, ndtri, polygamma, zeta, zeta_at_number, zeta_of_number
from .foreach import on_lists

__all__ = ["composed"]

aten = torch.ops.aten


def composed() -> dict[Any, Callable[..., Any]]:
    """Returns decompositions by overload; one that returns NotImplemented keeps the call."""
    return {
        aten._transformer_encoder_layer_fwd.default: encoder_layer,
        aten._native_multi_head_attention.default: multi_head_attention,
        aten._cdist_forward.default: distances,
        aten._pdist_forward.default: pairwise_distances,
        aten._trilinear.default: trilinear,
        aten._embedding_bag.default: embedding_bag,
        aten._embedding_bag_forward_only.default: embedding_bag,
        aten._embedding_bag_backward.default: embedding_bag_backward,
        aten.embedding_renorm.default: embedding_renorm,
        aten.fractional_max_pool2d.default: fractional_max_pool,
        aten.fractional_max_pool3d.default: fractional_max_pool,
        aten.fake_quantize_per_tensor_affine_cachemask.default: fake_quantize,
        aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: fake_quantize_by_tensors,
        aten.fake_quantize_per_channel_affine_cachemask.default: fake_quantize_channels,
        aten.rrelu_with_noise_functional.default: rrelu,
        aten.gcd.default: gcd,
        aten.lcm.default: lcm,
        aten.nextafter.default: nextafter,
        aten.frexp.Tensor: frexp,
        aten.segment_reduce.default: segment_reduce,
        aten.histogram.bin_ct: histogram,
        aten.histogram.bins_tensor: histogram_between,
        aten.mode.default: mode,
        aten.diagonal_scatter.default: diagonal_scatter,
        aten.index_reduce.default: index_reduce,
        aten.put.default: put,
        aten.kthvalue.default: kthvalue,
        aten.median.default: median,
        aten.median.dim: median_along,
        aten.nanmedian.default: nanmedian,
        aten.nanmedian.dim: nanmedian_along,
        aten.dist.default: distance,
        aten.i0.default: bessel_i0,
        aten.special_i0e.default: bessel_i0e,
        aten.special_i1.default: bessel_i1,
        aten.special_i1e.default: bessel_i1e,
        aten.special_modified_bessel_i0.default: bessel_i0,
        aten.special_modified_bessel_i1.default: bessel_i1,
        aten.special_modified_bessel_k0.default: bessel_k0,
        aten.special_modified_bessel_k1.default: bessel_k1,
        aten.special_scaled_modified_bessel_k0.default: bessel_k0e,
        aten.special_scaled_modified_bessel_k1.default: bessel_k1e,
        aten.special_bessel_j0.default: bessel_j0,
        aten.special_bessel_j1.default: bessel_j1,
        aten.special_bessel_y0.default: bessel_y0,
        aten.special_bessel_y1.default: bessel_y1,
        aten.special_spherical_bessel_j0.default: spherical_bessel_j0,
        aten.special_airy_ai.default: airy_ai,
        aten.special_erfcx.default: erfcx,
        aten.special_ndtri.default: ndtri,
        **polynomials(),
        aten.polygamma.default: polygamma,
        aten.special_zeta.default: zeta,
        aten.special_zeta.self_scalar: zeta_of_number,
        aten.special_zeta.other_scalar: zeta_at_number,
        aten.lgamma.default: lgamma,
        aten.digamma.default: digamma,
        aten.erfinv.default: erfinv,
        aten.nonzero_static.default: nonzero_static,
        aten.copysign.Tensor: copysign,
        aten.copysign.Scalar: copysign_of_number,
        aten.cummax.default: running_maximum,
        aten.cummin.default: running_minimum,
        aten.logcumsumexp.default: logcumsumexp,
        aten.searchsorted.Tensor: searchsorted,
        aten.searchsorted.Scalar: searchsorted_number,
        aten.unique_consecutive.default: unique_consecutive,
        **on_lists(),
        aten._cdist_backward.default: distances_backward,
        aten._pdist_backward.default: pairwise_distances_backward,
        aten.embedding_dense_backward.default: embedding_backward,
        aten.reflection_pad1d_backward.default: reflection_pad_backward,
        aten.reflection_pad2d_backward.default: reflection_pad_backward,
        aten.reflection_pad3d_backward.default: reflection_pad_backward,
        aten.replication_pad1d_backward.default: replication_pad_backward,
        aten.replication_pad2d_backward.default: replication_pad_backward,
        aten.replication_pad3d_backward.default: replication_pad_backward,
        aten.masked_scatter_backward.default: masked_scatter_backward,
        aten._embedding_bag_per_sample_weights_backward.default: per_sample_weights_backward,
        aten.fft_fftfreq.default: fft_frequencies,
        aten.fft_rfftfreq.default: real_fft_frequencies,
    }


def encoder_layer(
    x: Tensor,
    size: int,
    heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    gelu: bool,
    norm_first: bool,
    eps: float,
    first_weight: Tensor,
    first_bias: Tensor,
    second_weight: Tensor,
    second_bias: Tensor,
    up_weight: Tensor,
    up_bias: Tensor,
    down_weight: Tensor,
    down_bias: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """Decomposes the fused ``nn.TransformerEncoderLayer`` of inference."""

    def first(y: Tensor) -> Tensor:
        return torch.nn.functional.layer_norm(y, (size,), first_weight, first_bias, eps)

    def second(y: Tensor) -> Tensor:
        return torch.nn.functional.layer_norm(y, (size,), second_weight, second_bias, eps)

    def forward(y: Tensor) -> Tensor:
        y = torch.nn.functional.linear(y, up_weight, up_bias)
        y = torch.nn.functional.gelu(y) if gelu else torch.relu(y)
        return torch.nn.functional.linear(y, down_weight, down_bias)

    def attend(y: Tensor) -> Tensor:
        packed = (qkv_weight, qkv_bias, out_weight, out_bias)
        return multi_head_attention(y, y, y, size, heads, *packed, mask, False, True, mask_type)[0]

    if norm_first:
        x = x + attend(first(x))
        return x + forward(second(x))
    x = first(x + attend(x))
    return second(x + forward(x))


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    size: int,
    heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Decomposes the fused ``nn.MultiheadAttention`` of inference; masks are true at ignored positions.

    mask_type: 0 for a mask [queries, keys], 1 for [batch, keys], 2 for [batch, heads, queries, keys].
    """
    parts = [
        torch.nn.functional.linear(x, w, b).unflatten(-1, (heads, size // heads)).transpose(1, 2)
        for x, w, b in zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
    ]
    if mask is not None:
        mask = mask.to(torch.bool)
        mask = mask[:, None, None, :] if mask_type == 1 else mask
    if need_weights:
        scores = (parts[0] / math.sqrt(size // heads)) @ parts[1].transpose(-1, -2)
        weights = (scores if mask is None else scores.masked_fill(mask, -math.inf)).softmax(-1)
        found = weights @ parts[2]
        weights = weights.mean(1) if average_attn_weights else weights
    else:
        allowed = None if mask is None else mask.logical_not()
        found = torch.nn.functional.scaled_dot_product_attention(*parts, attn_mask=allowed)
        weights = query.new_empty((0,))
    return torch.nn.functional.linear(found.transpose(1, 2).flatten(2), out_weight, out_bias), weights


def _lengths(difference: Tensor, p: float) -> Tensor:
    """Returns the p-norm along the last axis."""
    size = difference.abs()
    if p == 0:
        return (difference != 0).to(difference.dtype).sum(-1)
    if p == 1:
        return size.sum(-1)
    if p == 2:
        return (difference * difference).sum(-1).sqrt()
    return size.amax(-1) if p == math.inf else size.pow(p).sum(-1).pow(1 / p)


def distance(x: Tensor, y: Tensor, p: float = 2) -> Tensor:
    """Returns the p-norm of the difference of two tensors."""
    return torch.linalg.vector_norm(x - y, p)


MANY = 25  # number of rows above which torch computes Euclidean distances by a matrix product


def distances(x: Tensor, y: Tensor, p: float, compute_mode: int | None) -> Any:
    """Returns pairwise distances between the rows of two matrices."""
    if x.shape[-1] == 0 or x.numel() == 0 or y.numel() == 0:
        return NotImplemented
    many = x.shape[-2] > MANY or y.shape[-2] > MANY
    if p != 2 or compute_mode == 2 or (compute_mode != 1 and not many):
        return _lengths(x.unsqueeze(-2) - y.unsqueeze(-3), p)
    ones = (x * x).sum(-1, keepdim=True), (y * y).sum(-1, keepdim=True).transpose(-1, -2)
    return (ones[0] + ones[1] - 2 * (x @ y.transpose(-1, -2))).clamp(min=0).sqrt()


def pairwise_distances(x: Tensor, p: float = 2) -> Any:
    """Returns distances between each row and all later ones (condensed form)."""
    if x.shape[0] < 2 or x.shape[1] == 0:
        return NotImplemented
    count = x.shape[0]
    if isinstance(count, int):
        first, second = torch.triu_indices(count, count, 1, device=x.device)
    else:  # row n of a triangle, counted from its tip, begins at offset n * (n + 1) / 2
        place = torch.arange(count * (count - 1) // 2, device=x.device)
        left = place.shape[0] - 1 - place
        tip = ((8.0 * left.double() + 1).sqrt() / 2 - 0.5).floor().long()
        first = count - 2 - tip
        second = count - 1 - (left - tip * (tip + 1) // 2)
    return _lengths(x[first] - x[second], p)


def trilinear(
    first: Tensor,
    second: Tensor,
    third: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    """Returns sums of products of three tensors with inserted axes: `nn.Bilinear` and its gradients."""
    axes = "abcdefghijklmnopqrstuvwxyz"[: first.dim() + len(expand1)]
    terms = [
        "".join(a for i, a in enumerate(axes) if i not in missing) for missing in (expand1, expand2, expand3, sumdim)
    ]
    return torch.einsum(f"{','.join(terms[:3])}->{terms[3]}", first, second, third).to(first.dtype)


def diagonal_scatter(x: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Returns a tensor with one diagonal replaced."""
    first, second = dim1 % x.dim(), dim2 % x.dim()
    order = [a for a in range(x.dim()) if a not in (first, second)] + [first, second]
    steps = torch.arange(source.shape[-1], device=x.device)
    places: list[Tensor | None] = [None] * (x.dim() - 2)
    places += [steps + max(-offset, 0), steps + max(offset, 0)]
    out = aten.index_put(x.permute(order), places, source)
    return out.permute([order.index(a) for a in range(x.dim())])


def index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Decomposes index_reduce into a scatter with the same index along each row."""
    if x.dim() == 0:
        return NotImplemented
    shape = [1] * x.dim()
    shape[dim] = -1
    wide = index.view(shape).expand_as(source)
    return x.scatter_reduce(dim, wide, source, reduce, include_self=include_self)


def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Returns x with elements replaced by flat (row-major) index."""
    flat = aten.index_put(x.reshape(-1), [index.reshape(-1)], source.reshape(-1), accumulate)
    return flat.view(x.shape)


def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """Returns the k-th smallest element along an axis and its index."""
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    values, places = x.sort(dim)
    values, places = values.narrow(dim, k - 1, 1), places.narrow(dim, k - 1, 1)
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


def median(x: Tensor) -> Any:
    """Returns the lower median of all elements; NaN if there is one."""
    if x.numel() == 0:
        return NotImplemented
    return median_along(x.reshape(-1), 0)[0]


def median_along(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    """Returns the lower median along an axis and its index; NaN if there is one (NaN sorts last)."""
    if x.dim() == 0 or x.shape[dim] == 0:
        return NotImplemented
    last = x.shape[dim] - 1
    values, places = x.sort(dim=dim, stable=True)
    at = torch.full_like(places.narrow(dim, 0, 1), last // 2)
    if x.is_floating_point():
        count = x.isnan().sum(dim, keepdim=True)
        at = torch.where(count > 0, x.shape[dim] - count, at)  # the first NaN
    return _at(values, places, at, dim, keepdim)


def nanmedian(x: Tensor) -> Any:
    """Returns the lower median of all elements, ignoring NaN."""
    if x.numel() == 0:
        return NotImplemented
    if not x.is_floating_point():
        return median(x)
    return nanmedian_along(x.reshape(-1), 0)[0]


def nanmedian_along(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    """Returns the lower median along an axis, ignoring NaN, and its index."""
    if x.dim() == 0 or x.shape[dim] == 0 or not x.is_floating_point():
        return NotImplemented
    values, places = x.sort(dim=dim, stable=True)
    count = x.isnan().logical_not().sum(dim, keepdim=True)
    return _at(values, places, torch.div(count - 1, 2, rounding_mode="trunc").clamp(min=0), dim, keepdim)


def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """Returns the most frequent element along an axis, the smallest of several, and the last index of it."""
    if x.dim() == 0 or x.shape[dim] == 0:
        return NotImplemented
    values, places = x.sort(dim=dim, stable=True)
    shape = [1] * x.dim()
    shape[dim] = -1
    counted = torch.arange(x.shape[dim], device=x.device).view(shape).expand(x.shape)
    new = torch.ones_like(values, dtype=torch.bool).narrow(dim, 0, 1)
    new = torch.cat([new, values.narrow(dim, 1, x.shape[dim] - 1) != values.narrow(dim, 0, x.shape[dim] - 1)], dim)
    start = torch.where(new, counted, 0).cummax(dim).values
    return _at(values, places, (counted - start).argmax(dim, keepdim=True), dim, keepdim)


def rrelu(
    x: Tensor, noise: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, generator: Any = None
) -> Any:
    """Returns the leaky rectifier of inference, whose slope is the middle of the range; training draws random slopes."""
    return NotImplemented if training else (torch.nn.functional.leaky_relu(x, (lower + upper) / 2), noise)


def _at(values: Tensor, places: Tensor, at: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    found = values.gather(dim, at), places.gather(dim, at)
    return found if keepdim else (found[0].squeeze(dim), found[1].squeeze(dim))
