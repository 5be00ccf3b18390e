"""Grouped matrix products (mixture of experts) of exported programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["grouped_products"]


def grouped_products() -> dict[Any, Callable[..., Any]]:
    """Returns decompositions of grouped products: torch's, and those of transformers if that package is loaded.

    Only exported programs need them: in Dynamo's graphs these operators fall back to torch, which computes each group separately.
    """
    found: dict[Any, Callable[..., Any]] = {torch.ops.aten._grouped_mm.default: grouped_mm}
    # torch.ops creates the attribute transformers, but not operators that it does not know
    theirs = getattr(torch.ops.transformers, "grouped_mm_fallback", None)
    if theirs is not None:
        found[theirs.default] = by_groups
    return found


def grouped_mm(
    x: Tensor, weights: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: Any = None
) -> Any:
    """Decomposes grouped_mm of rows; other forms are kept."""
    if offs is None or bias is not None or x.dim() != 2 or weights.dim() != 3:
        return NotImplemented
    return by_groups(x, weights, offs).to(out_dtype or x.dtype)


def by_groups(x: Tensor, weights: Tensor, offs: Tensor) -> Tensor:
    """Returns x [s, k] by weights [g, k, n]: rows up to offs[0] by the first matrix, and so on; rows after the last are zeros.

    If there are at most as many rows as groups, each row gathers its matrix, so that only those are read; otherwise each matrix
    is multiplied by all rows, with the rows of other groups zeroed.
    """
    groups = weights.shape[0]
    group = (torch.arange(x.shape[0], device=x.device).unsqueeze(1) >= offs.unsqueeze(0)).sum(1)
    if isinstance(x.shape[0], int) and x.shape[0] <= groups:
        out = torch.bmm(x.unsqueeze(1), weights[group.clamp(max=groups - 1)]).squeeze(1)
        return torch.where((group < groups).unsqueeze(1), out, 0)
    own = group.unsqueeze(0) == torch.arange(groups, device=x.device).unsqueeze(1)
    parts = torch.bmm(torch.where(own.unsqueeze(2), x.unsqueeze(0), 0), weights)
    return torch.where(own.unsqueeze(2), parts, 0).sum(0)
