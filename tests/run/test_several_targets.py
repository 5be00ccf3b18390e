"""One program on several targets, compared with the same program on one."""

from __future__ import annotations

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import Program, Shape, op
from mgx_core.errors import ParameterError
from mgx_core.ops.modules import RunOnTarget

FLOAT = mgx.dtype.float32


class Noted(mgx.Target):
    """Runs ops with their reference implementations and records their names."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[str] = []

    def kernels(self, context):
        plans = mgx.Kernels(self.name)

        @plans.plan()
        def definition(op, inputs, context, modules=()):
            self.asked.append(op.name)
            return mgx.Reference(op)

        return plans


def diamond() -> tuple[Program, dict[str, np.ndarray], np.ndarray]:
    """neg(x) + exp(x) * sum of neg(x), two results."""
    p = Program()
    m = p.get_main_module()
    x = m.add_parameter("x", Shape.of(FLOAT, (3, 4)))
    negated = m.add(op("neg"), x)
    power = m.add(op("exp"), x)
    total = m.add(op("multibroadcast", out_lens=(3, 4)), m.add(op("reduce_sum", axes=(0, 1)), negated))
    m.add_return([m.add(op("add"), negated, m.add(op("mul"), power, total)), negated])
    given = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    return p, {"x": given}, -given + np.exp(given) * -given.sum()


OPTIONS = {"optimize": False}


def test_each_instruction_runs_where_it_was_assigned() -> None:
    p, inputs, expected = diamond()
    first, second = Noted("first"), Noted("second")
    p.compile([first, second], OPTIONS, assignment=lambda ins: int(ins.name in ("exp", "mul")))
    result, negated = p.run(inputs)
    np.testing.assert_allclose(result.to_numpy(), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(negated.to_numpy(), -inputs["x"])
    assert set(second.asked) == {"exp", "mul"}
    assert {"neg", "reduce_sum", "add"} <= set(first.asked) and not {"exp", "mul"} & set(first.asked)
    assert [s.lens() for s in p.dry_run(inputs)] == [[3, 4], [3, 4]]


def test_a_mapping_and_its_default() -> None:
    p, inputs, expected = diamond()
    first, second = Noted("first"), Noted("second")
    (power,) = (i for i in p.get_main_module() if i.name == "exp")
    p.compile([first, second], OPTIONS, assignment={power: 1})
    np.testing.assert_allclose(p.run(inputs)[0].to_numpy(), expected, rtol=1e-5, atol=1e-6)
    assert set(second.asked) == {"exp"}
    p.compile([first], OPTIONS)
    np.testing.assert_allclose(p.run(inputs)[0].to_numpy(), expected, rtol=1e-5, atol=1e-6)


def test_open_extents_and_tuples() -> None:
    p = Program()
    m = p.get_main_module()
    x = m.add_parameter("x", Shape(FLOAT, dyn_dims=[mgx.DynamicDimension(1, 8), 5]))
    best = m.add(op("topk", k=2, axis=1), m.add(op("neg"), x))
    m.add_return([m.add(op("abs"), m.add(op("get_tuple_elem", index=0), best))])
    p.compile([mgx.get_target("ref"), Noted("other")], assignment=lambda ins: int(ins.name in ("topk", "abs")))
    for n in (2, 7):
        given = np.arange(n * 5, dtype=np.float32).reshape(n, 5)
        np.testing.assert_array_equal(p.run({"x": given})[0].to_numpy(), given[:, :2])


def test_modules_that_the_program_places_itself() -> None:
    p = Program()
    m = p.get_main_module()
    x = m.add_parameter("x", Shape.of(FLOAT, (2,)))
    body = p.create_module("elsewhere")
    body.add_return([body.add(op("exp"), body.add_parameter("a", Shape.of(FLOAT, (2,))))])
    placed = m.add(RunOnTarget(target_id=1), m.add(op("neg"), x), modules=[body])
    m.add_return([m.add(op("abs"), m.add(op("get_tuple_elem", index=0), placed))])
    first, second = Noted("first"), Noted("second")
    p.compile([first, second], OPTIONS)
    given = np.array([1, 2], np.float32)
    np.testing.assert_allclose(p.run({"x": given})[0].to_numpy(), np.exp(-given), rtol=1e-6)
    assert set(second.asked) == {"exp"} and {"neg", "abs"} <= set(first.asked)


@pytest.mark.parametrize("place", [-1, 2])
def test_modules_for_no_target_in_the_list_are_refused(place: int) -> None:
    p = Program()
    x = p.get_main_module().add_parameter("x", Shape.of(FLOAT, (2,)))
    body = p.create_module("elsewhere")
    body.add_return([body.add(op("exp"), body.add_parameter("a", Shape.of(FLOAT, (2,))))])
    placed = p.get_main_module().add(RunOnTarget(target_id=place), x, modules=[body])
    p.get_main_module().add_return([p.get_main_module().add(op("get_tuple_elem", index=0), placed)])
    with pytest.raises(mgx.MgxError, match=f"target_id must be the index of a target from 0 to 1, got {place}"):
        p.compile([Noted("first"), Noted("second")], OPTIONS)


def test_errors_of_invalid_input() -> None:
    p, _, _ = diamond()
    ref = mgx.get_target("ref")
    with pytest.raises(ParameterError, match="assigned to 2; the index of a target from 0 to 1"):
        p.compile([ref, ref], assignment=lambda ins: 2)
    with pytest.raises(ParameterError, match="offload_copy"):
        p.compile([ref, ref], offload_copy=False)
    with pytest.raises(ParameterError, match="a list of targets"):
        p.compile(ref, assignment={})
