"""Functions after products: results are quantized, and operands of expensive functions over the significant part of their
range.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import Program, Shape, op
from mgx_core.ops.quantized import ByteMap, Dequantizelinear, Quantizelinear
from mgx_core.passes.tabulate_bytes import TabulateBytes
from mgx_core.quantize import QuantizeConfig
from mgx_core.quantize.functions import Function, functions
from mgx_core.quantize.ranges import Observer
from mgx_core.types.dim import symbol

RNG = np.random.default_rng(3)
WEIGHTS = [(RNG.normal(size=(8, 8, 1, 1)) * 2).astype(np.float32) for _ in range(2)]
IMAGE = RNG.normal(size=(2, 8, 5, 5)).astype(np.float32)


def network(name: str, read_elsewhere: bool = False) -> Program:
    """Two convolutions with a function between them."""
    program = Program()
    m = program.get_main_module()
    x = m.add_parameter("x", Shape("float32", list(IMAGE.shape)))
    first = m.add(op("convolution"), x, m.add_literal(WEIGHTS[0]))
    made = m.add(op(name), first)
    second = m.add(
        op("convolution"), m.add(op("slice", axes=(2,), starts=(0,), ends=(4,)), made), m.add_literal(WEIGHTS[1])
    )
    m.add_return([second, first] if read_elsewhere else [second])
    return program


def quantized(program: Program, on: Any = None, **settings: Any) -> Program:
    target = on or mgx.get_target("ref")
    return mgx.quantize_int8(program, target, [{"x": IMAGE}], smooth=False, correct_bias=False, **settings)


def rounded(program: Program) -> list[str]:
    """Returns the ops whose results are quantized."""
    return [i.inputs[0].op.name for i in program.get_main_module() if isinstance(i.op, Quantizelinear)]


def test_operands_of_expensive_functions_are_quantized() -> None:
    assert rounded(quantized(network("swish"))) == ["@param", "convolution", "swish", "slice"]
    assert rounded(quantized(network("relu"))) == ["@param", "slice"]
    assert rounded(quantized(network("swish"), functions=False)) == ["@param", "slice"]
    assert rounded(quantized(network("swish", read_elsewhere=True))) == ["@param", "slice"]
    assert rounded(mgx.quantize_fp8(network("swish"), mgx.get_target("ref"), [{"x": IMAGE}])) == ["@param", "slice"]


def test_targets_without_tables_compute_functions_of_sums() -> None:
    """Rounding a function's operand and its result would be in vain; a result with several readers is still rounded."""
    on = type(mgx.get_target("ref"))()
    on.byte_tables = False
    assert rounded(quantized(network("swish"), on=on)) == ["@param", "slice"]
    assert rounded(quantized(network("swish"), on=on, tables=True)) == rounded(quantized(network("swish")))
    assert rounded(quantized(network("swish"), tables=False)) == ["@param", "slice"]


@pytest.mark.parametrize("tables", [True, False])
@pytest.mark.parametrize(("name", "read"), [("swish", ["convolution", "swish"]), ("relu", ["relu"])])
def test_results_that_are_read_in_several_places_are_rounded(name: str, read: list[str], tables: bool) -> None:
    """A gate: the function's result is reduced, and multiplied by a value computed from the reduction."""
    read = read if tables else [name]
    program = Program()
    m = program.get_main_module()
    x = m.add_parameter("x", Shape("float32", list(IMAGE.shape)))
    made = m.add(op(name), m.add(op("convolution"), x, m.add_literal(WEIGHTS[0])))
    mean = m.add(op("reduce_mean", axes=(2, 3)), made)
    gate = m.add(op("multibroadcast", out_lens=IMAGE.shape), m.add(op("hard_sigmoid"), mean))
    m.add_return([m.add(op("convolution"), m.add(op("mul"), made, gate), m.add_literal(WEIGHTS[1]))])
    whole = program.clone()
    assert rounded(quantized(program, tables=tables)) == ["@param", *read, "mul"]
    mgx.quantize_fp8(whole, mgx.get_target("ref"), [{"x": IMAGE}], smooth=False, correct_bias=False, tables=tables)
    assert rounded(whole) == ["@param", name, "mul"]  # tables are of bytes


