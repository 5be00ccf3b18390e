"""Plans, their selection, and launches."""

from __future__ import annotations

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.errors import No, ParameterError, UnsupportedError
from mgx_core.ir.text.parser import parse_module
from mgx_core.ops import STANDARD
from mgx_core.ops.pointwise import Exp
from mgx_core.targets.kernel import HostKernel, Kernel, Launch, Reference
from mgx_core.targets.kernel_table import Kernels
from mgx_core.types.dim import symbol
from mgx_core.types.shape import OptionalShape, SequenceShape, Shape, TupleShape

Relu, Neg, Group = (STANDARD.get(n) for n in ("relu", "neg", "group"))
S = Shape("float", [2])


def named(name: str) -> HostKernel:
    return HostKernel(name, lambda *xs: xs[0])


def test_the_first_plan_that_says_yes_is_picked():
    plans = Kernels("t")

    @plans.plan(Relu)
    def fast(op, shapes, context):
        return No(f"needs rank 2, got {shapes[0].rank}")

    @plans.plan(Relu, Neg)
    def good(op, shapes, context):
        return named(f"good {op.name} {context}")

    @plans.plan()
    def anything(op, shapes, context):
        return named("anything")

    picked = plans.pick(Relu(), [S], "here")
    assert (picked.kernel.name, picked.plan, picked.refused) == (
        "good relu here",
        "good",
        ("fast: needs rank 2, got 1",),
    )
    assert plans.pick(STANDARD.make("abs"), [S]).plan == "anything"
    assert [name for name, _ in plans.offers(Relu(), [S], None)] == ["fast", "good", "anything"]
    assert set(plans.ops()) == {Relu, Neg}


def test_all_refusals_are_reported():
    plans = Kernels("t")
    plans.plan(Relu)(lambda op, shapes, context: No("one"))

    @plans.plan(Relu)
    def second(op, shapes, context):
        return No("two")

    with pytest.raises(
        UnsupportedError, match=r"target 't' has no kernel for relu\(float32\[2\]\): <lambda>: one; second: two"
    ):
        plans.pick(Relu(), [S])
    with pytest.raises(UnsupportedError, match="no plan is offered for this op"):
        plans.pick(Neg(), [S])


def test_plans_are_joined_in_order():
    one, two = Kernels("t"), Kernels("t")
    one.plan(Relu)(lambda op, shapes, context: No("first"))
    two.plan(Relu)(lambda op, shapes, context: named("second"))
    two.plan()(lambda op, shapes, context: named("any"))
    both = one + two
    assert both.pick(Relu(), [S]).refused == ("<lambda>: first",)
    assert both.pick(Relu(), [S]).kernel.name == "second"
    assert both.pick(Neg(), [S]).kernel.name == "any"
    assert len(one.plans(Relu())) == 1


def test_tables_are_created_on_the_first_lookup_of_one_of_their_ops():
    made = []

    def rare():
        made.append("rare")
        table = Kernels("t")
        table.plan(Neg, Exp)(lambda op, shapes, context: named(f"rare {op.name}"))
        return table

    plans, third = Kernels("t"), Kernels("t")
    plans.plan(Relu)(lambda op, shapes, context: named("relu"))
    plans.later((f"{op.__module__}:{op.__qualname__}" for op in (Neg, Exp)), rare)
    third.plan(Exp)(lambda op, shapes, context: No("third"))
    assert not plans.empty and plans.plans(Relu()) and not made

    @mgx.define_op("opposite")
    class Opposite(Neg):
        """An op whose base has plans."""

    before, behind = third + plans, plans + third
    assert made == ["rare"]  # the first table's plans for exp precede the second's
    assert before.pick(Exp(), [S]).refused == ("<lambda>: third",)
    assert behind.pick(Exp(), [S]).refused == ()
    assert before.pick(Exp(), [S]).kernel.name == behind.pick(Exp(), [S]).kernel.name == "rare exp"
    assert before.plans(Opposite()) == before.plans(Neg()) and len(before.plans(Neg())) == 1
    assert set(plans.ops()) == {Relu, Neg, Exp}
    assert len(plans.plans(Neg())) == 1


def test_ops_with_modules_hand_them_over():
    plans = Kernels("t")
    seen = []

    @plans.plan(Group)
    def group(op, shapes, context, modules):
        seen.append([m.name for m in modules])
        return named("group")

    module = parse_module(
        """
        module main
          %x = @param["x"] -> float32[2]
          %1 = group(%x){body}
        module body
          %y = @param["y"] -> float32[2]""",
        STANDARD,
    )
    (ins,) = module.outputs
    assert plans.pick(ins.op, [S], None, ins.modules).plan == "group"
    assert seen == [["body"]]


def test_kernels_on_the_host():
    kernel = HostKernel("double", lambda x: 2 * x)
    assert isinstance(kernel, Kernel)
    assert kernel.run([np.float32([1, 2])]).tolist() == [2, 4]
    reference = Reference(Neg(), ["nobody else would"])
    assert isinstance(reference, Kernel)
    assert (reference.name, reference.reasons) == ("reference neg", ("nobody else would",))
    assert reference.run([np.float32([1, 2])]).tolist() == [-1, -2]


