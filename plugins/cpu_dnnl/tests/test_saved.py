"""Compiled programs of the cpu target in files: restored without plans and compilers, rejected if they do not fit."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.errors import StoreError
from mgx_cpu_dnnl import program_codec as saved
from mgx_cpu_dnnl.native_library import native
from mgx_cpu_dnnl.runner import CpuRunner
from mgx_cpu_dnnl.saved_runner import RestoredRunner
from mgx_cpu_dnnl.target import CpuTarget

rng = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MGX_CACHE_DIR", str(tmp_path / "cache"))


def literal(m: mgx.Module, *shape: int) -> mgx.Instruction:
    return m.add_literal((rng.standard_normal(shape) * 0.3).astype(np.float32))


def network(batch: Any = 2) -> mgx.Program:
    """Packed convolution and product, plain literals, loops, a gather."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [batch, 8, 10, 10]))
    words = m.add_parameter("words", mgx.Shape("int64", [batch, 3]))
    y = m.add(mgx.op("convolution", padding=[1, 1], stride=[1, 1], dilation=[1, 1]), x, literal(m, 16, 8, 3, 3))
    y = m.add(mgx.op("relu"), y)
    y = m.add(mgx.op("pooling", mode="average", lengths=[10, 10]), y)
    y = m.add(mgx.op("dot"), m.add(mgx.op("squeeze", axes=[2, 3]), y), literal(m, 16, 12))
    z = m.add(mgx.op("reduce_sum", axes=[1]), m.add(mgx.op("gather", axis=0), literal(m, 20, 12), words))
    y = m.add(mgx.op("add"), y, m.add(mgx.op("squeeze", axes=[1]), z))
    m.add_return([m.add(mgx.op("softmax", axis=1), y)])
    program.compile(CpuTarget())
    return program


def values(batch: int = 2) -> dict[str, Any]:
    return {
        "x": rng.standard_normal((batch, 8, 10, 10)).astype(np.float32),
        "words": rng.integers(0, 20, (batch, 3)),
    }


def result(program: mgx.Program, given: dict[str, Any]) -> Any:
    return np.asarray(program.run(given)[0])


def test_restored_programs_compute_the_same(tmp_path):
    program, given = network(), values()
    wanted = result(program, given)
    program.save(tmp_path / "a.mxr")
    read = mgx.load(tmp_path / "a.mxr")
    np.testing.assert_array_equal(result(read, given), wanted)
    assert read.executable.notes == []
    (instance,) = read.executable.instances()
    assert isinstance(instance.runner, RestoredRunner)
    assert [repr(p) for p in instance.placements] == [repr(p) for p in program.executable.instances()[0].placements]
    names = [i.op.of.name for i in instance.module if i.op.name == "launch"]
    timings = read.executable.time(given, 2, 1)
    timed = [t.instruction.op.of.name for t in timings]
    assert set(timed) <= set(names)
    assert [t.kernels for t in timings] == [t.kernels for t in program.executable.time(given, 2, 1)]
    assert {k for t in timings for k in t.kernels} == {p.kernel for p in instance.placements} - {"view"}
    assert "gather" in timed
    mgx.save(read, tmp_path / "b.mxr")
    again = mgx.load(tmp_path / "b.mxr")
    np.testing.assert_array_equal(result(again, given), wanted)
    assert again.executable.notes == []


@pytest.mark.parametrize("narrow", [False, True])
def test_groups_of_winograds_products_are_restored(tmp_path, narrow):
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [1, 96, 28, 28]))
    m.add_return([m.add(mgx.op("convolution", padding=[1, 1], group=2), x, literal(m, 96, 48, 3, 3))])
    if narrow:
        mgx.quantize_bf16(program)
    program.compile(CpuTarget())
    given = {"x": rng.standard_normal((1, 96, 28, 28)).astype(np.float32)}
    wanted = result(program, given)
    names = [s.name for s in program.executable.instances()[0].runner.schedule.steps]
    assert any("winograd" in name for name in names) or (narrow and "amx_bf16" in native().cpu_features()), names
    program.save(tmp_path / "a.mxr")
    read = mgx.load(tmp_path / "a.mxr")
    assert read.executable.notes == []
    np.testing.assert_array_equal(result(read, given), wanted)


