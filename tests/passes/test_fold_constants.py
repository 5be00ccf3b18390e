from __future__ import annotations

import numpy as np
import pytest

from mgx_core.ir.interpreter import evaluate_module
from mgx_core.ir.module import Module
from mgx_core.ir.text.parser import parse_module
from mgx_core.ir.verify import verify
from mgx_core.ops import STANDARD
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.fourier import Dft
from mgx_core.ops.index import Gather
from mgx_core.ops.sequence import SequenceAt
from mgx_core.passes.fold_constants import FoldConstants
from mgx_core.rules.arithmetic import ARITHMETIC
from mgx_core.types.argument import Argument


def run(text: str, **options) -> Module:
    module = parse_module(text, STANDARD)
    FoldConstants(**options).apply(module)
    module.sweep()
    assert verify(module) == []
    return module


def test_constant_expressions_become_literals():
    module = run("""\
module main
  %x = @param["x"] -> float32[2]
  %1 = @literal(1.0, 2.0) -> float32[2]
  %2 = @literal(3.0, -4.0) -> float32[2]
  %3 = add(%1, %2)  # sum
  %4 = relu(%3)  # act
  %5 = mul(%x, %4)
  @return(%5, %4)""")
    assert (
        module.text()
        == """\
module main
  %x = @param["x"] -> float32[2]
  %1 = @literal(4.0, 0.0) -> float32[2]  # act
  %2 = mul(%x, %1) -> float32[2]
  @return(%2, %1)"""
    )


def test_nothing_else_changes():
    text = """\
module main
  %x = @param["x"] -> float32[2]
  %1 = @literal(1.0, 2.0) -> float32[2]
  %2 = add(%x, %1) -> float32[2]
  @return(%2)"""
    module = parse_module(text, STANDARD)
    assert not FoldConstants().apply(module)
    assert module.text() == text


def test_a_group_of_constants_is_folded_as_its_members_are():
    module = run("""\
module main
  %1 = @literal(3.0, -4.0) -> float32[2]
  %2 = pointwise(%1){body}
  @return(%2)
module body
  %x0 = @param["x0"] -> float32[2]
  %3 = @literal(1.0, 2.0) -> float32[2]
  %4 = add(%x0, %3)
  %5 = relu(%4)
  @return(%5)""")
    assert module.text() == "module main\n  %1 = @literal(4.0, 0.0) -> float32[2]\n  @return(%1)"


def test_a_group_that_widens_bytes_stays():
    text = """\
module main
  %1 = @literal(1, 2) -> int8[2]
  %2 = pointwise(%1){body} -> float32[2]
  @return(%2)
module body
  %x0 = @param["x0"] -> int8[2]
  %3 = @literal(0.5, 0.25) -> float32[2]
  %4 = dequantizelinear[axis=0](%x0, %3) -> float32[2]
  @return(%4)"""
    module = parse_module(text, STANDARD)
    assert not FoldConstants().apply(module)
    assert FoldConstants(widened=True).apply(module)


def test_random_ops_stay():
    text = """\
module main
  %1 = random_seed[dtype=uint64]() -> uint64[1]
  %2 = @literal(1.0, 2.0) -> float32[2]
  %3 = random_uniform(%1, %2) -> float32[2]
  @return(%3)"""
    assert run(text).text() == text


def test_a_broadcast_literal_is_not_blown_up():
    text = """\
module main
  %1 = @literal(1.0) -> float32[1]
  %2 = tile[repeats=[1000]](%1) -> float32[1000]
  @return(%2)"""
    assert [i.name for i in run(text, limit=10)] == ["@literal", "tile", "@return"]
    assert [i.name for i in run(text, limit=1000)] == ["@literal", "@return"]


