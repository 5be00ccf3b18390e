"""No import cycles, neither at the top of files nor inside functions nor under TYPE_CHECKING; only public names of the core."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DISTRIBUTIONS = {
    "mgx_core": "mgx_core",
    "mgx_ref": "plugins/ref/mgx_ref",
    "mgx_onnx": "plugins/frontends/onnx/mgx_onnx",
    "mgx_tf": "plugins/frontends/tf/mgx_tf",
    "mgx_tflite": "plugins/frontends/tflite/mgx_tflite",
    "mgx_cpu_dnnl": "plugins/cpu_dnnl/mgx_cpu_dnnl",
    "mgx_gpu_hip": "plugins/gpu_hip/mgx_gpu_hip",
    "migraphx": "plugins/compat/migraphx/migraphx",
    "mgx_conformance": "conformance/mgx_conformance",
}
ALLOWED = {
    # instructions hold modules and modules hold instructions: a recursive type whose list, orders and copies have their
    # own files
    frozenset(f"mgx_core.ir.{name}" for name in ("copying", "instruction", "instruction_list", "module", "ordering")),
}

Graph = dict[str, set[str]]


def modules_of(package: str, folder: Path) -> dict[str, tuple[Path, bool]]:
    """Returns each module's file, and True for packages."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        parts = [package, *path.relative_to(folder).with_suffix("").parts]
        whole = parts[-1] == "__init__"
        found[".".join(parts[:-1] if whole else parts)] = (path, whole)
    return found


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Returns the statements of a file, also nested ones, without their expressions, which are most of its nodes."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, field, ())


def imported(tree: ast.AST, module: str, is_package: bool, modules: Collection[str]) -> Iterator[str]:
    """Returns the modules that a file imports anywhere: ``from .a import b`` is a.b if that is a module, else a."""
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = module.split(".")
            start = parts[: len(parts) - node.level + is_package] if node.level else []
            base = ".".join(filter(None, [*start, node.module]))
            yield from (name if (name := f"{base}.{a.name}") in modules else base for a in node.names)


def graph_of(package: str, folder: Path) -> Graph:
    modules = modules_of(package, folder)
    return {
        module: {n for n in imported(ast.parse(path.read_text()), module, whole, modules) if n in modules} - {module}
        for module, (path, whole) in modules.items()
    }


def circles(graph: Graph) -> list[frozenset[str]]:
    """Returns the strongly connected components of more than one module (Tarjan)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[frozenset[str]] = []

    def visit(one: str) -> None:
        number[one] = low[one] = len(number)
        stack.append(one)
        for other in sorted(graph[one]):
            if other not in number:
                visit(other)
                low[one] = min(low[one], low[other])
            elif other in stack:
                low[one] = min(low[one], number[other])
        if low[one] == number[one]:
            members = set()
            while one not in members:
                members.add(stack.pop())
            if len(members) > 1:
                found.append(frozenset(members))

    for one in sorted(graph):
        if one not in number:
            visit(one)
    return found


def test_no_module_imports_itself_through_others_but_a_few():
    found = {c for p, folder in DISTRIBUTIONS.items() for c in circles(graph_of(p, ROOT / folder))}
    assert [sorted(c) for c in found - ALLOWED] == []
    assert [sorted(c) for c in ALLOWED - found] == [], "no longer needed"
    assert len(ALLOWED) <= 3


def test_every_kind_of_import_counts(tmp_path):
    (tmp_path / "__init__.py").write_text("")
    (tmp_path / "a.py").write_text("from . import b\n")
    (tmp_path / "b.py").write_text("def f():\n    from .c import g\n")
    (tmp_path / "c.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.a import T\n")
    (tmp_path / "d.py").write_text("import p.a\n")
    assert circles(graph_of("p", tmp_path)) == [frozenset({"p.a", "p.b", "p.c"})]


def test_plugins_import_public_names_alone():
    """Names in a core module's ``__all__`` are public; third-party plugins can do everything that ours do."""
    files = [p for folder in ("plugins", "conformance", "examples") for p in sorted((ROOT / folder).rglob("*.py"))]
    if not files:
        pytest.skip("the plugins' sources are not available")
    wrong = []
    for path in (p for p in files if "tests" not in p.relative_to(ROOT).parts):
        for node in statements(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "mgx_core":
                public = getattr(importlib.import_module(str(node.module)), "__all__", ())
                wrong += [f"{path}: {node.module}.{a.name}" for a in node.names if a.name not in public]
            elif isinstance(node, ast.Import):
                wrong += [f"{path}: {a.name}" for a in node.names if a.name.startswith("mgx_core.")]
    assert wrong == []
