"""Lowering: which instructions become which launches, and the treatment of groups that a target declines."""

from __future__ import annotations

import numpy as np

from mgx_core import HostKernel, Kernels, No, Program, Shape, Target, TupleShape, op
from mgx_core.compile.lower import Lower
from mgx_core.targets.lowered import launch_placements


class Picky(Target):
    """Has a kernel for exp only."""

    name = "picky"

    def kernels(self, context):
        plans = Kernels("picky")

        @plans.plan(type(op("exp")))
        def exp(op, shapes, context):
            return No("only rank 2") if shapes[0].rank != 2 else HostKernel("numpy exp", np.exp)

        return plans


def launches(program):
    instance = program.executable.instances()[0]
    return [(p.op, p.place) for p in instance.placements], instance


def test_a_declined_group_is_split():
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", [2, 3]))
    main.add_return([main.add(op("tanh"), main.add(op("exp"), x))])
    program.compile(Picky())
    placed, _ = launches(program)
    assert placed == [("exp", "target"), ("tanh", "host")]
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(program.run({"x": x})[0], np.tanh(np.exp(x)), rtol=1e-6)


def test_a_group_of_several_results_is_split():
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", [2, 3]))
    body = program.create_module("body")
    y = body.add_parameter("y", Shape("float32", [2, 3]))
    a = body.add(op("exp"), y)
    body.add_return([a, body.add(op("neg"), a)])
    group = main.add(op("group", tag="pair"), x, modules=[body])
    assert isinstance(group.result, TupleShape)
    items = [main.add(op("get_tuple_elem", index=n), group) for n in (1, 0)]
    main.add_return(items)
    program.compile(Picky(), optimize=False)
    placed, instance = launches(program)
    assert placed == [("exp", "target"), ("neg", "host")]
    assert "only" not in str(instance.placements[0].refused)
    one, other = program.run({"x": np.zeros((2, 3), np.float32)})
    assert one.tolist() == [-1.0] * 6
    assert other.tolist() == [1.0] * 6


def test_refusals_are_kept():
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", [2]))
    main.add_return([main.add(op("exp"), x, sources=["layer"])])
    lower = Lower(Picky().kernels(None), None)
    module = main.clone()
    lower.apply(module)
    (placement,) = launch_placements(module)
    assert (placement.place, placement.sources) == ("host", ("layer",))
    assert "exp: only rank 2" in placement.refused[0]
    assert [i.name for i in module] == ["@param", "launch", "@return"]
