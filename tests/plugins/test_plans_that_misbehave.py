"""Mistakes in third-party plans, kernels, rules and ops: the message names the owner and the location."""

from __future__ import annotations

from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import No, define_op
from mgx_core.ops.activation import Relu
from mgx_core.ops.pointwise import Add, Neg
from mgx_core.plugins import manager as plugins
from mgx_core.plugins.manager import Plugins
from mgx_core.rules.engine import Rewriter
from mgx_core.types.shape import Shape

PROGRAM = """
    module main
      %x = @param["x"] -> float32[2]
      %1 = neg(%x) @ "layer7"
      @return(%1)"""


class Given(mgx.Target):
    """A target with the given plans."""

    name = "given"

    def __init__(self, *plans, ops=(Neg,)):
        self.offered = mgx.Kernels("given")
        for plan in plans:
            self.offered.plan(*ops)(plan)

    def kernels(self, context):
        return self.offered


def program():
    made = mgx.Program()
    main = made.get_main_module()
    x = main.add_parameter("x", Shape("float32", [2]))
    main.add_return([main.add(mgx.op("neg"), x, sources=["layer7"])])
    return made


def compiled(target, **options):
    made = program()
    made.compile(target, fusion_rules={"fuse-elementwise": False}, **options)
    return made


def raising(error):
    def bad(op, shapes, context):
        raise error

    return bad


def giving(answer):
    def bad(op, shapes, context):
        return answer

    return bad


class Unnamed(mgx.Kernel):
    name = ""


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (giving(None), "returned None"),
        (giving("numpy neg"), "returned str 'numpy neg'"),
        (giving(np.negative), "returned ufunc <ufunc 'negative'>"),
        (giving(No), "returned the class No"),
        (giving(mgx.HostKernel), "returned the class HostKernel"),
        (giving(Unnamed()), "returned Unnamed"),
        (giving(No(7)), "returned No No(why=7)"),
        (raising(ZeroDivisionError("division by zero")), "raised ZeroDivisionError: division by zero"),
        (raising(mgx.ShapeError("no static extents")), "raised ShapeError: no static extents"),
        (raising(KeyError("axis")), "raised KeyError: 'axis'"),
    ],
)
def test_plans_that_return_no_kernel(plan, said):
    with pytest.raises(mgx.PluginError) as caught:
        compiled(Given(plan))
    message = str(caught.value)
    assert (
        f"node 'layer7': plan 'bad' of package {__name__.partition('.')[0]} for target 'given' on neg(float32[2]) {said}"
        in message
    )


def test_an_unsupported_error_is_a_refusal_and_keeps_the_others():
    made = compiled(Given(giving(No("too small")), raising(mgx.UnsupportedError("no library"))))
    (placed,) = made.executable.instances()[0].placements
    assert placed.place == "host"
    assert "bad: too small; bad: no library" in placed.refused[0]


def test_plans_for_a_base_class_follow_those_for_the_op():
    asked = []
    plans = mgx.Kernels("t")

    @plans.plan()
    def anything(op, shapes, context):
        asked.append("any")
        return No("any")

    @plans.plan(mgx.Pointwise)
    def base(op, shapes, context):
        asked.append("base")
        return No("base")

    @plans.plan(Neg)
    def own(op, shapes, context):
        asked.append("own")
        return No("own")

    with pytest.raises(mgx.UnsupportedError, match="own: own; base: base; anything: any"):
        plans.pick(Neg(), [Shape("float32", [2])])
    assert asked == ["own", "base", "any"]


@pytest.mark.parametrize("wrong", ["neg", 42, np.ndarray, Neg()])
def test_plans_name_classes_of_ops(wrong):
    with pytest.raises(mgx.ParameterError, match="a plan for target 't' must name classes of operations, got"):
        mgx.Kernels("t").plan(wrong)


@pytest.mark.parametrize(
    ("member", "given", "error"),
    [
        (
            "kernels",
            lambda self, context: [],
            r"kernels\(context\) of target 'given' must return an instance of mgx_core.Kernels",
        ),
        ("passes", lambda self, *a: [42], r"passes\('\w+', ...\) of target 'given' must return passes"),
        (
            "runner",
            lambda self, *a: None,
            r"runner\(...\) of target 'given' must return an instance of mgx_core.Runner",
        ),
    ],
)
def test_members_of_targets_that_return_wrong_types(member, given, error):
    target = type("Wrong", (Given,), {member: given})()
    with pytest.raises(mgx.PluginError, match=error):
        compiled(target)


def test_an_empty_target_runs_groups_of_several_results():
    """A group whose body has one member that returns a tuple is also run member by member."""
    made = mgx.Program()
    main = made.get_main_module()
    a, b = (main.add_parameter(n, Shape("float32", [2, 2])) for n in "ab")
    dot = main.add(mgx.op("dot"), a, b)
    main.add_return([main.add(mgx.op("mul"), dot, dot), main.add(mgx.op("tanh"), dot)])
    made.compile(Given())
    x = np.float32([[1, 2], [3, 4]])
    first, second = made.run({"a": x, "b": np.eye(2, dtype=np.float32)})
    np.testing.assert_allclose(first, x * x)
    np.testing.assert_allclose(second, np.tanh(x), rtol=1e-6)


