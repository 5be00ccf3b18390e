"""The rules that multiply the parts of a concatenation separately: module text before and after, and equal results."""

from __future__ import annotations

import pytest

from mgx_core.compile.stages import RULES
from mgx_core.ir.text.parser import parse_module
from mgx_core.ops import STANDARD
from mgx_core.ops.linear import Dot
from mgx_core.passes.fuse_horizontal import FuseHorizontal
from mgx_core.rules.concat_products import CONCAT_PRODUCTS
from mgx_core.rules.engine import Rewriter

TURNS = [
    (
        "product-of-repeated-parts",
        """\
  %x = @param["x"] -> float32[512, 2]
  %d = @param["d"] -> float32[512, 1024, 1]
  %y = @param["y"] -> float32[1024, 3]
  %w = @param["w"] -> float32[6, 4]
  %1 = unsqueeze[axes=[1]](%x)
  %2 = multibroadcast[out_lens=[512, 1024, 2]](%1)
  %3 = multibroadcast[out_lens=[512, 1024, 3]](%y)
  %4 = concat[axis=2](%2, %d, %3)
  %5 = multibroadcast[out_lens=[512, 6, 4]](%w)
  %6 = dot(%4, %5)
  @return(%6)""",
        """\
  %x = @param["x"] -> float32[512, 2]
  %d = @param["d"] -> float32[512, 1024, 1]
  %y = @param["y"] -> float32[1024, 3]
  %w = @param["w"] -> float32[6, 4]
  %1 = unsqueeze[axes=[1]](%x) -> float32[512, 1, 2]
  %2 = slice[axes=[0], starts=[0], ends=[2], steps=[]](%w) -> float32[2, 4]
  %3 = slice[axes=[0], starts=[2], ends=[3], steps=[]](%w) -> float32[1, 4]
  %4 = slice[axes=[0], starts=[3], ends=[6], steps=[]](%w) -> float32[3, 4]
  %5 = multibroadcast[out_lens=[512, 1024, 4]](%d) -> float32[512, 1024, 4]
  %6 = multibroadcast[out_lens=[512, 1024, 4]](%3) -> float32[512, 1024, 4]
  %7 = mul(%5, %6) -> float32[512, 1024, 4]
  %8 = squeeze[axes=[1]](%1) -> float32[512, 2]
  %9 = dot(%8, %2) -> float32[512, 4]
  %10 = unsqueeze[axes=[1]](%9) -> float32[512, 1, 4]
  %11 = multibroadcast[out_lens=[512, 1024, 4]](%10) -> float32[512, 1024, 4]
  %12 = dot(%y, %4) -> float32[1024, 4]
  %13 = multibroadcast[out_lens=[512, 1024, 4]](%12) -> float32[512, 1024, 4]
  %14 = add(%7, %11) -> float32[512, 1024, 4]
  %15 = add(%14, %13) -> float32[512, 1024, 4]
  @return(%15)""",
    ),
    (
        "product-of-repeated-parts",
        """\
  %e = @param["e"] -> float32[2, 65536, 3]
  %f = @param["f"] -> float32[2, 65536, 2]
  %x = @param["x"] -> float32[2, 7, 8]
  %at = @param["at"] -> int64[65536]
  %w = @param["w"] -> float32[13, 4]
  %1 = gather[axis=1](%x, %at)
  %2 = concat[axis=-1](%e, %1, %f)
  %3 = multibroadcast[out_lens=[2, 13, 4]](%w)
  %4 = dot(%2, %3)
  @return(%4)""",
        """\
  %e = @param["e"] -> float32[2, 65536, 3]
  %f = @param["f"] -> float32[2, 65536, 2]
  %x = @param["x"] -> float32[2, 7, 8]
  %at = @param["at"] -> int64[65536]
  %w = @param["w"] -> float32[13, 4]
  %1 = slice[axes=[0], starts=[0], ends=[3], steps=[]](%w) -> float32[3, 4]
  %2 = slice[axes=[0], starts=[3], ends=[11], steps=[]](%w) -> float32[8, 4]
  %3 = slice[axes=[0], starts=[11], ends=[13], steps=[]](%w) -> float32[2, 4]
  %4 = concat[axis=2](%e, %f) -> float32[2, 65536, 5]
  %5 = concat[axis=0](%1, %3) -> float32[5, 4]
  %6 = multibroadcast[out_lens=[2, 5, 4]](%5) -> float32[2, 5, 4]
  %7 = dot(%4, %6) -> float32[2, 65536, 4]
  %8 = multibroadcast[out_lens=[2, 8, 4]](%2) -> float32[2, 8, 4]
  %9 = dot(%x, %8) -> float32[2, 7, 4]
  %10 = gather[axis=1](%9, %at) -> float32[2, 65536, 4]
  %11 = add(%7, %10) -> float32[2, 65536, 4]
  @return(%11)""",
    ),
    (
        "product-of-repeated-parts",
        """\
  %x = @param["x"] -> float32[65536, 2]
  %y = @param["y"] -> float32[16]
  %w = @param["w"] -> float32[18, 4]
  %1 = multibroadcast[out_lens=[65536, 16]](%y)
  %2 = concat[axis=1](%x, %1)
  %3 = dot(%2, %w)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[65536, 2]
  %y = @param["y"] -> float32[16]
  %w = @param["w"] -> float32[18, 4]
  %1 = slice[axes=[0], starts=[0], ends=[2], steps=[]](%w) -> float32[2, 4]
  %2 = slice[axes=[0], starts=[2], ends=[18], steps=[]](%w) -> float32[16, 4]
  %3 = dot(%x, %1) -> float32[65536, 4]
  %4 = unsqueeze[axes=[0]](%y) -> float32[1, 16]
  %5 = dot(%4, %2) -> float32[1, 4]
  %6 = squeeze[axes=[0]](%5) -> float32[4]
  %7 = multibroadcast[out_lens=[65536, 4]](%6) -> float32[65536, 4]
  %8 = add(%3, %7) -> float32[65536, 4]
  @return(%8)""",
    ),
    (
        "convolution-of-repeated-parts",
        """\
  %x = @param["x"] -> float32[2, 3, 1024, 128]
  %y = @param["y"] -> float32[2, 4, 1024, 1]
  %w = @param["w"] -> float32[5, 7, 1, 1]
  %1 = multibroadcast[out_lens=[2, 4, 1024, 128]](%y)
  %2 = concat[axis=1](%x, %1)
  %3 = convolution(%2, %w)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2, 3, 1024, 128]
  %y = @param["y"] -> float32[2, 4, 1024, 1]
  %w = @param["w"] -> float32[5, 7, 1, 1]
  %1 = slice[axes=[1], starts=[0], ends=[3], steps=[]](%w) -> float32[5, 3, 1, 1]
  %2 = slice[axes=[1], starts=[3], ends=[7], steps=[]](%w) -> float32[5, 4, 1, 1]
  %3 = convolution[padding=[], stride=[], dilation=[], group=1, padding_mode="default"](%x, %1) -> float32[2, 5, 1024, 128]
  %4 = convolution[padding=[], stride=[], dilation=[], group=1, padding_mode="default"](%y, %2) -> float32[2, 5, 1024, 1]
  %5 = multibroadcast[out_lens=[2, 5, 1024, 128]](%4) -> float32[2, 5, 1024, 128]
  %6 = add(%3, %5) -> float32[2, 5, 1024, 128]
  @return(%6)""",
    ),
    (
        "convolution-of-repeated-parts",
        """\
  %x = @param["x"] -> float32[2, 3, 1024, 128]
  %y = @param["y"] -> float32[2, 4, 1024, 1]
  %z = @param["z"] -> float32[2, 2, 1, 128]
  %w = @param["w"] -> float16[5, 9, 1, 1]
  %1 = multibroadcast[out_lens=[2, 4, 1024, 128]](%y)
  %2 = multibroadcast[out_lens=[2, 2, 1024, 128]](%z)
  %3 = concat[axis=1](%1, %x, %2)
  %4 = convert[target_type=float16](%3)
  %5 = convolution(%4, %w)
  @return(%5)""",
        """\
  %x = @param["x"] -> float32[2, 3, 1024, 128]
  %y = @param["y"] -> float32[2, 4, 1024, 1]
  %z = @param["z"] -> float32[2, 2, 1, 128]
  %w = @param["w"] -> float16[5, 9, 1, 1]
  %1 = slice[axes=[1], starts=[0], ends=[4], steps=[]](%w) -> float16[5, 4, 1, 1]
  %2 = slice[axes=[1], starts=[4], ends=[7], steps=[]](%w) -> float16[5, 3, 1, 1]
  %3 = slice[axes=[1], starts=[7], ends=[9], steps=[]](%w) -> float16[5, 2, 1, 1]
  %4 = convert[target_type=float16, saturate=true, round_mode="up"](%x) -> float16[2, 3, 1024, 128]
  %5 = convolution[padding=[], stride=[], dilation=[], group=1, padding_mode="default"](%4, %2) -> float16[2, 5, 1024, 128]
  %6 = convert[target_type=float16, saturate=true, round_mode="up"](%y) -> float16[2, 4, 1024, 1]
  %7 = convolution[padding=[], stride=[], dilation=[], group=1, padding_mode="default"](%6, %1) -> float16[2, 5, 1024, 1]
  %8 = multibroadcast[out_lens=[2, 5, 1024, 128]](%7) -> float16[2, 5, 1024, 128]
  %9 = convert[target_type=float16, saturate=true, round_mode="up"](%z) -> float16[2, 2, 1, 128]
  %10 = convolution[padding=[], stride=[], dilation=[], group=1, padding_mode="default"](%9, %3) -> float16[2, 5, 1, 128]
  %11 = multibroadcast[out_lens=[2, 5, 1024, 128]](%10) -> float16[2, 5, 1024, 128]
  %12 = add(%5, %8) -> float16[2, 5, 1024, 128]
  %13 = add(%12, %11) -> float16[2, 5, 1024, 128]
  @return(%13)""",
    ),
]


