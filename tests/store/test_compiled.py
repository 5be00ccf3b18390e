"""Compiled programs in files: when kernels are loaded from them, and when they are compiled again."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dim, store
from mgx_core.errors import StoreError
from mgx_core.plugins import manager as plugins
from mgx_core.store import seal
from mgx_core.store.container import msgpack_chunks, read_bytes, unpack
from mgx_core.store.literals import LiteralWriter
from mgx_core.types.shape import Shape

OLD = Path(__file__).parent / "old"


class DoublingRunner(mgx.Runner):
    """Computes 2 x + weights with a number in place of compiled code."""

    def __init__(self, factor, weights, made):
        self.factor, self.weights, self.made = factor, weights, made

    def run(self, args):
        return [self.factor * args[0] + self.weights]

    def saved(self, keep):
        return {"factor": self.factor, "weights": keep(self.weights)}


class Doubling(mgx.Target):
    """A target with code to save: its only program is 2 x + literal."""

    name = "doubling"
    machine_text = "machine A"
    made: list[str] = []

    def kernels(self, context):
        plans = mgx.Kernels("doubling")
        plans.plan()(lambda op, inputs, context, modules=(): mgx.Reference(op))
        return plans

    def runner(self, module, plan, context, options):
        self.made.append("compiled")
        return DoublingRunner(2, np.arange(3, dtype=np.float32), "compiled")

    def machine(self, context):
        return self.machine_text

    def restored(self, saved, lowered, context, options):
        if saved.code["factor"] != 2:
            raise StoreError("a factor that is not 2")
        self.made.append("restored")
        return DoublingRunner(2, saved.fetch(saved.code["weights"]), "restored")


@pytest.fixture(autouse=True)
def installed(monkeypatch, tmp_path):
    plugin = ModuleType("doubling_plugin")
    plugin.Doubling = Doubling
    plugin.targets = mgx.hookimpl(lambda: [mgx.Lazy("doubling", "doubling_plugin:Doubling")])
    monkeypatch.setitem(sys.modules, "doubling_plugin", plugin)
    manager = plugins.Plugins(discover=False)
    manager.register(plugin, "doubling_plugin")
    monkeypatch.setattr(plugins, "_manager", [manager])
    monkeypatch.setattr(Doubling, "made", [])
    monkeypatch.setattr(Doubling, "machine_text", "machine A")
    monkeypatch.setenv("MGX_CACHE_DIR", str(tmp_path / "cache"))
    return manager


def compiled(installed, extent) -> mgx.Program:
    program = mgx.Program()
    main = program.get_main_module()
    main.add_return([main.add(mgx.op("relu"), main.add_parameter("x", Shape("float", [extent, 3])))])
    program.compile(installed.target("doubling"))
    return program


X = np.ones((1, 3), np.float32)


@pytest.mark.parametrize("format", ["msgpack", "json"])
@pytest.mark.parametrize("extent", [1, dim.symbol("n", 1, 8)], ids=str)
def test_kernels_come_from_the_file(installed, format, extent, tmp_path):
    program = compiled(installed, extent)
    program.run({"x": X})
    program.save(tmp_path / "a.mxr", format)
    Doubling.made.clear()
    read = mgx.load(tmp_path / "a.mxr")
    np.testing.assert_array_equal(np.asarray(read.run({"x": X})[0]), [[2, 3, 4]])
    assert Doubling.made == ["restored"]
    assert read.executable.notes == []
    (instance,) = read.executable.instances()
    assert [p.kernel for p in instance.placements] == ["reference pointwise"]
    assert "launch" in str(instance.module)  # inspecting it lowers it
    if extent != 1:
        read.run({"x": np.ones((2, 3), np.float32)})
        assert Doubling.made == ["restored", "compiled"]


@pytest.mark.parametrize("damaged", [[["simplify"]], [7], [["a", "b", 0.0, True, 1, 2, [3]]], [[1] * 8]])
def test_damaged_records_of_passes_are_refused_when_they_are_read(installed, damaged):
    whole = json.loads(mgx.save_buffer(compiled(installed, 1), "json"))
    del whole["digest"]
    whole["program"]["compiled"]["passes"] = damaged
    read = mgx.load_buffer(json.dumps(whole).encode())
    with pytest.raises(StoreError, match="the file's records of passes are damaged"):
        read.executable.records  # noqa: B018


@pytest.mark.parametrize("format", ["msgpack", "json"])
@pytest.mark.parametrize(
    "change",
    [
        lambda p: p["main"]["nodes"][1].__setitem__("op", "neg"),
        lambda p: p["compiled"]["parameters"]["x"].__setitem__("dims", [3, 1]),
        lambda p: p["compiled"].__setitem__("results", ["z"]),
        lambda p: p["compiled"]["options"].__setitem__("fast_math", False),
        lambda p: p["literals"][0].__setitem__(2, 64),
    ],
)
def test_kernels_of_a_file_that_was_edited_are_not_used(installed, format, change):
    """They ran for the program that they were compiled for, whatever the file stated."""
    data = mgx.save_buffer(compiled(installed, 1), format)
    if format == "json":
        whole = json.loads(data)
        del whole["digest"]
        change(whole["program"])
        data = json.dumps(whole).encode()
    else:
        stored = read_bytes(data)
        metadata = {**stored.metadata, "main": unpack(stored.metadata["main"])}
        change(metadata)
        literals = LiteralWriter()
        literals.array(np.frombuffer(stored.section.tobytes(), np.float32))
        data = b"".join(map(bytes, msgpack_chunks(metadata, literals)))
    (note,) = mgx.load_buffer(data).executable.notes
    assert "has no valid seal of this user" in note
    assert mgx.load_buffer(mgx.save_buffer(compiled(installed, 1), format)).executable.notes == []


def test_another_machine_compiles_again(installed, monkeypatch, caplog):
    data = mgx.save_buffer(compiled(installed, 1))
    monkeypatch.setattr(Doubling, "machine_text", "machine B")
    with caplog.at_level(logging.WARNING, "mgx"):
        read = mgx.load_buffer(data)
    note = "the program was compiled for machine A, this is machine B: its kernels are recompiled"
    assert read.executable.notes == [note]
    assert note in caplog.text
    assert Doubling.made == ["compiled", "compiled"]
    np.testing.assert_array_equal(np.asarray(read.run({"x": X})[0]), [[2, 3, 4]])


def test_code_signed_by_someone_else_is_loaded_only_if_trusted(installed, monkeypatch, tmp_path):
    data = mgx.save_buffer(compiled(installed, 1))
    monkeypatch.setenv("MGX_CACHE_DIR", str(tmp_path / "another user"))
    Doubling.made.clear()
    (note,) = mgx.load_buffer(data).executable.notes
    assert "has no valid seal of this user" in note
    assert mgx.load_buffer(data, trust=True).executable.notes == []
    monkeypatch.setenv("MGX_CACHE_DIR", str(tmp_path / "cache"))
    (note,) = mgx.load_buffer(data, trust=False).executable.notes
    assert "not trusted" in note
    assert Doubling.made == ["compiled", "restored", "compiled"]


def test_a_key_that_others_can_read_seals_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("MGX_CACHE_DIR", str(tmp_path))
    sealed = seal.seal(b"code")
    assert seal.sealed(b"code", sealed)
    assert not seal.sealed(b"c0de", sealed)
    (tmp_path / "seal.key").chmod(0o644)
    assert not seal.sealed(b"code", sealed)
    assert seal.seal(b"code") == b""
    assert not seal.sealed(b"code", b"")


def test_a_key_that_cannot_be_looked_for_seals_nothing(tmp_path, monkeypatch):
    """As in the home of another user, which the system refuses to look into."""
    monkeypatch.setenv("MGX_CACHE_DIR", str(tmp_path / ("x" * 300)))
    assert seal.seal(b"code") == b""
    assert not seal.seals()


def test_code_that_its_target_refuses_is_compiled_again(installed, monkeypatch):
    monkeypatch.setattr(DoublingRunner, "saved", lambda self, keep: {"factor": 3})
    read = mgx.load_buffer(mgx.save_buffer(compiled(installed, 1)))
    (note,) = read.executable.notes
    assert note == "the file's kernels could not be used and were recompiled: a factor that is not 2"
    assert Doubling.made == ["compiled", "compiled"]


@pytest.mark.parametrize("name", ["format1.mxr", "format1.json", "format2.json"])
def test_files_of_older_formats(name):
    read = mgx.load(OLD / name)
    assert read.get_output_names() == ["y"]
    relu = read.get_main_module().outputs[0]
    assert [i.name for i in read.get_main_module()] == [
        "@param", "@literal", "multibroadcast", "add", "relu", "@return"
    ]  # fmt: skip
    assert relu.inputs[0].sources == ("node",)
    assert not read.is_compiled()


def test_a_compiled_file_of_format_1_is_compiled(monkeypatch):
    monkeypatch.setattr(plugins, "_manager", [])
    read = mgx.load(OLD / "format1_compiled.mxr")
    assert read.is_compiled()
    np.testing.assert_array_equal(np.asarray(read.run({"x": -X})[0]), [[0, 0, 1]])


def test_a_compiled_file_of_format_2(monkeypatch):
    """Its main module is a part of the metadata."""
    monkeypatch.setattr(plugins, "_manager", [])
    read = mgx.load(OLD / "format2_compiled.mxr")
    assert [i.name for i in read.get_main_module()][-1] == "@return"
    np.testing.assert_array_equal(np.asarray(read.run({"x": -X})[0]), [[0, 0, 1]])


@pytest.mark.parametrize("room", [2, 1])
def test_a_program_that_is_saved_again_before_it_runs_keeps_its_kernels(installed, room):
    """Those of programs with symbolic extents were lost."""
    program = compiled(installed, dim.symbol("n", 1, 8))
    for rows in (1, 2):
        program.run({"x": np.ones((rows, 3), np.float32)})
    read = mgx.load_buffer(mgx.save_buffer(program))
    read.executable.options = dataclasses.replace(read.executable.options, instances=room)
    again = mgx.load_buffer(mgx.save_buffer(read))
    Doubling.made.clear()
    np.testing.assert_array_equal(np.asarray(again.run({"x": X})[0]), [[2, 3, 4]])
    assert Doubling.made == ["restored" if room == 2 else "compiled"]
    lost = ["kernels of shapes that did not run are not in the file: raise the option instances to keep all"]
    assert again.executable.notes == ([] if room == 2 else lost)


def test_the_module_of_a_restored_program_is_decoded_when_it_is_read(installed, monkeypatch):
    decoded = []
    monkeypatch.setattr(store, "unpack", lambda packed: decoded.append(packed) or unpack(packed))
    program = compiled(installed, 1)
    read = mgx.load_buffer(mgx.save_buffer(program))
    read.run({"x": X})
    assert decoded == []
    assert read.executable.module.text(full=True) == program.executable.module.text(full=True)
    assert len(decoded) == 1
