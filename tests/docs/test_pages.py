"""The generated operation reference is up to date, and the engine in one file runs with numpy only."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from mgx_core import ops
from mgx_core.driver.ops import describe
from mgx_onnx.ops import OPS as ONNX_OPS

DOCS = Path(__file__).parents[2] / "docs"


def generator():
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", generator().PAGES)
def test_generated_pages_are_up_to_date(name):
    made = generator().PAGES[name]()
    assert (DOCS / name).read_text(encoding="utf-8") == made, "run python docs/generate.py"


def test_every_public_member_of_an_interface_is_documented():
    made = generator()
    page = made.interfaces()
    for cls in made.INTERFACES:
        public = {n for n in {**vars(cls), **cls.__annotations__} if not n.startswith("_")}
        assert {n for n in public if f"### {cls.__name__}.{n}\n" not in page} == set()


def test_operation_references_have_every_operation_once():
    for page, known in {"ops.md": ops.STANDARD, "ops_onnx.md": ONNX_OPS}.items():
        lines = generator().PAGES[page]().split("\n")
        assert sorted(line[4:] for line in lines if line.startswith("### ")) == known.names()
    section = "\n".join(generator().section(generator().describe(ops.STANDARD.get("softmax"))))
    assert "| axis | `int` | `-1` |" in section
    assert "Normalized exponential along one axis." in section


def test_every_operation_is_documented():
    assert [op.name for op in ops.STANDARD | ONNX_OPS if not (op.__dict__.get("__doc__") or "").strip()] == []


WINDOWS = {"padding", "output_padding", "stride", "dilation", "dilations"}


def test_operations_document_empty_windows():
    """Attributes of windows that are empty by default state the value used for each axis."""
    asked = 0
    for op in map(describe, ops.STANDARD | ONNX_OPS):
        empty = {a["name"] for a in op["attributes"] if a["name"] in WINDOWS and a["default"] == "[]"}
        said = re.findall(r"[Ee]mpty (`\w+`(?: and `\w+`)?) (?:is|are) [01]\b", " ".join(op["doc"].split()))
        assert empty <= set(re.findall(r"\w+", " ".join(said))), op["name"]
        asked += bool(empty)
    assert asked == 10


def test_engine_in_one_file():
    path = DOCS / "engine_in_one_file.py"
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name).split(".")[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    assert imported - set(sys.stdlib_module_names) == {"numpy"}
    done = subprocess.run([sys.executable, "-W", "error", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "runs by its definition" in done.stdout


ROOT = DOCS.parent
READMES = sorted(path for folder in ("plugins", "conformance") for path in (ROOT / folder).rglob("README.md"))


@pytest.mark.parametrize("page", [str(p.relative_to(ROOT)) for p in READMES if "    pip install mgx" in p.read_text()])
def test_packages_can_be_installed_from_a_checkout(page):
    """A README's command for a checkout, which names folders, has each package that it installs by name and their dependencies."""
    text = (ROOT / page).read_text(encoding="utf-8")
    (command,) = re.findall(r"from a checkout, run\s+`pip install ([^`]+)`", text, re.I)
    named = re.search(r"^ {4}pip install (mgx.*)$", text, re.M).group(1).split()
    projects = [tomllib.loads((ROOT / f / "pyproject.toml").read_text())["project"] for f in command.split()]
    needed = {re.match(r"[\w-]+", d)[0] for p in projects for d in p["dependencies"] if d.startswith("mgx-")}
    assert {*named, *needed} - {p["name"] for p in projects} == set()
