"""Distinct elements, their counts, and other operators whose results depend on the data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.torch_version import TorchVersion

import mgx_core
from mgx_torch import from_exported, lower_to_mgx

Same = Callable[..., None]  # the fixture that compares with eager torch
Called = Callable[[Callable[..., Any]], nn.Module]  # the fixture that makes a module of a function
NUMBERS = torch.tensor([3, 1, 3, 3, 0, 1, 1])
ROWS = torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 0.0], [1.0, 0.0]])


ALL = {"return_inverse": True, "return_counts": True}


@pytest.fixture(autouse=True)
def _sizes_depend_on_data() -> Iterator[None]:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        yield


@pytest.mark.parametrize("function", [torch.unique, torch.unique_consecutive])
def test_distinct_elements_places_and_counts(function: Any, same: Same) -> None:
    same(lambda x: function(x), NUMBERS)
    same(lambda x: function(x, **ALL), NUMBERS)
    same(lambda x: function(x, **ALL), ROWS)
    same(lambda x: function(x, return_counts=True), NUMBERS > 1)
    same(lambda x: function(x[:0], **ALL), NUMBERS)
    same(lambda x: (function(x, dim=0, **ALL), function(x, dim=1, **ALL)), ROWS)


def test_axes_counted_from_the_end(called: Called, same: Same) -> None:
    """torch describes the result of unique_consecutive with too many axes."""
    rows = torch.tensor([[1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 2.0, 3.0]])
    same(lambda x: torch.unique_consecutive(x, dim=-1, **ALL), rows)
    same(lambda x: torch.unique(x, dim=-2, **ALL), rows)
    module = called(lambda x: torch.unique_consecutive(x, dim=-1, **ALL))
    torch.testing.assert_close(lower_to_mgx(module, [rows])(rows), module(rows))


def test_each_nan_is_another_element(same: Same) -> None:
    same(lambda x: torch.unique(x, **ALL), torch.tensor([1.0, math.nan, 1.0, math.nan, -math.inf]))


def test_negative_numbers_cannot_be_counted(called: Called) -> None:
    module = lower_to_mgx(called(torch.bincount), [NUMBERS])
    with pytest.raises(mgx_core.ParameterError, match=r"node 'bincount'.*must be at least 0, got a negative one"):
        module(-NUMBERS)
    torch.testing.assert_close(module(NUMBERS), torch.bincount(NUMBERS))
    with pytest.raises(mgx_core.ParameterError, match="must be at least 0"):
        torch.compile(torch.bincount, backend="mgx")(-NUMBERS)


def test_elements_are_repeated_as_often_as_a_tensor_says(called: Called, same: Same) -> None:
    repeats = torch.tensor([2, 0, 3, 1])
    same(
        lambda x, r: (x.repeat_interleave(r, 0), torch.repeat_interleave(r.int()), torch.repeat_interleave(r[:0])),
        ROWS,
        repeats,
    )
    same(lambda x, r: x.repeat_interleave(r, 0, output_size=6).sum(0), ROWS, repeats)
    module = called(lambda x, r: x.repeat_interleave(r, 0))
    lowered = lower_to_mgx(module, [ROWS, repeats])
    for again in (repeats, torch.zeros_like(repeats), torch.tensor([0, 0, 0, 5])):
        torch.testing.assert_close(lowered(ROWS, again), module(ROWS, again))
    with pytest.raises(mgx_core.ParameterError, match="repeats must be at least 0"):
        lowered(ROWS, -repeats)
    fixed = lower_to_mgx(called(lambda x, r: x.repeat_interleave(r, 0, output_size=6)), [ROWS, repeats])
    with pytest.raises(mgx_core.ParameterError, match="the sum of repeats must be output_size"):
        fixed(ROWS, repeats + 1)


def test_numbers_are_counted(same: Same) -> None:
    same(lambda x: (torch.bincount(x), torch.bincount(x, minlength=9), torch.bincount(x.int(), minlength=2)), NUMBERS)
    same(lambda x: (torch.bincount(x, x.float() / 2), torch.bincount(x, x.double() - 1, minlength=6)), NUMBERS)
    same(lambda x: (torch.bincount(x[:0]), torch.bincount(x[:0], minlength=3)), NUMBERS)


def test_a_fixed_number_of_indices(same: Same) -> None:
    same(lambda x: (torch.nonzero_static(x, size=7), torch.nonzero_static(x, size=2, fill_value=9)), ROWS)
    same(lambda x: torch.nonzero_static(x > 0, size=3), torch.zeros(2, 3, 2))
    same(lambda x: (torch.nonzero_static(x[0, 0], size=3), torch.nonzero_static(x[0, 1], size=0)), ROWS)


def test_combinations(same: Same) -> None:
    if TorchVersion(torch.__version__) >= (2, 14):
        same(torch.combinations, NUMBERS)
        return
    # earlier versions raise an error when they trace it whole, for any backend
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=False):
        found = torch.compile(torch.combinations, backend="mgx")(NUMBERS)
    torch.testing.assert_close(found, torch.combinations(NUMBERS))


def test_all_and_any_of_checks(same: Same) -> None:
    same(lambda x: (torch._is_all_true(x > -1), torch._is_any_true(x > 9), torch._is_any_true(x > 1)), ROWS)


def test_inverse_error_function(same: Same) -> None:
    same(torch.erfinv, torch.linspace(-1.1, 1.1, 23), tolerance=1e-6)
    ends = torch.tensor([-1.0, 1.0, 0.0, math.nan, 1 - 2.0**-24, 2.0**-60])
    same(torch.erfinv, ends, tolerance=1e-6)
    same(torch.erfinv, torch.linspace(-1, 1, 201).double(), tolerance=1e-12)


def test_inverse_error_function_of_doubles_near_one(same: Same) -> None:
    near = 1 - 2.0 ** -torch.arange(1, 54, dtype=torch.float64)
    same(torch.erfinv, torch.cat([near, -near, near.new_tensor([1e-300, -0.0])]), tolerance=1e-13)


def test_powers_of_two(same: Same) -> None:
    same(lambda x: (torch.ldexp(x, torch.tensor([3, -2])), torch.ldexp(x.long(), torch.tensor([2, -1]))), ROWS)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize("exponents", [torch.tensor([3, -2]), torch.tensor([2, 1]).int(), torch.tensor(4)])
def test_powers_of_two_have_the_type_of_floats(kind: torch.dtype, exponents: torch.Tensor, same: Same) -> None:
    same(torch.ldexp, ROWS.to(kind), exponents)


def test_powers_of_two_may_exceed_the_range_of_the_result(same: Same) -> None:
    """2**200 is infinite in float32, 2**130 times a float64 is not, and 2**18 is infinite in float16."""
    same(torch.ldexp, torch.tensor([3 * 2.0**-100, 0.0]), torch.tensor([200, 200]))
    same(torch.ldexp, torch.tensor([3.0, -3.0]).double(), torch.tensor([130, -140]))
    same(torch.ldexp, torch.tensor([3 * 2.0**-9, 1.0]).half(), torch.tensor([18, 15]))


def test_a_negative_least_number_of_counts_is_rejected() -> None:
    exported = torch.export.export(Counted(), (NUMBERS,))
    with pytest.raises(mgx_core.ParseError, match="minlength must be at least 0, got -1"):
        from_exported(exported)


class Counted(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.bincount(x, minlength=-1)


class Grouped(nn.Module):
    """The mean of the points in each occupied cell, as in networks on point clouds."""

    def forward(self, points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        cells = points.floor().long()
        _, place, count = torch.unique(cells[:, 0] * 8 + cells[:, 1], **ALL)
        sums = torch.zeros(count.shape[0], 2).index_add(0, place, points)
        return sums / count[:, None], place


def test_lowered_modules_group_by_distinct_keys() -> None:
    points = torch.rand(50, 2) * 4
    module = lower_to_mgx(Grouped(), [points], dynamic_shapes=({0: torch.export.Dim("points", min=2)},))
    for given in (points, torch.rand(7, 2) * 3):
        torch.testing.assert_close(module(given), Grouped()(given))
