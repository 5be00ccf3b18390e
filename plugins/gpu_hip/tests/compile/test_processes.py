"""Compilation in processes of their own."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from mgx_gpu_hip.compile import build as building
from mgx_gpu_hip.compile.build import KernelCache, build
from mgx_gpu_hip.compile.compiler import CompileError
from mgx_gpu_hip.compile.gxx import HostCompiler
from mgx_gpu_hip.compile.processes import compiler_processes
from mgx_gpu_hip.runtime import open_device


class Source:
    def __init__(self, number: int, body: str = "") -> None:
        self.name = f"fill{number}"
        self.text = f"KERNEL(64) {self.name}(float* x) {{ {body or f'x[threadIdx.x] = {number};'} }}"


def loads(image: bytes, name: str) -> bool:
    return open_device("host", 1).load(image).function(name, "P") is not None


def test_sources_are_compiled_by_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    host = HostCompiler()
    with compiler_processes(host, 2) as compiler, ThreadPoolExecutor(2) as pool:
        monkeypatch.setattr(HostCompiler, "compile", None)  # here
        assert (compiler.name, compiler.version) == (host.name, host.version)
        sources = [Source(n) for n in range(3)]
        images = list(pool.map(partial(compiler.compile, flags=(), arch="host32"), [s.text for s in sources]))
    assert all(loads(image, s.name) for image, s in zip(images, sources, strict=True))


def test_files_of_the_working_directory_are_not_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    with compiler_processes(HostCompiler(), 1) as compiler:
        monkeypatch.setattr(HostCompiler, "compile", None)  # here
        assert loads(compiler.compile(Source(1).text, (), "host32"), "fill1")


def test_what_modules_print_is_no_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """It was read as one; a text that begins with X made this process wait for a string of a billion bytes."""
    (tmp_path / "sitecustomize.py").write_text("print('a' * 100)")
    monkeypatch.syspath_prepend(tmp_path)
    with compiler_processes(HostCompiler(), 1) as compiler:
        monkeypatch.setattr(HostCompiler, "compile", None)  # here
        assert loads(compiler.compile(Source(1).text, (), "host32"), "fill1")


def test_errors_of_a_source_are_reported() -> None:
    with compiler_processes(HostCompiler(), 1) as compiler:
        with pytest.raises(CompileError, match="undeclared_thing"):
            compiler.compile(Source(1, "x[0] = undeclared_thing;").text, (), "host32")
        assert loads(compiler.compile(Source(2).text, (), "host32"), "fill2")


def test_a_process_that_ended_is_replaced_by_this_one() -> None:
    with compiler_processes(HostCompiler(), 1) as compiler:
        made: Any = compiler
        made.all[0].child.kill()
        made.all[0].child.wait()
        assert all(loads(compiler.compile(Source(n).text, (), "host32"), f"fill{n}") for n in (1, 2))


def test_no_program_that_embeds_python_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    host = HostCompiler()
    for name in ("/opt/app/bin/app", "", None):
        monkeypatch.setattr(sys, "executable", name)
        with compiler_processes(host, 2) as compiler:
            assert compiler is host


@pytest.mark.parametrize(("locks", "much", "used"), [(True, 50, [2]), (True, 500, []), (False, 50, [])])
def test_many_sources_for_a_compiler_with_locks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, locks: bool, much: int, used: list[int]
) -> None:
    counts: list[int] = []

    def processes(compiler: Any, count: int) -> Any:
        counts.append(count)
        return compiler_processes(compiler, count)

    monkeypatch.setattr(HostCompiler, "locks", locks)
    monkeypatch.setattr(building, "MUCH_TEXT", much)
    monkeypatch.setattr(building, "compiler_processes", processes)
    monkeypatch.setattr(building.os, "sched_getaffinity", lambda _: {0, 1})
    codes = build([Source(1), Source(2)], "host32", store=KernelCache(tmp_path))
    assert all(loads(code.image, code.name) for code in codes)
    assert counts == used