def test_operands_of_functions_of_matrix_products_are_quantized() -> None:
    """The hidden layer of a transformer's two products, for sentences of any length."""
    program = Program()
    m = program.get_main_module()
    x = m.add_parameter("x", Shape("float32", [1, symbol("n"), 8]))

    def product(left: Any, weights: Any) -> Any:
        repeated = m.add(op("multibroadcast", out_lens=(1, 8, 8)), m.add_literal(weights[:, :, 0, 0]))
        return m.add(op("dot"), left, repeated)

    m.add_return([product(m.add(op("gelu_erf"), product(x, WEIGHTS[0])), WEIGHTS[1])])
    data = [{"x": RNG.normal(size=(1, n, 8)).astype(np.float32)} for n in (4, 7)]
    mgx.quantize_int8(program, mgx.get_target("ref"), data, smooth=False, correct_bias=False)
    assert rounded(program) == ["@param", "dot", "gelu_erf"]


def test_the_function_of_a_residual_sum_reads_rounded_numbers() -> None:
    """Sums of a convolution and the input, and of two convolutions, one of which is quantized on its own."""
    program = Program()
    m = program.get_main_module()
    x = m.add_parameter("x", Shape("float32", list(IMAGE.shape)))
    first = m.add(op("swish"), m.add(op("add"), m.add(op("convolution"), x, m.add_literal(WEIGHTS[0])), x))
    both = [m.add(op("convolution"), i, m.add_literal(w)) for i, w in zip((first, x), WEIGHTS, strict=True)]
    second = m.add(op("swish"), m.add(op("add"), m.add(op("relu"), both[0]), both[1]))
    m.add_return([m.add(op("convolution"), second, m.add_literal(WEIGHTS[1]))])
    assert rounded(quantized(program)) == ["@param", "add", "swish", "convolution", "add", "swish"]


def test_the_function_becomes_a_table() -> None:
    module = quantized(network("swish")).get_main_module()
    TabulateBytes().apply(module)
    (table,) = (i for i in module if isinstance(i.op, ByteMap))
    assert not any(i.op.name == "swish" for i in module)
    source = table.inputs[0]
    assert isinstance(source.op, Quantizelinear)
    assert source.inputs[0].op.name == "convolution"


def test_results_stay_close() -> None:
    wanted = None
    lost = []
    for settings in (None, {"functions": False}, {"functions": True}):
        program = network("swish") if settings is None else quantized(network("swish"), **settings)
        program.compile(mgx.get_target("ref"))
        result = np.asarray(program.run({"x": IMAGE})[0])
        wanted = result if wanted is None else wanted
        lost.append(float(np.linalg.norm(result - wanted) / np.linalg.norm(wanted)))
    assert 0 < lost[1] < lost[2] < 0.02


@pytest.mark.parametrize(("name", "low", "high"), [("sigmoid", -6.3, 6.3), ("tanh", -3.5, 3.5), ("swish", -4.8, 40.0)])
def test_ends_where_a_function_is_flat_are_not_kept(name: str, low: float, high: float) -> None:
    module = network(name).get_main_module()
    products = [i for i in module if i.op.name == "convolution"]
    (function,) = functions(products, [products[1].inputs[0]])
    ends = function.values(np.linspace(-40, 40, 2001))
    results = min(float(ends.min()), 0.0), float(ends.max())
    kept = function.range(-40, 40, results, mgx.dtype.uint8)
    assert kept == pytest.approx((low, high), abs=1.0)
    outside = np.concatenate([np.linspace(-40, kept[0], 99), np.linspace(kept[1], 40, 99)])
    inside = np.clip(outside, *kept)
    unit = (results[1] - results[0]) / 255
    assert np.abs(function.values(outside) - function.values(inside)).max() <= unit / 2
    assert function.range(-0.5, 0.5, (0.0, 1.0), mgx.dtype.uint8) == pytest.approx((-0.5, 0.5), abs=0.01)


