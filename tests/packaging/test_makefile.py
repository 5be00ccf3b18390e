"""The Makefile's list of commands, and its stamp of a built native module."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def commands() -> set[str]:
    (line,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return set(line.split()) - {"FORCE"}


def test_help_lists_every_command() -> None:
    said = subprocess.run(["make", "--silent", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {*re.findall(r"^make ([\w-]+)", said, re.MULTILINE), "help"} == commands()


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_commands_of_pages_exist(page: str) -> None:
    found = re.findall(r"^ {4}make ((?:[a-z][\w-]* ?)+)", (ROOT / page).read_text(), re.MULTILINE)
    assert found
    assert {word for line in found for word in line.split("  ")[0].split()} <= commands()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Returns a checkout with one native source and an environment whose Python only counts its calls, in `builds`."""
    folder = tmp_path / "checkout"
    source = folder / "plugins" / "cpu_dnnl" / "src" / "module.cpp"
    source.parent.mkdir(parents=True)
    source.write_text("int answer = 42;\n")
    (source.parents[1] / "CMakeLists.txt").write_text("project(native)\n")
    shutil.copy(ROOT / "Makefile", folder)
    python = folder / ".venv-test" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@" >> builds\n')
    python.chmod(0o755)
    (folder / ".venv-test" / "ready").touch()
    return folder


def builds(checkout: Path) -> int:
    """Runs make and returns the number of builds of the native module so far."""
    made = ["make", "--silent", "DISTS=", "TORCH=", ".venv-test/native"]
    subprocess.run(made, cwd=checkout, check=True, env={"PATH": os.environ["PATH"]})
    return len((checkout / "builds").read_text().splitlines())


def test_the_native_module_is_built_again_if_a_source_changed(checkout: Path) -> None:
    assert [builds(checkout) for _ in range(2)] == [1, 1]
    source = checkout / "plugins" / "cpu_dnnl" / "src" / "module.cpp"
    source.touch()
    assert builds(checkout) == 1
    source.write_text("int answer = 43;\n")
    before = time.time() - 1e6
    os.utime(source, (before, before))  # as in an archive: older than the stamp
    assert [builds(checkout) for _ in range(2)] == [2, 2]


def test_a_copied_environment_builds_the_native_module_for_its_checkout(checkout: Path, tmp_path: Path) -> None:
    builds(checkout)
    shutil.copytree(checkout, tmp_path / "copy")
    assert builds(tmp_path / "copy") == 2
