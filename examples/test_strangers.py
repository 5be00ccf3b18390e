"""Each example package is built, installed into a folder of its own, and its tests run there, as with any stranger's package."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # packages are installed

EXAMPLES = Path(__file__).parent
PACKAGES = [
    "broken_plugin",
    "cpu_kernels",
    "custom_frontend",
    "custom_op",
    "custom_rule",
    "gpu_kernels",
    "op_everywhere",
    "tiny_target",
]


def test_all_packages_are_tested():
    assert sorted(p.parent.name for p in EXAMPLES.glob("*/pyproject.toml")) == PACKAGES


@pytest.mark.parametrize("name", PACKAGES)
def test_package_works_installed(name, tmp_path):
    source, site = tmp_path / name, tmp_path / "site"
    shutil.copytree(EXAMPLES / name, source, ignore=shutil.ignore_patterns("__pycache__", "build", "dist"))
    isolated = [] if importlib.util.find_spec("hatchling") is None else ["--no-build-isolation"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", *isolated]
    subprocess.run([*pip, "--target", str(site), str(source)], check=True)
    path = os.pathsep.join(p for p in (str(site), os.environ.get("PYTHONPATH", "")) if p)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "pyproject.toml", "tests"],
        cwd=source, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
