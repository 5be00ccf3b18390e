"""Products with one column, or of one row with a parameter: sums of rows; results equal the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.passes.rewrite import Rewrite
from mgx_core.types.dim import symbol
from mgx_cpu_dnnl.vector_products import VECTOR_PRODUCTS


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


def linear(weights: str, rows: int, length: int = 40) -> tuple[mgx.Program, dict[str, np.ndarray]]:
    """gelu(a) w^T, with w constant, a parameter, or computed."""
    rng = np.random.default_rng(length)
    program = mgx.Program()
    main = program.get_main_module()
    values = {"a": rng.standard_normal((rows, length)).astype(np.float32)}
    left = main.add(mgx.op("gelu_erf"), main.add_parameter("a", mgx.Shape("float32", [rows, length])))
    w = rng.standard_normal((24, length)).astype(np.float32)
    if weights == "constant":
        right = main.add_literal(w)
    else:
        right = main.add_parameter("w", mgx.Shape("float32", [24, length]))
        values["w"] = w
    if weights == "computed":
        right = main.add(mgx.op("exp"), right)
    main.add_return([main.add(mgx.op("dot"), left, main.add(mgx.op("transpose", permutation=[1, 0]), right))])
    return program, values


def test_one_row_and_weights_that_are_a_parameter(both: Callable[..., Any]) -> None:
    """The row is computed once, not for each of its products."""
    program, values = linear("parameter", 1)
    found, wanted, steps = both(program, values)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert steps == ["loop", "reduce"], steps


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_narrow_weights_are_converted_where_they_are_read(both: Callable[..., Any], kind: str) -> None:
    """Values are small integers, whose sums are exact."""
    rng = np.random.default_rng(5)
    program = mgx.Program()
    main = program.get_main_module()
    a, w = (main.add_parameter(name, mgx.Shape(kind, lens)) for name, lens in (("a", [1, 48]), ("w", [24, 48])))
    main.add_return([main.add(mgx.op("dot"), a, main.add(mgx.op("transpose", permutation=[1, 0]), w))])
    dtype = a.shape.dtype.numpy
    values = {"a": rng.integers(-3, 4, (1, 48)).astype(dtype), "w": rng.integers(-3, 4, (24, 48)).astype(dtype)}
    found, wanted, steps = both(program, values)
    np.testing.assert_array_equal(found.astype(np.float32), wanted.astype(np.float32))
    assert "reduce" in steps, steps
    assert sum(s == "loop" for s in steps) < 3, steps


@pytest.mark.parametrize(("given", "computed", "rewritten"), [("float16", "float32", 1), ("float32", "bfloat16", 0)])
def test_weights_that_are_rounded_first_stay_rounded(given: str, computed: str, rewritten: int) -> None:
    program = mgx.Program()
    main = program.get_main_module()
    a, w = (main.add_parameter(name, mgx.Shape(given, lens)) for name, lens in (("a", [1, 48]), ("w", [24, 48])))
    turned = main.add(mgx.op("transpose", permutation=[1, 0]), w)
    row, rows = (main.add(mgx.op("convert", target_type=computed), x) for x in (a, turned))
    main.add_return([main.add(mgx.op("dot"), row, rows)])
    Rewrite(VECTOR_PRODUCTS).apply(main)
    assert str(main).count("reduce_sum") == rewritten, main


@pytest.mark.parametrize(("weights", "rows"), [("constant", 1), ("computed", 1), ("parameter", 2)])
def test_other_weights_and_more_rows_stay_products(both: Callable[..., Any], weights: str, rows: int) -> None:
    program, values = linear(weights, rows)
    found, wanted, steps = both(program, values)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert "reduce" not in steps, steps


def test_short_rows_stay_products(both: Callable[..., Any]) -> None:
    program, values = linear("parameter", 1, length=8)
    found, wanted, steps = both(program, values)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert "reduce" not in steps, steps


@pytest.mark.parametrize("rows", [1, 2])
def test_sums_beyond_the_range_of_an_8_bit_float_are_nan_as_those_of_products(
    both: Callable[..., Any], rows: int
) -> None:
    program = mgx.Program()
    main = program.get_main_module()
    a, w = (main.add_parameter(n, mgx.Shape("float8_e4m3fn", lens)) for n, lens in (("a", [rows, 32]), ("w", [3, 32])))
    main.add_return([main.add(mgx.op("dot"), a, main.add(mgx.op("transpose", permutation=[1, 0]), w))])
    dtype = a.shape.dtype.numpy
    values = {"a": np.full((rows, 32), 8, dtype), "w": np.outer([1, 4, -4], np.ones(32)).astype(dtype)}
    found, wanted, _ = both(program, values)
    np.testing.assert_array_equal(found.astype(np.float32), [[256, np.nan, np.nan]] * rows)
    np.testing.assert_array_equal(found.astype(np.float32), wanted.astype(np.float32))


@pytest.mark.parametrize(("a", "b", "turned"), [((24, 40), ("k", 1), False), ((1, "k"), (24, 40), True)])
def test_a_vector_of_one_element_is_not_broadcast(a: tuple[Any, ...], b: tuple[Any, ...], turned: bool) -> None:
    """Extents that are known only in a run must fit there."""
    program = mgx.Program()
    main = program.get_main_module()
    shapes = {
        n: mgx.Shape("float32", [symbol(d, 1, 99) if d == "k" else d for d in dims]) for n, dims in (("a", a), ("b", b))
    }
    left, right = (main.add_parameter(n, shape) for n, shape in shapes.items())
    right = main.add(mgx.op("transpose", permutation=[1, 0]), right) if turned else right
    main.add_return([main.add(mgx.op("dot"), left, right)])
    program.compile(mgx.get_target("cpu"))

    def run(k: int) -> np.ndarray:
        values = {n: np.ones([k if d == "k" else d for d in dims], np.float32) for n, dims in (("a", a), ("b", b))}
        return np.asarray(program.run(values)[0].to_numpy())

    assert (run(40) == 40).all()
    with pytest.raises(mgx.ShapeError, match="the last extent of a must equal"):
        run(1)
