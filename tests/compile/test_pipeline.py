"""Stages, their invariants and the record of executed passes."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

import pytest

from mgx_core import Pass
from mgx_core.compile.pipeline import PassRecord, Pipeline, Stage, size
from mgx_core.errors import No, PassError, ShapeError
from mgx_core.ir.module import Module
from mgx_core.ir.text.parser import parse_module
from mgx_core.ops import STANDARD
from mgx_core.rules.stats import RuleCount, Tally
from mgx_core.types.shape import Shape

TEXT = """
    module main
      %x = @param["x"] -> float32[2]
      %1 = relu(%x)
      %2 = neg(%1)
      @return(%2)"""


@dataclass(frozen=True)
class Swap(Pass):
    """Replaces one op by another."""

    old: str
    new: str
    name: str = "swap"

    def apply(self, module: Module) -> bool:
        changed = False
        for ins in module:
            if ins.name == self.old:
                module.replace_instruction(ins, STANDARD.make(self.new))
                changed = True
        return changed


@dataclass(frozen=True)
class Corrupt(Pass):
    """Leaves an instruction with a wrong shape."""

    name: str = "corrupt"

    def apply(self, module: Module) -> bool:
        module.outputs[0].result = Shape("float", [7])
        return False


@dataclass(frozen=True)
class Fail(Pass):
    name: str = "fail"

    def apply(self, module: Module) -> bool:
        raise ShapeError("no")


def names(module: Module) -> list[str]:
    return [i.name for i in module][1:-1]


@pytest.fixture
def module() -> Module:
    return parse_module(TEXT, STANDARD)


def test_passes_run_in_order_and_are_recorded(module):
    pipeline = Pipeline([Stage("one", (Swap("neg", "abs"),)), Stage("two", (Swap("abs", "exp"), Swap("sin", "cos")))])
    assert pipeline.run(module) is module
    assert names(module) == ["relu", "exp"]
    assert [(r.stage, r.name, r.changed, r.before, r.after) for r in pipeline.records] == [
        ("one", "swap", True, 4, 4),
        ("two", "swap", True, 4, 4),
        ("two", "swap", False, 4, 4),
    ]
    assert all(r.seconds >= 0 for r in pipeline.records)


def test_stages_accept_additional_passes():
    stage = Stage("one", (Swap("a", "b"),)).with_passes([Fail()])
    assert [p.name for p in stage.passes] == ["swap", "fail"]
    assert all(isinstance(p, Pass) for p in stage.passes)


def test_passes_are_left_out_by_name(module):
    Pipeline([Stage("one", (Swap("neg", "abs"), Fail()))], disabled=frozenset({"swap", "fail"})).run(module)
    assert names(module) == ["relu", "neg"]


def test_a_stages_invariant(module):
    stage = Stage("tidy", (Swap("neg", "abs"),), lambda m: "abs is left" if "abs" in names(m) else None)
    with pytest.raises(PassError, match="after stage 'tidy': abs is left"):
        Pipeline([stage]).run(module)


def test_errors_name_the_pass(module):
    with pytest.raises(ShapeError, match="pass 'fail': no"):
        Pipeline([Stage("one", (Fail(),))]).run(module)


def test_validation_finds_the_pass_that_broke_the_module(module):
    Pipeline([Stage("one", (Corrupt(),))]).run(module.clone())
    with pytest.raises(PassError, match=r"pass 'corrupt' of stage 'one' left a bad module: .*its rule gives"):
        Pipeline([Stage("one", (Swap("relu", "abs"), Corrupt()))], validate=True).run(module)


def test_size_counts_nested_modules():
    module = parse_module(
        """
        module main
          %x = @param["x"] -> float32[2]
          %1 = group(%x){body}
        module body
          %y = @param["y"] -> float32[2]
          %2 = abs(%y)""",
        STANDARD,
    )
    assert size(module) == 4


def test_records_merge_counts_and_survive_serialization():
    tally = Tally()
    passes = (Swap("relu", "abs"), Counting(tally))
    pipeline = Pipeline([Stage("s", passes)])
    pipeline.run(parse_module(TEXT, STANDARD))
    plain, counting = pipeline.records
    assert plain.rules == ()
    assert counting.rules == (RuleCount("b", 2, 0, ""), RuleCount("a", 0, 3, "often"))
    assert tally.fired == {"b": 2}
    for record in pipeline.records:
        fields = json.loads(json.dumps(dataclasses.astuple(record)))
        assert PassRecord(*fields) == record
        assert PassRecord(*fields[:6]).rules == ()  # files written before passes had counts


@dataclass(frozen=True)
class Counting(Pass):
    """Counts on every module."""

    tally: Tally
    name: str = "counting"

    def apply(self, module: Module) -> bool:
        ins = module.outputs[0]
        self.tally.fired["b"] += 2
        for why in ("often", "once", "often"):
            self.tally.refuse("a", ins, No(why))
        return False


def no_abs(m: Module) -> str | None:
    return "abs is left" if "abs" in names(m) else None


def test_validation_checks_preconditions_of_a_stage_before_it_and_after_each_pass(module):
    stage = Stage("tidy", (Swap("neg", "exp"), Swap("relu", "abs"), Swap("abs", "exp")), requires=no_abs)
    Pipeline([stage]).run(module.clone())
    with pytest.raises(
        PassError,
        match=r"pass 'swap' of stage 'tidy' left a bad module: abs is left \(after the following passes: \[swap, swap\]\)",
    ):
        Pipeline([stage], validate=True).run(module)
    with pytest.raises(PassError, match=r"before stage 'tidy': abs is left$"):
        Pipeline([stage], validate=True).run(module)


def test_validation_checks_the_invariant_of_a_stage(module):
    stage = Stage("tidy", (Swap("neg", "abs"),), proves=no_abs)
    Pipeline([stage]).run(module.clone())
    with pytest.raises(PassError, match=r"after stage 'tidy': abs is left \(after the following passes: \[swap\]\)"):
        Pipeline([stage], validate=True).run(module)


@pytest.mark.parametrize(
    ("apply", "error"),
    [
        (lambda self, module: None, "pass 'mine' of stage 'one' must return True or False, got None"),
        (lambda self, module: {}["axis"], "pass 'mine' of stage 'one' failed: KeyError: 'axis' .in tests.*[.]Mine."),
        (lambda self, module: next(iter(())), "pass 'mine' of stage 'one' failed: StopIteration"),
    ],
)
def test_passes_that_fail_are_named(module, apply, error):
    mine = type("Mine", (Pass,), {"name": "mine", "apply": apply})()
    with pytest.raises(PassError, match=error):
        Pipeline([Stage("one", (mine,))]).run(module)
