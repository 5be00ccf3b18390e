"""Arguments that have passed all checks before, and the instances that ran them."""

from __future__ import annotations

import numpy as np

import mgx_core as mgx
from mgx_core.run.instances import Instances

DOUBLE = """
    symbol n in 1..8
    module main
      %x = @param["x"] -> float32[n]
      %1 = add(%x, %x)
      @return(%1)"""


def test_an_instance_that_was_given_up_during_its_run_is_not_made_again(monkeypatch):
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
