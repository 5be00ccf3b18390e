"""Arguments that have already been validated, and the instances that ran them."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.run.arguments import Arguments
from mgx_core.run.instances import Instances

DOUBLE = """
    symbol n in 1..8
    module main
      %x = @param["x"] -> float32[n]
      %1 = add(%x, %x)
      @return(%1)"""


def test_an_instance_evicted_during_its_run_is_not_recreated(monkeypatch):
    program = mgx.parse_program(DOUBLE)
    program.compile(mgx.get_target("ref"), instances=1)
    executable = program.executable
    made = []
    make = Instances._made
    monkeypatch.setattr(Instances, "_made", lambda self, key: made.append(key) or make(self, key))
    run_bound = type(executable).run_bound

    def interrupted(self, values):
        results = run_bound(self, values)
        if values[0].shape == (2,):
            run_bound(self, [np.ones(5, np.float32)])  # as another thread would
        return results

    monkeypatch.setattr(type(executable), "run_bound", interrupted)
    assert program.run({"x": np.ones(2, np.float32)})[0].tolist() == [2, 2]
    assert [x.lens() for (x,) in made] == [[2], [5]]
    assert [i.shapes["x"].lens() for i in executable.instances()] == [[5]]
    assert program.run({"x": np.full(2, 3, np.float32)})[0].tolist() == [6, 6]


def counting(first: object) -> mgx.Program:
    """x + state, and the sum as the next state."""
    program = mgx.Program(states={"state": first})
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("float32", [2]))
    total = main.add(mgx.op("add"), x, main.add_parameter("state", mgx.Shape("float32", [2])))
    main.add_return([main.add(mgx.op("neg"), total), total])
    program.compile(mgx.get_target("ref"))
    return program


def test_states_that_a_run_gave_are_not_checked_again(monkeypatch):
    program = counting(np.zeros(2, np.float32))
    bound = []
    bind = Arguments.bind
    monkeypatch.setattr(Arguments, "bind", lambda self, given: bound.append(sorted(given)) or bind(self, given))
    one = {"x": np.ones(2, np.float32)}
    assert [program.run(one)[0].tolist()[0] for _ in range(5)] == [-1, -2, -3, -4, -5]
    assert bound == [["state", "x"]] * 2  # the initial state, and a run's
    assert program.run({**one, "state": np.full(2, 10, np.float32)})[0].tolist() == [-11, -11]
    assert program.run(one)[0].tolist() == [-12, -12]


@pytest.mark.parametrize("first", [np.zeros(4, np.float32)[::2], [0.0, 0.0], mgx.Argument(np.zeros(2, np.float32))])
def test_first_states_of_any_form_come_back(first):
    program = counting(first)
    one = {"x": np.ones(2, np.float32)}
    for _ in range(2):
        assert [program.run(one)[0].tolist()[0] for _ in range(4)] == [-1, -2, -3, -4]
        program.reset_state()


def test_a_copy_continues_from_the_current_states():
    program = counting(np.zeros(2, np.float32))
    one = {"x": np.ones(2, np.float32)}
    fresh = copy.deepcopy(program)
    program.run(one)
    later = copy.deepcopy(program)
    assert [p.run(one)[0].tolist()[0] for p in (program, later, fresh, program, later)] == [-2, -2, -1, -3, -3]
