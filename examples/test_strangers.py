"""Each example package is built, installed into a separate folder, and its tests run there, like any third-party package."""

from __future__ import annotations

import importlib.util
import os
import re
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


@pytest.fixture(params=PACKAGES)
def installed(request, tmp_path):
    """Copies a package's folder and the models, and creates an environment in which it is installed."""
    source, site = tmp_path / request.param, tmp_path / "site"
    for folder in (request.param, "digits"):
        shutil.copytree(
            EXAMPLES / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "build", "dist")
        )
    isolated = [] if importlib.util.find_spec("hatchling") is None else ["--no-build-isolation"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", *isolated]
    subprocess.run([*pip, "--target", str(site), str(source)], check=True)
    path = os.pathsep.join(p for p in (str(site), os.environ.get("PYTHONPATH", "")) if p)
    commands = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    return source, {**os.environ, "PYTHONPATH": path, "PATH": commands}


def test_package_works_installed(installed):
    source, environment = installed
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "pyproject.toml"],
        cwd=source, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


def test_commands_of_the_readme_work(installed):
    """Commands that a README gives for the installed package, without those of `pip`; `pytest` is tested above."""
    source, environment = installed
    (block,) = re.findall(r"```sh\n(.*?)```", (source / "README.md").read_text(), re.DOTALL)
    assert block.startswith("pip install -e ")
    text = "".join(line for line in block.splitlines(True) if not line.startswith("pip ") and line != "pytest\n")
    done = subprocess.run(["sh", "-ec", text], cwd=source, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
