"""The order of a tensor's axes in memory."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["arranged", "hint", "order_of"]


def order_of(value: torch.Tensor) -> tuple[int, ...] | None:
    """Returns the axes of a dense tensor in the order of memory; None where that is row-major, or memory is not dense."""
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
    """Returns the number that a size stands for at the moment, without a guard: only for what holds for all sizes alike."""
    if isinstance(size, torch.SymInt):
        hint = size.node.hint
        return 2 if hint is None else int(hint)
    return int(size)


def arranged(tensor: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """Returns the same values with the axes in another order of memory."""
    back = [order.index(a) for a in range(len(order))]
    return tensor.permute(order).contiguous().permute(back)
