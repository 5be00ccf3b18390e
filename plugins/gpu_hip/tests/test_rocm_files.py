"""Library paths from hip-python, and ignored answers."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from mgx_gpu_hip.rocm_files import rocm_file


@pytest.fixture
def found(monkeypatch):
    """Looks up a library with `paths` as hip-python's module."""

    def ask(paths: Any) -> str | None:
        for name in ("rocm", "rocm.bindings", "rocm.bindings.util"):
            monkeypatch.setitem(sys.modules, name, SimpleNamespace(__path__=[]))
        monkeypatch.setitem(sys.modules, "rocm.bindings.util.paths", paths)
        rocm_file.cache_clear()
        return rocm_file("amdhip64")

    yield ask
    rocm_file.cache_clear()


def fails(name: str) -> str:
    raise RuntimeError(f"no library {name}")


@pytest.mark.parametrize("answer", [b"/opt/lib.so", "/opt/lib.so"])
def test_its_answer_is_used(found, answer) -> None:
    assert found(SimpleNamespace(get_library_path=lambda name: answer)) == "/opt/lib.so"


@pytest.mark.parametrize(
    "paths",
    [
        None,
        SimpleNamespace(),
        SimpleNamespace(get_library_path=fails),
        SimpleNamespace(get_library_path=lambda name: None),
    ],
    ids=["not installed", "another package", "fails", "nothing"],
)
def test_a_fault_is_no_answer(found, paths) -> None:
    assert found(paths) is None
