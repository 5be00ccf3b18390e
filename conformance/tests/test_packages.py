"""Cases for ops of packages: generated from their schemas, supplied by the package, or reported as missing."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest

from mgx_conformance import packages
from mgx_conformance.cases.case import Case, Family, data
from mgx_conformance.suite import test_ops
from mgx_core import Lazy, Operation, OpSet, PluginError, Pointwise, ShapeError, define_op, dtype, hookimpl
from mgx_core.ops.scalar import attr, x0
from mgx_core.plugins import manager as plugins
from mgx_core.plugins.manager import Plugins


@define_op("acme_scale", scalar=x0 * attr("by"), accepts="f")
class Scale(Pointwise):
    by: float


@define_op("acme_edge")
class Edge(Operation):
    """Returns the first or last element along the last axis, of one operand or of the sum of several."""

    side: Literal["first", "last"] = "first"
    keep: bool = False

    def infer(self, x: Any, bias: Any = None, *more: Any) -> Any:
        if x.rank < 2:
            raise ShapeError("rank 2 or more is required")
        return x.with_dims((*x.dims[:-1], 1) if self.keep else x.dims[:-1])

    def compute(self, x: Any, bias: Any = None, *more: Any) -> Any:
        n = 0 if self.side == "first" else -1
        y = x[..., n]
        return np.ascontiguousarray(y[..., None] if self.keep else y)


@define_op("acme_never")
class Never(Operation):
    def infer(self, x: Any) -> Any:
        raise ShapeError("nothing is good enough")

    def compute(self, x: Any) -> Any:
        return x


OPS = OpSet.of(Scale, Edge, Never)
FAMILY = Family("acme")


@FAMILY.cases("acme_never", "relu")
def given(name: str) -> Any:
    yield Case(Never() if name == "acme_never" else Edge(), (data(dtype.float32, 2),), "given")


@pytest.fixture
def acme(monkeypatch):
    class Plugin:
        @hookimpl
        def operations(self):
            return [Lazy("acme", f"{__name__}:OPS")]

    made = Plugins(discover=False)
    made.register(Plugin(), "acme_plugin")
    monkeypatch.setattr(plugins, "_manager", [made])
    monkeypatch.setattr(packages, "entry_points", lambda group: [])


def test_cases_are_made_from_the_schema(acme):
    found = list(packages.cases_of("acme_plugin"))
    assert [c for c in found if isinstance(c, str)] == ["acme_never"]
    made = [c for c in found if isinstance(c, Case)]
    assert len({c.id for c in made}) == len(made)
    assert {c.dtype for c in made if c.op == Scale(by=0.5)} == {"float16", "bfloat16", "float32", "float64"}
    edges = [c for c in made if isinstance(c.op, Edge)]
    assert {(c.op.side, c.op.keep) for c in edges} == {("first", False), ("last", False), ("first", True)}
    assert Counter(len(c.operands) for c in edges).keys() == {3, 4}
    assert {"int8", "bool", "float64"} <= {c.dtype for c in edges}


def test_a_package_supplies_cases_for_its_own_ops_only(acme, monkeypatch):
    class Entry:
        def load(self):
            return FAMILY

    monkeypatch.setattr(packages, "entry_points", lambda group: [Entry()])
    found = list(packages.cases_of("acme_plugin"))
    assert not [c for c in found if isinstance(c, str)]
    assert [c.id for c in found if isinstance(c.op, Never)] == ["acme_never-given-float32"]
    assert not [c for c in found if c.op.name == "relu"]


def test_the_names_of_a_package(acme):
    for name in ("acme_plugin", __name__.partition(".")[0]):
        assert packages.ops_of(name) == [Edge, Never, Scale]
    with pytest.raises(PluginError, match="no installed package 'nothing' brings ops; those that do: "):
        packages.ops_of("nothing")


@pytest.mark.parametrize(("package", "runs"), [("acme", [{}, {"validate": True}]), (None, [{}])])
def test_ops_of_packages_run_with_guarded_memory_too(monkeypatch, package, runs):
    tried: list[Any] = []

    def attempt(case: Any, layout: str, target: Any, options: Any = None) -> Any:
        tried.append(options or {})
        return SimpleNamespace(placed={})

    monkeypatch.setattr(test_ops, "attempt", attempt)
    config: Any = SimpleNamespace(getoption=lambda name: package)
    case = Case(Edge(), (data(dtype.float32, 2, 3),), "given")
    test_ops.test_case(case, "contiguous", None, lambda *pair: None, config)
    assert tried == runs
