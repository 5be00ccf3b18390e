"""Products of a batch with few results of long sums run in parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from built_program import BuiltProgram


def products(built: BuiltProgram, result: Any, device: int) -> list[tuple[int, ...]]:
    """Compares the result on an emulated device with the reference; returns the extents of the products that ran."""
    steps = built.checked_steps(result, device, 2e-3)
    return [s.instruction.shape.dims for s in steps if s.kernel.endswith("dot")]


@pytest.mark.parametrize("device", [0, 1], ids=["wave64", "wave32"])
@pytest.mark.parametrize("kind", ["float32", "float16"])
@pytest.mark.parametrize("turned", [False, True], ids=["rows", "columns"])
def test_long_sums_are_split(turned: bool, kind: str, device: int) -> None:
    """Weights of slots are stored by pixels, as the products of both operands with pixels are computed."""
    built = BuiltProgram(1)
    x = built.argument(2, *((1024, 7) if turned else (7, 1024)), kind=kind)[0]
    x = built.add("transpose", x, permutation=[0, 2, 1]) if turned else x
    assert products(built, built.add("dot", x, built.argument(2, 1024, 16, kind=kind)[0]), device) == [(2, 4, 7, 16)]


@pytest.mark.parametrize("case", ["one product", "short", "odd", "many results", "constant", "shared", "scores"])
def test_other_products_stay(case: str) -> None:
    built = BuiltProgram(2)
    batch = 1 if case == "one product" else 40 if case == "many results" else 2
    rows, terms = 7, {"short": 512, "odd": 1026}.get(case, 1024)
    x = built.argument(batch, rows, terms, kind="float16")[0]
    lens = [1 if case == "shared" else batch, terms, 4]
    y = built.argument(*lens, kind="float16")[0]
    if case == "constant":
        y = built.main.add_literal(np.ones(lens, np.float16))
    if case == "shared":
        y = built.add("multibroadcast", y, out_lens=[batch, terms, 4])
    made = built.add("dot", x, y)
    made = built.add("softmax", made, axis=2) if case == "scores" else made
    assert all(len(dims) == 3 for dims in products(built, made, 1))