@pytest.mark.parametrize(("name", "before", "after"), TURNS)
def test_turns(rule_turns, name, before, after):
    rule_turns(name, before, after)


def test_products_of_one_value_with_parts_of_a_constant_are_merged():
    """Two parts of a constant that were cut, and not folded yet, hid that their products share an operand."""
    text = """\
  %x = @param["x"] -> float32[1024, 2]
  %w = @literal(1.0, 2.0, 3.0, 4.0) -> float32[4, 1]
  %1 = unsqueeze[axes=[1]](%x)
  %2 = multibroadcast[out_lens=[1024, 1024, 2]](%1)
  %3 = multibroadcast[out_lens=[1024, 1024, 2]](%x)
  %4 = concat[axis=2](%2, %3)
  %5 = multibroadcast[out_lens=[1024, 4, 1]](%w)
  %6 = dot(%4, %5)
  @return(%6)"""
    module = parse_module("module main\n" + text, STANDARD)
    Rewriter(RULES).apply(module)
    FuseHorizontal().apply(module)
    module.sweep()
    (product,) = (i for i in module if isinstance(i.op, Dot))
    assert product.shape.lens() == [1024, 2]
    assert sorted(product.inputs[1].get_literal().to_numpy().T.tolist()) == [[1.0, 2.0], [3.0, 4.0]]


