"""Program files: loading compiles nothing, except kernels that the file lacks."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.errors import DeviceError
from mgx_core.plugins import manager as plugins
from mgx_core.types.dim import symbol
from mgx_gpu_hip.compile import build as builder
from mgx_gpu_hip.compile.build import KernelCache
from mgx_gpu_hip.compile.gxx import HostCompiler
from mgx_gpu_hip.target import GpuTarget


@pytest.fixture
def device(monkeypatch) -> dict[str, int]:
    """Returns the target "gpu" as described in program files, with waves of 32; the number may be changed (0: waves of 64)."""
    which = {"id": 1}
    plugin: Any = ModuleType("emulated_gpu_plugin")
    plugin.make = lambda: GpuTarget("host", which["id"])
    plugin.targets = mgx.hookimpl(lambda: [mgx.Lazy("gpu", "emulated_gpu_plugin:make")])
    monkeypatch.setitem(sys.modules, "emulated_gpu_plugin", plugin)
    manager = plugins.Plugins(discover=False)
    manager.register(plugin, "emulated_gpu_plugin")
    monkeypatch.setattr(plugins, "_manager", [manager])
    return which


@pytest.fixture
def compiled_texts(monkeypatch) -> list[str]:
    """Collects the sources compiled from now on; the disk cache is empty."""
    texts: list[str] = []
    once = HostCompiler.compile

    def counted(self: HostCompiler, text: str, flags: Any, arch: str) -> bytes:
        texts.append(text)
        return once(self, text, flags, arch)

    monkeypatch.setattr(HostCompiler, "compile", counted)
    monkeypatch.setattr(KernelCache, "get", lambda self, key: None)
    return texts


def program(device: dict[str, int], extent: Any = 2, **options: Any) -> mgx.Program:
    made = mgx.Program()
    m = made.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float", [extent, 6]))
    w = m.add_literal(np.random.default_rng(3).standard_normal((6, 5)).astype(np.float32))
    y = m.add(mgx.op("softmax", axis=1), m.add(mgx.op("dot"), x, w))
    m.add_return([m.add(mgx.op("relu"), y)])
    made.compile(GpuTarget("host", device["id"]), **options)
    return made


X = np.random.default_rng(4).standard_normal((2, 6)).astype(np.float32)


@pytest.mark.parametrize("format", ["msgpack", "json"])
@pytest.mark.parametrize("extent", [2, symbol("n", 1, 8)], ids=str)
def test_loading_compiles_nothing(device, compiled_texts, format, extent, tmp_path) -> None:
    first = program(device, extent)
    (wanted,) = first.run({"x": X})
    assert compiled_texts
    first.save(tmp_path / "a.mxr", format)
    compiled_texts.clear()
    read = mgx.load(tmp_path / "a.mxr")
    (found,) = read.run({"x": X})
    np.testing.assert_array_equal(found.to_numpy(), wanted.to_numpy())
    assert read.executable.notes == []
    assert compiled_texts == []
    if extent != 2:
        (other,) = read.run({"x": X[:1]})  # an instance that is not in the file
        np.testing.assert_allclose(other.to_numpy(), wanted.to_numpy()[:1], rtol=1e-6)


def test_no_compiler_is_needed(device, monkeypatch, tmp_path) -> None:
    program(device).save(tmp_path / "a.mxr")

    def absent(arch: str) -> Any:
        raise DeviceError(f"nothing compiles for {arch}")

    monkeypatch.setattr(builder, "compiler_for", absent)
    monkeypatch.setattr(KernelCache, "get", lambda self, key: None)
    assert mgx.load(tmp_path / "a.mxr").run({"x": X})[0].to_numpy().shape == (2, 5)


def test_another_architecture_compiles_again(device, compiled_texts) -> None:
    data = mgx.save_buffer(program(device))
    before, device["id"] = device["id"], 1 - device["id"]
    compiled_texts.clear()
    read = mgx.load_buffer(data)
    names = ["host64", "host32"]
    note = f"compiled for host {names[before]}, this is host {names[1 - before]}"
    assert [n for n in read.executable.notes if note in n]
    assert compiled_texts
    assert read.run({"x": X})[0].to_numpy().shape == (2, 5)


def test_kernels_that_a_file_lacks_are_compiled(device, compiled_texts, monkeypatch) -> None:
    from mgx_gpu_hip import runner

    kept = runner.keep_code

    def fewer(*args: Any) -> Any:
        made = kept(*args)
        made["kernels"].pop(next(iter(made["kernels"])))
        return made

    monkeypatch.setattr(runner, "keep_code", fewer)
    data = mgx.save_buffer(program(device))
    compiled_texts.clear()
    read = mgx.load_buffer(data)
    assert len(compiled_texts) == 1
    assert read.run({"x": X})[0].to_numpy().shape == (2, 5)


def test_kernels_of_another_version_are_compiled_again(device, compiled_texts, monkeypatch) -> None:
    from mgx_gpu_hip import saved_code as restoring

    monkeypatch.setattr(restoring, "FORMAT", 0)
    data = mgx.save_buffer(program(device))
    monkeypatch.setattr(restoring, "FORMAT", 1)
    compiled_texts.clear()
    (note,) = mgx.load_buffer(data).executable.notes
    assert "kernels of another version of this target" in note
    assert compiled_texts


def test_a_program_with_steps_on_the_host_is_restored(device, compiled_texts, tmp_path) -> None:
    made = mgx.Program()
    m = made.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float", [2, 6]))
    m.add_return([m.add(mgx.op("nonzero"), m.add(mgx.op("relu"), x)), m.add(mgx.op("exp"), x)])
    made.compile(GpuTarget("host", device["id"]))
    wanted = made.run({"x": X})
    made.save(tmp_path / "a.mxr")
    compiled_texts.clear()
    for found, right in zip(mgx.load(tmp_path / "a.mxr").run({"x": X}), wanted, strict=True):
        np.testing.assert_array_equal(found.to_numpy(), right.to_numpy())
    assert compiled_texts == []


def test_code_compiled_without_the_device_serves_it(device, compiled_texts) -> None:
    here = device["id"]
    device["id"] = 1 - here
    data = mgx.save_buffer(program(device, target=["host64", "host32"][here]))
    device["id"] = here
    compiled_texts.clear()
    read = mgx.load_buffer(data)
    assert read.executable.notes == []
    assert read.run({"x": X})[0].to_numpy().shape == (2, 5)
    assert compiled_texts == []
