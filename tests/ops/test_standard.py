"""Families of the standard op set are imported on the first request for one of their ops."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import mgx_core as mgx
from mgx_core import ops
from mgx_core.ops.builtin import Undefined
from mgx_core.ops.opset import OpSet, declared_in
from mgx_core.ops.standard import COMMON, OTHERS, STANDARD

ASKED = """
import sys
from mgx_core.ops import STANDARD
assert STANDARD.get("convolution") is not None and "relu" in STANDARD
rare = [f"mgx_core.ops.{n}" for n in ("trees", "signal", "roi")]
assert not set(rare) & set(sys.modules)
assert STANDARD.get("nosuch") is None and set(rare) <= set(sys.modules)
"""


def test_every_family_is_named_once() -> None:
    named = [*COMMON, *OTHERS]
    assert len(set(named)) == len(named)
    modules = {m.name: importlib.import_module(f"{ops.__name__}.{m.name}") for m in pkgutil.iter_modules(ops.__path__)}
    assert set(named) <= set(modules)
    missing = {op.name for m in modules.values() for op in declared_in(m) if op.name not in STANDARD}
    assert all(name.startswith("@") for name in missing), missing


def test_in_a_new_process() -> None:
    subprocess.run([sys.executable, "-c", ASKED], check=True)


def test_more_is_added_until_it_is_found() -> None:
    called: list[str] = []
    relu, neg = (STANDARD.get(name) for name in ("relu", "neg"))
    assert relu is not None and neg is not None

    def first() -> list[type[mgx.Operation]]:
        called.append("first")
        return [relu]

    def second() -> list[type[mgx.Operation]]:
        called.append("second")
        return [neg]

    found = OpSet([Undefined], later=[first, second])
    assert found.get(Undefined.name) is Undefined and called == []
    assert "relu" in found and called == ["first"]
    assert found.names() == sorted([Undefined.name, "neg", "relu"]) and called == ["first", "second"]
    assert 1 not in found and len(found) == 3
