"""Inverses, determinants and linear systems: exported programs compute them, compiled graphs leave them to torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import mgx_core
from mgx_torch import from_exported, lower_to_mgx


class Called(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


def matrices() -> torch.Tensor:
    a = torch.randn(3, 4, 4)
    return a @ a.transpose(1, 2) + torch.eye(4)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_inverses_and_determinants(kind: torch.dtype) -> None:
    a = matrices().to(kind)
    model = Called(lambda a: (torch.linalg.inv(a), a.inverse()[0], torch.linalg.det(a), a[1].det()))
    torch.testing.assert_close(lower_to_mgx(model, [a])(a), model(a), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("lens", "left"),
    [((3, 4, 2), True), ((3, 4), True), ((4, 2), True), ((3, 2, 4), False), ((5, 1, 4, 2), True), ((2, 4), False)],
)
def test_linear_systems(lens: tuple[int, ...], left: bool) -> None:
    a, b = matrices(), torch.randn(lens)
    model = Called(lambda a, b: torch.linalg.solve(a, b, left=left))
    torch.testing.assert_close(lower_to_mgx(model, [a, b])(a, b), model(a, b), rtol=1e-4, atol=1e-5)


def test_a_system_of_one_vector() -> None:
    a, b = matrices()[0], torch.randn(4)
    model = Called(torch.linalg.solve)
    torch.testing.assert_close(lower_to_mgx(model, [a, b])(a, b), model(a, b), rtol=1e-4, atol=1e-5)


def test_singular_matrices_are_rejected() -> None:
    model = Called(torch.linalg.inv)
    with pytest.raises(mgx_core.ParameterError, match=r"'linalg_inv.*singular"):
        lower_to_mgx(model, [matrices()])(torch.zeros(3, 4, 4))
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        torch.compile(model, backend="mgx")(torch.zeros(3, 4, 4))


def test_the_compiled_graph_around_an_inverse_runs_on_mgx() -> None:
    a = matrices()
    model = Called(lambda a: torch.linalg.inv(a.exp() + 9 * torch.eye(4)) @ a + 1)
    torch.testing.assert_close(torch.compile(model, backend="mgx")(a), model(a), rtol=1e-4, atol=1e-5)


def test_a_factorization_without_converter_is_named() -> None:
    """Its check orders effects by a token, which is not what the message is about."""
    exported = torch.export.export(Called(torch.linalg.cholesky), (matrices(),))
    with pytest.raises(mgx_core.UnsupportedError, match="no converter for aten::linalg_cholesky_ex"):
        from_exported(exported)
