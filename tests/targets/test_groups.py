"""Groups as lists of values, for targets that run their members one by one."""

from __future__ import annotations

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.ir.module import nested
from mgx_core.targets import groups

PROGRAM = """\
module main
  %a = @param["a"] -> float32[2, 3]
  %b = @param["b"] -> float32[3, 4]
  %c = @param["c"] -> float32[2, 4]
  %two = @literal(2.0) -> float32[]
  %1 = dot(%a, %b)
  %2 = add(%1, %c)
  %m = multibroadcast[out_lens=[2, 4]](%two)
  %3 = mul(%2, %m)
  %4 = tanh(%3)
  @return(%3, %4)"""


class StepTarget(mgx.Target):
    """Runs groups through `steps` and other ops with their reference implementations."""

    name = "steps"

    def __init__(self):
        self.seen = []

    def get_context(self):
        return mgx.HostContext(self)

    def kernels(self, context):
        plans = mgx.Kernels(self.name)

        @plans.plan()
        def by_steps(op, inputs, context, modules=()):
            if not op.fused:
                return mgx.Reference(op)
            body = groups.steps(modules[0])
            assert body.inputs == tuple(inputs)
            self.seen += [m.op.name for m in body]
            return mgx.HostKernel("steps", lambda *xs: body.run(xs, lambda m, args: m.op.evaluate(args)))

        return plans


def test_members_of_a_group_with_two_results():
    program = mgx.parse_program(PROGRAM)
    target = StepTarget()
    program.compile(target)
    feed = {n: np.random.default_rng(len(n)).normal(size=s.lens()).astype(np.float32)
            for n, s in program.get_parameter_shapes().items()}  # fmt: skip
    third, fourth = program.run(feed)
    wanted = 2 * (feed["a"] @ feed["b"] + feed["c"])
    np.testing.assert_allclose(third, wanted, rtol=1e-6)
    np.testing.assert_allclose(fourth, np.tanh(wanted), rtol=1e-6)
    assert {"dot", "add", "mul", "tanh"} <= set(target.seen)
    assert not {"pointwise", "group", "get_tuple_elem"} & set(target.seen)


def test_positions():
    inner = """\
module main
  %x = @param["x"] -> float32[4]
  %1 = group[tag=""](%x, %x){g}
  @return(%1)
module g
  %x0 = @param["x0"] -> float32[4]
  %y0 = @param["y0"] -> float32[4]
  %one = @literal(1.0, 1.0, 1.0, 1.0) -> float32[4]
  %t = pointwise(%x0){p}
  %t1 = get_tuple_elem[index=1](%t)
  %u = pointwise(%y0){q}
  %u0 = get_tuple_elem[index=0](%u)
  %2 = add(%t1, %u0)
  %3 = add(%2, %one)
  @return(%3)
module p
  %x1 = @param["x1"] -> float32[4]
  %n = neg(%x1)
  %e = exp(%n)
  @return(%n, %e)
module q
  %x2 = @param["x2"] -> float32[4]
  %m = neg(%x2)
  %f = exp(%m)
  @return(%m, %f)"""
    program = mgx.parse_program(inner)
    body = next(m for m in nested(program.get_main_module()) if m.name == "g")
    first, second = [i for i in body if i.op.fused]
    second.modules = first.modules  # structurally equal groups share one module once lowered
    found = groups.steps(body)
    assert [(m.op.name, m.operands, m.results) for m in found] == [
        ("neg", (0,), (3,)),
        ("exp", (3,), (4,)),
        ("neg", (1,), (5,)),
        ("exp", (5,), (6,)),
        ("add", (4, 5), (7,)),
        ("add", (7, 2), (8,)),
    ]
    assert (len(found.inputs), len(found.literals), found.results) == (2, 1, (8,))
    x, y = np.float32([0, 1, 2, 3]), np.float32([1, 1, 1, 5])
    np.testing.assert_allclose(found.run([x, y], lambda m, xs: m.op.evaluate(xs)), np.exp(-x) - y + 1)


@pytest.mark.parametrize("kind", ["topk", "split"])
def test_tuple_members_and_absent_operands(kind):
    program = mgx.Program()
    main = program.get_main_module()
    body = program.create_module("body")
    x = body.add_parameter("x", mgx.Shape("float32", [6]))
    if kind == "topk":
        made = body.add(mgx.op("topk", k=2, axis=0), x)
        body.add_return([body.add(mgx.op("get_tuple_elem", index=0), made)])
        results = (1,)
    else:
        body.add_return([body.add(mgx.op("topk", k=2, axis=0), x)])  # one value, which is a tuple
        results = (1, 2)
    main.add(mgx.op("group"), main.add_parameter("x", mgx.Shape("float32", [6])), modules=[body])
    found = groups.steps(body)
    assert found.results == results
    assert [m.results for m in found] == [(1, 2)]
