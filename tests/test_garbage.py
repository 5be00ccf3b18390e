import gc
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import mgx_core as mgx
from mgx_core import parsing, store
from mgx_core.garbage import RARER, no_collections, rarer_collections
from mgx_core.run import compile_module as compiling


def test_the_block_collects_less_often_and_restores_the_threshold() -> None:
    before = gc.get_threshold()
    with rarer_collections():
        assert gc.isenabled() and gc.get_threshold()[0] == RARER
        with rarer_collections():
            assert gc.get_threshold()[0] == RARER
        assert gc.get_threshold()[0] == RARER
    assert gc.get_threshold() == before


def test_thresholds_set_by_the_process_are_kept() -> None:
    before = gc.get_threshold()
    try:
        for own in (0, RARER + 1):
            gc.set_threshold(own, 3, 4)
            with rarer_collections():
                assert gc.get_threshold() == (own, 3, 4)
            assert gc.get_threshold() == (own, 3, 4)
        gc.set_threshold(500, 3, 4)
        with rarer_collections():
            gc.set_threshold(700, 5, 6)
        assert gc.get_threshold() == (700, 5, 6)
    finally:
        gc.set_threshold(*before)


def test_the_last_of_several_threads_sets_it_back() -> None:
    before = gc.get_threshold()
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with rarer_collections():
            entered.set()
            leave.wait()

    thread = threading.Thread(target=other)
    with rarer_collections():
        thread.start()
        entered.wait()
    assert gc.get_threshold()[0] == RARER
    leave.set()
    thread.join()
    assert gc.get_threshold() == before


def test_models_are_parsed_and_compiled_in_such_blocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[int] = []

    def noting(function: Any) -> Any:
        def noted(*args: Any, **keywords: Any) -> Any:
            seen.append(gc.get_threshold()[0])
            return function(*args, **keywords)

        return noted

    monkeypatch.setattr(parsing, "with_extents", noting(parsing.with_extents))
    monkeypatch.setattr(compiling, "compile_module", noting(compiling.compile_module))
    text = tmp_path / "model.txt"
    program = mgx.Program()
    main = program.get_main_module()
    main.add_return([main.add_parameter("x", mgx.Shape("float32", [2]))])
    text.write_text(str(program))
    mgx.parse(text).compile(mgx.get_target("ref"))
    assert seen == [RARER, RARER]


def test_objects_existing_after_many_imports_count_as_old(monkeypatch: pytest.MonkeyPatch) -> None:
    before = gc.get_threshold()
    gc.set_threshold(5000, 10, 10)
    gc.unfreeze()
    try:
        for many in (False, True):
            gc.collect()
            with rarer_collections():
                for n in range(20 if many else 0):
                    monkeypatch.setitem(sys.modules, f"made_{n}", ModuleType(f"made_{n}"))
                made: list[Any] = [[]]
            old = any(found is made for found in gc.get_objects(generation=2))
            assert old is many and gc.get_freeze_count() == 0
    finally:
        gc.freeze()  # as it was for all tests, see conftest.py
        gc.set_threshold(*before)


@pytest.mark.parametrize("enabled", [True, False])
def test_nothing_is_collected_in_blocks_without_collections(enabled: bool) -> None:
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with no_collections():
            with no_collections():
                assert not gc.isenabled()
            assert not gc.isenabled()
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()


BEGIN = """
import atexit, gc, io, sys, types
from mgx_core.garbage import ends_with_the_process, rarer_collections
atexit.register(lambda: print("left" if gc.get_freeze_count() else "collected"))
with rarer_collections():
    for n in range(MODULES):
        sys.modules[f"made_{n}"] = types.ModuleType(f"made_{n}")

class Plain:
    def __init__(self):
        self.me = self

class Closed(Plain):
    def __del__(self):
        print("finalized")

def steps():
    try:
        yield
    finally:
        print("finalized")
"""


@pytest.mark.parametrize(
    ("what", "modules", "said"),
    [
        ("", 20, ["left"]),
        ("", 0, ["collected"]),
        ("o = Plain()", 20, ["left"]),
        ("o = Closed()", 20, ["collected", "finalized"]),
        ("Closed()", 20, ["collected", "finalized"]),
        ("o = type('Derived', (Closed,), {})()", 20, ["collected", "finalized"]),
        ("o = Plain(); o.steps = steps(); next(o.steps)", 20, ["collected", "finalized"]),
        ("o = Plain(); o.steps = steps()", 20, ["left"]),
        ("o = Plain(); o.file = open(sys.argv[1], 'w'); o.file.write('all')", 20, ["collected"]),
        ("i = sys.stdin.detach()", 20, ["collected"]),
        ("o = Closed(); ends_with_the_process(Closed)", 20, ["left"]),
    ],
)
def test_the_end_of_the_process_collects_where_something_is_to_be_finalized(
    tmp_path: Path, what: str, modules: int, said: list[str]
) -> None:
    code = BEGIN.replace("MODULES", str(modules)) + what
    file = tmp_path / "file"
    found = subprocess.run(
        [sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True, timeout=60
    )
    assert (found.stdout.split(), found.stderr) == (said, "")
    assert "open" not in what or file.read_text() == "all"


@pytest.mark.parametrize("read", ["load", "load_buffer"])
def test_programs_are_read_with_rarer_collections(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, read: str) -> None:
    """As for parsing, most objects created by loading are long-lived; a process that only loads also exits fast."""

    def seen(*given: Any) -> Any:
        thresholds.append(gc.get_threshold()[0])
        return ours(*given)

    program = mgx.Program()
    program.get_main_module().add_return([])
    file = tmp_path / "empty.mxr"
    program.save(file)
    ours = getattr(store, read)
    thresholds: list[int] = []
    monkeypatch.setattr(store, read, seen)
    before = gc.get_threshold()
    getattr(mgx, read)(file if read == "load" else file.read_bytes())
    assert thresholds == [RARER]
    assert gc.get_threshold() == before
