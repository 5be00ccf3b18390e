"""Decomposes embedding bags and their gradients into gathers and segment sums, and limits norms of embeddings."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["embedding_bag", "embedding_bag_backward", "embedding_renorm", "per_sample_weights_backward"]


def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """Decomposes sums and means over bags; maxima are kept whole, since their backward needs the argmax."""
    if mode == 2 or indices.dim() != 1:
        return NotImplemented
    starts = (offsets[:-1] if include_last_offset else offsets).long()
    bags = starts.shape[0]
    marks = torch.zeros(indices.shape[0] + 1, dtype=torch.int64, device=weight.device)
    bag = marks.index_add(0, starts, torch.ones_like(starts)).cumsum(0)[:-1] - 1
    rows = weight[indices]
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    counted = torch.ones_like(bag)
    if padding_idx >= 0:
        kept = indices != padding_idx
        counted, rows = kept.long(), rows * kept.unsqueeze(-1)
    sizes = torch.zeros(bags, dtype=torch.int64, device=weight.device).index_add(0, bag, counted)
    out = torch.zeros(bags, weight.shape[1], dtype=weight.dtype, device=weight.device).index_add(0, bag, rows)
    if mode == 1:
        out = out / sizes.clamp(min=1).unsqueeze(-1)
    return out, bag.to(indices.dtype), sizes.to(indices.dtype), torch.zeros_like(sizes)


def embedding_bag_backward(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    bag: Tensor,
    sizes: Tensor,
    maximum_indices: Tensor,
    rows: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None = None,
    padding_idx: int = -1,
) -> Any:
    """Returns the table's gradient: each bag's gradient scattered to its rows."""
    if mode == 2 or sparse or scale_grad_by_freq or bag.shape != indices.shape:
        return NotImplemented
    if mode == 1:
        grad = grad / sizes.clamp(min=1).unsqueeze(-1)
    found = grad[bag]
    if per_sample_weights is not None:
        found = found * per_sample_weights.unsqueeze(-1)
    if padding_idx >= 0:
        found = found * (indices != padding_idx).unsqueeze(-1)
    return grad.new_zeros(rows, grad.shape[1]).index_add(0, indices, found)


def per_sample_weights_backward(
    grad: Tensor, table: Tensor, indices: Tensor, offsets: Tensor, bag: Tensor, mode: int, padding_idx: int = -1
) -> Any:
    """Returns the gradients of the factors of rows that a bag sums: products of a row and its bag's gradient."""
    if mode != 0 or bag.shape != indices.shape:
        return NotImplemented
    found = (grad[bag] * table[indices]).sum(-1)
    return torch.where(indices == padding_idx, 0, found) if padding_idx >= 0 else found


def embedding_renorm(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Returns the table with the rows at these indices scaled to the largest norm that is allowed."""
    norms = torch.linalg.vector_norm(weight, norm_type, 1, keepdim=True)
    read = torch.zeros(weight.shape[0], dtype=torch.bool, device=weight.device).index_fill(0, indices.reshape(-1), True)
    scale = torch.where(read.unsqueeze(1) & (norms > max_norm), max_norm / (norms + 1e-7), 1.0)
    return weight * scale.to(weight.dtype)
