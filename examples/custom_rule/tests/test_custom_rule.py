"""The rule in use: installed, fired, refused, disabled."""

from __future__ import annotations

import subprocess
import sys

import pytest

import mgx_core as mgx

SWITCHES = [{"fast_math": False}, {"aggressiveness": 0}, {"fusion_rules": {"square-of-root": False}}]


def program(first: str) -> mgx.Program:
    made = mgx.Program()
    main = made.get_main_module()
    root = main.add(mgx.op("sqrt"), main.add(mgx.op(first), main.add_parameter("x", mgx.Shape("float32", [4]))))
    main.add_return([main.add(mgx.op("mul"), root, root)])
    return made


def names(made: mgx.Program) -> set[str]:
    """Returns the operations of a program, including those in fused groups."""
    modules = [made.get_main_module(), *(m for i in made.get_main_module() for m in i.modules)]
    return {i.name for m in modules for i in m}


def test_fires():
    assert "sqrt" not in names(mgx.optimize(program("abs")))
    assert "sqrt" in names(mgx.optimize(program("neg")))


@pytest.mark.parametrize("switch", SWITCHES, ids=str)
def test_is_switched_off_as_the_rules_of_mgx_are(switch):
    assert "sqrt" in names(mgx.optimize(program("abs"), switch))


def test_a_misspelled_name_is_refused():
    with pytest.raises(mgx.ParameterError, match="did you mean 'square-of-root'"):
        mgx.optimize(program("abs"), fusion_rules={"squares-of-root": False})


def drive(*words: object) -> str:
    command = [sys.executable, "-m", "mgx_core", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_driver(tmp_path):
    program("neg").save(tmp_path / "neg.mxr")
    assert "neg may be negative" in drive("read", tmp_path / "neg.mxr", "--why", "square-of-root")
    assert "rounding" in drive("rules", "square-of-root")