def test_reasons_of_groups_and_composites_are_kept_for_their_parts():
    made = mgx.Program()
    main = made.get_main_module()
    x = main.add_parameter("x", Shape("float32", [2, 3]))
    main.add_return([main.add(mgx.op("softmax"), x)])

    def never(op, shapes, context, modules=()):
        return No(f"never {op.name}")

    made.compile(Given(never, ops=()), fusion_rules={"fuse-elementwise": False})
    placements = made.executable.instances()[0].placements
    assert len(placements) > 1
    for p in placements:
        assert "never softmax" in p.refused[-1]
        assert f"never {p.op.partition('[')[0]}" in p.refused[0]


def kernel(function):
    return Given(giving(mgx.HostKernel("acme neg", function)))


@pytest.mark.parametrize(
    ("function", "got"),
    [
        (lambda x: x.astype(np.float64), r"float64\[2\]"),
        (lambda x: x.reshape(1, 2, 1), r"float32\[1, 2, 1\]"),
        (lambda x: None, "None"),
        (lambda x: (x, x), "a tuple"),
        (lambda x: "abc", "str 'abc'"),
    ],
)
def test_results_of_kernels_are_held_against_their_types(function, got):
    made = compiled(kernel(function))
    with pytest.raises(
        mgx.PluginError,
        match=rf"node 'layer7': .*kernel 'acme neg' of neg \(in {__name__}\) must return float32\[2\], got {got}",
    ):
        made.run({"x": [1, 2]})


def test_results_are_compared_once_and_always_when_validating():
    for validate, fails in ((False, False), (True, True)):
        runs = []

        def later_wrong(x, runs=runs):
            runs.append(1)
            return -x if len(runs) < 2 else x.reshape(1, 2)

        made = compiled(kernel(later_wrong), validate=validate)
        made.run({"x": [1, 2]})
        if fails:
            with pytest.raises(mgx.PluginError, match=r"must return float32\[2\], got float32\[1, 2\]"):
                made.run({"x": [1, 2]})
        else:
            made.run({"x": [1, 2]})


def test_a_kernel_that_raises_is_named():
    made = compiled(kernel(lambda x: 1 // 0))
    with pytest.raises(
        mgx.PluginError, match=rf"node 'layer7': .*kernel 'acme neg' of neg \(in {__name__}\) failed: ZeroDivisionError"
    ) as caught:
        made.run({"x": [1, 2]})
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@define_op("acme.crooked")
class Crooked(mgx.Operation):
    """Its compute returns other extents than its infer."""

    def infer(self, x: Shape) -> Shape:
        return x

    def compute(self, x):
        return x[:1]


def test_a_compute_that_disagrees_with_its_shape_rule():
    made = mgx.Program()
    main = made.get_main_module()
    main.add_return([main.add(Crooked(), main.add_parameter("x", Shape("float32", [2])))])
    made.compile(Given())
    with pytest.raises(
        mgx.PluginError, match=rf"the compute of acme.crooked \({__name__}\) must return float32\[2\], got float32\[1\]"
    ):
        made.run({"x": [1, 2]})


@define_op("acme.keyless")
class Keyless(mgx.Operation):
    def infer(self, x: Shape) -> Shape:
        raise KeyError("axis")


@define_op("acme.forgetful")
class Forgetful(mgx.Operation):
    def infer(self, x: Shape) -> Shape:
        x.dims  # noqa: B018


def test_shape_rules_are_blamed_by_name():
    main = mgx.Program().get_main_module()
    x = main.add_parameter("x", Shape("float32", [2]))
    with pytest.raises(
        mgx.ShapeError, match=rf"the shape rule of acme.keyless \({__name__}\) failed: KeyError: 'axis'"
    ):
        main.add(Keyless(), x)
    with pytest.raises(
        mgx.PluginError, match=rf"the shape rule of acme.forgetful \({__name__}\) must return a Shape, got None"
    ):
        main.add(Forgetful(), x)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (lambda i, b: {}["axis"], r"rule 'acme' of package \w+ failed on relu\(.*: KeyError: 'axis'"),
        (
            lambda i, b: "abc",
            r"rule 'acme' of package \w+ must return an instruction, No\(why\) or None for relu\(.*, got 'abc'",
        ),
        (lambda i, b: True, r"must return an instruction, No\(why\) or None for relu\(.*, got True"),
    ],
)
def test_rewriting_rules_that_fail_are_named(given, error):
    rules = mgx.Rules("acme rules")

    @rules.on(Relu)
    def acme(i, b):
        """relu(x) -> an invalid replacement."""
        return given(i, b)

    main = mgx.Program().get_main_module()
    main.add_return([main.add(mgx.op("relu"), main.add_parameter("x", Shape("float32", [2])))])
    with pytest.raises(mgx.PassError, match=error):
        Rewriter(rules).apply(main)


