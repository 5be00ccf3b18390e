"""Locating and loading oneDNN."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mgx_core.errors import DeviceError
from mgx_cpu_dnnl import native_library


def test_the_library_of_the_wheel_is_found() -> None:
    path = native_library.preload()
    assert path.name == "libdnnl.so.3" and path.is_file()
    # wherever the package is installed, as with --target
    assert path.parent == Path(native_library.native().__file__).parent
    assert (path.parent / "onednn" / "LICENSE").is_file()


def test_a_missing_library_is_a_device_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGX_DNNL_LIBRARY", "/nowhere/libdnnl.so.3")
    native_library.preload.cache_clear()
    try:
        with pytest.raises(DeviceError, match=r"tried /nowhere/libdnnl\.so\.3"):
            native_library.preload()
    finally:
        native_library.preload.cache_clear()


def test_a_broken_library_is_a_device_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "libdnnl.so.3"
    broken.write_bytes(b"no library")
    monkeypatch.setenv("MGX_DNNL_LIBRARY", str(broken))
    native_library.preload.cache_clear()
    try:
        with pytest.raises(DeviceError, match="cannot be loaded"):
            native_library.preload()
    finally:
        native_library.preload.cache_clear()


def test_threads_of_the_environment_are_respected() -> None:
    code = "from mgx_cpu_dnnl.native_library import native; print(native().thread_count())"
    env = {**os.environ, "MGX_CPU_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "1"
