"""NaN, infinities, signed zeros and values whose squares overflow: results equal torch's."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch

aten = torch.ops.aten
INFINITE = float("inf")
VALUES = (float("nan"), INFINITE, -INFINITE, 0.0, -0.0, 1.0, -1.0, 0.1, -0.1, 2.5, -3.0, 1e30, -1e30)
UNARY = (aten.sign.default, aten.sgn.default, aten.isnan.default, aten.isinf.default, aten.relu.default)
BINARY = (aten.floor_divide.default, aten.hypot.default, aten.maximum.default, aten.minimum.default)


def compare(op: Any, args: tuple[torch.Tensor, ...], target: str, overloads: ModuleType) -> None:
    (found,) = overloads.computed(op, args, {}, target)
    torch.testing.assert_close(found, op(*args), rtol=1e-5, atol=0, equal_nan=True)


@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_special_values(dtype: torch.dtype, target: str, overloads: ModuleType) -> None:
    x = torch.tensor(VALUES, dtype=dtype)
    for op in UNARY:
        compare(op, (x,), target, overloads)
    compare(aten.signbit.default, (x[1:],), target, overloads)  # torch's casts choose the sign of NaN
    pair = torch.cartesian_prod(x, x).t().contiguous()
    for op in BINARY:
        compare(op, (pair[0], pair[1]), target, overloads)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.int64])
def test_signs_of_whole_numbers(dtype: torch.dtype, overloads: ModuleType) -> None:
    x = torch.tensor([0, 1, -5, 127]).to(dtype)
    compare(aten.sign.default, (x,), "ref", overloads)
    compare(aten.signbit.default, (x,), "ref", overloads)


@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64])
def test_quotients_at_the_ends_of_the_range_are_rounded_down(
    dtype: torch.dtype, target: str, overloads: ModuleType
) -> None:
    ends = torch.iinfo(dtype)
    x, y = torch.cartesian_prod(
        torch.tensor([ends.min, ends.min + 1, -7, -6, 0, 6, 7, ends.max], dtype=dtype),
        torch.tensor([ends.min, -5, -3, 1, 3, 5, ends.max], dtype=dtype),
    ).T
    compare(aten.floor_divide.default, (x.contiguous(), y.contiguous()), target, overloads)


@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int64])
def test_whole_zero_to_a_negative_power_is_zero(dtype: torch.dtype, target: str, overloads: ModuleType) -> None:
    x, y = torch.cartesian_prod(torch.arange(-3, 4), torch.arange(-3, 9)).T
    compare(aten.pow.Tensor_Tensor, (x.to(dtype), y.to(dtype)), target, overloads)


@pytest.mark.parametrize("alpha", [True, False])
def test_sums_of_truths_weigh_the_second(alpha: bool, overloads: ModuleType) -> None:
    x, y = torch.tensor([[False, False, True, True], [False, True, False, True]])
    (found,) = overloads.computed(aten.add.Tensor, (x, y), {"alpha": alpha}, "ref")
    torch.testing.assert_close(found, torch.add(x, y, alpha=alpha))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_batch_norm_without_running_statistics_saves_those_of_torchs_type(
    dtype: torch.dtype, overloads: ModuleType
) -> None:
    x = torch.randn(4, 3, 5).to(dtype)
    op = aten._native_batch_norm_legit.no_stats
    found, want = (
        overloads.computed(op, (x, None, None, True, 0.1, 1e-5), {}, "ref"),
        op(x, None, None, True, 0.1, 1e-5),
    )
    for one, other in zip(found, want, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize(
    "dtype", [torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz]
)
def test_overflow_of_eight_bit_floats_equals_torchs(dtype: torch.dtype, target: str, overloads: ModuleType) -> None:
    x = torch.tensor([*VALUES, 241.0, 449.0, 58000.0, 61000.0])
    (found,) = overloads.computed(aten._to_copy.default, (x,), {"dtype": dtype}, target)
    torch.testing.assert_close(found.float(), x.to(dtype).float(), rtol=0, atol=0, equal_nan=True)


def test_an_empty_index_gathers_nothing_whatever_its_shape(overloads: ModuleType) -> None:
    (found,) = overloads.computed(
        aten.gather.default, (torch.ones(5), 0, torch.zeros(2, 0, dtype=torch.int64)), {}, "ref"
    )
    assert found.shape == (2, 0)


@pytest.mark.parametrize("op", [aten.sum.dim_IntList, aten.prod.dim_int])
def test_reductions_to_truth(op: Any, overloads: ModuleType) -> None:
    x, axis = torch.tensor([[0, 2, 1], [3, 1, -1], [0, 0, 0]]), [1] if op is aten.sum.dim_IntList else 1
    (found,) = overloads.computed(op, (x, axis, True), {"dtype": torch.bool}, "ref")
    torch.testing.assert_close(found, op(x, axis, True, dtype=torch.bool))


def test_powers_of_two_in_8_bits() -> None:
    def code(x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.float8_e8m0fnu).view(torch.uint8)

    inf, nan, least = float("inf"), float("nan"), 2.0**-127
    ties = [0.75, 0.7499999, 1.5, 1.4999, 3.0, -3.0, 2.0**127, 1.75 * 2.0**127, 1.25 * 2.0**127]
    x = torch.tensor([0.0, -0.0, least, 1.1 * least, 2 * least, 1e-45, inf, -inf, nan, *ties])
    assert torch.equal(torch.compile(code, backend="mgx", options={"strict": True})(x), code(x))


@pytest.mark.parametrize("product", [torch.matmul, torch.mm, lambda x, y: torch.nn.functional.linear(x, y.t())])
def test_products_of_two_element_types_are_refused_as_in_torch(product: Any) -> None:
    x, y = torch.randn(3, 4), torch.randn(4, 2, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="dtype"):
        torch.compile(lambda x, y: product(x, y) + 1, backend="mgx")(x, y)


@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize("right", [False, True])
def test_buckets_of_nan_and_of_other_types(right: bool, target: str, overloads: ModuleType) -> None:
    limits = torch.tensor([-0.5, 0.5, 2.0])
    for x in (torch.tensor(VALUES), torch.tensor([-1, 0, 1, 2, 3]), torch.tensor(float("nan"))):
        (found,) = overloads.computed(aten.bucketize.Tensor, (x, limits), {"right": right}, target)
        torch.testing.assert_close(found, torch.bucketize(x, limits, right=right))


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_factors_of_sums_with_products_are_not_rounded(kind: torch.dtype) -> None:
    """As of Muon's steps: each element is rounded once, where products of one term are exact."""
    x, y = torch.randn(8, 8).to(kind), torch.randn(8, 8).to(kind)
    compiled = torch.compile(lambda x, a, b: torch.addmm(x, a, b, beta=3.4445, alpha=-4.775), backend="mgx")
    want = 3.4445 * x.double() - 4.775 * y.double()
    eps = torch.finfo(kind).eps
    torch.testing.assert_close(compiled(x, torch.eye(8, dtype=kind), y).double(), want, rtol=eps / 2, atol=1e-5)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_sums_with_factors_are_rounded_once(kind: torch.dtype) -> None:
    x, y = torch.randn(8, 8).to(kind), torch.rand(8, 8).add(0.5).to(kind)
    functions = (lambda x, y: torch.lerp(x, y, 0.3), lambda x, y: torch.addcmul(x, x, y, value=0.3))
    compiled = torch.compile(lambda x, y: [f(x, y) for f in functions], backend="mgx")
    for got, f in zip(compiled(x, y), functions, strict=True):
        want = f(x.double(), y.double())
        torch.testing.assert_close(got.double(), want, rtol=torch.finfo(kind).eps / 2, atol=1e-5)
