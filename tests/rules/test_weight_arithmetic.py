"""Weights widened by arithmetic, as written by exporters of quantized weights: they remain codes if few rows are multiplied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.rules.engine import Rewriter
from mgx_core.rules.weight_arithmetic import WEIGHT_ARITHMETIC

rng = np.random.default_rng(8)
CODES = {"int8": (-128, 128), "uint8": (0, 256), "int4": (-8, 8)}


def multiplied(
    rows: int, codes: Any, point: Any, scale: Any, joined: Any = None, turned: bool = False
) -> tuple[mgx.Program, Any, Any]:
    """Returns a product with arithmetic on codes, its input and the reference result."""
    program = mgx.Program()
    m = program.get_main_module()
    wide = m.add(mgx.op("convert", target_type="float"), m.add_literal(codes))
    values = codes.astype(np.float32)
    for name, other in (("sub", point), ("mul", scale)):
        if other is not None:
            repeated = m.add(mgx.op("multibroadcast", out_lens=codes.shape), m.add_literal(other))
            wide = m.add(mgx.op(name), wide, repeated)
            values = values - other if name == "sub" else values * other
    if joined:
        wide, values = m.add(mgx.op("reshape", dims=joined), wide), values.reshape(joined)
    if turned:
        wide, values = m.add(mgx.op("transpose", permutation=(1, 0)), wide), values.T
    x = rng.standard_normal((rows, values.shape[0])).astype(np.float32)
    m.add_return([m.add(mgx.op("dot"), m.add_parameter("x", mgx.Shape("float32", x.shape)), wide)])
    return program, x, x @ values


def numbers(kind: str, *dims: int) -> Any:
    return rng.integers(*CODES[kind], dims).astype(dt.of(kind).numpy)


def some(*dims: int) -> Any:
    return rng.uniform(0.1, 1, dims).astype(np.float32)


@pytest.mark.parametrize("kind", CODES)
@pytest.mark.parametrize(
    ("dims", "of", "joined", "turned"),
    [
        ((6, 2, 16), (6, 2, 1), (6, 32), True),  # blocks of rows, as stored by a linear layer
        ((2, 16, 6), (2, 1, 6), (32, 6), False),
        ((6, 2, 16), (1, 1, 1), (6, 32), True),
        ((6, 32), (6, 1), None, True),
        ((32, 6), (6,), None, False),
        ((32, 6), (32, 1), None, False),
        ((32, 6), (), None, False),
    ],
)  # fmt: skip
def test_arithmetic_on_codes(kind: str, dims: Any, of: Any, joined: Any, turned: bool) -> None:
    codes = numbers(kind, *dims)
    for point in (None, rng.integers(0, 7, of).astype(np.float32)):
        for scale in (None, some(*of)):
            program, x, wanted = multiplied(2, codes, point, scale, joined, turned)
            rewriter = Rewriter(WEIGHT_ARITHMETIC)
            assert rewriter.apply(program.get_main_module())
            assert "dequantizelinear" in str(program)
            program.compile(mgx.get_target("ref"))
            np.testing.assert_allclose(np.asarray(program.run({"x": x})[0]), wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("rows", "narrow"), [(2, True), (40, False)])
def test_weights_stay_codes_for_few_rows(rows: int, narrow: bool) -> None:
    """For many rows, the product multiplies floats, so that the constants are converted once."""
    program, x, wanted = multiplied(rows, numbers("int8", 6, 2, 16), None, some(6, 2, 1), (6, 32), True)
    program.compile(mgx.get_target("ref"))
    assert ("dequant_dot" in str(program)) == narrow
    assert "dequantizelinear" not in str(program)
    np.testing.assert_allclose(np.asarray(program.run({"x": x})[0]), wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("dims", "point", "scale", "joined", "why"),
    [
        ((6, 2, 16), np.full((6, 2, 1), 7.5, np.float32), some(6, 2, 1), (6, 32), "not all representable in uint8"),
        ((6, 2, 16), np.full((6, 2, 1), 300, np.float32), some(6, 2, 1), (6, 32), "not all representable in uint8"),
        ((6, 2, 16), None, some(6, 2, 16), (6, 32), "more than one axis, or within blocks"),
        ((6, 32), None, some(6, 32), None, "more than one axis, or within blocks"),
        ((6, 2, 16), None, some(6, 2, 1), (32, 6), "more than one axis, or within blocks"),
    ],
)  # fmt: skip
def test_other_arithmetic_gives_floats(dims: Any, point: Any, scale: Any, joined: Any, why: str) -> None:
    """Zero points with a fraction, scalar scales, reshapes that join no blocks."""
    program, x, wanted = multiplied(2, numbers("uint8", *dims), point, scale, joined)
    rewriter = Rewriter(WEIGHT_ARITHMETIC)
    assert not rewriter.apply(program.get_main_module())
    assert any(why in r.why for r in rewriter.tally.refusals)
    program.compile(mgx.get_target("ref"))
    np.testing.assert_allclose(np.asarray(program.run({"x": x})[0]), wanted, rtol=1e-4, atol=1e-3)
