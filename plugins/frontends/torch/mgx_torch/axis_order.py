"""The memory order of a tensor's axes."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["hint", "inverse", "order_of"]


def order_of(value: torch.Tensor) -> tuple[int, ...] | None:
    """Returns the axes of a dense tensor in memory order; None if it is row-major or not dense."""
    rank = value.dim()
    if rank < 2:
        return None
    strides = [hint(s) for s in value.stride()]
    sizes = [hint(s) for s in value.shape]
    order = sorted(range(rank), key=lambda a: (-strides[a], sizes[a] != 1, a))
    moved = [a for a in order if sizes[a] != 1]
    if moved == sorted(moved):
        return None
    expected = 1
    for a in reversed(order):
        if sizes[a] != 1 and strides[a] != expected:
            return None
        expected *= sizes[a]
    return tuple(order)


def hint(size: Any) -> int:
    """Returns a size's example value without adding a guard; only for decisions that hold for all sizes."""
    if isinstance(size, torch.SymInt):
        hint = size.node.hint
        return 2 if hint is None else int(hint)
    return int(size)


def inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the permutation that undoes another."""
    return tuple(order.index(a) for a in range(len(order)))
