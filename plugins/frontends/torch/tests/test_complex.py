"""Complex numbers: functions, movement, operators that torch decomposes, gradients of spectra."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

COMPLEX_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1, "log": torch.log, "log2": torch.log2, "log10": torch.log10,
    "log1p": torch.log1p, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "sin": torch.sin, "cos": torch.cos, "tan": torch.tan,
    "sinh": torch.sinh, "cosh": torch.cosh, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "reciprocal": torch.reciprocal,
    "sgn": torch.sgn, "abs": torch.abs, "square": torch.square,
}  # fmt: skip

Same = Callable[..., None]  # the fixture that compares with eager torch


@pytest.mark.parametrize("name", COMPLEX_FUNCTIONS)
def test_functions_of_complex_numbers(name: str, same: Same) -> None:
    parts = [-30.0, -2.5, -1.0, -1e-3, 0.0, 1e-3, 0.5, 1.0, 3.0, 30.0]
    z = torch.complex(*torch.meshgrid(torch.tensor(parts), torch.tensor(parts), indexing="ij"))
    if name in ("log", "log2", "log10", "rsqrt", "reciprocal"):
        z = z[z != 0]
    if name == "log1p":
        z = z[z != -1]
    same(COMPLEX_FUNCTIONS[name], z, tolerance=2e-5)


def test_complex_numbers_at_the_ends_of_their_range(same: Same) -> None:
    z = torch.tensor([1e30 + 1e30j, 1e-30 - 1e-30j, 3e38 + 1j, 2j])
    same(lambda z: (z.abs(), 1 / z, z / (z * 0.5), z.sgn()), z)


def test_powers_of_complex_numbers(same: Same) -> None:
    z, w = torch.randn(2, 5, dtype=torch.cfloat).unbind()
    z[0] = 0
    same(lambda z, w: (z**2, z**3, z**0.5, z**2.5, z ** (1 + 1j), z.abs() ** w, 2**w, z**0, (z + 1) ** w), z, w)


def test_negative_powers_of_zero_are_not_finite() -> None:
    def powers(z: torch.Tensor, w: torch.Tensor) -> Any:
        return z**-1, z**-1.5, z ** (-1 + 1j), z**w

    z, w = torch.zeros(1, dtype=torch.cfloat), torch.full((3,), -2 + 0j)
    for made in torch.compile(powers, backend="mgx", options={"strict": True})(z, w):
        assert not made.isfinite().any()


def test_a_root_has_the_sign_of_a_zero(same: Same) -> None:
    z = torch.tensor([complex(-4, 0.0), complex(-4, -0.0), complex(4, -0.0), complex(-0.0, -0.0)])
    same(lambda z: (z.sqrt(), z**0.5, z[:3].rsqrt()), z)


def test_tensors_of_one_value_in_the_shape_of_complex_ones(same: Same) -> None:
    def made(z: torch.Tensor) -> Any:
        real = (
            torch.zeros_like(z, dtype=torch.float32),
            torch.full_like(z, 2.5, dtype=torch.float64),
            z.new_ones(3, dtype=torch.int64),
        )
        return (
            *real,
            z.new_full((2,), 7, dtype=torch.int32),
            torch.full_like(z, 2 - 1j),
            z.clone().fill_(z[0]),
            z.new_zeros(1),
        )

    same(made, torch.randn(4, dtype=torch.cfloat))


def test_parts_of_complex_tensors_move_equally(same: Same) -> None:
    def moved(z: torch.Tensor, w: torch.Tensor) -> Any:
        i = torch.tensor([[0, 2], [1, 0]])
        mask = z.real > 0
        return (
            z.cumsum(1), F.pad(z, (1, 2), value=3.0), F.pad(z, (1, 1), mode="reflect"), z.scatter(0, i, 2.0),
            z.scatter_add(0, i, w[:2, :2]), z.index_add(0, i[0], w[:2]), z.index_copy(1, i[0], w[:, :2]), z.take(i),
            z.masked_fill(mask, 1j), torch.where(mask, z, w), z.masked_scatter(mask, w), z.index_put((i[0],), w[0]),
            z.new_zeros(2), z.new_full((2,), 1 + 2j), torch.full_like(z, 3), torch.ones_like(z), z.diag_embed()[0],
            F.unfold(z[None, None], 2), torch.block_diag(z, w), z.rot90(), torch.eye(3, dtype=torch.cfloat) * z[:, :3],
        )  # fmt: skip

    same(moved, *torch.randn(2, 3, 4, dtype=torch.cfloat).unbind())


def test_complex_operators_that_are_made_of_others(same: Same) -> None:
    def made(z: torch.Tensor, w: torch.Tensor) -> Any:
        return (
            torch.addmm(z, z, w, beta=0.5, alpha=1j), F.linear(z, w, z[0]), torch.lerp(z, w, 0.3), torch.addcmul(z, z, w),
            torch.addcdiv(z, z, w, value=2), torch.add(z, w, alpha=1 + 1j), torch.rsub(z, w, alpha=2), F.silu(z),
            torch.baddbmm(z[None], z[None], w[None]), z[0] @ w, torch.dot(z[0], w[0]), torch.vdot(z[0], w[0]), z @ w[:, 0],
            1 - z, 2 / z,
        )  # fmt: skip

    same(made, *torch.randn(2, 4, 4, dtype=torch.cfloat).unbind(), tolerance=1e-4)


def test_statements_about_complex_numbers(same: Same) -> None:
    def stated(z: torch.Tensor, w: torch.Tensor) -> Any:
        return (
            z == w, z != w, z == 1, z.isnan(), z.isinf(), z.any(1), z.all(0), z.logical_not(), z.logical_and(w),
            z.logical_xor(w), torch.isreal(z), z.isfinite(), w.norm(), w.norm(dim=1, p=1),
            torch.linalg.vector_norm(w, 3), w.var(1), w.std(), torch.count_nonzero(z), torch.isclose(z, w), w.mean(0),
        )  # fmt: skip

    z, w = torch.randn(2, 3, 4, dtype=torch.cfloat).unbind()
    z[0, 0], z[1, 1], z[2, 2], z[1, 2], w[0, 1] = complex("nan"), complex("inf"), 0, 1, z[0, 1]
    same(stated, z, w)


def test_gradient_of_a_spectrum_is_supported() -> None:
    x = torch.randn(3, 8, requires_grad=True)

    def loss(x: torch.Tensor) -> torch.Tensor:
        spectrum = torch.fft.rfft(x)
        return torch.fft.irfft(spectrum * (1 + 2j), n=8).sin().sum() + spectrum.abs().sum()

    (want,) = torch.autograd.grad(loss(x), x)
    (got,) = torch.autograd.grad(torch.compile(loss, backend="mgx", options={"strict": True})(x), x)
    torch.testing.assert_close(got, want)


def test_parts_of_a_graph_may_give_one_complex_tensor() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.inv(torch.complex(x, x + torch.eye(3))) * 2  # torch runs the inverse

    x = torch.randn(3, 3)
    torch.testing.assert_close(torch.compile(function, backend="mgx")(x), function(x))


def test_complex_results_have_eagers_memory_order() -> None:
    def spectrum(x: torch.Tensor) -> torch.Tensor:
        return torch.stft(x, 16, 4, window=torch.hann_window(16), return_complex=True)

    x = torch.randn(2, 64)
    found, want = torch.compile(spectrum, backend="mgx", options={"strict": True})(x), spectrum(x)
    assert not want.is_contiguous()
    assert found.stride() == want.stride()
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-5)
