"""Names with a leading underscore are used only in their own package."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DISTRIBUTIONS = (
    "mgx_core",
    "plugins/ref/mgx_ref",
    "plugins/frontends/onnx/mgx_onnx",
    "plugins/frontends/tf/mgx_tf",
    "plugins/frontends/tflite/mgx_tflite",
    "plugins/cpu_dnnl/mgx_cpu_dnnl",
    "plugins/gpu_hip/mgx_gpu_hip",
    "plugins/compat/migraphx/migraphx",
    "conformance/mgx_conformance",
)
NAMED_TUPLES = {"_replace", "_asdict", "_fields", "_make"}  # documented as public by Python
ALLOWED = {
    "_native",  # mgx_cpu_dnnl's extension module, which is not a Python file
}


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in NAMED_TUPLES | ALLOWED


def nodes_of(text: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(text)))


def own_names(nodes: list[ast.AST]) -> Iterator[str]:
    """Returns the names that a file defines: functions, classes, variables, attributes of its own objects, imports."""
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case (
                ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store())
                | ast.Name(id=name, ctx=ast.Store())
            ):
                yield name


def foreign(nodes: list[ast.AST], own: set[str]) -> list[str]:
    """Returns private names that a file uses and no file of its folder defines."""
    found = []
    for node in nodes:
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                continue
            case ast.Attribute(attr=name) if private(name) and name not in own:
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
            case ast.ImportFrom(names=names):
                found += [f"line {node.lineno}: import of {a.name}" for a in names if private(a.name)]
    return found


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_private_names_stay_in_their_package(distribution):
    files = {path: nodes_of(path.read_text()) for path in sorted((ROOT / distribution).rglob("*.py"))}
    own: dict[Path, set[str]] = {}
    for path, nodes in files.items():
        own.setdefault(path.parent, set()).update(own_names(nodes))
    wrong = [f"{path.relative_to(ROOT)} {f}" for path, nodes in files.items() for f in foreign(nodes, own[path.parent])]
    assert wrong == []


@pytest.mark.parametrize(
    "text",
    ["module._first", "ins.op._axes(2)", "module._last = None", "from .parser import _reads", "user.parent._rewire()"],
)
def test_its_findings(text):
    assert foreign(nodes_of(text), set())


@pytest.mark.parametrize("text", ["self._first", "shape._replace(a=1)", "ins.__class__", "from .parser import reads"])
def test_what_it_accepts(text):
    assert foreign(nodes_of(text), set()) == []