def plain(**members):
    return type("Bad", (mgx.Operation,), {"__module__": __name__, **members})


def rule(self, x):
    return x


@pytest.mark.parametrize(
    ("name", "cls", "error"),
    [
        ("acme.x", plain(), r"op 'acme.x': class Bad must define infer\(self, x, ...\), its shape rule"),
        ("acme bad name!", plain(infer=rule), "op 'acme bad name!': a name consists of"),
        ("acme.x", type("Bad", (), {"infer": rule}), "class Bad must derive from mgx_core.Operation"),
        ("acme.x", plain(infer=rule, size=3), "attribute 'size' has no annotation; write `size: int = 3`"),
        (
            "acme.x",
            plain(infer=rule, size={}, __annotations__={"size": "dict"}),
            "attribute size has type dict; known are int, ",
        ),
    ],
)
def test_ops_are_refused_when_they_are_defined(name, cls, error):
    with pytest.raises(mgx.ParameterError, match=error):
        define_op(name)(cls)


def test_an_op_without_its_decorator():
    class Forgotten(mgx.Operation):
        size: ClassVar[int] = 3

        def infer(self, x: Shape) -> Shape:
            return x

    class Derived(Add):
        pass

    for cls in (Forgotten, Derived):
        with pytest.raises(
            mgx.ParameterError, match=rf"{cls.__qualname__} is not a declared operation; put @define_op"
        ):
            cls()
        with pytest.raises(mgx.ParameterError, match="is not a declared operation"):
            mgx.OpSet.of(cls)
    with pytest.raises(mgx.ParameterError, match="an OpSet holds classes of operations, got 42"):
        mgx.OpSet.of(42)


def test_a_compute_that_raises_has_its_package():
    @define_op("acme.raising")
    class Raising(mgx.Operation):
        def infer(self, x: Shape) -> Shape:
            return x

        def compute(self, x):
            raise IndexError("no such row")

    made = mgx.Program()
    main = made.get_main_module()
    main.add_return([main.add(Raising(), main.add_parameter("x", Shape("float32", [2])), sources=["layer7"])])
    made.compile(Given())
    with pytest.raises(
        mgx.ShapeError, match=rf"node 'layer7': .*acme.raising \({__name__}\) cannot be computed .*IndexError"
    ):
        made.run({"x": [1, 2]})


def test_a_rule_for_shapes_that_raises_has_the_node():
    main = mgx.Program().get_main_module()
    x = main.add_parameter("x", Shape("float32", [2]))
    with pytest.raises(mgx.ShapeError, match=r"^node 'layer7', 'layer8': add takes 2 inputs"):
        main.add(Add(), x, sources=["layer7", "layer8"])
    with pytest.raises(mgx.ShapeError, match=r"^add takes 2 inputs"):
        main.add(Add(), x)


def chain_of_three():
    return mgx.parse_program(
        """module main
        %x = @param["x"] -> float32[2]
        %1 = exp(%x)
        %2 = neg(%1)
        %3 = tanh(%2)
        @return(%3)"""
    )


@pytest.mark.parametrize("takes", [True, False])
def test_a_plan_of_a_plugin_for_an_op_inside_a_group_is_asked(monkeypatch, takes):
    """The group is split if the plan accepts its member, and stays whole if the plan declines."""
    plans = mgx.Kernels("ref")

    @plans.plan(Neg)
    def acme(op, shapes, context):
        return mgx.HostKernel("seven", lambda x: np.full_like(x, 7)) if takes else No("not today")

    plugin = SimpleNamespace(kernels=mgx.hookimpl(lambda target: [mgx.Lazy("acme", f"{__name__}:PLANS")]))
    monkeypatch.setitem(globals(), "PLANS", plans)
    with monkeypatch.context() as patch:
        patch.setattr(plugins, "_manager", [Plugins(discover=False)])
        plugins.manager().register(plugin, "acme")
        made = chain_of_three()
        made.compile(Whole())
        (result,) = made.run({"x": [1, 2]})
        placements = made.executable.instances()[0].placements
    if takes:
        np.testing.assert_allclose(result, np.tanh([7.0, 7.0]), rtol=1e-6)
        assert "seven" in [p.kernel for p in placements]
        assert "the group is expanded, since plan 'acme' of a plugin supports its member neg" in placements[0].refused
    else:
        np.testing.assert_allclose(result, np.tanh(-np.exp([1.0, 2.0])), rtol=1e-6)
        assert len(placements) == 1


class Whole(mgx.Target):
    """Runs every op and group with its reference implementation, like the target ref."""

    name = "ref"

    def kernels(self, context):
        plans = mgx.Kernels("ref")
        plans.plan()(lambda op, shapes, context, modules=(): mgx.Reference(op))
        return plans