def test_a_program_for_fewer_threads_than_it_was_saved_under(tmp_path, monkeypatch):
    program, given, before = network(), values(), native().thread_count()
    wanted = result(program, given)
    program.save(tmp_path / "a.mxr")
    monkeypatch.setenv("MGX_CPU_THREADS", "1")
    try:
        read = mgx.load(tmp_path / "a.mxr")
        np.testing.assert_allclose(result(read, given), wanted, rtol=1e-6)
        assert native().thread_count() == 1
        assert read.executable.notes == []
    finally:
        native().set_threads(before)


def test_instances_of_a_symbolic_program(tmp_path):
    program = network(mgx.dim.symbol("n", 1, 8))
    wanted = {n: (values(n), None) for n in (1, 4)}
    wanted = {n: (v, result(program, v)) for n, (v, _) in wanted.items()}
    program.save(tmp_path / "a.mxr")
    read = mgx.load(tmp_path / "a.mxr")
    for given, expected in wanted.values():
        np.testing.assert_array_equal(result(read, given), expected)
    assert [type(i.runner) for i in read.executable.instances()] == [RestoredRunner] * 2
    given = values(3)
    np.testing.assert_array_equal(result(read, given), result(program, given))
    assert type(read.executable.instances()[-1].runner) is CpuRunner


def test_weights_are_read_in_place_from_the_file(tmp_path):
    program = network()
    program.save(tmp_path / "a.mxr")
    read = mgx.load(tmp_path / "a.mxr")
    runner = read.executable.instances()[0].runner
    entries = runner._saved.code["program"]
    for number in entries["arrays"]:
        array = runner._saved.fetch(number)
        assert array.__array_interface__["data"][0] % 64 == 0
        assert not array.flags.writeable
    sizes = [e[2] for e in entries["values"] if e[0] == "literal"]
    assert sum(sizes) >= 4 * (16 * 8 * 9 + 16 * 12 + 20 * 12)
    # the module's plain literals are stored once in the file
    assert (tmp_path / "a.mxr").stat().st_size < 2 * sum(sizes) + 20_000


def test_a_program_in_memory_at_any_address():
    program, given = network(), values()
    data = mgx.save_buffer(program)
    for offset in range(3):
        shifted = memoryview(bytes(offset) + data)[offset:]
        np.testing.assert_array_equal(result(mgx.load_buffer(shifted), given), result(program, given))


def test_running_a_file_needs_neither_compiler_nor_rules_nor_the_graph(tmp_path):
    program, given = network(), values()
    program.save(tmp_path / "a.mxr")
    np.savez(tmp_path / "given.npz", wanted=result(program, given), **given)
    text = f"""
import sys, numpy as np, mgx_core as mgx
given = dict(np.load({str(tmp_path / "given.npz")!r}))
wanted = given.pop("wanted")
assert np.array_equal(np.asarray(mgx.load({str(tmp_path / "a.mxr")!r}).run(given)[0]), wanted)
named = ("llvmlite", "ml_dtypes", "mgx_core.store.modules", "mgx_core.parsing", "mgx_cpu_dnnl.emitter", "mgx_cpu_dnnl.jit.graph")
packages = ("mgx_core.compile.stages", "mgx_core.ir", "mgx_core.ops", "mgx_core.passes", "mgx_core.rules")
print([n for n in sys.modules if n in named or n.startswith(packages)])
"""
    loaded = subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True).stdout
    assert loaded == "[]\n"


def test_another_layout_than_the_saved_one_compiles_again(monkeypatch):
    program, given = network(), values()
    data = mgx.save_buffer(program)
    check = saved._check

    def changed(made, implementation, chosen):
        check(made, implementation, [[arg, layout + "8a", nbytes] for arg, layout, nbytes in chosen])

    monkeypatch.setattr(saved, "_check", changed)
    read = mgx.load_buffer(data)
    (note,) = read.executable.notes
    assert "the file's kernels could not be used and were recompiled: convolution requires layout" in note
    np.testing.assert_array_equal(result(read, given), result(program, given))


def test_another_format_compiles_again(monkeypatch):
    monkeypatch.setattr(CpuTarget, "machine", lambda self, context: "any")
    data = mgx.save_buffer(network())
    monkeypatch.setattr("mgx_cpu_dnnl.saved_runner.FORMAT", 0)
    (note,) = mgx.load_buffer(data).executable.notes
    assert "the kernels are of format 6, this is 0" in note


