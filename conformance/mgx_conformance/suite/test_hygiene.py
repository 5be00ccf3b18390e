"""Target plugins are listed without being loaded, load on request, and report missing requirements."""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mgx_core

LISTING = """
import json, sys
import mgx_core.plugins.manager as plugins
before = set(sys.modules)
manager = plugins.manager()
offered = {n: [lazy.path, lazy.about] for n, lazy in manager.named("targets").items()}
records = [[r.name, r.module, r.state, r.error, r.offers.get("targets", [])] for r in manager.records]
print(json.dumps({"offered": offered, "records": records, "new": sorted(set(sys.modules) - before)}))
"""


@pytest.fixture(scope="module")
def name(request: pytest.FixtureRequest) -> str:
    given: str = request.config.getoption("mgx_target")
    if ":" in given:
        pytest.skip("the target was given by path, not by the name of an installed one")
    return given


@pytest.fixture(scope="module")
def listing(name: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", LISTING], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def record(listing: dict[str, Any], name: str) -> list[Any]:
    return next(r for r in listing["records"] if name in r[4])


def test_listed(listing: dict[str, Any], name: str) -> None:
    assert name in listing["offered"], f"not among the installed targets {sorted(listing['offered'])}"
    assert record(listing, name)[2] == "ok", record(listing, name)[3]
    assert listing["offered"][name][1], "the target's record does not say what it is (`about`)"


def test_lazy(listing: dict[str, Any], name: str) -> None:
    """Listing imports the plugin's entry module and nothing else that is large."""
    target = listing["offered"][name][0].partition(":")[0]
    assert target not in listing["new"], f"listing imports the target itself, {target}"
    entry = record(listing, name)[1].partition(":")[0]
    script = (
        "import sys, json, mgx_core.plugins.manager\nfrom mgx_core import hookimpl, Lazy\nbefore = set(sys.modules)\n"
        f"import {entry}\nprint(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    roots = {m.partition(".")[0] for m in json.loads(done.stdout)}
    heavy = roots - set(sys.stdlib_module_names) - {"mgx_core", entry.partition(".")[0]}
    assert not heavy, f"the entry module {entry} imports {', '.join(sorted(heavy))}"


def test_states_interface(listing: dict[str, Any], name: str) -> None:
    """The plugin declares the interface version it was made for, so that a later core can support or refuse it."""
    module = importlib.import_module(record(listing, name)[1].partition(":")[0])
    assert isinstance(getattr(module, "mgx_interface", None), int), "mgx_interface is missing in the entry module"


def test_loads_or_says_why(name: str) -> None:
    said, target = "", None
    try:
        target = mgx_core.get_target(name)
    except mgx_core.MgxError as error:
        said = str(error)
    if target is None:
        assert len(said) > 20, f"the refusal says too little: {said}"
    else:
        assert target.name == name
        assert mgx_core.get_target(name) is target


def test_context(mgx_target: Any) -> None:
    context = mgx_target.get_context()
    assert context.target.name == mgx_target.name
    context.finish()
    assert mgx_target.kernels(context).target


def test_public_interface(mgx_target: Any) -> None:
    """The plugin's package, or else the target's module, imports only public names of the core and of other plugins."""
    module = type(mgx_target).__module__
    root = module.partition(".")[0]
    plugins = {m.module.partition(".")[0] for m in mgx_core.plugin_manager().records}
    wrong = []
    for file in sources(root if root in plugins else module):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = imported(node)
            wrong += [f"{file.name}: {m}" for m in names if private(m) or not offered(m, plugins - {root})]
    assert not wrong, (
        f"only names in the __all__ of a public module of the core or of another plugin may be imported: {wrong}"
    )


def sources(module: str) -> list[Path]:
    """Returns the files of a package, or the file of a module."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        pytest.skip(f"{module} has no files")
    folders = spec.submodule_search_locations
    return [f for folder in folders for f in Path(folder).rglob("*.py")] if folders else [Path(spec.origin)]


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [a.name for a in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [f"{node.module}.{a.name}" for a in node.names]
    return []


def offered(name: str, plugins: set[str]) -> bool:
    """Returns False for a name of one of these plugins that is not in the `__all__` of its module, or whose module is private."""
    module, _, attribute = name.rpartition(".")
    if name.partition(".")[0] not in plugins:
        return True
    if not module or any(w.startswith("_") for w in module.split(".")):
        return False
    try:
        found = importlib.import_module(module)
    except ImportError:
        return False
    return attribute in getattr(found, "__all__", ())


def private(module: str) -> bool:
    root, *rest = module.split(".")
    return root == "mgx_core" and any(w.startswith("_") and not w.startswith("__") for w in rest)
