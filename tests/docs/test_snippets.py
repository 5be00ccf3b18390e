"""The Python code and the commands of the guides run.

``python`` blocks run in one namespace per page; a block with ``file=PATH`` is written to that file; a ``pyproject.toml``
among them counts as installed; lines ``mgx-driver ...`` of ``sh`` blocks run and must succeed.
"""

from __future__ import annotations

import importlib
import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from mgx_core.driver import main

pytest.importorskip("mgx_ref")
pytest.importorskip("mgx_onnx")

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page):
    """Returns kind, file, code and line number of each fenced block of a page."""
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        kind, file, code = found.groups()
        yield kind, file, code, text.count("\n", 0, found.start()) + 2


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty working folder on sys.path, and a plugin manager that is created on first use."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("mgx_core.plugins.manager._manager", [])
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]


def install(folder):
    """Writes the metadata of an installed package for the folder's pyproject.toml."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = [
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in found.items())
        for group, found in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    importlib.invalidate_caches()


@pytest.mark.parametrize("name", ["guide.md", "plugins.md"])
def test_page(name, place):
    found = list(blocks(DOCS / name))
    for _, file, code, _ in found:
        if file:
            path = place / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code)
    if (place / "pyproject.toml").exists():
        install(place)
    namespace = {"__name__": name}
    ran = 0
    for kind, file, code, line in found:
        if kind == "python" and not file:
            exec(compile("\n" * (line - 1) + code, str(DOCS / name), "exec"), namespace)
            ran += 1
        elif kind == "sh":
            for command in (c for c in code.split("\n") if c.startswith("mgx-driver ")):
                result = CliRunner().invoke(main, shlex.split(command, comments=True)[1:])
                assert result.exit_code == 0, f"{name}: {command}\n{result.output}"
                ran += 1
    assert ran > 5


def test_readme(place):
    (place / "examples").symlink_to(DOCS.parent / "examples")
    namespace = {"__name__": "README"}
    for kind, _, code, _ in blocks(DOCS.parent / "README.md"):
        assert kind == "python"
        exec(code, namespace)
    assert namespace["probabilities"].shape.lens() == [3, 10]


@pytest.mark.parametrize("page", sorted((DOCS.parent / "examples").glob("*/README.md")), ids=lambda p: p.parent.name)
def test_examples_install_what_they_run(page):
    """An empty environment needs pytest for `pytest`, and a target for every command that compiles."""
    for kind, _, code, _ in blocks(page):
        if kind == "sh":
            (installed,) = re.findall(r"^pip install (.*)$", code, re.MULTILINE)
            if re.search(r"^pytest\b", code, re.MULTILINE):
                assert re.search(r"\b(pytest|mgx-conformance)\b", installed), f"{installed!r} does not install pytest"
            if re.search(r"^mgx-driver (compile|run|perf|verify)\b", code, re.MULTILINE):
                assert re.search(r"\bmgx-(ref|cpu-dnnl|gpu-hip)\b", installed), (
                    f"{installed!r} does not install a target"
                )


FOLDERS = ("", "docs", "benchmarks", "conformance", "packaging", "plugins/*", "plugins/*/*", "examples/*")
PAGES = sorted(page for folder in FOLDERS for page in DOCS.parent.glob(f"{folder}/*.md".lstrip("/")))


def anchors(page):
    """Returns the anchors of a page's headings, as GitHub names them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page):
    found = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if "://" not in link and not (target.exists() and (not anchor or anchor in anchors(target))):
            found.append(link)
    return found


def missing_paths(page):
    """Returns the paths in code font that exist neither in the repository nor in the page's folder."""
    named = re.findall(
        r"`((?:mgx_core|plugins|tests|docs|examples|benchmarks|conformance)/[\w./-]+)`", page.read_text()
    )
    return [path for path in named if not any((folder / path).exists() for folder in (DOCS.parent, page.parent))]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(DOCS.parent)))
def test_every_path_exists(page):
    assert missing_paths(page) == []


def test_a_missing_path_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("`docs/guide.md`, `docs/`, `docs/none.md`, `none/at/all.md`")
    assert missing_paths(page) == ["docs/none.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(DOCS.parent)))
def test_every_link_leads_somewhere(page):
    assert broken_links(page) == []


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# One `code`, two\n[a](#one-code-two) [b](#three) [c](page.md) [d](none.md) [e](page.md#none) [f](https://x)"
    )
    assert broken_links(page) == ["#three", "none.md", "page.md#none"]
