"""Builds of many kernels: cache, batches, messages."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from mgx_gpu_hip.compile.build import KernelCache, build
from mgx_gpu_hip.compile.compiler import CompileError
from mgx_gpu_hip.compile.compilers import compiler_for
from mgx_gpu_hip.compile.source import parameter_codes
from mgx_gpu_hip.runtime import open_device


class Text(NamedTuple):
    name: str
    text: str
    flags: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


def adder(n, extra=""):
    return Text(
        f"add{n}",
        f"""{extra}
DEV float step() {{ return {n}; }}
KERNEL(64) add{n}(float* x, u32 n) {{ if (threadIdx.x < n) x[threadIdx.x] += step(); }}""",
    )


class Counting:
    """The host's compiler, with a call counter."""

    name = "counting"
    version = "1"
    locks = False

    def __init__(self):
        self.texts = []

    def compile(self, text, flags, arch):
        self.texts.append(text)
        return compiler_for(arch).compile(text, flags, arch)


@pytest.fixture
def store(tmp_path):
    return KernelCache(tmp_path)


def test_compiled_once_and_run(store):
    compiler = Counting()
    sources = [adder(1), adder(2), adder(1)]
    codes = build(sources, "host32", compiler=compiler, store=store, batch=1)
    assert len(compiler.texts) == 2
    assert [c.name for c in codes] == ["add1", "add2", "add1"]
    assert codes[0].image is codes[2].image
    assert parameter_codes(sources[0].text, "add1") == "PI"
    assert build(sources, "host32", compiler=compiler, store=store, batch=1) == codes
    assert len(compiler.texts) == 2
    device = open_device("host", 1)
    buffer = device.upload(np.zeros(8, np.float32))
    for source, code in zip(sources, codes, strict=True):
        device.load(code.image).function(code.name, parameter_codes(source.text, code.name)).launch(
            device.default_stream, (1,), (32,), 0, [buffer, 8]
        )
    assert (device.download(np.empty(8, np.float32), buffer) == 4).all()


@pytest.mark.parametrize(
    ("value", "shared"),
    [
        ("threadIdx.x", True),
        ("lane_id()", False),
        ("wave_reduce<Sum>(1.0f)", False),
        ("frag_row(0)", False),  # depends on it through an optional part of the prelude
    ],
)
def test_devices_of_both_wave_sizes_share_kernels_that_do_not_depend_on_it(store, value, shared):
    compiler = Counting()
    text = f"KERNEL(64) fill(float* x) {{ x[threadIdx.x] = {value}; }}"
    results = []
    for index in (0, 1):
        device = open_device("host", index)
        (code,) = build([Text("fill", text)], device.arch, compiler=compiler, store=store)
        function = device.load(code.image).function("fill", parameter_codes(text, "fill"))
        buffer = device.upload(np.zeros(64, np.float32))
        function.launch(device.default_stream, (1,), (64,), 0, [buffer])
        results.append(device.download(np.empty(64, np.float32), buffer))
    assert len(compiler.texts) == (1 if shared else 2)
    assert np.array_equal(*results) == shared


def test_loaded_code_is_not_searched_for(store, tmp_path):
    from weakref import WeakValueDictionary

    compiler, held = Counting(), WeakValueDictionary()
    codes = build([adder(1), adder(2)], "host32", compiler=compiler, store=store, batch=1, loaded=held)
    assert len(held) == 2
    elsewhere = KernelCache(tmp_path / "empty")
    again = build([adder(2), adder(3)], "host32", compiler=compiler, store=elsewhere, batch=1, loaded=held)
    assert again[0] is codes[1] and len(compiler.texts) == 3
    again.clear()
    codes.clear()
    assert not held


def test_batches_keep_helpers_apart(store):
    compiler = Counting()
    sources = [adder(n) for n in range(5)] + [adder(9, "#define NINE 9")]
    codes = build(sources, "host64", compiler=compiler, store=store, batch=4, jobs=1)
    assert len(compiler.texts) == 3  # four, one, and the one with a macro
    assert codes[0].image is codes[3].image and codes[5].image is not codes[0].image
    device = open_device("host", 0)
    buffer = device.upload(np.zeros(64, np.float32))
    for source, code in zip(sources, codes, strict=True):
        device.load(code.image).function(code.name, parameter_codes(source.text, code.name)).launch(
            device.default_stream, (1,), (64,), 0, [buffer, 64]
        )
    assert (device.download(np.empty(64, np.float32), buffer) == 0 + 1 + 2 + 3 + 4 + 9).all()
    again = build(sources, "host64", compiler=compiler, store=store, batch=4)
    assert [c.image for c in again] == [c.image for c in codes] and len(compiler.texts) == 3


@pytest.mark.parametrize(("jobs", "most"), [(1, 5), (4, 1)])
def test_long_units_come_first_and_all_jobs_have_several(store, jobs, most):
    """Three convolutions in one unit, compiled last, took as long as all other kernels together."""
    compiler = Counting()
    compiler.compile = lambda text, flags, arch: (compiler.texts.append(text), b"")[1]
    sources = [adder(n, "// " + "x" * 3000 * (1 + n // 8)) for n in range(16)]
    build(sources, "host64", compiler=compiler, store=store, jobs=jobs)
    assert max(text.count("KERNEL") for text in compiler.texts) == most
    assert jobs > 1 or [len(t) for t in compiler.texts] == sorted(map(len, compiler.texts), reverse=True)


def test_flags_architecture_version_and_text_are_the_key():
    base = ("t", (), "c", "1", "a")
    changes = [{}, {0: "u"}, {1: ("-Dx",)}, {1: ("-D", "x")}, {2: "d"}, {3: "2"}, {4: "b"}]
    keys = {KernelCache.key(*(change.get(i, part) for i, part in enumerate(base))) for change in changes}
    assert len(keys) == 7


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b"", lambda b: b[:60] + bytes([b[60] ^ 1]) + b[61:], lambda b: b"x" * 20]
)
def test_damaged_entries_are_ignored(store, damage):
    key = store.key("t", (), "c", "1", "a")
    store.put(key, b"image" * 10)
    assert store.get(key) == b"image" * 10
    path = next(p for p in store.folder.rglob("*") if p.is_file())
    path.write_bytes(damage(path.read_bytes()))
    assert store.get(key) is None
    store.put(key, b"again")
    assert store.get(key) == b"again"


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    store = KernelCache(tmp_path / "file")
    store.put("ab" * 32, b"image")
    assert store.get("ab" * 32) is None


@pytest.mark.parametrize("batch", [1, 3])
def test_errors_name_kernel_nodes_and_line(store, batch):
    bad = Text("bad", "KERNEL(64) bad(float* x) {\n  x[0] = nope;\n}", (), ("conv1", "relu2"))
    with pytest.raises(CompileError, match=r"(?s)kernel bad for conv1, relu2: .*kernels.hip:2.*nope"):
        build([adder(1), bad, adder(2)], "host32", compiler=Counting(), store=store, batch=batch, jobs=1)


def test_texts_are_dumped_on_request(store, tmp_path, monkeypatch):
    monkeypatch.setenv("MGX_DUMP_KERNELS", str(tmp_path / "dump"))
    build([adder(3)], "host32", store=store)
    assert (tmp_path / "dump" / "add3.hip").read_text() == adder(3).text
