"""The engine: code sharing, the disk cache and damaged entries, other machines, loops and branches of the IR writer."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from run_loops import run_numpy

from mgx_core import DeviceError
from mgx_core.cache import DiskCache
from mgx_core.types.shape import Shape
from mgx_cpu_dnnl.jit.code import LONG_BODY, Code, V, constant
from mgx_cpu_dnnl.jit.engine import FORMAT, Engine
from mgx_cpu_dnnl.jit.kernel import JitKernel
from mgx_cpu_dnnl.jit.pointwise import compile_copy


def doubling(c: Code) -> None:
    base = c.load(c.gep(V("%buffers", "ptr", 0), 0, "ptr"), "ptr", 0)

    def step(i, _):
        at = c.gep(base, i, "float")
        x = c.load(at, "float", 0)
        c.store(at, c.op("fadd", x, x))
        return []

    c.loop(V("%begin", "i64", 0), V("%end", "i64", 0), 1, step)


def doubled(function, n=5):
    x = np.arange(n, dtype=np.float32)
    run_numpy(JitKernel("double", function, n, 1, (), 0, 0, 1), [x])
    return x.tolist()


def test_one_function_per_key():
    engine = Engine(cache=None)
    first = engine.function("double", doubling)
    assert engine.function("double", doubling) is first
    assert engine.function("other", doubling) is not first
    assert doubled(first) == [0, 2, 4, 6, 8]
    assert engine.compiled == 2


@pytest.mark.parametrize("times", [1, LONG_BODY])
def test_indices_of_long_loops_are_hidden_from_strength_reduction(times):
    """LLVM considers all ways of computing all addresses of a loop, which takes more time than it saves in long loops."""
    texts = []

    def several(c: Code) -> None:
        base = c.load(c.gep(V("%buffers", "ptr", 0), 0, "ptr"), "ptr", 0)

        def step(i, _):
            at = c.gep(base, i, "float")
            for _ in range(times):
                c.store(at, c.op("fadd", c.load(at, "float", 0), c.const(1.0, V("", "float", 0))))
            return []

        c.loop(V("%begin", "i64", 0), V("%end", "i64", 0), 1, step)
        texts.append(c.text("several"))

    assert doubled(Engine(cache=None).function("several", several)) == [x + times for x in range(5)]
    assert texts[0].count(' asm "", "=r,0"') == (times == LONG_BODY)


def test_cache_on_disk(tmp_path):
    engine = Engine(cache=tmp_path)
    assert doubled(engine.function("double", doubling)) == [0, 2, 4, 6, 8]
    (entry,) = tmp_path.iterdir()
    again = Engine(cache=tmp_path)
    assert doubled(again.function("double", doubling)) == [0, 2, 4, 6, 8]
    assert (engine.compiled, again.compiled) == (1, 0)
    for damage in (b"", b"rubbish", entry.read_bytes()[:-1], entry.read_bytes()[:-1] + b"x"):
        entry.write_bytes(damage)
        fresh = Engine(cache=tmp_path)
        assert doubled(fresh.function("double", doubling)) == [0, 2, 4, 6, 8]
        assert fresh.compiled == 1
        assert list(tmp_path.iterdir()) == [entry]


def calling_nothing(c: Code) -> None:
    """Calls a function that no library exports, as loops built for another version of the library may."""
    c.declared["mgx_missing"] = "declare void @mgx_missing()"
    c.emit("call void @mgx_missing()")
    doubling(c)


def test_objects_in_the_cache_that_cannot_be_loaded_are_recompiled(tmp_path):
    """Objects of another function and invalid ones are replaced, and the others remain unchanged."""
    keys = ("one", "two", "three")
    first = Engine(cache=tmp_path)
    symbols = [first.function(key, doubling).symbol for key in keys]
    first.flush()
    kept = DiskCache("jit", FORMAT, tmp_path)
    others = kept.get(symbols[1])
    assert others is not None
    for bad in (others, b"\x7fELF" + bytes(200)):
        kept.put(symbols[0], bad)
        for compiled in (1, 0):  # and again from the repaired cache
            engine = Engine(cache=tmp_path)
            functions = [engine.function(key, doubling) for key in keys]
            assert [doubled(f) for f in functions] == [[0, 2, 4, 6, 8]] * 3
            assert engine.compiled == compiled


def test_a_function_that_cannot_be_loaded_leaves_the_others(tmp_path):
    """Also functions whose objects are in the cache, and also in later engines."""
    Engine(cache=tmp_path).function("double", doubling).address  # noqa: B018
    for _ in range(2):
        engine = Engine(cache=tmp_path)
        good, bad = engine.function("double", doubling), engine.function("bad", calling_nothing)
        for _ in range(2):
            with pytest.raises(DeviceError, match="there is no function mgx_missing"):
                bad.address  # noqa: B018
            assert doubled(good) == [0, 2, 4, 6, 8]


def test_cache_knows_machines(tmp_path):
    Engine(cache=tmp_path).function("double", doubling).address  # noqa: B018
    other = Engine("x86-64-v3", cache=tmp_path)
    assert doubled(other.function("double", doubling)) == [0, 2, 4, 6, 8]
    assert other.compiled == 1


def test_cache_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("MGX_CACHE_DIR", str(tmp_path))
    Engine().function("double", doubling).address  # noqa: B018
    assert len(list((tmp_path / "jit").iterdir())) == 1


def test_unwritable_cache(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert doubled(Engine(cache=blocked / "below").function("double", doubling)) == [0, 2, 4, 6, 8]


def test_the_end_of_the_process_does_not_wait_for_the_compiler():
    code = """
