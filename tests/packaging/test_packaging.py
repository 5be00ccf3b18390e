"""The recipes under packaging/ produce working installations.  Minutes each, since they build all packages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
PROGRAM = """
#include <iostream>
#include <migraphx/migraphx.hpp>
int main()
{
    migraphx::program p;
    auto m = p.get_main_module();
    migraphx::shape s{migraphx_shape_float_type, {2}};
    m.add_return({m.add_instruction(migraphx::operation("neg"), {m.add_parameter("x", s)})});
    p.compile(migraphx::target("cpu"));
    float x[] = {1, -2};
    for (float v : p.eval({{"x", migraphx::argument(s, x)}})[0].as_vector<float>()) std::cout << v << " ";
}
"""


def done(*command: object, **options: object) -> str:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL"))}
    ran = subprocess.run([*map(str, command)], capture_output=True, text=True, env=kept, check=False, **options)  # type: ignore[call-overload]
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return str(ran.stdout)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies the repository's files as in a fresh clone."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("no git repository to copy")
    folder = tmp_path_factory.mktemp("copy") / "mgx"
    folder.mkdir()
    listed = done("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines()
    for name in listed:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


@pytest.mark.slow
def test_install(copy: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "opt" / "mgx"
    done("sh", copy / "packaging" / "install.sh", prefix, "gpu")
    listed = done(prefix / "bin" / "mgx-driver", "plugins")
    assert all(name in listed for name in ("mgx-cpu-dnnl", "mgx-gpu-hip", "mgx-onnx", "mgx-tf", "mgx-tflite", "mgx-c"))
    done(prefix / "bin" / "migraphx-driver", "verify", "--test", "--cpu")
    (tmp_path / "p.cpp").write_text(PROGRAM)
    flags = done(prefix / "bin" / "mgx-c", "--cflags", "--libs").split()
    done("c++", "-std=c++14", tmp_path / "p.cpp", "-o", tmp_path / "p", *flags)
    assert done(tmp_path / "p").split() == ["-1", "2"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed")
def test_debian_package(copy: Path, tmp_path: Path) -> None:
    done("sh", copy / "packaging" / "deb.sh", tmp_path)
    (package,) = tmp_path.glob("mgx_*.deb")
    assert "Package: mgx" in done("dpkg-deb", "--info", package)
    # otherwise the interpreter's bytecode files remain
    assert "__pycache__" in done("dpkg-deb", "--info", package, "prerm")
    done("dpkg-deb", "--extract", package, tmp_path / "root")
    assert os.readlink(tmp_path / "root/usr/bin/migraphx-driver") == "/opt/mgx/bin/migraphx-driver"
    first = (tmp_path / "root/opt/mgx/bin/migraphx-driver").read_text().splitlines()[0]
    assert first.startswith("#!/opt/mgx/bin/python")


def test_declarations_of_c_are_read_before_anything_is_installed() -> None:
    done(sys.executable, "-S", ROOT / "plugins" / "capi" / "mgx_c" / "declarations.py")


def test_the_dockerfile_runs_the_same_script() -> None:
    text = (PACKAGING / "Dockerfile").read_text()
    assert "RUN sh /source/packaging/install.sh /opt/mgx ${PARTS}" in text
    parts = re.findall(r"^        (\w+)\) ", (PACKAGING / "install.sh").read_text(), re.MULTILINE)
    assert set(re.search(r"PARTS=\"(.*?)\" ?$", text, re.MULTILINE)[1].split()) <= set(parts) == {"gpu", "torch"}


def test_unknown_parts_are_refused(tmp_path: Path) -> None:
    refused = subprocess.run(
        ["sh", PACKAGING / "install.sh", tmp_path / "p", "nosuch"], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2 and "one of gpu, torch" in refused.stderr and not (tmp_path / "p").exists()
