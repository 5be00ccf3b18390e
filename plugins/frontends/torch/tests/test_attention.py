"""Attention: all masks that torch broadcasts."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch.nn import functional

OP = torch.ops.aten.scaled_dot_product_attention.default


@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
@pytest.mark.parametrize("shape", [(5, 7), (5, 1), (1, 7), (1, 1), (2, 1, 1, 7), (2, 4, 5, 1), (4, 5, 1)])
def test_masks_of_every_form(shape: tuple[int, ...], dtype: torch.dtype, target: str, overloads: ModuleType) -> None:
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 7, 8), torch.randn(2, 4, 7, 3)
    mask = torch.rand(shape) > 0.2 if dtype is torch.bool else torch.randn(shape)
    (found,) = overloads.computed(OP, (q, k, v, mask), {}, target)
    torch.testing.assert_close(found, OP(q, k, v, mask), rtol=1e-5, atol=1e-5)


def test_one_column_masks_all_keys_without_heads(overloads: ModuleType) -> None:
    q, k, mask = torch.randn(3, 5, 8), torch.randn(3, 7, 8), torch.arange(5)[:, None] > 1
    (found,) = overloads.computed(OP, (q, k, k, mask), {}, "ref")
    torch.testing.assert_close(found, OP(q, k, k, mask), rtol=1e-5, atol=1e-5)


BATCHES = [
    ((1, 1, 5, 8), (2, 1, 7, 8), (2, 1, 7, 8)),
    ((2, 3, 5, 8), (1, 3, 7, 8), (2, 3, 7, 8)),
    ((2, 4, 5, 8), (2, 1, 7, 8), (2, 1, 7, 8)),
    ((2, 1, 5, 8), (2, 4, 7, 8), (2, 4, 7, 8)),
    ((2, 4, 5, 8), (2, 4, 7, 8), (2, 1, 7, 8)),
    ((2, 4, 5, 8), (4, 7, 8), (7, 8)),
    ((4, 5, 8), (2, 4, 7, 8), (2, 1, 7, 8)),
    ((3, 5, 8), (1, 7, 8), (3, 7, 8)),
    ((5, 8), (7, 8), (7, 8)),
    ((2, 1, 4, 5, 8), (1, 3, 4, 7, 8), (2, 3, 1, 7, 8)),
]


@pytest.mark.parametrize("dims", BATCHES, ids=str)
def test_batch_axes_are_broadcast(dims: tuple[tuple[int, ...], ...]) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(d) for d in dims)
    with torch.no_grad():
        compiled = torch.compile(functional.scaled_dot_product_attention, backend="mgx", options={"strict": True})
        torch.testing.assert_close(compiled(q, k, v), functional.scaled_dot_product_attention(q, k, v))
