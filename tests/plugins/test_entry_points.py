"""Entry points read from folders equal those found by importlib.metadata."""

from __future__ import annotations

import importlib
import sys

import pytest

from mgx_core.errors import PluginError
from mgx_core.plugins import entry_points as installed
from mgx_core.plugins.entry_points import Entry, entries


def distribution(folder, name: str, text: str, version: str = "1.0", kind: str = "dist-info"):
    info = folder / f"{name}-{version}.{kind}"
    info.mkdir(parents=True)
    (info / ("METADATA" if kind == "dist-info" else "PKG-INFO")).write_text(
        f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n\nVersion: in the text\n"
    )
    (info / "entry_points.txt").write_text(text)


@pytest.fixture
def path(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(tmp_path / "first"), str(tmp_path / "nowhere"), str(tmp_path / "second")])
    importlib.invalidate_caches()
    return tmp_path


TEXT = "[console_scripts]\nx = x:main\n\n[mgx]\n# a comment\none = package.plugin\ntwo=package.other:thing.part [extra]\n[mgx.more]\nthree = no\n"


def test_entries_of_a_group(path):
    distribution(path / "first", "some_package", TEXT)
    distribution(path / "second", "old_one", "[mgx]\nfour = old\n", "2", "egg-info")
    distribution(path / "second", "without", "[other]\nfive = no\n")
    assert entries("mgx") == [
        Entry("one", "package.plugin", "some-package", "1.0"),
        Entry("two", "package.other:thing.part", "some-package", "1.0"),
        Entry("four", "old", "old-one", "2"),
    ]


def test_the_first_distribution_of_a_name_counts(path):
    distribution(path / "first", "same", "[mgx]\na = new\n", "2.0")
    distribution(path / "second", "same", "[mgx]\na = old\n", "1.0")
    assert entries("mgx") == [Entry("a", "new", "same", "2.0")]
    assert sorted(entries("mgx")) == sorted(installed._by_metadata("mgx"))


def test_installed_packages():
    assert sorted(entries("mgx")) == sorted(installed._by_metadata("mgx"))
    assert entries("no such group") == []


def test_other_finders_are_queried(monkeypatch, path):
    class Finder:
        def find_distributions(self, context):
            return []

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    monkeypatch.setattr(installed, "_by_metadata", lambda group: [Entry("asked", group, "", "")])
    assert entries("mgx") == [Entry("asked", "mgx", "", "")]


def test_loading():
    assert Entry("x", "mgx_core.plugins.entry_points", "", "").load() is installed
    assert Entry("x", "mgx_core.plugins.entry_points:Entry.load", "", "").load() is Entry.load


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("mgx_core.plugins.nowhere", "there is no module 'mgx_core.plugins.nowhere'"),
        ("no_such_package.plugin", "there is no module 'no_such_package'"),
        ("mgx_core.plugins.entry_points:nothing", "module 'mgx_core.plugins.entry_points' has no attribute 'nothing'"),
    ],
)
def test_an_entry_point_that_leads_nowhere(value, why):
    with pytest.raises(PluginError) as caught:
        Entry("mine", value, "mine-dist", "1").load()
    assert caught.value.message.startswith(
        f"its entry point `mine = {value}` cannot be resolved: {why}; correct it in the package's"
    )


def test_a_module_that_lacks_another_one(path):
    (path / "lacking.py").write_text("import surely_not_installed")
    sys.path.insert(0, str(path))
    with pytest.raises(ModuleNotFoundError, match="surely_not_installed"):
        Entry("mine", "lacking", "mine-dist", "1").load()
