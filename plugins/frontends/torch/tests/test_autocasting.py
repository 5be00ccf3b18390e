"""Casts of autocast in exported programs: element types and values equal the module's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from mgx_torch import lower_to_mgx


class Mixed(nn.Module):
    """Operators that autocast does not cast, although it casts the products in their decompositions."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.cell, self.both = nn.LSTM(8, 6, batch_first=True), nn.GRUCell(8, 8), nn.Bilinear(8, 8, 3)

    def forward(self, x: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = torch.einsum("bij,bkj->bik", x, x), self.lstm(x)[0], self.cell(x[0]), self.both(x, x)
            found = *found, torch.einsum("bij,bkj->bik", found[1], found[1]).float()
        return found, torch.einsum("bij,bkj->bik", x, x)


@pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(),
    reason="torch itself rejects an LSTM under autocast on processors without AVX-512",
)
def test_autocast_within_an_exported_program_casts_as_torch_does() -> None:
    module, x = Mixed().eval(), torch.randn(2, 5, 8)
    with torch.no_grad():
        want = module(x)
    got = lower_to_mgx(module, [x])(x)
    assert want[0][0].dtype is torch.bfloat16
    torch.testing.assert_close(got, want, rtol=2e-2, atol=3e-2)


class Nested(nn.Module):
    """Einsums whose operands are half floats, results of others, or captured by a branch: inputs of regions are named like
    operators.
    """

    def forward(self, x: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.einsum("ij,kj->ik", x, x.half())
            with torch.autocast("cpu", enabled=False):
                z = torch.einsum("ij,kj->ik", y.float(), x[:, :5])
        return y, z


class Branched(nn.Module):
    """A branch in a region: torch.export encloses it in calls instead of a graph."""

    def forward(self, x: torch.Tensor) -> Any:
        def product(x: torch.Tensor) -> torch.Tensor:
            return torch.einsum("ij,kj->ik", x, x)

        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = torch.cond(x.sum() > 0, product, lambda x: product(x) * 2, (x,))
        return found, product(x)


@pytest.mark.parametrize("module", [Nested(), Branched()])
def test_regions_of_autocast_within_others_or_around_branches(module: nn.Module) -> None:
    x = torch.randn(5, 8)
    want = module(x)
    assert [w.dtype for w in want] == [torch.bfloat16, torch.float32]
    torch.testing.assert_close(lower_to_mgx(module, [x])(x), want, rtol=2e-2, atol=3e-2)


def test_autocast_around_an_export_casts_as_torch_does() -> None:
    class Product(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.einsum("ij,kj->ik", x, x)

    x = torch.randn(3, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        lowered, want = lower_to_mgx(Product(), [x]), Product()(x)
    torch.testing.assert_close(lowered(x), want, rtol=2e-2, atol=3e-2)
