"""Grouped products of experts in exported programs."""

from __future__ import annotations

import pytest
import torch

from mgx_torch import lower_to_mgx
from mgx_torch.grouped import by_groups


class Experts(torch.nn.Module):
    def __init__(self, groups: int) -> None:
        super().__init__()
        self.weights = torch.nn.Parameter(torch.randn(groups, 8, 16))

    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        return torch._grouped_mm(x, self.weights, offs=ends)


@pytest.mark.parametrize("ends", [[2, 2, 5, 9], [0, 0, 0, 9], [9, 9, 9, 9]])
@pytest.mark.parametrize("rows", [3, 9])
def test_each_group_meets_its_matrix(rows: int, ends: list[int]) -> None:
    # the only type with a meta kernel in torch
    model, x = Experts(4).bfloat16().eval(), torch.randn(rows, 8).bfloat16()
    given = torch.tensor(ends, dtype=torch.int32).clamp(max=rows)
    with torch.no_grad():
        found = lower_to_mgx(model, (x, given), target="cpu")(x, given)
        torch.testing.assert_close(found, model(x, given), rtol=1.6e-2, atol=1e-2)


@pytest.mark.parametrize("rows", [3, 9])
def test_rows_after_the_last_group_give_zeros_without_affecting_others(rows: int) -> None:
    x, ends = torch.randn(rows, 8), torch.tensor([1, 1, 2, 2])
    x[-1] = torch.inf
    weights = torch.randn(4, 8, 16)
    want = torch.zeros(rows, 16)
    want[0], want[1] = x[0] @ weights[0], x[1] @ weights[2]
    torch.testing.assert_close(by_groups(x, weights, ends), want, rtol=1e-5, atol=1e-5)
