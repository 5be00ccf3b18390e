"""Products of quantized tensors that must stay unchanged: sums that may overflow int32, blocks that are not whole bytes."""

from __future__ import annotations

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.ir.text.parser import parse_module
from mgx_core.ops import STANDARD
from mgx_core.rules.engine import Rewriter
from mgx_core.rules.integer_products import INTEGER_PRODUCTS
from mgx_core.rules.quantized_weights import CODED_WEIGHTS
from mgx_core.types.dim import symbol

PRODUCT = """symbol n in {bounds}
module main
  %p = @param["p"] -> uint8[1, {left}]
  %q = @param["q"] -> uint8[{right}, 1]
  %s = @literal(1.0) -> float32[]
  %1 = dequantizelinear(%p, %s)
  %2 = dequantizelinear(%q, %s)
  %3 = dot(%1, %2)
  @return(%3)"""


@pytest.mark.parametrize(
    ("bounds", "left", "right", "fits"),
    [("0..1099511627776", "n", "n", False), ("1..33025", "n", "n", True), ("1..33026", "n", "n", False),
     ("1..40", "1000*n", "1000*n", False), ("1..40", "800*n", "800*n", True)],
)  # fmt: skip
def test_sums_of_unknown_count(bounds: str, left: str, right: str, fits: bool) -> None:
    module = parse_module(PRODUCT.format(bounds=bounds, left=left, right=right), STANDARD)
    rewriter = Rewriter(INTEGER_PRODUCTS)
    rewriter.apply(module)
    assert ("quant_dot" in {i.op.name for i in module}) == fits
    assert any("may exceed int32" in r.why for r in rewriter.tally.refusals) != fits


@pytest.mark.parametrize("high", [None, 50000])
def test_long_sums_are_right(high: int | None) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    n = symbol("n", 1, *(() if high is None else (high,)))
    wide = [
        m.add(mgx.op("dequantizelinear"), m.add_parameter(name, mgx.Shape("uint8", dims)), m.add_literal(np.float32(1)))
        for name, dims in (("p", [1, n]), ("q", [n, 1]))
    ]
    m.add_return([m.add(mgx.op("dot"), *wide)])
    program.compile(mgx.get_target("ref"))
    given = {"p": np.full((1, 40000), 255, np.uint8), "q": np.full((40000, 1), 255, np.uint8)}
    np.testing.assert_allclose(
        np.asarray(program.run(given)[0]), [[255.0 * 255.0 * 40000]], rtol=40000 * np.finfo(np.float32).eps
    )


