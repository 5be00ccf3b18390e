"""Decomposed functions: lgamma, digamma, cummax, searchsorted, FFT frequencies."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from mgx_torch import from_exported, lower_to_mgx

Same = Callable[..., None]  # the fixture that compares with eager torch
HOLES = torch.tensor(
    [[3.0, 1.0, 3.0, math.nan, 2.0, math.nan, 9.0], [5.0, 4.0, -math.inf, 5.0, math.inf, math.inf, 1.0]]
)


@pytest.mark.parametrize("function", [torch.lgamma, torch.digamma])
def test_gamma_functions_near_their_zeros_and_poles(function: Any, same: Same) -> None:
    near = torch.cat([torch.linspace(0.9, 1.1, 41), torch.linspace(1.4, 2.1, 41), torch.linspace(-4.45, -0.05, 9)])
    far = torch.tensor([1e-30, 1e-6, 0.5, 9.99, 10.0, 10.01, 33.0, 1e4, 1e10, 1e30, -0.25, -100.3])
    ends = torch.tensor([0.0, -0.0, -1.0, -7.0, math.inf, -math.inf, math.nan])
    for part in (near, far):
        torch.testing.assert_close(
            torch.compile(function, backend="mgx")(part), function(part.double()).float(), rtol=1e-6, atol=2e-7
        )
    same(function, ends)
    same(function, torch.cat([near, far]).double(), tolerance=1e-10)
    same(function, torch.arange(1, 6))
    same(function, near.bfloat16(), tolerance=2e-2)


def test_bessel_functions(same: Same) -> None:
    x = torch.cat(
        [torch.linspace(-60, 60, 97), torch.tensor([0.0, 1e-30, 19.999, 20.0, 20.001, 1e4, math.nan])]
    ).double()
    special = torch.special
    same(lambda x: (special.i0(x), special.i0e(x), special.i1(x), special.i1e(x)), x, tolerance=1e-13)
    same(lambda x: (torch.i0(x), special.i1e(x)), x.float())
    same(torch.i0, torch.arange(5))


def test_oscillating_bessel_functions(same: Same) -> None:
    special = torch.special
    x = torch.cat([torch.linspace(-60, 60, 97), torch.tensor([0.0, 1e-30, 19.999, 20.0, 20.001, math.nan])]).double()
    same(lambda x: (special.bessel_j0(x), special.bessel_j1(x), special.spherical_bessel_j0(x)), x, tolerance=3e-7)
    same(lambda x: (special.bessel_y0(x), special.bessel_y1(x)), x, tolerance=3e-7)  # torch's own error
    same(lambda x: (special.bessel_j0(x), special.bessel_y1(x)), x[:-4].float())
    same(special.bessel_j0, torch.arange(5))
    compiled = torch.compile(
        lambda x: (special.bessel_j0(x), special.bessel_j1(x), special.bessel_y0(x), special.bessel_y1(x)),
        backend="mgx",
    )
    exact = [  # at 1 and 30
        [0.7651976865579666, -0.08636798358104251],
        [0.4400505857449335, -0.11875106261662294],
        [0.08825696421567696, -0.11729573168666417],
        [-0.7812128213002887, 0.08442557066175326],
    ]
    for found, want in zip(compiled(torch.tensor([1.0, 30.0]).double()), exact, strict=True):
        torch.testing.assert_close(found, torch.tensor(want, dtype=torch.float64), rtol=1e-13, atol=0)


def test_modified_bessel_functions_of_the_second_kind(same: Same) -> None:
    special = torch.special
    ends = torch.tensor([0.0, -0.0, -1.0, 1e-30, 1.999, 2.0, 2.001, 19.999, 20.0, 20.001, 1e4, math.inf, math.nan])
    x = torch.cat([torch.linspace(0.01, 60, 97), ends]).double()
    same(lambda x: (special.modified_bessel_k0(x), special.modified_bessel_k1(x)), x, tolerance=1e-13)
    same(lambda x: (special.scaled_modified_bessel_k0(x), special.scaled_modified_bessel_k1(x)), x, tolerance=1e-13)
    same(lambda x: (special.modified_bessel_i0(x), special.modified_bessel_i1(x)), x[:90], tolerance=1e-13)
    same(special.scaled_modified_bessel_k1, x.float())


def test_airy_function(same: Same) -> None:
    x = torch.cat([torch.linspace(-60, 60, 97), torch.tensor([-8.001, -8.0, -7.999, 0.0, 1.0, math.nan])]).double()
    same(torch.special.airy_ai, x, tolerance=3e-6)  # torch's own error
    found = torch.compile(torch.special.airy_ai, backend="mgx")(torch.tensor([-30.0, -2.0, 0.0, 5.0]).double())
    exact = [-0.08796818845684216, 0.22740742820168557, 0.355028053887817239, 1.0834442813607442e-04]
    torch.testing.assert_close(found, torch.tensor(exact, dtype=torch.float64), rtol=1e-12, atol=0)


def test_normal_quantiles_and_scaled_tails(same: Same) -> None:
    special = torch.special
    tails = torch.tensor(
        [1e-300, 1e-30, 1e-10, 0.099, 0.1, 0.101, 0.5, 0.9, 0.999999, 0.0, 1.0, -0.1, 1.1, math.nan]
    ).double()
    same(special.ndtri, torch.cat([torch.linspace(0, 1, 99).double(), tails]), tolerance=1e-14)
    same(special.ndtri, tails[1:].float(), tolerance=1e-6)
    x = torch.cat([torch.linspace(-5, 30, 99), torch.tensor([0.0, 6.283, 6.284, 1e4, math.inf, -math.inf, math.nan])])
    same(lambda x: (special.erfcx(x), special.log_ndtr(-x)), x.double(), tolerance=1e-14)
    same(special.erfcx, x, tolerance=1e-6)


@pytest.mark.parametrize("degree", [-1, 0, 1, 2.7, 9])
def test_orthogonal_polynomials(degree: float, same: Same) -> None:
    special = torch.special
    chebyshev = [getattr(special, f"{s}chebyshev_polynomial_{k}") for s in ("", "shifted_") for k in "tuvw"]
    same(lambda x: [f(x, degree) for f in chebyshev], torch.linspace(-1.5, 1.5, 31).double(), tolerance=1e-12)
    others = (
        special.hermite_polynomial_h,
        special.hermite_polynomial_he,
        special.laguerre_polynomial_l,
        special.legendre_polynomial_p,
    )
    same(lambda x: [f(x, degree) for f in others], torch.linspace(-3, 3, 31).double(), tolerance=1e-12)
    same(lambda x: [f(x, degree) for f in others], torch.arange(4))


def test_trigamma(same: Same) -> None:
    x = torch.cat([torch.linspace(-4.45, 30, 80), torch.tensor([1e-30, 1e6, 0.5, 9.999, 10.0, math.inf, math.nan])])
    same(lambda x: (torch.polygamma(1, x), torch.polygamma(0, x)), x.double(), tolerance=2e-9)  # torch's own error
    same(lambda x: torch.polygamma(1, x), x[:-6])
    known = torch.tensor([0.5, 1.0, -0.5], dtype=torch.float64)
    found = torch.compile(lambda x: torch.polygamma(1, x), backend="mgx")(known)
    exact = torch.tensor([0.5, 1 / 6, 0.5], dtype=torch.float64) * math.pi**2 + torch.tensor([0.0, 0.0, 4.0])
    torch.testing.assert_close(found, exact, rtol=1e-14, atol=0)


def test_zeta_and_polygamma(same: Same) -> None:
    ends = torch.tensor([0.0, -1.0, 1.0, 1e5, 1e-3, math.inf, math.nan])
    q = torch.cat([torch.linspace(-30.3, 30, 80), ends]).double()
    orders = torch.tensor([1.0, 2.0, 3.0, 2.5, 12.0, 40.0, 0.5]).double()[:, None]
    same(torch.special.zeta, orders, q, tolerance=1e-10)
    same(lambda x: (torch.special.zeta(3, x), torch.special.zeta(x.abs() + 1, 2)), q[:-3].float())
    same(lambda x: [torch.polygamma(n, x) for n in (2, 3, 4, 7)], q[:80], tolerance=1e-9)
    same(lambda x: torch.polygamma(2, x), torch.arange(1, 9))
    same(lambda x: (torch.polygamma(3, x), torch.special.zeta(4, x)), torch.tensor([-math.inf, -2.0]))


def test_incomplete_gamma_functions(same: Same) -> None:
    a = torch.tensor([0.0, 1e-3, 0.5, 1.0, 9.5, 40.0, 2e5, math.inf, -1.0]).double()[:, None]
    x = torch.tensor([0.0, 1e-3, 0.5, 1.5, 9.0, 44.0, 2.001e5, -1.0]).double()
    same(lambda a, x: (torch.igamma(a, x), torch.igammac(a, x)), a, x, tolerance=1e-8)
    same(torch.special.gammainc, a.float(), x[1].float())


@pytest.mark.parametrize("x", [torch.randn(3, 50).round(), torch.randn(3, 50).mul(2).long()])
def test_modes(x: torch.Tensor, same: Same) -> None:
    """Of several indices of the mode, torch may return any."""
    same(lambda x: (x.mode(1).values, x.mode(0, keepdim=True).values), x)
    found = torch.compile(torch.mode, backend="mgx", options={"strict": True})(x)
    assert torch.equal(x.gather(1, found.indices[:, None])[:, 0], found.values)


@pytest.mark.parametrize("kind", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_divisors_and_multiples(kind: torch.dtype, same: Same) -> None:
    """Quotients of two Pell numbers take the most steps, and multiples of them wrap."""
    limits, pell = torch.iinfo(kind), [1, 2]
    while 2 * pell[-1] + pell[-2] <= limits.max:
        pell.append(2 * pell[-1] + pell[-2])
    x = torch.tensor([0, 0, 5, limits.max, limits.max, pell[-1], pell[-2], 12, 90], dtype=kind)
    y = torch.tensor([0, 7, 0, limits.max - 1, limits.max, pell[-2], pell[-1], 18, 84], dtype=kind)
    same(torch.gcd, x, y)
    same(torch.lcm, x, y)
    same(torch.lcm, x[-4:-2], y[-4:-2] - 2)
    if kind.is_signed:
        same(lambda x, y: (torch.gcd(x, y), torch.lcm(x, y)), x[-2:], -y[-2:])
        same(lambda x, y: torch.gcd(x[:, None], y), x, torch.tensor([4, 6]))
        lowest, others = torch.full((5,), limits.min, dtype=kind), torch.tensor([0, 1, -3, 64, 127], dtype=kind)
        for given in ((lowest, others), (others, lowest)):  # eager torch returns negative numbers for some
            found = torch.compile(torch.gcd, backend="mgx")(*given)
            assert found.tolist() == [limits.min, 1, 1, 64, 1]


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_representations_of_numbers(kind: torch.dtype, same: Same) -> None:
    """Neighbors and exponents, also of zeros, subnormal and infinite numbers."""
    limits = torch.finfo(kind)
    values = [
        0.0,
        -0.0,
        1.0,
        0.5,
        -3.7,
        limits.tiny,
        -limits.tiny / 2,
        limits.tiny / 64,
        limits.max,
        math.inf,
        -math.inf,
    ]
    x = (
        torch.tensor([*values, math.nan]).to(kind)
        if kind is not torch.float64
        else torch.tensor([*values, math.nan]).double()
    )
    same(lambda x: torch.frexp(x).mantissa, x, tolerance=0.0)
    same(lambda x: torch.frexp(x).exponent, x[:-3])
    if kind is not torch.float16:  # for which torch has no kernel
        same(lambda x: (torch.nextafter(x[:, None], x), 1 / torch.nextafter(x[:, None], x)), x, tolerance=0.0)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("initial", [None, 2.0])
def test_reductions_of_segments(reduce: str, initial: float | None, same: Same) -> None:
    same(lambda x, n: torch.segment_reduce(x, reduce, lengths=n, initial=initial), HOLES.T, torch.tensor([2, 0, 4, 1]))
    same(
        lambda x, at: torch.segment_reduce(x, reduce, offsets=at, initial=initial), HOLES[0], torch.tensor([0, 3, 3, 7])
    )
    rows = torch.tensor([[2, 0, 3, 1], [1, 1, 1, 3]])
    same(
        lambda x, n: torch.segment_reduce(x, reduce, lengths=n, axis=1, initial=initial, unsafe=True),
        torch.randn(2, 6, 3),
        rows,
    )


@pytest.mark.parametrize("density", [False, True])
def test_histograms(density: bool, same: Same) -> None:
    x, weight = torch.tensor([[-1.0, 2.0, 3.0], [5.0, 5.0, 1.1]]), torch.rand(2, 3)
    same(lambda x: tuple(torch.histogram(x, 5, density=density)), x)
    same(lambda x: tuple(torch.histogram(x, 4, range=(1.0, 5.0), density=density)), torch.cat([x[0], HOLES[0]]))
    same(lambda x: tuple(torch.histogram(x, 3, range=(2.0, 2.0))), x.double())
    same(lambda x: tuple(torch.histogram(x[:, :1] * 0, 3)), x)
    edges = torch.tensor([-1.0, 1.0, 1.5, 5.0])
    same(lambda x, e, w: tuple(torch.histogram(x, e, weight=w, density=density)), x, edges, weight)


def test_functions_of_scalars(same: Same) -> None:
    x = torch.tensor(3.0)
    same(lambda x: (x.kthvalue(1), x.cummax(0), x.cummin(-1), x.logcumsumexp(0)), x)


def test_real_angles_distances_and_medians_without_nan(same: Same) -> None:
    same(torch.angle, torch.tensor([1.0, -1.0, 0.0, -0.0, math.nan, -math.inf]))
    same(torch.angle, torch.arange(-2, 2))
    same(lambda x: (torch.dist(x, x[0] * 2, 3), torch.dist(x, x.T[:1].T)), torch.randn(4, 5))
    same(lambda x: (torch.nanmedian(x), torch.nanmedian(torch.arange(6) + x[0, :1].long())), HOLES)
    same(
        lambda x: (torch.argsort(x, stable=True), torch.argsort(x, dim=0, descending=True, stable=True)),
        torch.randn(4, 5).round(),
    )
    same(lambda x: torch.narrow_copy(x, 1, -2, 2), torch.randn(4, 5))


def test_gradients_of_distributions_are_eagers() -> None:
    def log_likelihood(a: torch.Tensor, b: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        gamma = torch.distributions.Gamma(a.exp(), b.exp(), validate_args=False)
        student = torch.distributions.StudentT(a.exp() + 1, validate_args=False)
        return gamma.log_prob(x).sum() + student.log_prob(x).sum()

    found = []
    values = torch.randn(2, 5), torch.rand(5) + 0.1
    for call in (log_likelihood, torch.compile(log_likelihood, backend="mgx")):
        given = values[0].clone().requires_grad_()
        call(given[0], given[1], values[1]).backward()
        assert given.grad is not None
        found.append(given.grad)
    torch.testing.assert_close(found[1], found[0])


def test_signs_of_zeros_and_nan_are_copied(same: Same) -> None:
    size = torch.tensor([1.0, -2.0, 0.0, -0.0, math.inf, math.nan])
    sign = torch.tensor([-0.0, 0.0, -1.0, 5.0, -math.inf, -1.0])
    same(lambda x, y: (1 / torch.copysign(x, y), 1 / torch.copysign(x, -0.0), torch.copysign(x, 2)), size, sign)
    same(lambda x, y: (torch.copysign(x, y), torch.copysign(y.double(), x)), torch.arange(-2, 4), sign)


@pytest.mark.parametrize("function", [torch.cummax, torch.cummin])
def test_running_extremes_use_the_last_position_and_keep_nan(function: Any, same: Same) -> None:
    same(lambda x: (function(x, 1), function(x, 0)), HOLES)
    same(lambda x: (function(x, -1), function(x[:, :1], -1), function(x[:0], 0)), torch.randint(0, 5, (3, 17)))


def test_logarithms_of_running_sums_do_not_overflow(same: Same) -> None:
    same(lambda x: (torch.logcumsumexp(x, 1), torch.logcumsumexp(x, 0)), torch.randn(3, 13) * 100)
    same(lambda x: torch.logcumsumexp(x, 0), torch.tensor([-math.inf, -math.inf, 1.0, math.inf, 0.0]))
    same(lambda x: torch.logcumsumexp(x, 0), torch.randn(9).bfloat16(), tolerance=2e-2)


@pytest.mark.parametrize("right", [False, True])
def test_places_in_sorted_rows(right: bool, same: Same) -> None:
    rows, values = torch.randn(2, 3, 9).round(decimals=1), torch.randn(2, 3, 4).round(decimals=1)
    order = rows.argsort(-1)
    sought = torch.cat([values, torch.full((2, 3, 1), math.nan)], -1)
    same(lambda r, v, o: torch.searchsorted(r, v, right=right, sorter=o), rows, sought, order)
    line = torch.tensor([1, 2, 2, 5, 9])
    same(lambda s, v: torch.searchsorted(s, v, right=right, out_int32=True), line, torch.randint(0, 10, (2, 3)))
    same(lambda s, v: (torch.searchsorted(s, 2, right=right), torch.searchsorted(s, v)), line, torch.tensor(2))


def test_frequencies(same: Same) -> None:
    same(
        lambda x: tuple(x + f(n, 0.5).sum() for f in (torch.fft.fftfreq, torch.fft.rfftfreq) for n in (7, 8)),
        torch.ones(1),
    )
    same(lambda x: torch.fft.fftfreq(x.shape[0], dtype=torch.float64) * x.double(), torch.ones(5))


class Sampler(torch.nn.Module):
    """The inverse of a distribution function, as computed by hierarchical samplers of radiance fields."""

    def forward(self, weights: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        sums = torch.cumsum(weights / weights.sum(-1, keepdim=True), -1)
        above = torch.searchsorted(sums, at, right=True).clamp(max=weights.shape[-1] - 1)
        return torch.gather(sums, -1, above) + torch.lgamma(at + 1)


def test_exported_programs_accept_them_too() -> None:
    model, given = Sampler(), (torch.rand(4, 16), torch.rand(4, 6))
    module = lower_to_mgx(model, given)
    torch.testing.assert_close(module(*given), model(*given))
    rows = torch.export.Dim("rows")
    program = from_exported(torch.export.export(model, given, dynamic_shapes=({0: rows}, {0: rows})))
    assert program.get_parameter_names() == ["weights", "at"]
