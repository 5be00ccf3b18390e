"""Checks of the requirements of installed distributions."""

from __future__ import annotations

import importlib
import json
import sys

import pytest
from click.testing import CliRunner

from mgx_core.driver import main
from mgx_core.plugins import manager as plugins
from mgx_core.plugins.requirements import unmet


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Installs a distribution with requirements into a folder at the front of sys.path."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def install(name, *requires, version="1.0", plugin=""):
        info = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {r}" for r in requires)]
        (info / "METADATA").write_text("\n".join(lines) + "\n")
        if plugin:
            (tmp_path / f"{plugin}.py").write_text("mgx_interface = 1\n")
            (info / "entry_points.txt").write_text(f"[mgx]\n{plugin} = {plugin}\n")
        importlib.invalidate_caches()

    return install


@pytest.mark.parametrize(
    ("wanted", "meets"),
    [
        ("<2", True), ("<1.2.3", False), ("<=1.2.3", True), (">=1.2.3.0", True), (">1.2.3", False), ("==1.2.*", True), ("==1.3.*", False),
        ("!=1.2.*", False), ("!=1.3.*", True), ("~=1.2", True), ("~=1.2.4", False), ("~=0.9", False), (">=1,<1.2", False),
        (" (>=1)", True), ("[extra]>=9", False), ("", True), (" @ file:///x", True), ("<1 ; extra == 'no'", True), ("==1.2.3+local", True),
    ],
)  # fmt: skip
def test_clauses(installed, wanted, meets):
    installed("there", version="1.2.3")
    installed("asks", f"there{wanted}")
    assert unmet("asks") == ([] if meets else [f"there{wanted} is required, 1.2.3 is installed"])


def test_missing_files(installed):
    installed("asks", "surely-not-there>=2")
    assert unmet("asks") == ["surely-not-there>=2 is required, but not installed"]
    assert unmet("surely-not-there") == []


def test_the_driver_shows_what_does_not_fit(installed, monkeypatch):
    installed("mgx-misfit", "mgx-core>=7", plugin="misfitting")
    monkeypatch.setattr(plugins, "_manager", [])
    (found,) = [
        e for e in json.loads(CliRunner().invoke(main, ["plugins", "--json"]).output) if e["name"] == "misfitting"
    ]
    assert found["state"] == "misfit"
    assert found["unmet"][0].startswith("mgx-core>=7 is required, ")
    (line,) = [x for x in CliRunner().invoke(main, ["plugins"]).output.split("\n") if x.startswith("misfitting")]
    assert "misfit" in line and "mgx-core>=7 is required, " in line