@pytest.mark.parametrize("block", [1, 3, 9])
@pytest.mark.parametrize("kind", ["int4", "uint4"])
def test_odd_blocks_of_four_bits(kind: str, block: int) -> None:
    rng = np.random.default_rng(3)
    least = 0 if kind == "uint4" else -8
    codes = rng.integers(least, least + 16, (9, 4))
    scale = rng.uniform(0.1, 1.0, (9 // block, 4)).astype(np.float32)
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [2, 9]))
    weights = m.add_literal(codes.astype(dt.of(kind).numpy))
    wide = m.add(mgx.op("dequantizelinear", axis=0, block_size=block), weights, m.add_literal(scale))
    m.add_return([m.add(mgx.op("dot"), x, wide)])
    rewriter = Rewriter(CODED_WEIGHTS)
    rewriter.apply(m)
    assert any("do not begin at whole bytes" in r.why for r in rewriter.tally.refusals)
    value = rng.normal(size=(2, 9)).astype(np.float32)
    program.compile(mgx.get_target("ref"))
    wanted = value @ (codes * np.repeat(scale, block, 0))
    np.testing.assert_allclose(np.asarray(program.run({"x": value})[0]), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("block", [0, 4])
def test_weights_whose_rows_are_the_products_columns(block: int) -> None:
    """Weights [n, k], as stored by linear layers: the codes are transposed."""
    rng = np.random.default_rng(5)
    codes, scale = rng.integers(-8, 8, (6, 8)), rng.normal(size=(6, 8 // block) if block else (6,)).astype(np.float32)
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", (2, 8)))
    operands = [m.add_literal(codes.astype(dt.int4.numpy)), m.add_literal(scale)]
    wide = m.add(mgx.op("dequantizelinear", axis=1 if block else 0, block_size=block), *operands)
    m.add_return([m.add(mgx.op("dot"), x, m.add(mgx.op("transpose", permutation=(1, 0)), wide))])
    program.compile(mgx.get_target("ref"))
    assert "dequant_dot" in str(program)
    value = rng.normal(size=(2, 8)).astype(np.float32)
    wanted = value @ (codes * (np.repeat(scale, block, 1) if block else scale[:, None])).T
    np.testing.assert_allclose(np.asarray(program.run({"x": value})[0]), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("moved", [False, True], ids=["repeated", "repeated first"])
@pytest.mark.parametrize("axis", [0, 1], ids=["blocks", "columns"])
@pytest.mark.parametrize("kind", ["int4", "uint8"])
def test_weights_that_batches_share(kind: str, axis: int, moved: bool) -> None:
    """The other operand has rank 3, as in language models: the matrix is broadcast before or after it is dequantized."""
    rng = np.random.default_rng(6)
    least, count = (-8, 16) if kind == "int4" else (0, 256)
    codes = rng.integers(least, least + count, (8, 6))
    scale = rng.uniform(0.1, 1.0, (2, 6) if axis == 0 else 6).astype(np.float32)
    point = rng.integers(least, least + count, scale.shape)
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [2, 3, 8]))
    narrow = [
        m.add_literal(codes.astype(dt.of(kind).numpy)),
        m.add_literal(scale),
        m.add_literal(point.astype(dt.of(kind).numpy)),
    ]
    form = {"axis": axis, "block_size": 0 if axis else 4}
    if moved and axis:
        narrow[0] = m.add(mgx.op("multibroadcast", out_lens=(2, 8, 6)), narrow[0])
        wide = m.add(mgx.op("dequantizelinear", **{**form, "axis": 2}), *narrow)
    else:
        wide = m.add(mgx.op("multibroadcast", out_lens=(2, 8, 6)), m.add(mgx.op("dequantizelinear", **form), *narrow))
    m.add_return([m.add(mgx.op("dot"), x, wide)])
    program.compile(mgx.get_target("ref"))
    assert "dequant_dot" in str(program)
    value = rng.normal(size=(2, 3, 8)).astype(np.float32)
    by_row = (np.repeat(v, 4, 0) if axis == 0 else v for v in (point, scale))
    wanted = value @ ((codes - next(by_row)) * next(by_row))
    np.testing.assert_allclose(np.asarray(program.run({"x": value})[0]), wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("point", "operands"), [(0, 3), (1, 4)])
def test_zero_points_in_the_middle_are_left_out(point: int, operands: int) -> None:
    """The default of an absent zero point need not be read."""
    rng = np.random.default_rng(4)
    codes = rng.integers(-8, 8, (16, 6)).astype(dt.int4.numpy)
    points = np.full((2, 6), point, dt.int4.numpy)
    scales = rng.uniform(0.1, 1, (2, 6)).astype(np.float32)
    x = rng.standard_normal((1, 16)).astype(np.float32)
    program = mgx.Program()
    m = program.get_main_module()
    given = m.add_parameter("x", mgx.Shape("float", [1, 16]))
    constants = [m.add_literal(mgx.Argument.from_value(a)) for a in (codes, scales, points)]
    wide = m.add(mgx.op("dequantizelinear", axis=0, block_size=8), *constants)
    m.add_return([m.add(mgx.op("dot"), given, wide)])
    rewriter = Rewriter(CODED_WEIGHTS)
    rewriter.apply(m)
    (product,) = [i for i in m if i.op.name == "dequant_dot"]
    assert len(product.inputs) == operands
    program.compile(mgx.get_target("ref"))
    wanted = x @ ((codes.astype(np.float32) - point) * scales.repeat(8, 0))
    np.testing.assert_allclose(np.asarray(program.run({"x": x})[0]), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("repeated", ["scale", "point", "both"])
def test_one_number_repeated_for_all_blocks(repeated: str) -> None:
    """Scales and zero points of blocks are one repeated constant, as for MatMulNBits of 2 bits without zero points."""
    rng = np.random.default_rng(7)
    codes = rng.integers(0, 4, (16, 6)).astype(np.uint8)
    values = {"scale": rng.uniform(0.1, 1, (2, 6)).astype(np.float32), "point": rng.integers(1, 4, (2, 6), np.uint8)}
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [1, 16]))
    operands = []
    for name, one in values.items():
        if repeated in (name, "both"):
            values[name] = np.full((2, 6), one[0, 0])
            operands.append(m.add(mgx.op("multibroadcast", out_lens=(2, 6)), m.add_literal(one[0, 0])))
        else:
            operands.append(m.add_literal(one))
    wide = m.add(mgx.op("dequantizelinear", axis=0, block_size=8), m.add_literal(codes), *operands)
    m.add_return([m.add(mgx.op("dot"), x, wide)])
    program.compile(mgx.get_target("ref"))
    assert "dequant_dot" in str(program)
    value = rng.normal(size=(1, 16)).astype(np.float32)
    wanted = value @ ((codes - values["point"].repeat(8, 0).astype(np.float32)) * values["scale"].repeat(8, 0))
    np.testing.assert_allclose(np.asarray(program.run({"x": value})[0]), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [1, 5])
def test_rows_of_open_length_fit_the_weights(rows: int) -> None:
    """Rows of codes may be longer than the rows of the other operand, so that the product would accept what the definition
    rejects.
    """
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [2, symbol("n")]))
    codes, scale = m.add_literal(np.ones((11, 3), np.int8)), m.add_literal(np.ones(3, np.float32))
    m.add_return([m.add(mgx.op("dot"), x, m.add(mgx.op("dequantizelinear", axis=1), codes, scale))])
    program.compile(mgx.get_target("ref"))
    np.testing.assert_array_equal(program.run({"x": np.ones((2, 11), np.float32)})[0], np.full((2, 3), 11))
    with pytest.raises(mgx.MgxError, match="must equal"):
        program.run({"x": np.ones((2, rows), np.float32)})
