"""Functions of one byte become tables: which chains qualify, where the byte is read, and that results stay equal."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_core.ir.interpreter import Interpreter
from mgx_core.ir.module import nested
from mgx_core.ir.text.parser import parse_module
from mgx_core.ops import STANDARD
from mgx_core.ops.quantized import ByteMap
from mgx_core.passes.tabulate_bytes import TabulateBytes

CONSTANTS = """\
  %s = @literal(0.05) -> float32[]
  %t = @literal(0.004) -> float32[]
  %z = @literal(128) -> uint8[]
  %y = @literal(7) -> int8[]
"""
SILU = """\
module main
  %q = @param["q"] -> uint8[3, 100]
CONSTANTS  %1 = dequantizelinear(%q, %s, %z) -> float32[3, 100]
  %2 = sigmoid(%1) -> float32[3, 100]
  %3 = quantizelinear[out_type=uint8](%2, %t) -> uint8[3, 100]
  %4 = dequantizelinear(%3, %t) -> float32[3, 100]
  %5 = mul(%1, %4) -> float32[3, 100]
  %6 = quantizelinear(%5, %s, %y) -> int8[3, 100]
  @return(%6)""".replace("CONSTANTS", CONSTANTS)


def run(text: str, *arrays: np.ndarray) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Returns the ops after the pass, and the results before and after it."""
    module = parse_module(text, STANDARD)
    (before,) = Interpreter().run(module, list(arrays))
    assert TabulateBytes().apply(module) == any(isinstance(i.op, ByteMap) for i in module)
    (after,) = Interpreter().run(module, list(arrays))
    return [i.op.name for i in module if not i.op.name.startswith("@")], before, after


def test_work_between_quantizations_is_one_table() -> None:
    every = np.tile(np.arange(256), 2)[:300].reshape(3, 100).astype(np.uint8)
    ops, before, after = run(SILU, every)
    assert ops == ["byte_map"]
    np.testing.assert_array_equal(before, after)


def test_a_table_ends_where_another_tensor_is_combined() -> None:
    more = """%7 = dequantizelinear(%3, %t) -> float32[3, 100]
  %8 = quantizelinear(%7, %s, %y) -> int8[3, 100]
  %9 = sub(%8, %6) -> int8[3, 100]
  %10 = sub(%9, %other) -> int8[3, 100]
  @return(%10)"""
    text = SILU.replace("@return(%6)", more)
    text = text.replace("uint8[3, 100]\n", 'uint8[3, 100]\n  %other = @param["o"] -> int8[3, 100]\n', 1)
    bytes_ = np.arange(300).reshape(3, 100).astype(np.uint8)
    ops, before, after = run(text, bytes_, bytes_.view(np.int8))
    assert ops == ["byte_map", "sub"]
    np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mul(%1, %4)", "mul(%1, %o)"),  # another tensor
        ("%s = @literal(0.05) -> float32[]", "%s = @param[\"s\"] -> float32[]"),  # a scale that is not constant
    ],
)  # fmt: skip
def test_functions_of_more_than_one_byte_stay(old: str, new: str) -> None:
    text = SILU.replace(old, new).replace("CONSTANTS", "")
    if "%o" in new:
        text = text.replace("uint8[3, 100]\n", 'uint8[3, 100]\n  %o = @param["o"] -> float32[3, 100]\n', 1)
    module = parse_module(text, STANDARD)
    TabulateBytes().apply(module)
    assert isinstance(module.outputs[0].op, ByteMap) is False


def test_one_scale_a_channel_is_no_table() -> None:
    text = SILU.replace("%s = @literal(0.05) -> float32[]", "%s = @literal(0.05, 0.06, 0.07) -> float32[3]")
    text = text.replace("%z = @literal(128) -> uint8[]", "%z = @literal(1, 2, 3) -> uint8[3]")
    text = text.replace("dequantizelinear(%q", "dequantizelinear[axis=0](%q").replace(
        "%y = @literal(7) -> int8[]", "%y = @literal(7, 7, 7) -> int8[3]"
    )
    text = text.replace("quantizelinear(%5", "quantizelinear[axis=0](%5")
    module = parse_module(text, STANDARD)
    TabulateBytes().apply(module)
    assert not isinstance(module.outputs[0].op, ByteMap)


def test_a_table_reads_no_work_of_the_module_around_it() -> None:
    """Values that both branches read are computed once before them; bytes from there are read."""
    text = f"""\
module main
  %q = @param["q"] -> uint8[3, 100]
  %c = @param["c"] -> bool[]
{CONSTANTS}  %1 = dequantizelinear(%q, %s, %z) -> float32[3, 100]
  %2 = if(%c){{then, else}}
  %3 = get_tuple_elem[index=0](%2) -> uint8[3, 100]
  @return(%3)
module then
  %4 = sigmoid(%1) -> float32[3, 100]
  %5 = quantizelinear[out_type=uint8](%4, %t) -> uint8[3, 100]
  @return(%5)
module else
  %6 = dequantizelinear(%q, %t) -> float32[3, 100]
  %7 = tanh(%6) -> float32[3, 100]
  %8 = quantizelinear[out_type=uint8](%7, %t) -> uint8[3, 100]
  @return(%8)"""
    module = parse_module(text, STANDARD)
    given = np.arange(300).reshape(3, 100).astype(np.uint8)
    for chosen in (True, False):
        (before,) = Interpreter().run(module, [given, np.array(chosen)])
        changed = module.clone()
        assert TabulateBytes().apply(changed)
        (after,) = Interpreter().run(changed, [given, np.array(chosen)])
        np.testing.assert_array_equal(before, after)
        branches = [[i.op.name for i in inner if not i.op.name.startswith("@")] for inner in nested(changed)]
        assert sorted(branches)[0] == ["byte_map"] and ["sigmoid", "quantizelinear"] in branches
