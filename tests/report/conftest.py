"""A small program with a group, a branch and a name that HTML must escape, and a target that declines one op."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_core import HostKernel, Kernels, No, Program, Reference, Shape, Target, op
from mgx_core.plugins.manager import Plugins

EVIL = "<script>alert('x')</script>"


class Picky(Target):
    """Runs everything except sort with the reference implementations."""

    name = "picky"

    def kernels(self, context):
        plans = Kernels(self.name)

        @plans.plan(type(op("argmax")))
        def fast(op, shapes, context):
            return HostKernel("fast argmax", lambda x: x.argmax(1, keepdims=True))

        @plans.plan()
        def definition(op, shapes, context, modules=()):
            return No("sorting is for others") if op.name == "topk" else Reference(op)

        return plans


@pytest.fixture
def plugins(monkeypatch):
    made = Plugins(discover=False)
    monkeypatch.setattr("mgx_core.plugins.manager._manager", [made])
    return made


@pytest.fixture
def target(plugins):
    return Picky()


@pytest.fixture
def program():
    """y = tanh(x w + 1), its relu, its two largest elements and the position of the largest; 8 rows by default."""

    def make(rows=8):
        made = Program(output_names=["y", "best", "where"])
        main = made.get_main_module()
        x = main.add_parameter("x", Shape("float32", [rows, 16]))
        w = main.add_literal(np.full((16, 32), 0.25, np.float32))
        one = main.add_literal(np.ones(32, np.float32))
        dot = main.add(op("dot"), x, w, sources=["matmul"])
        wide = main.add(op("multibroadcast", out_lens=[rows, 32]), one, sources=["bias"])
        added = main.add(op("add"), dot, wide, sources=[EVIL])
        y = main.add(op("softmax", axis=1), main.add(op("relu"), added, sources=["act"]), sources=["soft"])
        best = main.add(op("topk", k=2, axis=1), y, sources=["best"])
        where = main.add(op("argmax", axis=1), y, sources=["where"])
        squash = main.add(op("tanh"), y, sources=["squash"])
        main.add_return([squash, main.add(op("get_tuple_elem", index=0), best), where])
        return made

    return make
