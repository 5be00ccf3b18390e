"""The native module's stub: it declares the functions, methods and parameters that the module has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mgx_cpu_dnnl
from mgx_cpu_dnnl.native_library import native

STUB = ast.parse((Path(mgx_cpu_dnnl.__file__).parent / "_native.pyi").read_text(encoding="utf-8"))
UNNAMED = re.compile(r"arg\d+")  # pybind11's names for parameters without one
BUILT = "(*args, **kwargs)"  # builders of primitives, whose parameters their native wrapper hides


def declared() -> Iterator[tuple[str, ast.FunctionDef, Any]]:
    """Qualified name, declaration and native object of each function and method of the stub; properties are left out."""
    module = native()
    for node in STUB.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node, getattr(module, node.name)
        elif isinstance(node, ast.ClassDef) and hasattr(module, node.name):
            for member in node.body:
                if isinstance(member, ast.FunctionDef) and member.name != "__buffer__":  # a slot, without an attribute
                    found = getattr(getattr(module, node.name), member.name)
                    if not isinstance(found, property):
                        yield f"{node.name}.{member.name}", member, found


def parameters(signature: str) -> list[str]:
    """Names of the parameters in the first line of a pybind11 docstring."""
    inside = signature[signature.index("(") + 1 : signature.rindex(") -> ")]
    found, depth, start = [], 0, 0
    for n, letter in enumerate(inside + ","):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            found.append(inside[start:n].split(":")[0].split("=")[0].strip())
            start = n + 1
    return [name for name in found if name not in ("", "self", "/", "*")]


def test_the_parameters_of_the_stub_are_those_of_the_module() -> None:
    compared, wrong = 0, []
    for name, node, native_object in declared():
        first = (native_object.__doc__ or "").partition("\n")[0]
        if BUILT in first or " -> " not in first:
            continue
        here = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs) if a.arg != "self"]
        there = parameters(first)
        equal = [a == b or UNNAMED.fullmatch(b) for a, b in zip(here, there, strict=False)]
        if len(here) != len(there) or not all(equal):
            wrong.append(f"{name}: the stub has {here}, the module {there}")
        compared += 1
    assert wrong == []
    assert compared > 50


def test_the_stub_declares_everything_that_the_module_has() -> None:
    module = native()
    names = {node.name for node in STUB.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    names |= {
        node.target.id for node in STUB.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assert sorted(n for n in dir(module) if not n.startswith("_")) == sorted(n for n in names if hasattr(module, n))
    for node in STUB.body:
        if isinstance(node, ast.ClassDef) and hasattr(module, node.name):
            members = {m.name for m in node.body if isinstance(m, ast.FunctionDef)}
            native_members = {n for n in vars(getattr(module, node.name)) if not n.startswith("_")}
            assert native_members == {m for m in members if not m.startswith("_")}, node.name
