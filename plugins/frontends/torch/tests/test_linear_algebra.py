"""Inverses, determinants, linear systems and factorizations: exported programs compute them, compiled graphs leave them to torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import mgx_core
from mgx_torch import explain, from_exported, lower_to_mgx

Called = Callable[[Callable[..., Any]], nn.Module]  # the fixture that makes a module of a function


def matrices() -> torch.Tensor:
    a = torch.randn(3, 4, 4)
    return a @ a.transpose(1, 2) + torch.eye(4)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_inverses_and_determinants(called: Called, kind: torch.dtype) -> None:
    a = matrices().to(kind)
    model = called(lambda a: (torch.linalg.inv(a), a.inverse()[0], torch.linalg.det(a), a[1].det()))
    torch.testing.assert_close(lower_to_mgx(model, [a])(a), model(a), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("lens", "left"),
    [((3, 4, 2), True), ((3, 4), True), ((4, 2), True), ((3, 2, 4), False), ((5, 1, 4, 2), True), ((2, 4), False)],
)
def test_linear_systems(called: Called, lens: tuple[int, ...], left: bool) -> None:
    a, b = matrices(), torch.randn(lens)
    model = called(lambda a, b: torch.linalg.solve(a, b, left=left))
    torch.testing.assert_close(lower_to_mgx(model, [a, b])(a, b), model(a, b), rtol=1e-4, atol=1e-5)


def test_a_system_of_one_vector(called: Called) -> None:
    a, b = matrices()[0], torch.randn(4)
    model = called(torch.linalg.solve)
    torch.testing.assert_close(lower_to_mgx(model, [a, b])(a, b), model(a, b), rtol=1e-4, atol=1e-5)


def test_singular_matrices_are_rejected(called: Called) -> None:
    model = called(torch.linalg.inv)
    with pytest.raises(mgx_core.ParameterError, match=r"linalg_inv.*singular"):
        lower_to_mgx(model, [matrices()])(torch.zeros(3, 4, 4))
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        torch.compile(model, backend="mgx")(torch.zeros(3, 4, 4))


def test_the_compiled_graph_around_an_inverse_runs_on_mgx(called: Called) -> None:
    a = matrices()
    model = called(lambda a: torch.linalg.inv(a.exp() + 9 * torch.eye(4)) @ a + 1)
    torch.testing.assert_close(torch.compile(model, backend="mgx")(a), model(a), rtol=1e-4, atol=1e-5)


def test_a_factorization_without_converter_is_named(called: Called) -> None:
    """Its check orders effects by a token, which is not what the message is about."""
    exported = torch.export.export(called(torch.linalg.ldl_factor), (matrices(),))
    with pytest.raises(mgx_core.UnsupportedError, match=r"no converter for aten::linalg_ldl_factor_ex"):
        from_exported(exported)


TALL, WIDE = torch.randn(2, 5, 3), torch.randn(2, 3, 5)
LA = torch.linalg


OF_REGULAR: list[Callable[..., Any]] = [
    lambda a: LA.cholesky(a),
    lambda a: LA.cholesky(a, upper=True),
    lambda a: LA.cholesky_ex(a),
    lambda a: torch.cholesky_solve(a[..., :2], LA.cholesky(a)),
    lambda a: torch.cholesky_solve(a[..., :2], a, upper=True),
    torch.cholesky_inverse,
    LA.eigvalsh,
    lambda a: tuple(LA.slogdet(a)),
    torch.logdet,
    lambda a: LA.lu_solve(*LA.lu_factor(a), a[..., :2]),
    lambda a: LA.lu_solve(*LA.lu_factor(a + a.tril()), a[..., :2], adjoint=True),
    lambda a: LA.lu_solve(*LA.lu_factor(a + a.tril()), a[..., :2, :], left=False),
    lambda a: LA.solve_triangular(a, a[..., :2], upper=True),
    lambda a: LA.solve_triangular(a[0], a[..., :2], upper=False, unitriangular=True),
    lambda a: LA.solve_triangular(a, a[..., :2, :], upper=True, left=False),
    lambda a: torch.triangular_solve(a[..., :2], a, upper=False, transpose=True).solution,
    lambda a: tuple(LA.inv_ex(a)),
    lambda a: tuple(LA.solve_ex(a, a[..., :2])),
    lambda a: LA.solve_ex(a, a[..., 0]).result,
    lambda a: LA.tensorinv(a[0].reshape(4, 2, 2), ind=1),
    lambda a: LA.pinv(a, hermitian=True),
    lambda a: LA.pinv(a.tril(), hermitian=True),
    lambda a: tuple(LA.inv_ex(a[:, :0, :0])),
    lambda a: torch.matrix_exp(a.tril() - a.triu(1)),
    lambda a: torch.matrix_exp(1e-3 * a),
    lambda a: LA.matrix_power(a, -2),
    LA.cond,
]
OF_TALL: list[Callable[..., Any]] = [
    LA.svdvals,
    lambda a: tuple(LA.lu(a)),
    lambda a: tuple(LA.lu_factor(a)),
    LA.pinv,
    lambda a: LA.pinv(a, rtol=0.5),
    lambda a: LA.matrix_norm(a, 2),
    lambda a: LA.matrix_norm(a, "nuc"),
    lambda a: LA.householder_product(a, a[..., 0, :2]),
    *([LA.polar] if hasattr(LA, "polar") else []),
]
OF_SINGULAR: list[Callable[..., Any]] = [
    lambda a: tuple(LA.slogdet(a)),
    lambda a: LA.inv_ex(a).info,
]
OF_WIDE: list[Callable[..., Any]] = [
    lambda a: tuple(LA.lu(a)),
    lambda a: tuple(torch.lu_unpack(*LA.lu_factor(a))),
    LA.pinv,
    LA.matrix_rank,
]


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("functions", "a"),
    [(OF_REGULAR, matrices()), (OF_TALL, TALL), (OF_WIDE, WIDE), (OF_SINGULAR, torch.ones(2, 3, 3))],
)
def test_factorizations(
    called: Called, functions: list[Callable[..., Any]], a: torch.Tensor, kind: torch.dtype
) -> None:
    a = a.to(kind)
    module = called(lambda a: tuple(tuple(f) if isinstance(f, tuple) else f for f in (call(a) for call in functions)))
    bound = 1e-3 if kind is torch.float32 else 1e-9
    torch.testing.assert_close(lower_to_mgx(module, [a])(a), module(a), rtol=bound, atol=bound)


@pytest.mark.parametrize("dims", [(0, 0), (2, 0, 0), (0, 3, 3), (2, 0, 3)])
def test_factorizations_without_elements(called: Called, dims: tuple[int, ...]) -> None:
    module, a = called(lambda a: (LA.lu_factor_ex(a), LA.lu(a), LA.svdvals(a))), torch.zeros(dims)
    found, wanted = lower_to_mgx(module, [a])(a), module(a)
    torch.testing.assert_close(found, tuple(map(tuple, wanted[:2])) + wanted[2:], rtol=0, atol=0)


def test_the_place_of_the_first_zero_pivot(called: Called) -> None:
    a = torch.diag_embed(torch.tensor([[1.0, 2.0, 3.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 2.0, 0.0]]))
    assert lower_to_mgx(called(lambda a: LA.lu_factor_ex(a).info), [a])(a).tolist() == [0, 2, 1, 3]


@pytest.mark.parametrize("x", [TALL, WIDE])
@pytest.mark.parametrize("full", [False, True])
def test_factors_that_are_unique_up_to_signs(called: Called, x: torch.Tensor, full: bool) -> None:
    """Products are compared: the signs of columns depend on the library."""
    k = 3

    def svd(a: torch.Tensor) -> Any:
        u, s, v = LA.svd(a, full_matrices=full)
        return (u[..., :k] * s[..., None, :]) @ v[..., :k, :], u.mT @ u, v @ v.mT

    def qr(a: torch.Tensor) -> Any:
        q, r = LA.qr(a, mode="complete" if full else "reduced")
        return q @ r, q.mT @ q, r.abs(), LA.qr(a, mode="r").R.abs()

    def eigh(a: torch.Tensor) -> Any:
        values, vectors = LA.eigh(a @ a.mT, UPLO="U" if full else "L")
        return values, (vectors * values[..., None, :]) @ vectors.mT

    module = called(lambda a: (svd(a), qr(a), eigh(a)))
    torch.testing.assert_close(lower_to_mgx(module, [x])(x), module(x), rtol=1e-4, atol=1e-4)


def test_complex_eigenvalues_of_real_matrices(called: Called) -> None:
    a = torch.tensor([[0.0, -2.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 3.0]])

    def differences(a: torch.Tensor) -> torch.Tensor:
        values, vectors = LA.eig(a)
        return torch.view_as_real(a.to(vectors.dtype) @ vectors - vectors * values)

    torch.testing.assert_close(lower_to_mgx(called(differences), [a])(a), torch.zeros(3, 3, 2), rtol=0, atol=1e-5)
    values = lower_to_mgx(called(lambda a: torch.view_as_real(LA.eigvals(a))), [a])(a)
    found = sorted((round(real, 5), round(imag, 5)) for real, imag in values.tolist())
    assert found == [(0.0, -2.0), (0.0, 2.0), (3.0, 0.0)]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (LA.cholesky, r"'linalg_cholesky_ex.*not positive definite"),
        (lambda a: LA.cholesky_ex(a, check_errors=True).L, "not positive definite"),
        (lambda a: LA.lu_solve(*LA.lu_factor(a), a), r"'linalg_lu_factor_ex.*singular"),
        (lambda a: LA.solve_ex(a, a, check_errors=True).result, "singular"),
        (lambda a: LA.inv_ex(a, check_errors=True).inverse, "singular"),
    ],
)
def test_matrices_that_torch_rejects_are_rejected(called: Called, function: Callable[..., Any], message: str) -> None:
    module, bad = lower_to_mgx(called(function), [matrices()]), -torch.ones(3, 4, 4)
    module(matrices())
    with pytest.raises(RuntimeError):
        function(bad)
    with pytest.raises(mgx_core.ParameterError, match=message):
        module(bad)


def test_the_status_of_an_unchecked_factorization(called: Called) -> None:
    """The order of the first leading minor that is not positive definite, and the place of the first zero pivot."""
    definite = torch.diag(torch.tensor([2.0, 3.0, -1.0, 1.0]))
    singular = torch.diag(torch.tensor([1.0, 0.0, 2.0, 0.0]))
    a = torch.stack([definite, torch.eye(4), singular])
    module = called(lambda a: (LA.cholesky_ex(a).info, LA.inv_ex(a).info, LA.lu_factor_ex(a).info))
    torch.testing.assert_close(lower_to_mgx(module, [a])(a), module(a))
    assert module(a)[0].tolist() == [3, 0, 2]


def test_dynamic_extents(called: Called) -> None:
    rows = torch.export.Dim("rows", min=4, max=9)
    module = called(lambda a: (LA.qr(a).R.abs(), LA.svdvals(a), LA.pinv(a)))
    lowered = lower_to_mgx(module, [TALL], dynamic_shapes=(({1: rows},),))
    for x in (TALL, torch.randn(2, 8, 3)):
        torch.testing.assert_close(lowered(x), module(x), rtol=1e-4, atol=1e-4)


def test_compiled_graphs_leave_factorizations_to_torch_unless_they_may_not(called: Called) -> None:
    model = called(lambda a: LA.cholesky_ex(a.exp() + 99 * torch.eye(4)).L + 1)
    a = matrices().clamp(-1, 1)
    found = explain(model, a)
    assert not found.whole
    assert "torch has libraries" in str(found)
    strict = torch.compile(model, backend="mgx", options={"strict": True})
    torch.testing.assert_close(strict(a), model(a), rtol=1e-4, atol=1e-5)
