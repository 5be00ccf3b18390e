"""Detection of a native module that was built from other sources than those beside the package."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import mgx_cpu_dnnl
from mgx_core.errors import DeviceError
from mgx_cpu_dnnl import native_library
from mgx_cpu_dnnl.native_library import native
from mgx_cpu_dnnl.native_sources import is_current

CHECKOUT = Path(__file__).parents[1]


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of the sources with their modification times."""
    shutil.copy2(CHECKOUT / "CMakeLists.txt", tmp_path)
    shutil.copytree(CHECKOUT / "src", tmp_path / "src")
    return tmp_path


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Replaces the native module and the record of its sources."""
    real = native()
    module = ModuleType("mgx_cpu_dnnl._native")
    vars(module).update(__file__=real.__file__, SOURCE_SIZES=real.SOURCE_SIZES, SOURCE_HASHES=real.SOURCE_HASHES)
    monkeypatch.setattr(mgx_cpu_dnnl, "_native", module)
    native_library.native.cache_clear()
    yield module
    native_library.native.cache_clear()


def later(path: Path) -> None:
    """Makes a file newer than any module."""
    then = time.time() + 60
    os.utime(path, (then, then))


def test_the_module_knows_its_sources(sources: Path) -> None:
    """CMake and Python find the same files, sizes and contents."""
    assert is_current(native(), sources)
    later(sources / "src" / "module.cpp")
    assert is_current(native(), sources)


def test_a_file_that_came_is_noticed(sources: Path) -> None:
    (sources / "src" / "new.h").touch()
    assert not is_current(native(), sources)


def test_another_size_is_noticed(sources: Path) -> None:
    path = sources / "src" / "module.cpp"
    before = path.stat()
    path.write_bytes(path.read_bytes() + b"\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not is_current(native(), sources)


def test_other_contents_of_the_same_size_are_noticed(sources: Path) -> None:
    path = sources / "src" / "module.cpp"
    path.write_bytes(path.read_bytes().replace(b"1", b"2"))
    later(path)
    assert not is_current(native(), sources)


def test_a_package_without_sources_is_current(tmp_path: Path) -> None:
    assert is_current(native(), tmp_path)


def test_a_current_module_is_loaded(planted: ModuleType) -> None:
    assert native_library.native() is planted


@pytest.mark.parametrize("stale", ["of other sources", "of a time before the check"])
def test_a_stale_module_is_a_device_error(planted: ModuleType, stale: str) -> None:
    if stale == "of other sources":
        vars(planted)["SOURCE_SIZES"] = "0" * 64
    else:
        del vars(planted)["SOURCE_SIZES"]
    with pytest.raises(
        DeviceError, match=r"other sources than those in .*src; build it again with `.* --editable .*cpu_dnnl`"
    ):
        native_library.native()
