"""The rewrite engine: what rules may return, and how the engine handles it."""

from __future__ import annotations

import re

import numpy as np
import pytest

from mgx_core.errors import No, ParameterError, PassError, ShapeError
from mgx_core.ir.module import Module
from mgx_core.ir.text.parser import parse_module
from mgx_core.ir.verify import verify
from mgx_core.ops import STANDARD
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.rules.engine import Rewriter, Rules
from mgx_core.types.shape import Shape

Relu, Neg, Abs, Add = (STANDARD.get(n) for n in ("relu", "neg", "abs", "add"))


def rewritten(text: str, rules: Rules) -> tuple[Module, Rewriter, bool]:
    module = parse_module(text, STANDARD)
    rewriter = Rewriter(rules)
    changed = rewriter.apply(module)
    assert verify(module) == []
    return module, rewriter, changed


CHAIN = """\
module main
  %x = @param["x"] -> float32[2]
  %1 = neg(%x) -> float32[2]  # a
  %2 = neg(%1) -> float32[2]  # b
  %3 = relu(%2) -> float32[2]  # c
  %4 = relu(%3) -> float32[2]  # d
  @return(%4)"""


def cancel() -> Rules:
    rules = Rules("cancel")

    @rules.on(Neg)
    def neg_of_neg(i, b):
        """neg(neg(x)) -> x

        Exact.
        """
        inner = i.inputs[0]
        return inner.inputs[0] if isinstance(inner.op, Neg) else None

    @rules.on(Relu)
    def relu_of_relu(i, b):
        """relu(relu(x)) -> relu(x)"""
        inner = i.inputs[0]
        return inner if isinstance(inner.op, Relu) else None

    return rules


def test_rules_fire_and_the_dead_are_swept():
    module, rewriter, changed = rewritten(CHAIN, cancel())
    assert changed
    assert (
        module.text()
        == """\
module main
  %x = @param["x"] -> float32[2]
  %1 = relu(%x) -> float32[2]  # c, d
  @return(%1)"""
    )
    assert rewriter.tally.fired == {"neg-of-neg": 1, "relu-of-relu": 1}
    assert not Rewriter(cancel()).apply(module)


@pytest.mark.parametrize("name", ["relu", "neg"])
def test_the_result_of_a_module_without_return_is_replaced_once(name):
    text = CHAIN.replace("  @return(%4)", f"  %5 = {name}(%4) -> float32[2]\n  %6 = {name}(%5) -> float32[2]")
    module, rewriter, changed = rewritten(text, cancel())
    assert changed
    assert [i.name for i in module] == ["@param", "relu", "@return"]
    assert rewriter.tally.fired.total() == (4 if name == "relu" else 3)


def test_rules_have_names_and_descriptions():
    first = cancel().rules[0]
    assert (first.name, first.says, first.roots) == ("neg-of-neg", "neg(neg(x)) -> x", (Neg,))
    assert [r.name for r in cancel().without(["neg-of-neg"]).rules] == ["relu-of-relu"]
    assert [r.name for r in (cancel() + cancel()).rules] == ["neg-of-neg", "relu-of-relu"] * 2


def test_new_instructions_are_inserted_in_place_with_the_sources():
    rules = Rules("split")

    @rules.on(Abs)
    def abs_by_relu(i, b):
        (x,) = i.inputs
        return b.add(Add(), b.add(Relu(), x), b.add(Relu(), b.add(Neg(), x)))

    module, _, _ = rewritten(
        """
        module main
          %x = @param["x"] -> float32[2]
          %1 = abs(%x)  # node
          %2 = neg(%1)  # other
          @return(%2)""",
        rules,
    )
    assert [(i.name, i.sources) for i in module][1:-1] == [
        ("relu", ("node",)), ("neg", ("node",)), ("relu", ("node",)), ("add", ("node",)), ("neg", ("other",)),
    ]  # fmt: skip


def test_a_rule_is_called_only_where_an_operand_has_an_op_that_it_reads():
    called: list[str] = []
    rules = Rules("counted")

    @rules.on(Relu, reads=Neg)
    def relu_of_neg(i, b):
        """relu(neg(x)) is looked at."""
        called.append(i.sources[0])

    text = """\
module main
  %x = @param["x"] -> float32[2]
  %1 = relu(%x) -> float32[2]  # of a parameter
  %2 = neg(%1) -> float32[2]
  %3 = relu(%2) -> float32[2]  # of neg
  %4 = multibroadcast[out_lens=[3, 2]](%2) -> float32[3, 2]
  %5 = relu(%4) -> float32[3, 2]  # of a view of neg
  @return(%3, %5)"""
    rewritten(text, rules)
    assert called == ["of neg", "of a view of neg"]


