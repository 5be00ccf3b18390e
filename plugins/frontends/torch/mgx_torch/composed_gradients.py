"""Decompositions of backward operators that torch does not decompose itself, or into lookups of each element."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

__all__ = [
    "distances_backward", "embedding_backward", "masked_scatter_backward", "pairwise_distances_backward",
    "reflection_pad_backward", "replication_pad_backward",
]  # fmt: skip


def _pulls(difference: Tensor, grad: Tensor, found: Tensor, p: float) -> Tensor:
    """Returns the gradients of distances along the last axis with respect to the first of two points.

    difference: the points' coordinates; grad, found: of the distances, with an axis of extent 1.
    """
    sign = difference.sign()
    if p == 0:
        return torch.zeros_like(difference)
    if p == 1:
        return grad * sign
    if p == math.inf:
        return grad * sign * (difference.abs() == found)
    share = grad / found.pow(p - 1)
    if p == 2:
        pull = difference * share
    elif p < 2:
        pull = torch.where(difference == 0, 0, sign * difference.abs().pow(p - 1) * share)
    else:
        pull = difference * difference.abs().pow(p - 2) * share
    return torch.where(found == 0, 0, pull)


def distances_backward(grad: Tensor, x: Tensor, y: Tensor, p: float, found: Tensor) -> Any:
    """Returns the gradient of pairwise distances with respect to the rows of the first matrix."""
    if x.numel() == 0 or y.numel() == 0:
        return NotImplemented
    return _pulls(x.unsqueeze(-2) - y.unsqueeze(-3), grad.unsqueeze(-1), found.unsqueeze(-1), p).sum(-2)


def pairwise_distances_backward(grad: Tensor, x: Tensor, p: float, found: Tensor) -> Any:
    """Returns the gradient of distances between each row and all later ones."""
    if x.shape[0] < 2 or x.shape[1] == 0 or not isinstance(x.shape[0], int):
        return NotImplemented
    first, second = torch.triu_indices(x.shape[0], x.shape[0], 1, device=x.device)
    pulls = _pulls(x[first] - x[second], grad.unsqueeze(-1), found.unsqueeze(-1), p)
    return torch.zeros_like(x).index_add(0, first, pulls).index_add(0, second, -pulls)


def replication_pad_backward(grad: Tensor, x: Tensor, padding: Sequence[int]) -> Any:
    """Returns the sums of the copies of each element: those beyond an end are copies of the element there."""
    if any(p < 0 for p in padding):
        return NotImplemented
    for place in range(len(padding) // 2):
        axis, before, after = x.dim() - 1 - place, padding[2 * place], padding[2 * place + 1]
        count = x.shape[axis]
        if count == 1:
            grad = grad.sum(axis, keepdim=True)
            continue
        first = grad.narrow(axis, 0, before + 1).sum(axis, keepdim=True)
        last = grad.narrow(axis, before + count - 1, after + 1).sum(axis, keepdim=True)
        grad = torch.cat([first, grad.narrow(axis, before + 1, count - 2), last], axis)
    return grad


def reflection_pad_backward(grad: Tensor, x: Tensor, padding: Sequence[int]) -> Tensor:
    """Returns the gradient of the elements, to which that of their mirror images beyond each end is added."""
    grad = pad(grad, [max(-p, 0) for p in padding])  # what was cropped
    for place in range(len(padding) // 2):
        axis, before, after = x.dim() - 1 - place, max(padding[2 * place], 0), max(padding[2 * place + 1], 0)
        count = x.shape[axis]
        inner = [0, 0] * place
        total = grad.narrow(axis, before, count)
        if before:
            total = total + pad(grad.narrow(axis, 0, before).flip(axis), [*inner, 1, count - 1 - before])
        if after:
            total = total + pad(grad.narrow(axis, before + count, after).flip(axis), [*inner, count - 1 - after, 1])
        grad = total
    return grad


def masked_scatter_backward(grad: Tensor, mask: Tensor, sizes: Sequence[int]) -> Any:
    """Returns the gradient of the scattered elements: that of the k-th true element for the k-th, zero for unused ones."""
    count = math.prod(sizes)
    if count == 0 or grad.numel() == 0:
        return NotImplemented
    taken = mask.expand_as(grad).reshape(-1)
    places = (taken.to(torch.int64).cumsum(0) - 1).clamp(min=0)
    values = torch.where(taken, grad.reshape(-1), 0)
    return grad.new_zeros(count).scatter_add(0, places, values).view(list(sizes))


def embedding_backward(grad: Tensor, indices: Tensor, count: int, padding: int, by_frequency: bool) -> Any:
    """Returns the sums of the gradients of each row's copies, whose indices the forward operator has checked."""
    if by_frequency:
        return NotImplemented
    width = grad.shape[indices.dim() :]
    rows, places = grad.reshape(-1, *width), indices.reshape(-1)
    if grad.dtype in (torch.bfloat16, torch.float16):
        rows = rows.float()
    if padding >= 0:
        rows = torch.where((places != padding).view(-1, *(1 for _ in width)), rows, 0)
    return rows.new_zeros(count, *width).index_add(0, places, rows).to(grad.dtype)
