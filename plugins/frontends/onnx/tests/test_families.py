"""Families of converters are imported when an operator is looked up that no imported family converts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mgx_core.converting.converters import Converters
from mgx_onnx import converters
from mgx_onnx.converter import COMMON, STANDARD

RECORDED = """
import sys
from mgx_onnx import converter
families = {}
ours = converter.converts

def converts(*names, domain="", since=1):
    family = sys._getframe(1).f_globals["__name__"]
    for name in names:
        families.setdefault((domain, name), set()).add(family)
    return ours(*names, domain=domain, since=since)

converter.converts = converts
assert len(converter.STANDARD.names()) == len(families) > 200
print({name: sorted(found) for name, found in families.items() if len(found) > 1})
"""
ONE_OPERATOR = """
import sys
from mgx_onnx.converter import STANDARD
assert STANDARD.find("", "Add", 14) and not STANDARD.find("", "Add", 0)
families = [n for n in sys.modules if n.startswith("mgx_onnx.converters.")]
assert "mgx_onnx.converters.elementwise" in families and len(families) < 5, families
assert "mgx_onnx.ops.text" not in sys.modules
assert STANDARD.find("", "Einsum", 12) and "mgx_core.ops.einsum" not in sys.modules  # before one is converted
assert STANDARD.find("ai.onnx.ml", "TreeEnsemble", 5) and STANDARD.find("", "None", 1) is None
"""


@pytest.mark.parametrize("text", [RECORDED, ONE_OPERATOR], ids=["all versions in one family", "one operator"])
def test_in_a_new_process(text):
    found = subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True)
    assert found.stdout.strip() in ("", "{}")


def test_common_families_are_there():
    there = {p.stem for p in Path(converters.__path__[0]).glob("*.py")}
    assert set(COMMON) <= there and len(set(COMMON)) == len(COMMON)


def test_more_is_added_in_order_until_it_is_found():
    called = []

    def adding(name: str):
        def add() -> None:
            called.append(name)
            table.converts(name, since=2)(lambda node: name)

        return add

    table = Converters([adding(n) for n in "abcd"])
    table.converts("z")(lambda node: "z")
    assert table.find("", "z", 1) is not None and called == []
    assert table.find("", "b", 1) is None and called == ["a", "b"]  # in version 2 only
    assert table.find("", "b", 2)(None) == "b" and called == ["a", "b"]
    assert table.knows("", "c") and called == ["a", "b", "c"]
    joined = table + Converters()
    assert joined.names() == [("", n) for n in "abcdz"] and called == ["a", "b", "c", "d"]
    assert not table.knows("", "e") and called == ["a", "b", "c", "d"]


def test_failed_additions_are_retried():
    def failing() -> None:
        attempts.append(1)
        raise ImportError("not now")

    attempts: list[int] = []
    table = Converters([failing])
    for _ in range(2):
        with pytest.raises(ImportError, match="not now"):
            table.find("", "a", 1)
    assert len(attempts) == 2


def test_all_families_are_in_the_table():
    families = {e.converter.__module__ for n in STANDARD.names() for e in STANDARD.entries(*n)}
    assert {f"{converters.__name__}.{n}" for n in ("text", "trees", "vision", "training")} <= families