def test_a_refusal_is_forgotten_when_the_rule_cannot_match_any_more():
    rules, fired = Rules("forgotten"), list[object]()

    @rules.on(Relu, reads=Neg)
    def relu_of_neg(i, b):
        """relu(neg(x)) is refused."""
        return No("always")

    @rules.on(Relu, reads=Relu)
    def relu_of_relu(i, b):
        """relu(relu(x)) -> relu(x)."""
        fired.append(i)
        return i.inputs[0]

    @rules.on(Neg)
    def abs_instead(i, b):
        """neg(x) -> abs(x), after the relu above."""
        return b.add(Abs(), i.inputs[0]) if fired else No("too early")

    module, rewriter, _ = rewritten(CHAIN, rules)
    assert [i.name for i in module] == ["@param", "abs", "abs", "relu", "@return"]
    assert rewriter.tally.refusals == []


def test_refusals_are_kept_with_their_reason_and_leave_no_trace():
    rules = Rules("shy")

    @rules.on(Neg)
    def not_today(i, b):
        b.add(Abs(), b.literal(np.float32([1, 2])))
        return No("it rains")

    module, rewriter, changed = rewritten(CHAIN, rules)
    assert not changed
    assert module.text() == CHAIN
    assert [(r.rule, r.instruction, r.sources, r.why) for r in rewriter.tally.refusals] == [
        ("not-today", "neg(@param) -> float32[2]", ("a",), "it rains"),
        ("not-today", "neg(neg) -> float32[2]", ("b",), "it rains"),
    ]


def relus() -> Rules:
    return Rules("relus", [r for r in cancel().rules if r.name == "relu-of-relu"])


def test_a_refusal_counts_once_per_instruction_with_its_last_reason():
    rules = relus()
    said = []

    @rules.on(Relu)
    def talks(i, b):
        said.append(i.users[0].name)
        return No(f"{said[-1]} reads it")

    _, rewriter, _ = rewritten(CHAIN, rules)
    assert said == ["relu", "@return"]
    assert rewriter.tally.counts() == (("relu-of-relu", 1, 0, ""), ("talks", 0, 1, "@return reads it"))


def alone() -> Rules:
    rules = Rules("alone")

    @rules.on(Abs)
    def abs_of_neg(i, b):
        inner = i.inputs[0]
        return b.add(Abs(), inner.inputs[0]) if isinstance(inner.op, Neg) else None

    @rules.on(Relu)
    def relu_of_its_own(i, b):
        inner = i.inputs[0]
        return b.add(Abs(), inner.inputs[0]) if isinstance(inner.op, Neg) and len(inner.users) == 1 else None

    return rules


def test_rules_are_retried_for_the_remaining_sole_reader():
    module, _, _ = rewritten(
        """
        module main
          %x = @param["x"] -> float32[2]
          %1 = neg(%x)
          %2 = relu(%1)
          %3 = abs(%1)
          @return(%2, %3)""",
        alone(),
    )
    assert [i.name for i in module][1:-1] == ["abs", "abs"]


def test_rules_are_retried_where_a_branch_was_the_other_reader():
    """The dead operand in the enclosing module was left, as a user of its own operand."""
    module, _, _ = rewritten(
        """
        module main
          %c = @param["c"] -> bool[]
          %x = @param["x"] -> float32[2]
          %1 = neg(%x)
          %2 = relu(%1)
          %n = neg(%1)
          %3 = if(%c){then, else}
          @return(%2, %3)
        module then
          %4 = abs(%n)
          @return(%4)
        module else
          @return(%x)""",
        alone(),
    )
    assert [i.name for i in module][2:-1] == ["abs", "if"]


def test_a_rule_that_finally_fires_is_not_reported_as_refused():
    rules = relus()

    @rules.on(Relu)
    def waits(i, b):
        return No("not yet") if i.users[0].name == "relu" else i.inputs[0]

    _, rewriter, _ = rewritten(CHAIN, rules)
    assert rewriter.tally.counts() == (("relu-of-relu", 1, 0, ""), ("waits", 1, 0, ""))


def test_a_rule_may_not_change_the_type():
    rules = Rules("bad")

    @rules.on(Neg)
    def to_double(i, b):
        return b.add(STANDARD.make("convert", target_type="double"), i.inputs[0])

    wrong = r"rule 'to-double' of package \w+ turns neg.*into convert.*type would change.*--rule to-double=off"
    with pytest.raises(PassError, match=wrong):
        rewritten(CHAIN, rules)


def test_rules_that_circle_are_found_out():
    rules = Rules("circle")

    @rules.on(Neg)
    def back(i, b):
        return b.add(Abs(), *i.inputs)

    @rules.on(Abs)
    def forth(i, b):
        return b.add(Neg(), *i.inputs)

    with pytest.raises(PassError) as caught:
        rewritten(CHAIN, rules)
    package = __name__.partition(".")[0]
    assert "circle: the rewrite does not terminate" in str(caught.value)
    for name in ("back", "forth"):
        assert f"rule {name!r} of package {package} (50 times)" in str(caught.value)
    assert re.search(
        r"fusion_rules=\{'(back|forth)': False\} \(--rule (back|forth)=off\) leaves it out$", str(caught.value)
    )


