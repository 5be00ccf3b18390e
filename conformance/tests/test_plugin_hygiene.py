"""The level hygiene on packages installed like third-party ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

ENTRY = """
from mgx_core import Lazy, hookimpl
{heavy}
mgx_interface = 1


@hookimpl
def targets():
    return [Lazy("stranger", "stranger.target:Stranger", "a stranger's target")]
"""
TARGET = """
from mgx_core import HostContext, Kernels, Target
{fault}


class Stranger(Target):
    name = "stranger"

    def get_context(self):
        return HostContext(self)

    def kernels(self, context):
        return Kernels("stranger")
"""


@pytest.fixture
def run(tmp_path):
    def run(heavy="", fault=""):
        package, info = tmp_path / "stranger", tmp_path / "stranger-1.0.dist-info"
        package.mkdir()
        info.mkdir()
        (package / "__init__.py").write_text("")
        (package / "plugin.py").write_text(ENTRY.format(heavy=heavy))
        (package / "target.py").write_text(TARGET.format(fault=fault))
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[mgx]\nstranger = stranger.plugin\n")
        path = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
        words = ["--pyargs", "mgx_conformance.suite", "--mgx-target", "stranger", "--mgx-level", "hygiene"]
        card = tmp_path / "card.json"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words, "--mgx-scorecard", str(card)],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert card.exists(), done.stdout + done.stderr
        return {t: (r["outcome"], r.get("reason", "")) for t, r in json.loads(card.read_text())["tests"].items()}

    return run


def test_clean_package(run):
    assert {o for o, _ in run().values()} == {"pass"}


def test_heavy_entry_module(run):
    outcome, why = run(heavy="import sqlite3, onnx")["hygiene/lazy"]
    assert outcome == "fail"
    assert "onnx" in why


def test_loads_or_says_why(run):
    tests = run(fault="raise ImportError('libstranger.so is not installed; pip install stranger-runtime')")
    assert tests["hygiene/listed"][0] == "pass"
    assert tests["hygiene/loads_or_says_why"][0] == "pass"
    assert tests["hygiene/context"][0] == "fail"


def test_public_names_of_another_plugin(run):
    """As a package with converters or C kernels needs them (docs/plugins.md)."""
    assert run(fault="from mgx_ref.target import RefTarget")["hygiene/public_interface"][0] == "pass"


@pytest.mark.parametrize(
    "fault", ["import mgx_ref", "from mgx_ref.target import annotations", "from mgx_ref import nothing"]
)
def test_names_that_another_plugin_does_not_offer(run, fault):
    tests = run(fault=f"try:\n    {fault}\nexcept ImportError:\n    pass")
    outcome, why = tests["hygiene/public_interface"]
    assert outcome == "fail"
    assert "mgx_ref" in why


def test_private_names(run):
    outcome, why = run(fault="from mgx_core.types.argument import _native")["hygiene/public_interface"]
    assert outcome == "fail"
    assert "_native" in why