def test_launches_represent_an_op():
    launch = Launch(named("quick"), Neg(), S, "plan")
    assert repr(launch) == "launch[quick]"
    assert repr(Launch(named("quick"), Neg(), S, place="host")) == "launch[quick on host]"
    assert launch.result([S], ()) == S
    assert launch == launch
    assert launch != Launch(launch.kernel, Neg(), S, "plan")
    assert launch.evaluate([np.float32([3, 4])]).tolist() == [3, 4]
    with pytest.raises(mgx.ShapeError, match="neg takes 1 input "):
        launch.result([S, S], ())
    with pytest.raises(AttributeError, match="immutable"):
        launch.plan = "other"


def test_launches_of_references_follow_symbols():
    n = mgx.dim.symbol("n", 1, 4)
    op = STANDARD.make("multibroadcast", out_lens=[n, 2])
    launch = Launch(Reference(op), op, Shape("float", [n, 2]))
    filled = launch.substitute({"n": 3})
    assert filled.evaluate([np.float32([1, 2])]).shape == (3, 2)
    assert launch.substitute({"m": 3}) is launch
    native = Launch(named("native"), op, Shape("float", [n, 2]))
    assert native.substitute({"n": 3}) is native


def test_plans_say_which_element_types_they_are_made_for():
    plans = Kernels("t")

    @plans.plan(Relu, dtypes=(dt.float32, dt.float16))
    def narrow(op, shapes, context, options):
        return named(f"narrow {options.fast_math}")

    asked = plans.for_options(mgx.CompileOptions(fast_math=False))
    assert asked.pick(Relu(), [S]).kernel.name == "narrow False"
    assert asked.pick(Relu(), [None, TupleShape([S, S])]).kernel.name == "narrow False"
    for wrong in (
        Shape("double", [2]),
        TupleShape([S, Shape("double", [2])]),
        OptionalShape(SequenceShape(Shape("double", [2]))),
    ):
        with pytest.raises(UnsupportedError, match="narrow: made for float32, float16, got float64"):
            asked.pick(Relu(), [S, wrong])
    with pytest.raises(ParameterError, match="must name element types, got 'float'"):
        plans.plan(Relu, dtypes=["float"])


def test_plans_with_an_options_parameter_receive_the_options():
    plans = Kernels("one")

    @plans.plan(Relu)
    def exact(op, shapes, context, *, options):
        return No("for exact results only") if options.fast_math else named("exact")

    @plans.plan(Relu)
    def close(op, shapes, context):
        return named("close")

    assert plans.for_options(mgx.CompileOptions(fast_math=False)).pick(Relu(), [S]).plan == "exact"
    picked = plans.for_options(mgx.CompileOptions()).pick(Relu(), [S])
    assert (picked.plan, picked.refused) == ("close", ("exact: for exact results only",))


def in_place(x):
    x += 1
    return x


def test_a_kernel_that_overwrites_its_operand_is_detected_on_request():
    plans = mgx.Kernels("scribbling")
    plans.plan(Exp)(lambda op, inputs, context: mgx.HostKernel("in place", in_place))
    target = type("Scribbling", (mgx.Target,), {"name": "scribbling", "kernels": lambda self, context: plans})()
    program = mgx.parse_program('module main\n  %x = @param["x"] -> float32[2]\n  %1 = exp(%x)\n  @return(%1)')
    program.compile(target, validate=True)
    with pytest.raises(
        mgx.PluginError, match=r"kernel 'in place' of exp.* wrote into its operand 0; it may write only its"
    ):
        program.run({"x": np.zeros(2, np.float32)})


def test_results_have_the_extents_that_operands_have_got() -> None:
    """An item has the tuple's current extents; a result keeps its declared ones while they are symbolic."""
    n, m = symbol("n", 0, 32), symbol("m", 0, 32)
    opened, known = Shape("float", [1, n]), Shape("float", [1, 32])
    item = STANDARD.get("get_tuple_elem")(index=0)
    launch = Launch(Reference(item), item, opened)
    assert launch.infer(TupleShape([known])) == known
    assert launch.infer(TupleShape([Shape("float", [1, m])])) == Shape("float", [1, m])
    relu = Launch(named("relu"), Relu(), opened)
    assert relu.infer(known) == known
    assert relu.infer(Shape("float", [1, m])) == opened


class Loops(Kernel):
    name = "loops"


class Host(mgx.Target):
    name = "host"


def test_what_kernels_targets_and_frontends_need_not_support_is_refused():
    with pytest.raises(UnsupportedError, match=r"^kernel 'loops' cannot be called from Python$"):
        Loops().run([])
    with pytest.raises(UnsupportedError, match=r"^target 'host' takes no compiled code from files$"):
        Host().restored(None, None, None, None)
    with pytest.raises(UnsupportedError, match=r"^Frontend cannot export models$"):
        mgx.Frontend().export(mgx.Program(), "model")
