"""Products of a batch of matrices with one column each, or of few terms, run as reductions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from built_program import BuiltProgram


def kernels(built: BuiltProgram, result: Any, device: int) -> list[str]:
    """Compares the result on an emulated device with the reference; returns the kernels that ran."""
    return [s.kernel for s in built.checked_steps(result, device, 2e-3)]


@pytest.mark.parametrize("device", [0, 1], ids=["wave64", "wave32"])
@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_a_product_with_a_column_joins_the_work_around_it(kind: str, device: int) -> None:
    """Linear attention divides by the products of its features with their sum."""
    built = BuiltProgram(1)
    x = built.add("relu", built.argument(2, 3, 20, 32, kind=kind)[0])
    y = built.argument(2, 3, 32, 1, kind=kind)[0]
    found = kernels(built, built.add("exp", built.add("neg", built.add("abs", built.add("dot", x, y)))), device)
    assert found[-1] == "generated fused_reduce" and set(found[:-1]) <= {"generated pointwise"}


def test_small_matrices_times_columns_are_summed_in_float32() -> None:
    built = BuiltProgram(3)
    x = built.argument(40, 9, 9, kind="float16")[0]
    y = built.argument(40, 9, 1, kind="float16")[0]
    wide = built.add("convert", built.add("dot", x, y), target_type="float32")
    found = kernels(built, built.add("add", wide, built.argument(40, 9, 1, kind="float32")[0]), 1)
    assert found[-1] == "generated fused_reduce" and set(found[:-1]) <= {"generated pointwise"}


@pytest.mark.parametrize("case", ["constant", "shared", "few rows", "one matrix", "two columns"])
def test_other_products_stay(case: str) -> None:
    built = BuiltProgram(2)
    batch = [1] if case == "one matrix" else [6]
    x = built.argument(*batch, 8 if case == "few rows" else 20, 32, kind="float32")[0]
    lens = [*([1] if case == "shared" else batch), 32, 2 if case == "two columns" else 1]
    y = built.argument(*lens, kind="float32")[0]
    if case == "constant":
        y = built.main.add_literal(np.ones(lens, np.float32))
    if case == "shared":
        y = built.add("multibroadcast", y, out_lens=[6, 32, 1])
    assert not any("reduce" in k for k in kernels(built, built.add("dot", x, y), 1))


@pytest.mark.parametrize("device", [0, 1], ids=["wave64", "wave32"])
@pytest.mark.parametrize("kind", ["float32", "float16"])
@pytest.mark.parametrize("dims", [(3, 100, 9, 9, 32), (300, 5, 3, 17)], ids=["rank4", "rank3"])
def test_products_of_few_terms_are_sums(dims: tuple[int, ...], kind: str, device: int) -> None:
    *batch, rows, terms, columns = dims
    built = BuiltProgram(4)
    x = built.argument(*batch, rows, terms, kind=kind)[0]
    y = built.argument(*batch, terms, columns, kind=kind)[0]
    assert kernels(built, built.add("dot", built.add("relu", x), y), device)[-1] == "generated fused_reduce"


def test_a_sum_of_few_terms_is_narrowed_where_it_is_computed() -> None:
    built = BuiltProgram(5)
    x, y = built.argument(300, 9, 9, kind="float32")[0], built.argument(300, 9, 32, kind="float32")[0]
    narrow = built.add("convert", built.add("dot", x, y), target_type="float16")
    assert kernels(built, narrow, 1) == ["generated fused_reduce"]


@pytest.mark.parametrize("case", ["few matrices", "many terms", "many rows", "few columns", "shared", "constant"])
def test_other_products_with_several_columns_stay(case: str) -> None:
    built = BuiltProgram(6)
    batch, rows, terms = (
        {"few matrices": 20}.get(case, 300),
        {"many rows": 13}.get(case, 9),
        {"many terms": 16}.get(case, 9),
    )
    x = built.argument(batch, rows, terms, kind="float32")[0]
    lens = [1 if case == "shared" else batch, terms, 8 if case == "few columns" else 32]
    y = built.argument(*lens, kind="float32")[0]
    if case == "constant":
        y = built.main.add_literal(np.ones(lens, np.float32))
    if case == "shared":
        y = built.add("multibroadcast", y, out_lens=[batch, terms, 32])
    assert not any("reduce" in k for k in kernels(built, built.add("dot", x, y), 1))


@pytest.mark.parametrize("device", [0, 1], ids=["wave64", "wave32"])
def test_attention_of_few_keys_stays_one_kernel(device: int) -> None:
    """Products of weights of few keys with values are none of the above: 49 queries and 24 keys of 2,048 heads took 49 us, now 17."""
    built = BuiltProgram(7)
    q, k, v = (built.argument(100, 3, 8, 32, kind="float16")[0] for _ in range(3))
    scores = built.add("dot", q, built.add("transpose", k, permutation=[0, 1, 3, 2]))
    found = kernels(built, built.add("dot", built.add("softmax", scores, axis=3), v), device)
    assert found == ["attention group"]


@pytest.mark.parametrize("device", [0, 1], ids=["wave64", "wave32"])
@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_outer_products_join_the_work_around_them(kind: str, device: int) -> None:
    """States of linear recurrences are decayed and updated in one launch."""
    built = BuiltProgram(7)
    column, row = built.argument(2, 3, 20, 1, kind=kind)[0], built.argument(3, 1, 16, kind=kind)[0]
    row = built.add("multibroadcast", row, out_lens=[2, 3, 1, 16])
    state = built.add("relu", built.argument(2, 3, 20, 16, kind=kind)[0])
    assert kernels(built, built.add("add", state, built.add("dot", column, row)), device) == ["generated pointwise"]