NODES = """\
  %e = @param["e"] -> float32[{edges}, 8]
  %x = @param["x"] -> float32[7, 8]
  %at = @param["at"] -> int64[{edges}]
  %w = @param["w"] -> float32[16, 4]
  %1 = gather[axis=0](%x, %at)
  %2 = concat[axis=1](%e, %1)
  %3 = dot(%2, %w)
  @return(%3{more})"""


@pytest.mark.parametrize(
    ("edges", "more", "why"),
    [
        (1 << 17, ", %2", "the concatenation has other users"),
        ((1 << 17) - 1, "", "too few repeated elements to multiply them separately"),
    ],
)
def test_refuses(rule_refuses, edges, more, why):
    rule_refuses("product-of-repeated-parts", NODES.format(edges=edges, more=more), why)


PIXELS = """\
  %x = @param["x"] -> float32[2, 4, 1024, {columns}]
  %y = @param["y"] -> float32[2, 4, 1024, 1]
  %w = @param["w"] -> float32[5, {channels}, 1, {window}]
  %1 = multibroadcast[out_lens=[2, 4, 1024, {columns}]](%y)
  %2 = concat[axis=1](%x, %1)
  %3 = convolution[{attributes}](%2, %w)
  @return(%3{more})"""
USUAL = {"columns": 128, "channels": 8, "window": 1, "attributes": "", "more": ""}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"more": ", %2"}, "the concatenation has other users"),
        ({"columns": 127}, "too few repeated elements to multiply them separately"),
    ],
)
def test_refuses_pixels(rule_refuses, given, why):
    rule_refuses("convolution-of-repeated-parts", PIXELS.format(**USUAL | given), why)


@pytest.mark.parametrize(
    "given",
    [
        {"window": 3},
        {"channels": 4, "attributes": "group=2", "columns": 256},
        {"attributes": "padding=[0, 1]", "columns": 256},
        {"attributes": "stride=[1, 2]", "columns": 256},
    ],
    ids=str,
)
def test_other_convolutions_stay(given):
    text = PIXELS.format(**USUAL | given).replace("float32[5, 4,", "float32[6, 4,")
    module = parse_module("module main\n" + text, STANDARD)
    before, rewriter = module.text(), Rewriter(CONCAT_PRODUCTS)
    rewriter.apply(module)
    assert module.text() == before and not rewriter.tally.fired


def test_rows_that_are_gathered_once_stay_in_the_concatenation():
    text = NODES.format(edges=1 << 17, more="").replace("[7, 8]", "[131072, 8]")
    module = parse_module("module main\n" + text, STANDARD)
    before, rewriter = module.text(), Rewriter(CONCAT_PRODUCTS)
    rewriter.apply(module)
    assert module.text() == before and not rewriter.tally.fired


@pytest.mark.parametrize("weights", [[1, 4], [10, 1], [4]], ids=str)
def test_weights_that_are_broadcast_themselves_have_no_rows_to_cut(weights):
    text = f"""\
  %x = @param["x"] -> float32[131072, 2]
  %y = @param["y"] -> float32[8]
  %w = @param["w"] -> float32{weights}
  %1 = multibroadcast[out_lens=[131072, 8]](%y)
  %2 = concat[axis=1](%x, %1)
  %3 = multibroadcast[out_lens=[10, 4]](%w)
  %4 = dot(%2, %3)
  @return(%4)"""
    module = parse_module("module main\n" + text, STANDARD)
    Rewriter(CONCAT_PRODUCTS).apply(module)
    products = [i for i in module if isinstance(i.op, Dot)]
    assert all(p.inputs[1].shape.dims[1] == 4 for p in products)
    assert module.outputs[0].shape.lens() == [131072, 4]