@pytest.mark.parametrize(("limit", "most"), [(0, 0), (10, 160), (1 << 17, 1 << 21)])
def test_a_gather_from_a_literal_may_be_larger_in_proportion_to_the_limit(limit: int, most: int) -> None:
    """A table of one row with two positions: the result has twice as many elements as the table."""
    for columns, folds in ((most + 2, True), (most + 3, False)):
        module = Module("main")
        table = module.add_literal(np.arange(columns, dtype=np.float32)[None])
        module.add_return([module.add(Gather(axis=0), table, module.add_literal(np.zeros(2, np.int64)))])
        FoldConstants(limit=limit).apply(module)
        assert module.outputs[0].is_literal == folds
        if folds:
            assert np.array_equal(module.outputs[0].get_literal().value, [np.arange(columns)] * 2)


def test_a_transform_of_a_literal_may_be_larger_in_proportion_to_the_limit() -> None:
    """As many complex numbers as fit the limit, and one more."""
    for length, folds in (((512 + 160) // 2, True), ((512 + 162) // 2, False)):
        module = Module("main")
        signal = module.add_literal(np.arange(512, dtype=np.float32).reshape(512, 1))
        module.add_return([module.add(Dft(axis=0, dft_length=length), signal)])
        FoldConstants(limit=10).apply(module)
        assert module.outputs[0].is_literal == folds


def test_extents_that_were_open_become_known():
    module = run("""\
symbol n?0 in 0..4
module main
  %1 = @literal(0.0, 5.0, 0.0, 7.0) -> float32[4]
  %2 = nonzero(%1) -> int64[1, n?0]
  %x = @param["x"] -> int64[1, 2]
  %3 = add(%2, %x)
  @return(%3)""")
    assert [i.name for i in module] == ["@literal", "@param", "add", "@return"]
    assert not module.outputs[0].result.dynamic()
    assert evaluate_module(module, [np.int64([[10, 20]])])[0].tolist() == [11, 23]


def test_ops_that_introduce_extents_keep_their_symbols():
    module = run("""\
symbol n?0 in 0..4
symbol k?0 in 0..12
module main
  %1 = @literal(0.0, 5.0, 0.0, 7.0) -> float32[4]
  %2 = nonzero(%1) -> int64[1, n?0]
  %x = @param["x"] -> float32[4, 3]
  %3 = gather[axis=0](%x, %2) -> float32[1, n?0, 3]
  %4 = relu(%3) -> float32[1, n?0, 3]
  %5 = nonzero(%4) -> int64[3, k?0]
  %6 = @literal(1.0) -> float32[1]
  %7 = multibroadcast[out_lens=[3, k?0]](%6) -> float32[3, k?0]
  @return(%7, %5)""")
    module.sweep()
    assert [i.name for i in module].count("nonzero") == 1
    repeated, found = evaluate_module(module, [np.float32([[1, -1, 1]] * 4)])
    assert repeated.shape.lens() == found.shape.lens() == [3, 4]


def test_errors_are_left_for_the_run():
    text = """\
module main
  %1 = @literal(1.0, 2.0) -> float32[2]
  %2 = @literal(7) -> int64[1]
  %3 = gather[axis=0](%1, %2) -> float32[1]
  @return(%3)"""
    assert [i.name for i in run(text)] == ["@literal", "@literal", "gather", "@return"]


def test_nested_modules_are_folded_but_not_their_captures():
    module = run("""\
module main
  %c = @param["c"] -> bool[]
  %1 = @literal(1.0, -2.0) -> float32[2]
  %2 = if(%c){then, else}
  @return(%2)
module then
  %3 = relu(%1)
  @return(%3)
module else
  %4 = @literal(5.0, 6.0) -> float32[2]
  %5 = neg(%4)
  @return(%5)""")
    then, other = module.outputs[0].modules
    assert then.outputs[0].get_literal().tolist() == [1, 0]
    assert other.outputs[0].get_literal().tolist() == [-5, -6]


def test_repeated_constants_are_computed_once_and_repeated_after_it():
    module = run("""\
module main
  %x = @param["x"] -> float16[2, 64, 300]
  %1 = @literal(2.0) -> float16[1]
  %2 = multibroadcast[out_lens=[2, 64, 300]](%1)
  %3 = convert[target_type=float32](%2)  # exponent
  %4 = convert[target_type=float32](%x)
  %5 = pow(%4, %3)
  @return(%5)""")
    exponent = module.returned.inputs[0].inputs[1]
    assert isinstance(exponent.op, Multibroadcast)
    (literal,) = exponent.inputs
    assert literal.is_literal and literal.shape.elements() == 1 and literal.sources == ("exponent",)
    assert literal.get_literal().to_numpy().item() == 2.0


def test_constants_repeated_along_an_open_extent_are_folded():
    module = run("""\
symbol N in 1..8
module main
  %x = @param["x"] -> float32[N, 3]
  %1 = @literal(1.0, 2.0, 3.0) -> float32[3]
  %2 = multibroadcast[out_lens=[N, 3]](%1)
  %3 = neg(%2)
  %4 = add(%x, %3)
  @return(%4)""")
    repeated = module.returned.inputs[0].inputs[1]
    assert isinstance(repeated.op, Multibroadcast) and repeated.inputs[0].is_literal
    assert repeated.inputs[0].get_literal().to_numpy().tolist() == [-1.0, -2.0, -3.0]


def test_constants_that_are_repeated_along_different_axes_are_one_tensor():
    module = run("""\
module main
  %1 = @literal(1.0, 2.0) -> float32[2]
  %2 = broadcast[axis=0, out_lens=[2, 3]](%1)
  %3 = @literal(10.0, 20.0, 30.0) -> float32[3]
  %4 = multibroadcast[out_lens=[2, 3]](%3)
  %5 = add(%2, %4)
  @return(%5)""")
    (total,) = module.returned.inputs
    assert total.is_literal and total.get_literal().to_numpy().tolist() == [[11.0, 21.0, 31.0], [12.0, 22.0, 32.0]]


def test_rules_are_applied_to_folded_constants():
    module = run(
        """\
module main
  %x = @param["x"] -> float32[2]
  %1 = @literal(1.0, 2.0) -> float32[2]
  %2 = @literal(3.0, -4.0) -> float32[2]
  %3 = mul(%1, %2)
  %4 = @literal(2.0, 2.0) -> float32[2]
  %5 = mul(%x, %4)
  %6 = mul(%5, %3)
  @return(%6)""",
        rules=ARITHMETIC,
    )
    assert [i.name for i in module] == ["@param", "@literal", "mul", "@return"]
    np.testing.assert_array_equal(evaluate_module(module, [np.float32([1, 1])])[0], [6, -16])


SUMS = """\
module main
  %x = @param["x"] -> float32[6]
  %1 = @literal(0.5, 1.0, 2.0) -> float32[3]
  %2 = unsqueeze[axes=[1]](%1) -> float32[3, 1]
  %3 = multibroadcast[out_lens=[3, 6]](%2) -> float32[3, 6]
  %4 = @literal(0.0, 1.0, 2.0, 3.0, 4.0, 5.0) -> float32[6]
  %5 = multibroadcast[out_lens=[3, 6]](%4) -> float32[3, 6]
  %6 = mul(%3, %5) -> float32[3, 6]
  %7 = exp(%6) -> float32[3, 6]
  %8 = cos(%6) -> float32[3, 6]
  %9 = mul(%7, %8) -> float32[3, 6]
  %10 = reduce_sum[axes=[0]](%9) -> float32[1, 6]
  %11 = squeeze[axes=[0]](%10) -> float32[6]
  %12 = mul(%x, %11) -> float32[6]
  @return(%12)"""


def test_a_sum_of_large_constants_is_folded() -> None:
    module = run(SUMS, limit=0)
    assert {i.op.name for i in module if not i.op.aligns} == {"@param", "@literal", "mul", "@return"}
    (total,) = (i for i in module if i.is_literal)
    powers = np.outer(np.float32([0.5, 1, 2]), np.arange(6, dtype=np.float32))
    np.testing.assert_allclose(
        total.get_literal().to_numpy().reshape(6), (np.exp(powers) * np.cos(powers)).sum(0), rtol=1e-5
    )


def test_a_large_constant_that_is_read_itself_stays() -> None:
    module = run(SUMS.replace("@return(%12)", "@return(%12, %9)"), limit=0)
    assert [i.op.name for i in module if i.op.name in ("exp", "cos", "reduce_sum")] == ["exp", "cos"]


@pytest.mark.parametrize(("work", "left"), [(4 * 18, 0), (4 * 18 - 1, 1), (2 * 4 * 18, 0)])
def test_large_constants_are_computed_for_others_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch, work: int, left: int
) -> None:
    monkeypatch.setattr("mgx_core.passes.fold_constants.WORK", work)
    assert sum(i.op.name == "reduce_sum" for i in run(SUMS, limit=0)) == left


def test_the_work_for_large_constants_is_counted_for_each_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mgx_core.passes.fold_constants.WORK", 2 * 4 * 18 - 1)
    text = SUMS.replace("  %11 =", "  %13 = reduce_max[axes=[0]](%9) -> float32[1, 6]\n  %11 =").replace(
        "@return(%12)", "@return(%12, %13)"
    )
    assert [i.op.name for i in run(text, limit=0) if i.op.name.startswith("reduce")] == ["reduce_max"]


def test_an_item_of_a_constant_list_is_folded():
    module = Module("main")
    items = [np.zeros(3, np.float32), np.arange(3, dtype=np.float32)]
    found = module.add(SequenceAt(), module.add_literal(Argument.from_value(items)), module.add_literal(np.int64(1)))
    module.add_return([found])
    assert FoldConstants().apply(module)
    np.testing.assert_array_equal(module.outputs[0].get_literal().to_numpy(), items[1])


@pytest.mark.parametrize("batch", ["2", "N"])
def test_a_dequantized_constant_is_not_repeated(batch):
    """A product with a batch repeats its weights: they are folded once, for symbolic batches as well."""
    text = f"""\
symbol N in 1..8
module main
  %x = @param["x"] -> float32[{batch}, 1, 2]
  %1 = @literal(1, 2, 3, 4, 5, 6) -> int8[2, 3]
  %2 = @literal(0.5, 1.0, 2.0) -> float32[3]
  %3 = @literal(1, 0, 1) -> int8[3]
  %4 = multibroadcast[out_lens=[{batch}, 2, 3]](%1)
  %5 = dequantizelinear[axis=2](%4, %2, %3)
  %6 = dot(%x, %5)
  @return(%6)"""
    module = run(text, widened=True)
    weights = next(i for i in module if i.is_literal)
    assert weights.shape.dims == (2, 3)
    np.testing.assert_array_equal(weights.get_literal().value, [[0, 2, 4], [1.5, 5, 10]])
    assert [i.op.name for i in module if not (i.is_param or i.is_literal or i.is_return)] == ["multibroadcast", "dot"]


def test_a_scale_that_varies_along_a_repeated_axis_prevents_folding_before_the_broadcast():
    module = run(
        """\
module main
  %1 = @literal(1, 2) -> int8[1, 2]
  %2 = @literal(0.5, 1.0, 2.0) -> float32[3]
  %4 = multibroadcast[out_lens=[3, 2]](%1)
  %5 = dequantizelinear[axis=0](%4, %2)
  @return(%5)""",
        widened=True,
    )
    (weights,) = (i for i in module if i.is_literal)
    np.testing.assert_array_equal(weights.get_literal().value, [[0.5, 1], [1, 2], [2, 4]])