def test_steps_of_this_process_are_not_saved(monkeypatch):
    def host(self, name, *args, **keywords):
        raise saved.NotSaved("as if it were a step on the host")

    monkeypatch.setattr(saved.Recorder, "add_primitive", host)
    program, given = network(), values()
    read = mgx.load_buffer(mgx.save_buffer(program))
    assert isinstance(read.executable.instances()[0].runner, CpuRunner)
    assert "not saved: as if it were a step on the host" in program.executable.instances()[0].runner.notes
    np.testing.assert_array_equal(result(read, given), result(program, given))
    with pytest.raises(saved.NotSaved, match="the step host x calls Python"):
        saved.Recorder(0, len, lambda address: None).add_host("host x", print, [], [])
    with pytest.raises(saved.NotSaved, match="a function of another package"):
        saved.Recorder(0, len, lambda address: None).add_loop("theirs", 1, None, [])


def refused_of(count: int) -> int:
    """Returns how many of `count` damaged variants of a file are rejected; the others must compute the same as the file."""
    program, given = network(), values()
    data, wanted = mgx.save_buffer(program), result(program, given)
    refused = 0
    spots = np.random.default_rng(5)
    for n in range(count):
        broken = bytearray(data)
        if n % 4 == 0:
            broken = broken[: int(spots.integers(0, len(data)))]
        else:
            start = int(spots.integers(0, len(data)))
            for at in range(start, min(start + int(spots.integers(1, 16)), len(data))):
                broken[at] ^= int(spots.integers(1, 256))
        try:
            read = mgx.load_buffer(bytes(broken))
        except StoreError:
            refused += 1
        else:  # bytes without meaning, or packed weights that are packed again
            np.testing.assert_array_equal(result(read, given), wanted)
    return refused


def test_damaged_files_are_refused():
    assert refused_of(24) >= 12


@pytest.mark.slow
def test_two_hundred_damaged_files_are_refused():
    assert refused_of(200) >= 100


@pytest.mark.parametrize("result", ["parameter", "constant"])
def test_programs_that_compute_nothing_are_restored(tmp_path, result):
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [3]))
    m.add_return([x if result == "parameter" else literal(m, 3), x])
    program.compile(CpuTarget())
    x = np.arange(3, dtype=np.float32)
    wanted = [np.asarray(r) for r in program.run({"x": x})]
    program.save(tmp_path / "nothing.mxr")
    loaded = mgx.load(tmp_path / "nothing.mxr")
    for a, b in zip(loaded.run({"x": x}), wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(a), b)
    assert loaded.executable.restored
    assert loaded.executable.notes == []


def test_missing_contents_of_a_file_are_logged_on_load(tmp_path):
    """`matrix_exp` has no kernel on cpu: a step on the host exists only in its process."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [3, 3]))
    m.add_return([m.add(mgx.op("matrix_exp"), m.add(mgx.op("tanh"), x))])
    program.compile(CpuTarget())
    program.save(tmp_path / "hosted.mxr")
    loaded = mgx.load(tmp_path / "hosted.mxr")
    assert not loaded.executable.restored
    (note,) = loaded.executable.notes
    assert note == "kernels are not in the file and are recompiled: the step host matrix_exp calls Python"
    given = {"x": np.eye(3, dtype=np.float32) * 0.5}
    np.testing.assert_array_equal(np.asarray(loaded.run(given)[0]), np.asarray(program.run(given)[0]))


def test_recipes_make_equal_descriptors():
    _native = native()
    for layout in (None, "any", "nhwc", "nChw8c", "nChw16c"):
        md = _native.MemoryDesc([2, 32, 5, 7], "f32", layout)
        assert saved._object(saved._plain(md)) == md
    assert saved._object(saved._plain(_native.MemoryDesc.absent())).is_absent
    part = _native.MemoryDesc([2, 32, 5, 7], "f32", "nhwc").part([2, 16, 5, 7], [0, 16, 0, 0])
    with pytest.raises(saved.NotSaved, match="no name for the layout"):
        saved._plain(part)


def test_damaged_objects_are_refused():
    with pytest.raises(mgx.DeviceError, match="not a relocatable ELF object"):
        native().CodeImage([b"\x7fELF" + bytes(200)])
    with pytest.raises(mgx.DeviceError, match="cut off"):
        native().CodeImage([b"\x7fELF"])