def test_a_rule_that_feeds_itself_is_blamed_and_not_the_others():
    rules = Rules("circle")

    @rules.on(Relu)
    def innocent(i, b):
        return b.add(Abs(), *i.inputs)

    @rules.on(Abs)
    def guilty(i, b):
        return b.add(Abs(), *i.inputs)

    with pytest.raises(
        PassError, match=r"rule 'guilty' of package \w+ \(100 times\) keeps firing on its own result"
    ) as caught:
        rewritten(CHAIN, rules)
    assert "innocent" not in str(caught.value)


def test_duplicate_names_are_prefixed_by_their_table():
    rules = Rules("Acme rules=1")
    rules.on(Neg)(lambda i, b: None)
    rules.rules = [rule._replace(name=name) for rule in rules.rules for name in ("one", "two", "two")]
    apart = rules.apart_from({"one", "Acme-rules-1.one"})
    assert [r.name for r in apart.rules] == ["Acme-rules-1.one-2", "two", "Acme-rules-1.two"]


def test_errors_name_the_rule():
    rules = Rules("broken")

    @rules.on(Relu)
    def wrong_call(i, b):
        return b.add(Add(), *i.inputs)

    with pytest.raises(ShapeError, match=r"rule 'wrong-call' of package \w+ on relu\(neg\).*: add takes 2 inputs"):
        rewritten(CHAIN, rules)


def test_nested_modules_are_rewritten_and_their_results_stay():
    text = """
        module main
          %c = @param["c"] -> bool[]
          %x = @param["x"] -> float32[2]
          %n = neg(%x)
          %2 = if(%c){then, else}
          @return(%2)
        module then
          %3 = neg(%n)
          @return(%3)
        module else
          %4 = relu(%x)
          %5 = relu(%4)
          @return(%5)"""
    module, rewriter, _ = rewritten(text, cancel())
    then, other = module.outputs[0].modules
    assert then.outputs == (module.parameters["x"],)
    assert [i.name for i in other] == ["relu", "@return"]
    assert rewriter.tally.fired.total() == 2


def test_several_roots_and_the_order_of_rules():
    rules = Rules("order")
    seen = []

    @rules.on(Neg, Relu)
    def first(i, b):
        seen.append(("first", i.name))

    @rules.on(Relu)
    def second(i, b):
        seen.append(("second", i.name))

    rewritten(CHAIN, rules)
    assert seen == [("first", "neg")] * 2 + [("first", "relu"), ("second", "relu")] * 2


@op("test_engine_writes", replaces=True)
class Writes(Operation):
    """Replaces slices, as a package's own op would."""

    def infer(self, x: Shape, indices: Shape, updates: Shape) -> Shape:
        return x


def test_the_root_may_be_a_trait():
    rules = Rules("traits")
    seen = []

    @rules.on(Neg, trait="replaces")
    def note(i, b):
        seen.append(type(i.op))

    module = Module("main")
    x, at = module.add_parameter("x", Shape("float32", [2])), module.add_parameter("at", Shape("int64", [1, 1]))
    written = module.add(Writes(), x, at, module.add(Relu(), module.add(Neg(), x)))
    module.add_return([written])
    Rewriter(rules).apply(module)
    assert sorted(c.__name__ for c in seen) == ["Neg", "Writes"]


def test_the_root_may_be_a_class_that_is_not_imported():
    rules = Rules("places")
    seen = []

    @rules.on(Neg, f"{__name__}:Writes", "package.that_does_not_exist:Op")
    def note(i, b):
        seen.append(type(i.op))

    class Derived(Writes):
        """Stands for subclasses, which are roots too."""

    assert rules.roots == (Neg,)
    assert [rules.rules[0].rooted(cls) for cls in (Neg, Writes, Derived, Relu)] == [True, True, True, False]
    module = Module("main")
    x, at = module.add_parameter("x", Shape("float32", [2])), module.add_parameter("at", Shape("int64", [1, 1]))
    module.add_return([module.add(Writes(), x, at, module.add(Relu(), module.add(Neg(), x)))])
    Rewriter(rules).apply(module)
    assert sorted(c.__name__ for c in seen) == ["Neg", "Writes"]


def test_a_root_in_another_form_is_refused():
    with pytest.raises(
        ParameterError, match="rules places: a root op is a class or the text module:name of one, got 'neg'"
    ):
        Rules("places").on("neg")


@pytest.mark.parametrize("trait", ["moves", "replace"])
def test_the_root_is_a_trait_of_classes(trait):
    with pytest.raises(ParameterError, match=f"'{trait}' is not a trait of classes of ops; known are .*replaces, .*"):
        Rules("traits").on(trait=trait)


def test_rules_that_were_added_to_a_table_apply() -> None:
    """Rewriters of the same rules share which of them can match."""
    rules = cancel()
    assert not rewritten(CHAIN.replace("neg", "abs").replace("relu", "abs"), rules)[2]

    @rules.on(Abs)
    def abs_of_abs(i, b):
        """abs(abs(x)) -> abs(x)"""
        inner = i.inputs[0]
        return inner if isinstance(inner.op, Abs) else None

    assert rewritten(CHAIN.replace("neg", "abs").replace("relu", "abs"), rules)[2]
