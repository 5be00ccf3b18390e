"""Branches whose condition is known, and the symbols that become known with it."""

from __future__ import annotations

from mgx_core.compile.stages import RULES
from mgx_core.ir.text.parser import parse_module
from mgx_core.ir.verify import verify
from mgx_core.ops import STANDARD
from mgx_core.passes.inline_branches import InlineBranches
from mgx_core.rules.engine import Rewriter

BRANCHES = """\
symbol n?0 in 0..9
module main
  %x = @param["x"] -> float32[2, 3]
  %c = @literal({}) -> bool[]
  %1 = if(%c){{then_1, else_1}} -> (float32[n?0, 3])
  %2 = get_tuple_elem[index=0](%1) -> float32[n?0, 3]
  %3 = reshape[dims=[3, n?0]](%2) -> float32[3, n?0]
  %4 = neg(%3)
  @return(%4)
module then_1
  %5 = relu(%x)
  @return(%5)
module else_1
  %6 = concat[axis=0](%x, %x)
  @return(%6)"""


def test_the_branch_taken_replaces_the_if(run_both):
    for condition, after in (
        (
            "true",
            """\
module main
  %x = @param["x"] -> float32[2, 3]
  %1 = relu(%x) -> float32[2, 3]
  %2 = reshape[dims=[3, 2], allowzero=false](%1) -> float32[3, 2]
  %3 = neg(%2) -> float32[3, 2]
  @return(%3)""",
        ),
        (
            "false",
            """\
module main
  %x = @param["x"] -> float32[2, 3]
  %1 = concat[axis=0](%x, %x) -> float32[4, 3]
  %2 = reshape[dims=[3, 4], allowzero=false](%1) -> float32[3, 4]
  %3 = neg(%2) -> float32[3, 4]
  @return(%3)""",
        ),
    ):
        module = parse_module(BRANCHES.format(condition), STANDARD)
        assert InlineBranches().apply(module)
        module.sweep()
        assert verify(module) == []
        assert module.text() == after
        run_both(parse_module(BRANCHES.format(condition), STANDARD), module, True)


def test_a_branch_may_return_outer_values(run_both):
    text = BRANCHES.format("true").replace("  %5 = relu(%x)\n  @return(%5)", "  @return(%x)")
    module = parse_module(text, STANDARD)
    assert InlineBranches().apply(module)
    assert verify(module) == []
    run_both(parse_module(text, STANDARD), module, True)


def test_an_open_condition_stays():
    text = BRANCHES.format("true").replace("%c = @literal(true) -> bool[]", '%c = @param["c"] -> bool[]')
    module = parse_module(text, STANDARD)
    assert not InlineBranches().apply(module)


def test_extents_that_a_rule_finds_out_reach_all_that_follows(run_both):
    text = """\
symbol part?0 in 0..5
symbol part?1 in 0..5
module main
  %x = @param["x"] -> float32[2, 5]
  %s = @literal(2, 3) -> int64[2]
  %1 = split[axis=1, count=2](%x, %s) -> (float32[2, part?0], float32[2, part?1])
  %2 = get_tuple_elem[index=1](%1) -> float32[2, part?1]
  %3 = reshape[dims=[part?1, 2]](%2) -> float32[part?1, 2]
  @return(%3)"""
    module = parse_module(text, STANDARD)
    Rewriter(RULES).apply(module)
    module.sweep()
    assert verify(module) == []
    assert (
        module.text()
        == """\
module main
  %x = @param["x"] -> float32[2, 5]
  %1 = slice[axes=[1], starts=[2], ends=[5], steps=[]](%x) -> float32[2, 3]
  %2 = reshape[dims=[3, 2], allowzero=false](%1) -> float32[3, 2]
  @return(%2)"""
    )
    run_both(parse_module(text, STANDARD), module, True)


SELECTION = """\
symbol n in 1..4
symbol n?0 in 1..4
module main
  %x = @param["x"] -> float32[{}, 3]
  %1 = select_module(%x){{one, others}} -> (float32[{}, 3])
  %2 = get_tuple_elem[index=0](%1) -> float32[{}, 3]
  @return(%2)
module one
  %y = @param["y"] -> float32[1, 3]
  %3 = relu(%y)
  @return(%3)
module others
  %z = @param["z"] -> float32[n, 3]
  %4 = neg(%z)
  @return(%4)"""


def test_the_first_module_that_static_values_fit_replaces_the_selection(run_both):
    for rows, name in ((1, "relu"), (2, "neg")):
        module = parse_module(SELECTION.format(rows, "n?0", "n?0"), STANDARD)
        assert InlineBranches().apply(module)
        module.sweep()
        assert verify(module) == []
        assert [ins.op.name for ins in module][1:-1] == [name]
        assert [str(shape) for shape in module.output_shapes()] == [f"float32[{rows}, 3]"]
        run_both(parse_module(SELECTION.format(rows, "n?0", "n?0"), STANDARD), module, True)


def test_open_values_leave_the_selection():
    module = parse_module(SELECTION.format("n", "n", "n"), STANDARD)
    assert not InlineBranches().apply(module)
    assert [str(shape) for shape in module.output_shapes()] == ["float32[n, 3]"]  # as in every module
