"""Products with one column: sums of rows; results equal the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx


def product(a: list[int], b: list[int], constant: bool) -> tuple[mgx.Program, dict[str, np.ndarray]]:
    rng = np.random.default_rng(a[-1])
    program = mgx.Program()
    main = program.get_main_module()
    values = {"a": rng.standard_normal(a).astype(np.float32), "b": rng.standard_normal(b).astype(np.float32)}
    left = main.add_parameter("a", mgx.Shape("float32", a))
    right = main.add_literal(values.pop("b")) if constant else main.add_parameter("b", mgx.Shape("float32", b))
    bias = main.add_literal(rng.standard_normal(1).astype(np.float32))
    made = main.add(mgx.op("dot"), left, right)
    main.add_return(
        [main.add(mgx.op("add"), made, main.add(mgx.op("multibroadcast", out_lens=made.shape.lens()), bias))]
    )
    return program, values


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(
    ("a", "b"), [([50, 100], [100, 1]), ([1, 16], [16, 1]), ([3, 7, 33], [3, 33, 1]), ([2, 3, 5, 64], [2, 3, 64, 1])]
)
def test_one_column(both: Callable[..., Any], a: list[int], b: list[int], constant: bool) -> None:
    program, values = product(a, b, constant)
    found, wanted, steps = both(program, values)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert steps == ["reduce"], steps


@pytest.mark.parametrize(("a", "b"), [([50, 100], [100, 2]), ([50, 8], [8, 1])])
def test_other_products_stay(both: Callable[..., Any], a: list[int], b: list[int]) -> None:
    program, values = product(a, b, False)
    found, wanted, steps = both(program, values)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert "reduce" not in steps, steps