@pytest.mark.parametrize("most", [1e3, 1e6, 1e8])
def test_a_few_outliers_do_not_widen_the_range(most: float) -> None:
    module = network("tanh").get_main_module()
    products = [i for i in module if i.op.name == "convolution"]
    (function,) = functions(products, [products[1].inputs[0]])
    low, high = function.range(-most, most, (-1.0, 1.0), mgx.dtype.uint8)
    assert (low, high) == pytest.approx((-3.5, 3.5), abs=0.4)
    assert abs(np.tanh(high) - 1) <= 1 / 255


@pytest.mark.parametrize("at", [0.0, 0.3, -7.0])
def test_a_jump_keeps_room_on_both_sides(at: float, monkeypatch: pytest.MonkeyPatch) -> None:
    (convolution, *_) = (i for i in network("tanh").get_main_module() if i.op.name == "convolution")
    monkeypatch.setattr(Function, "values", lambda self, x: (x.astype(np.float32) > np.float32(at)).astype(np.float32))
    low, high = Function(convolution, convolution, True, 1).range(-10, 10, (0.0, 1.0), mgx.dtype.uint8)
    assert low <= 0 <= high
    assert high - low > 1e-13  # from which a scale can be computed
    assert low == 0 or np.float32(low) < np.float32(at)
    assert high == 0 or np.float32(high) > np.float32(at)


def test_a_function_of_what_was_seen() -> None:
    observer = Observer("x")
    rows = RNG.normal(size=(4000, 1)).astype(np.float32)
    observer.see(rows.min(0), rows.max(0), rows)
    made = observer.mapped(np.tanh)
    assert made.range("max", 100, mgx.dtype.uint8) == pytest.approx((np.tanh(rows.min()), np.tanh(rows.max())))
    seen = Observer("y")
    seen.see(np.tanh(rows.min(0)), np.tanh(rows.max(0)), np.tanh(rows))
    low, high = made.range("percentile", 90, mgx.dtype.uint8)
    assert (low, high) == pytest.approx(seen.range("percentile", 90, mgx.dtype.uint8), abs=0.01)
    assert QuantizeConfig().functions


def test_dequantized_functions_are_read_once() -> None:
    module = quantized(network("swish")).get_main_module()
    assert [len(i.users) for i in module if isinstance(i.op, Dequantizelinear)] == [1] * 6


@pytest.mark.parametrize("constant", [False, True])
def test_sums_with_masks_have_no_range(constant: bool) -> None:
    """Attention by sigmoids: masked scores are minus infinity."""
    program = Program()
    m = program.get_main_module()
    q, v = (m.add_parameter(n, Shape("float32", [1, 2, 4, 4])) for n in "qv")
    hidden = np.triu(np.full((4, 4), -np.inf, np.float32), 1)[None, None]
    mask = m.add_literal(hidden) if constant else m.add_parameter("mask", Shape("float32", [1, 1, 4, 4]))
    scores = m.add(op("dot"), q, m.add_literal(RNG.normal(size=(1, 2, 4, 4)).astype(np.float32)))
    seen = m.add(op("sigmoid"), m.add(op("add"), scores, m.add(op("multibroadcast", out_lens=(1, 2, 4, 4)), mask)))
    m.add_return([m.add(op("dot"), seen, v)])
    data = [{n: RNG.normal(size=(1, 2, 4, 4)).astype(np.float32) for n in "qv"} for _ in range(2)]
    if not constant:
        data = [{**one, "mask": hidden} for one in data]
    mgx.quantize_int8(program, mgx.get_target("ref"), data, smooth=False, correct_bias=False)
    assert "add" not in rounded(program)


def test_whole_numbers_that_are_read_in_several_places_are_left() -> None:
    program = Program()
    m = program.get_main_module()
    x = m.add_parameter("x", Shape("float32", list(IMAGE.shape)))
    whole = m.add(op("convert", target_type="int32"), m.add(op("convolution"), x, m.add_literal(WEIGHTS[0])))
    size = m.add(op("convert", target_type="float"), m.add(op("abs"), whole))
    made = m.add(op("add"), m.add(op("convert", target_type="float"), whole), size)
    m.add_return([m.add(op("convolution"), made, m.add_literal(WEIGHTS[1]))])
    assert rounded(quantized(program)) == ["@param", "add"]