import atexit, gc, sys
from mgx_core.garbage import rarer_collections
from mgx_cpu_dnnl.jit.engine import Engine
atexit.register(lambda: print(bool(gc.get_freeze_count()), "llvmlite" in sys.modules))
with rarer_collections():
    engine = Engine(cache=None)
    engine.function("empty", lambda c: None)
    engine.flush()
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.split() == ["True", "True"]


def test_bad_ir_is_shown():
    engine = Engine(cache=None)
    function = engine.function("bad", lambda c: c.emit("%x = nonsense"))
    with pytest.raises(DeviceError, match="%x = nonsense"):
        function.address  # noqa: B018


@pytest.mark.parametrize("cpu", [None, "x86-64-v3", "x86-64-v4"])
def test_lanes_follow_the_machine(cpu):
    engine = Engine(cpu, cache=None)
    if cpu is not None:
        assert engine.lanes == (16 if cpu.endswith("4") else 8)
    x = np.arange(60, dtype=np.float32).reshape(5, 12)
    out = np.zeros((5, 12), np.float32)
    if engine.wide and not Engine(cache=None).wide:
        pytest.skip("this machine cannot run it")
    run_numpy(compile_copy(Shape("float32", (5, 12)), Shape("float32", (5, 12)), engine), [x, out])
    assert np.array_equal(x, out)


def test_carried_values_and_branches():
    """Sums the even numbers below `end` with a loop that contains a branch."""

    def build(c: Code) -> None:
        base = c.load(c.gep(V("%buffers", "ptr", 0), 0, "ptr"), "ptr", 0)
        zero = V("0", "i64", 0)

        def step(i, carried):
            even = c.compare("eq", c.op("and", i, V("1", "i64", 0)), zero)
            return [c.choose(even, lambda: c.op("add", carried[0], i), carried[0])]

        total = c.loop(zero, V("%end", "i64", 0), 1, step, [zero])[1]
        c.store(base, total)
        c.when(c.compare("sgt", total, V("10", "i64", 0)), lambda: c.store(c.gep(base, 1, "i64"), V("7", "i64", 0)))

    function = Engine(cache=None).function("evens", build)
    for n, expected in ((10, [20, 7]), (4, [2, 0])):
        out = np.zeros(2, np.int64)
        run_numpy(JitKernel("evens", function, n, 1, (), 0, 0, 1), [out])
        assert out.tolist() == expected


@pytest.mark.parametrize(("value", "elem", "text"), [
    (1.0, "float", "0x3FF0000000000000"), (1e39, "float", "0x7FF0000000000000"), (True, "i1", "true"),
    (255, "i8", "-1"), (-1, "i64", "-1"),
])  # fmt: skip
def test_constants(value, elem, text):
    assert constant(value, elem, 0).ref == text
    assert constant(value, elem, 4).ref == f"splat ({elem} {text})"
