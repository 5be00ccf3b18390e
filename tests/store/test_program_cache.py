"""The program cache: entries are found by contents, and recreated if anything differs or is damaged."""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
import subprocess
import sys
import threading
import time
import tracemalloc
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import mgx_core as mgx
from mgx_conformance.held_memory import resident_of
from mgx_core.cache import DiskCache
from mgx_core.compile.pipeline import STAGES
from mgx_core.errors import ParameterError, ParseError, StoreError
from mgx_core.first_compilation import FirstCompilation
from mgx_core.options import CompileOptions
from mgx_core.plugins import fingerprint as fingerprints
from mgx_core.plugins import manager as plugins
from mgx_core.plugins.manager import Lazy, Plugins, hookimpl
from mgx_core.run.executable import Executable
from mgx_core.store import digests, literals, model_file, program_cache
from mgx_core.store.container import msgpack_chunks, read_file
from mgx_core.store.literals import LiteralReader, LiteralWriter, Sources
from mgx_core.types import mapped
from mgx_core.version import IMPORTED
from mgx_cpu_dnnl.runner import CpuRunner
from mgx_cpu_dnnl.saved_runner import RestoredRunner
from mgx_onnx.frontend import OnnxFrontend


def model(path: Path, batch: int | str = 2, seed: int = 1, external: bool = False) -> Path:
    """A convolution whose weights are transformed, a product whose weights are packed, a table, a named result."""
    rng = np.random.default_rng(seed)
    weights = {
        "w": rng.standard_normal((64, 32, 3, 3)),
        "scale": rng.random((64, 1, 1)) + 0.5,
        "m": rng.standard_normal((64, 96)),
        "table": rng.standard_normal((400, 96)),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Mul", ["c", "scale"], ["s"]),
        helper.make_node("Relu", ["s"], ["r"]),
        helper.make_node("ReduceMean", ["r", "axes"], ["p"], keepdims=0),
        helper.make_node("MatMul", ["p", "m"], ["q"]),
        helper.make_node("Gather", ["table", "words"], ["g"]),
        helper.make_node("Add", ["q", "g"], ["out"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 32, 20, 20]),
        helper.make_tensor_value_info("words", TensorProto.INT64, [batch]),
    ]
    output = helper.make_tensor_value_info("out", TensorProto.FLOAT, [batch, 96])
    constants = [numpy_helper.from_array(v.astype(np.float32), n) for n, v in weights.items()]
    constants.append(numpy_helper.from_array(np.array([2, 3], np.int64), "axes"))
    graph = helper.make_graph(nodes, "g", inputs, [output], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(made, path, save_as_external_data=external, location="data.bin")
    return path


def values(batch: int = 2) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {"x": rng.standard_normal((batch, 32, 20, 20)).astype(np.float32), "words": rng.integers(0, 400, batch)}


def compiled(path: Path, target: object = None, options: object = None, **parsing: object) -> mgx.Program:
    program = mgx.parse_onnx(path, **parsing)
    program.compile(mgx.get_target("cpu") if target is None else target, options)
    return program


def result(program: mgx.Program, batch: int = 2) -> np.ndarray:
    return np.asarray(program.run(values(batch))[0])


def runners(program: mgx.Program) -> list[type]:
    return [type(i.runner) for i in program.executable.instances()]


def entries(folder: str = "programs") -> list[Path]:
    where = Path(os.environ["MGX_CACHE_DIR"]) / folder
    return sorted(where.iterdir()) if where.is_dir() else []


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MGX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MGX_KEEP_PROGRAMS", "1")
    monkeypatch.setattr(fingerprints, "IMPORTED", 1 << 62)  # however lately the sources were edited
    fingerprints._fingerprint.cache_clear()
    yield
    monkeypatch.undo()
    fingerprints._fingerprint.cache_clear()


@pytest.fixture
def path(tmp_path):
    return model(tmp_path / "a.onnx")


@pytest.fixture
def nothing_is_parsed(monkeypatch):
    def parse(*args: object, **options: object) -> None:
        raise AssertionError("parsed")

    monkeypatch.setattr(OnnxFrontend, "parse", parse)
    monkeypatch.setattr(OnnxFrontend, "parse_buffer", parse)


def test_the_second_time_nothing_is_parsed_or_compiled(path, request):
    first = compiled(path)
    wanted = result(first)
    assert runners(first) == [CpuRunner]
    request.getfixturevalue("nothing_is_parsed")
    second = compiled(path)
    assert runners(second) == [RestoredRunner]
    np.testing.assert_array_equal(result(second), wanted)
    assert second.get_parameter_shapes() == first.get_parameter_shapes()
    assert second.get_output_shapes() == first.get_output_shapes()
    assert second.get_output_names() == ["out"]
    assert second.executable.notes == []
    assert second.executable.output_names == first.executable.output_names
    assert [r.name for r in second.executable.records] == [r.name for r in first.executable.records]


def test_a_gpu_loads_code_compiled_for_it(path, request, monkeypatch):
    pytest.importorskip("mgx_gpu_hip")
    monkeypatch.setenv("MGX_GPU_DEVICE", "host:1")
    first = compiled(path, mgx.get_target("gpu"))
    wanted = result(first)
    monkeypatch.setenv("CUDNN_LOGLEVEL_DBG", "0")
    assert not compiled(path, mgx.get_target("gpu")).executable.restored  # of another environment
    monkeypatch.delenv("CUDNN_LOGLEVEL_DBG")
    request.getfixturevalue("nothing_is_parsed")
    second = compiled(path, mgx.get_target("gpu"))
    np.testing.assert_array_equal(result(second), wanted)
    assert second.executable.restored and second.executable.notes == []


def test_a_file_is_compiled_for_another_architecture_without_a_device(path, monkeypatch):
    gpu = pytest.importorskip("mgx_gpu_hip.target")
    monkeypatch.delenv("MGX_GPU_DEVICE", raising=False)
    monkeypatch.setattr("mgx_gpu_hip.runtime.device.available", list)
    with pytest.raises(mgx.DeviceError, match="no GPU was found"):
        compiled(path, gpu.GpuTarget())
    program = compiled(path, gpu.GpuTarget(), {"target": "host32"})
    assert [r.__name__ for r in runners(program)] == ["OfflineRunner"]
    assert entries() == []


def test_a_symbolic_program_for_another_architecture_is_saved_without_a_device(tmp_path, monkeypatch):
    gpu = pytest.importorskip("mgx_gpu_hip.target")
    monkeypatch.delenv("MGX_GPU_DEVICE", raising=False)
    monkeypatch.setattr("mgx_gpu_hip.runtime.device.available", list)
    program = compiled(model(tmp_path / "a.onnx", batch="n"), gpu.GpuTarget(), {"target": "host32"})
    program.save(tmp_path / "a.mxr")
    assert program.executable.instances() == []
    with pytest.raises(mgx.DeviceError, match="compiled for host32"):
        result(program)


def test_another_process_loads_neither_frontend_nor_passes(path, tmp_path):
    np.savez(tmp_path / "given.npz", wanted=result(compiled(path)), **values())
    text = f"""
import sys, numpy as np, mgx_core as mgx
from mgx_core.plugins import fingerprint
fingerprint.IMPORTED = 1 << 62
given = dict(np.load({str(tmp_path / "given.npz")!r}))
wanted = given.pop("wanted")
program = mgx.parse_onnx({str(path)!r})
program.compile(mgx.get_target("cpu"))
assert np.array_equal(np.asarray(program.run(given)[0]), wanted)
named = ("onnx", "llvmlite", "mgx_onnx.frontend", "mgx_core.compile.stages", "mgx_core.rules.engine", "mgx_cpu_dnnl.emitter")
assert not [n for n in named if n in sys.modules]
"""
    subprocess.run([sys.executable, "-c", text], check=True)


def test_the_file_keeps_no_weights_that_the_model_has(path):
    wanted = result(compiled(path))
    (entry,) = entries()
    scaled = 64 * 32 * 9 * 4  # the convolution's weights times the scale, which no other file contains
    assert scaled < entry.stat().st_size < scaled + 64 * 96 * 4 < path.stat().st_size
    again = compiled(path)
    again.save(path.with_suffix(".mxr"))  # the packed weights, in their own file
    path.unlink()
    assert path.with_suffix(".mxr").stat().st_size > 4 * entry.stat().st_size
    read = mgx.load(path.with_suffix(".mxr"))
    assert runners(read) == [RestoredRunner]
    assert "made" not in {kind for kind, *_ in read.executable.instances()[0].runner._saved.code["program"]["values"]}
    np.testing.assert_array_equal(result(read), wanted)


def test_accessing_the_modules_shows_the_parsed_program(path):
    first = compiled(path)
    wanted = mgx.parse_onnx(path).text(full=True)
    assert mgx.parse_onnx(path).get_main_module().text() == first.get_main_module().text()
    second = mgx.parse_onnx(path)
    path.unlink()  # readers still have the contents
    assert second.text(full=True) == wanted
    assert second.clone() == second


def test_a_file_that_was_overwritten_is_refused_and_not_mixed_up(path):
    compiled(path)
    program = mgx.parse_onnx(path)
    data = bytearray(path.read_bytes())
    with path.open("r+b") as file:
        file.write(data[: len(data) // 2] + bytes(len(data) // 2))
    with pytest.raises(ParseError, match=r"a\.onnx'.*overwritten after it was parsed; parse it again"):
        program.get_main_module()


def test_edited_programs_are_compiled_as_edited(path):
    wanted = result(compiled(path))
    program = mgx.parse_onnx(path)
    main = program.get_main_module()
    (out,) = main.outputs
    main.replace_return([main.add(mgx.op("neg"), out)])
    program.compile(mgx.get_target("cpu"))
    np.testing.assert_allclose(result(program), -wanted, rtol=1e-5, atol=1e-5)
    assert len(entries()) == 1
    np.testing.assert_array_equal(result(compiled(path)), wanted)


def test_other_weights_of_equal_size_and_age_are_another_model(path):
    compiled(path)
    state = path.stat()
    model(path, seed=2)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert path.stat().st_size == state.st_size
    found = result(compiled(path))
    # such files are never cached
    np.testing.assert_array_equal(found, result(compiled(path, options={"validate": True})))
    assert len(entries()) == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda path, monkeypatch: compiled(path, options={"fast_math": False}),
        lambda path, monkeypatch: compiled(path, options={"use_fp16": True}),
        lambda path, monkeypatch: compiled(path, options={"threads": 1}),
        lambda path, monkeypatch: compiled(path, type(mgx.get_target("cpu"))(1)),
        lambda path, monkeypatch: compiled(path, use_dyn_output=False),
        lambda path, monkeypatch: (monkeypatch.setenv("MGX_THREADS", "1"), compiled(path)),
        lambda path, monkeypatch: (monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2"), compiled(path)),
        lambda path, monkeypatch: (
            monkeypatch.setattr(fingerprints, "_fingerprint", lambda *_: "other code"),
            compiled(path),
        ),
        lambda path, monkeypatch: (
            monkeypatch.setattr(type(mgx.get_target("cpu")), "machine", lambda *_: "another"),
            compiled(path),
        ),
    ],
    ids=["option", "fp16", "threads", "context", "parsing", "setting", "library", "code", "machine"],
)
def test_any_other_difference_is_compiled_separately(path, monkeypatch, change):
    compiled(path)
    change(path, monkeypatch)
    assert len(entries()) == 2
    change(path, monkeypatch)
    assert len(entries()) == 2


@pytest.mark.parametrize("part", [0, 10, 40, 70, 2000, -30_000, -100, "cut", "empty", "seal"])
def test_damage_is_logged_and_the_program_recompiled(path, part):
    wanted = result(compiled(path))
    (entry,) = entries()
    data = bytearray(entry.read_bytes())
    if part == "seal":
        (Path(os.environ["MGX_CACHE_DIR"]) / "seal.key").unlink()
    elif isinstance(part, int):
        data[part] ^= 1
    entry.write_bytes({"cut": data[:-5], "empty": b""}.get(part, data))
    again = compiled(path)
    np.testing.assert_array_equal(result(again), wanted)
    (note,) = again.executable.notes
    assert note.startswith("the cached program could not be used and was recompiled: ")
    assert runners(again) == [CpuRunner]
    third = compiled(path)
    assert (runners(third), third.executable.notes) == ([RestoredRunner], [])
    np.testing.assert_array_equal(result(third), wanted)


@pytest.mark.parametrize("part", ["programs", "parsed", "digests"])
def test_entries_that_are_pipes_are_ignored(path, part):
    wanted = result(compiled(path))
    compiled(path)
    for entry in entries(part):
        entry.unlink()
        os.mkfifo(entry, 0o600)
    np.testing.assert_array_equal(result(compiled(path)), wanted)


def test_a_damaged_parse_record_is_ignored(path):
    compiled(path)
    (entry,) = entries("parsed")
    entry.write_bytes(entry.read_bytes()[:-1])
    assert runners(compiled(path)) == [RestoredRunner]


def test_symbolic_extents_are_kept_with_the_first_few_shapes(tmp_path):
    path = model(tmp_path / "b.onnx", "n")
    first = compiled(path)
    assert entries() == []  # nothing is prepared before the first run
    wanted = {n: result(first, n) for n in (1, 3)}
    second = compiled(path)
    for n, expected in wanted.items():
        np.testing.assert_array_equal(result(second, n), expected)
    assert runners(second) == [RestoredRunner] * 2
    assert str(second.get_parameter_shapes()) == str(first.get_parameter_shapes())
    result(second, 4)
    assert runners(second) == [RestoredRunner, RestoredRunner, CpuRunner]
    third = compiled(path)
    for n in (4, 1, 3):
        result(third, n)
    assert runners(third) == [RestoredRunner] * 3
    with pytest.raises(ParameterError, match="words"):
        third.run({**values(3), "words": np.zeros(2, np.int64)})


def test_an_expression_is_not_equal_to_its_range(tmp_path):
    path = model(tmp_path / "b.onnx", "n")
    result(compiled(path, dim_params={"n": mgx.DynamicDimension("2 * k", {"k": (1, 8)})}))
    ranged = compiled(path, dim_params={"n": mgx.DynamicDimension(2, 16)})
    assert len(result(ranged, 3)) == 3


@pytest.mark.parametrize("said", ["", None])
def test_by_default_a_program_compiled_a_second_time_is_cached(path, monkeypatch, said):
    if said is None:
        monkeypatch.delenv("MGX_KEEP_PROGRAMS")
    else:
        monkeypatch.setenv("MGX_KEEP_PROGRAMS", said)
    wanted = result(compiled(path))
    assert (len(entries("seen")), entries("parsed"), entries()) == (1, [], [])
    assert runners(compiled(path)) == [CpuRunner]
    assert (len(entries("seen")), len(entries("parsed")), len(entries())) == (1, 1, 1)
    third = compiled(path)
    assert runners(third) == [RestoredRunner]
    np.testing.assert_array_equal(result(third), wanted)


def test_by_default_a_first_compilation_computes_no_digest_and_no_stamp(path, monkeypatch):
    def failing(*args: object) -> None:
        raise AssertionError("looked at")

    monkeypatch.delenv("MGX_KEEP_PROGRAMS")
    monkeypatch.setattr(model_file, "digest_of", failing)
    monkeypatch.setattr(program_cache, "fingerprint", failing)
    assert runners(compiled(path)) == [CpuRunner]


def test_only_cacheable_programs_are_recorded(path, monkeypatch):
    monkeypatch.delenv("MGX_KEEP_PROGRAMS")
    edited = mgx.parse_onnx(path)
    assert edited.get_main_module().outputs
    edited.compile(mgx.get_target("cpu"))
    compiled(path, mgx.get_target("ref"))
    compiled(path, options={"validate": True})
    assert entries("seen") == []


def test_a_file_that_changed_is_seen_for_the_first_time(path, monkeypatch):
    monkeypatch.delenv("MGX_KEEP_PROGRAMS")
    compiled(path)
    model(path, seed=2)
    os.utime(path, ns=(1, 1))
    compiled(path)
    assert (len(entries("seen")), entries()) == (2, [])


def test_a_cache_that_cannot_be_written_is_no_error(path, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MGX_CACHE_DIR", str(tmp_path / "file"))
    for said in ("", "1"):
        monkeypatch.setenv("MGX_KEEP_PROGRAMS", said)
        for _ in range(2):
            assert runners(compiled(path)) == [CpuRunner]


def test_files_writable_by_another_user_are_not_loaded(path):
    compiled(path)
    (entry,) = entries()
    entry.chmod(0o620)
    assert runners(compiled(path)) == [CpuRunner]
    assert runners(compiled(path)) == [RestoredRunner]  # it was written again
    entry.parent.chmod(0o770)
    before = entry.stat().st_mtime_ns
    assert runners(compiled(path)) == [CpuRunner]
    assert entry.stat().st_mtime_ns == before


def test_a_model_is_identified_by_a_digest_that_cannot_be_forged(path):
    origin = program_cache.Origin.of(path, "onnx", {})
    assert origin.files[0].digest == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_digest_of_a_file_that_rests_is_taken_once(path, monkeypatch):
    taken = []

    def digest(source: object) -> str:
        taken.append(1)
        return ours(source)

    ours = model_file.digest_of
    monkeypatch.setattr(model_file, "digest_of", digest)
    of = [program_cache.Origin.of(path, "onnx", {}).files[0].digest for _ in range(2)]
    assert (len(taken), entries("digests")) == (2, [])  # it was written just now
    monkeypatch.setattr(digests, "SLACK", -(1 << 62))
    of += [program_cache.Origin.of(path, "onnx", {}).files[0].digest for _ in range(3)]
    assert (len(taken), len(set(of))) == (3, 1)
    (entry,) = entries("digests")
    entry.write_bytes(entry.read_bytes()[:-1])
    assert (program_cache.Origin.of(path, "onnx", {}).files[0].digest, len(taken)) == (of[0], 4)
    state = path.stat()
    overwrite(path)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert program_cache.Origin.of(path, "onnx", {}).files[0].digest not in of
    assert len(taken) == 5


def test_a_cached_digest_without_the_users_signature_is_not_used(path, monkeypatch):
    monkeypatch.setattr(digests, "SLACK", -(1 << 62))
    right = program_cache.Origin.of(path, "onnx", {}).files[0].digest
    (entry,) = entries("digests")
    other = DiskCache("digests", digests.FORMAT)
    monkeypatch.setattr(DiskCache, "path", lambda self, key: entry)
    other.put("", b"x" * program_cache.SIZE + b"0" * 64)
    assert program_cache.Origin.of(path, "onnx", {}).files[0].digest == right


def test_when_disabled_nothing_is_written_read_or_inspected(path, monkeypatch):
    compiled(path)
    monkeypatch.setenv("MGX_KEEP_PROGRAMS", "0")

    def failing(*args: object) -> None:
        raise AssertionError("looked at")

    monkeypatch.setattr(program_cache.Origin, "of", failing)
    monkeypatch.setattr(FirstCompilation, "of", failing)
    monkeypatch.setattr(program_cache, "fingerprint", failing)
    assert runners(compiled(path)) == [CpuRunner]
    (entry,) = entries()
    entry.unlink()
    compiled(path)
    assert entries() == []


def test_a_setting_that_is_no_switch_is_refused(path, monkeypatch):
    monkeypatch.setenv("MGX_KEEP_PROGRAMS", "no")
    with pytest.raises(ParameterError, match="MGX_KEEP_PROGRAMS must be 0 or 1, got 'no'"):
        mgx.parse_onnx(path)


def test_warnings_keep_a_program_out(tmp_path):
    program = compiled(model(tmp_path / "d.onnx"), map_input_dims={"x": [3, 32, 20, 20], "words": [3]})
    assert result(program, 3).shape == (3, 96)  # reported by a warning, which would be missing the next time
    assert entries() == []


def test_a_callers_own_target_is_not_mistaken_for_the_installed_one(path):
    class Own(type(mgx.get_target("cpu"))):
        pass

    assert runners(compiled(path, Own())) == [CpuRunner]
    assert entries() == []


def test_steps_that_live_in_one_process_keep_a_program_out(tmp_path):
    path = tmp_path / "e.onnx"
    kinds = (("x", TensorProto.INT32), ("y", TensorProto.FLOAT))
    info = [helper.make_tensor_value_info(n, kind, [2]) for n, kind in kinds]
    pool = {"mode": "TF", "ngram_counts": [0], "ngram_indexes": [0, 1], "pool_int64s": [1, 2]}
    lengths = {"min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0}
    nodes = [helper.make_node("TfIdfVectorizer", ["x"], ["y"], **pool, **lengths)]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), path)
    for _ in range(2):
        program = compiled(path)
        assert {p.place for p in program.executable.instances()[0].placements} == {"host"}
        assert (runners(program), program.executable.notes, entries()) == ([CpuRunner], [], [])


def test_oversized_entries_are_not_cached(path, monkeypatch):
    monkeypatch.setattr(program_cache, "LIMIT", 4 * path.stat().st_size)
    compiled(path)
    assert len(entries()) == 1
    monkeypatch.setattr(program_cache, "LIMIT", 4 * (path.stat().st_size - 1))
    entries()[0].unlink()
    compiled(path)
    assert entries() == []


# external weights of a model


@pytest.fixture
def rest(monkeypatch):
    """Sets the age after which files count as unchanging to zero."""
    monkeypatch.setattr(digests, "SLACK", -(1 << 62))


def test_a_model_with_external_weights_is_not_parsed_again(tmp_path, rest, request):
    path = model(tmp_path / "c.onnx", external=True)
    first = compiled(path)
    wanted = result(first)
    assert sum(entry.stat().st_size for entry in entries()) < path.with_name("data.bin").stat().st_size // 2
    request.getfixturevalue("nothing_is_parsed")
    second = compiled(path)
    assert runners(second) == [RestoredRunner]
    np.testing.assert_array_equal(result(second), wanted)
    assert second.files == first.files == (path, path.with_name("data.bin").resolve())


def test_external_files_are_read_once_to_cache_a_model(tmp_path, rest, monkeypatch):
    def digest(source: object) -> str:
        taken.append(source.size)
        return ours(source)

    taken: list[int] = []
    ours = model_file.digest_of
    monkeypatch.setattr(model_file, "digest_of", digest)
    path = model(tmp_path / "c.onnx", external=True)
    for _ in range(3):
        compiled(path)
    assert taken == [path.stat().st_size, path.with_name("data.bin").stat().st_size]


def test_recently_changed_external_files_prevent_caching(tmp_path):
    compiled(model(tmp_path / "c.onnx", external=True))
    assert (entries(), entries("parsed")) == ([], [])


@pytest.mark.parametrize("how", ["overwritten", "replaced"])
def test_other_external_weights_are_another_model(tmp_path, rest, how):
    path = model(tmp_path / "c.onnx", external=True)
    (tmp_path / "2").mkdir()
    other = model(tmp_path / "2" / "c.onnx", seed=2, external=True)
    other.write_bytes(path.read_bytes())  # small constants are stored in it
    before, wanted = result(compiled(path)), result(compiled(other))
    data, new = path.with_name("data.bin"), other.with_name("data.bin")
    state = data.stat()
    if how == "replaced":
        os.replace(new, data)
    else:
        with data.open("r+b") as file:
            file.write(new.read_bytes())
    os.utime(data, ns=(state.st_atime_ns, state.st_mtime_ns))  # of equal size and age
    after = result(compiled(path))
    np.testing.assert_array_equal(after, wanted)
    assert not np.array_equal(after, before)


def test_a_link_next_to_a_model_with_a_new_destination_is_another_file(tmp_path, rest):
    path = model(tmp_path / "c.onnx", external=True)
    data = path.with_name("data.bin")
    data.rename(tmp_path / "1")
    model(tmp_path / "other.onnx", seed=2, external=True)
    data.rename(tmp_path / "2")
    results = []
    for name in "121":
        data.unlink(missing_ok=True)
        data.symlink_to(name)
        results.append(result(compiled(path)))
    np.testing.assert_array_equal(results[0], results[2])
    assert not np.array_equal(results[0], results[1])
    assert len(entries()) == 2


def test_external_weights_that_change_while_a_model_is_read_leave_no_entry(tmp_path, rest, monkeypatch):
    def parse(self: object, *given: object, **options: object) -> mgx.Program:
        program = ours(self, *given, **options)
        os.utime(tmp_path / "data.bin")
        return program

    ours = OnnxFrontend.parse
    monkeypatch.setattr(OnnxFrontend, "parse", parse)
    compiled(model(tmp_path / "c.onnx", external=True))
    assert (entries(), entries("parsed")) == ([], [])


def test_external_weights_that_change_while_a_model_is_cached_leave_no_entry(tmp_path, rest, monkeypatch):
    def chunks(*given: object) -> object:
        yield from ours(*given)
        os.utime(tmp_path / "data.bin")

    ours = program_cache.cached_chunks
    monkeypatch.setattr(program_cache, "cached_chunks", chunks)
    compiled(model(tmp_path / "c.onnx", external=True))
    assert (entries(), entries("parsed")) == ([], [])


def test_a_program_whose_weights_changed_beside_it_is_not_mixed_up(tmp_path, rest):
    path = model(tmp_path / "c.onnx", external=True)
    compiled(path)
    program = mgx.parse_onnx(path)
    os.utime(tmp_path / "data.bin")
    with pytest.raises(ParseError, match=r"data\.bin' was changed after it was parsed"):
        program.compile(mgx.get_target("cpu"))


def test_a_missing_external_file_is_reported_by_the_parser(tmp_path, rest):
    path = model(tmp_path / "c.onnx", external=True)
    compiled(path)
    (tmp_path / "data.bin").unlink()
    with pytest.raises(ParseError, match="is not a file in the model's folder"):
        mgx.parse_onnx(path)


def test_a_folder_of_the_callers_own_keeps_a_program_out(tmp_path, rest):
    path = model(tmp_path / "c.onnx", external=True)
    compiled(path, external_data_path=str(tmp_path))
    assert entries() == []


def test_external_files_count_toward_a_models_size(tmp_path, rest, monkeypatch):
    path = model(tmp_path / "c.onnx", external=True)
    both = path.stat().st_size + path.with_name("data.bin").stat().st_size
    monkeypatch.setattr(program_cache, "LIMIT", 4 * (both - 1))
    compiled(path)
    assert entries() == []
    monkeypatch.setattr(program_cache, "LIMIT", 4 * both)
    compiled(path)
    assert len(entries()) == 1


def test_places_run_through_the_files_one_after_another(tmp_path):
    maps = []
    for name, first in (("a", 1), ("b", 2), ("c", 3)):
        np.full(100, first, np.uint8).tofile(tmp_path / name)
        maps.append(mapped.map_file(tmp_path / name).bytes)
    sources = Sources(*maps)
    writer = LiteralWriter(sources)
    for array in (maps[2][10:30], maps[0], maps[1][100:]):
        writer.array(array)
    assert [row[2] for row in writer.table] == [-211, -1, -1]
    reader = LiteralReader(writer.table, np.zeros(0, np.uint8), True, sources)
    assert [reader.array(n).tolist() for n in range(3)] == [[3] * 20, [1] * 100, []]
    with pytest.raises(StoreError, match="exceed the section of 0"):
        LiteralReader([["uint8", [20], -91, 20, 0]], np.zeros(0, np.uint8), True, sources).array(0)


# changing files


def overwrite(path: Path, seed: int = 2) -> None:
    """Overwrites a model's weights in place."""
    data = model(path.with_name("other.onnx"), "n" if path.stem == "b" else 2, seed).read_bytes()
    assert len(data) == path.stat().st_size
    with path.open("r+b") as file:
        file.write(data)


@pytest.mark.parametrize("seen", [True, False], ids=["by its times", "by its contents alone"])
def test_a_file_that_changes_before_it_is_compiled_leaves_no_entry(path, monkeypatch, seen):
    if not seen:
        monkeypatch.setattr(program_cache.Origin, "there", True)
    program = mgx.parse_onnx(path)
    overwrite(path)
    program.compile(mgx.get_target("cpu"))
    assert (entries(), entries("parsed")) == ([], [])


def test_a_file_that_changes_while_it_is_kept_leaves_no_entry(path, monkeypatch):
    def chunks(*given: object) -> object:
        yield from ours(*given)
        overwrite(path)

    ours = program_cache.cached_chunks
    monkeypatch.setattr(program_cache, "cached_chunks", chunks)
    assert compiled(path).executable.notes == []
    assert (entries(), entries("parsed")) == ([], [])


def test_a_file_that_rests_is_read_once_to_keep_it(path, monkeypatch):
    def digest(source: object) -> str:
        taken.append(1)
        return ours(source)

    taken: list[int] = []
    ours = model_file.digest_of
    monkeypatch.setattr(model_file, "digest_of", digest)
    compiled(path)
    assert len(taken) == 2  # it was written just now
    monkeypatch.setattr(digests, "SLACK", -(1 << 62))
    wanted = result(compiled(model(path, seed=2)))
    assert (len(taken), len(entries())) == (3, 2)
    program = compiled(path)
    assert runners(program) == [RestoredRunner]
    np.testing.assert_array_equal(result(program), wanted)


def test_a_file_that_rests_and_changes_while_it_is_kept_leaves_no_entry(path, monkeypatch):
    def chunks(*given: object) -> object:
        yield from ours(*given)
        overwrite(path)

    ours = program_cache.cached_chunks
    monkeypatch.setattr(digests, "SLACK", -(1 << 62))
    monkeypatch.setattr(program_cache, "cached_chunks", chunks)
    assert compiled(path).executable.notes == []
    assert (entries(), entries("parsed")) == ([], [])


def test_entries_are_not_loaded_for_a_changed_file(path):
    compiled(path)
    program = mgx.parse_onnx(path)
    overwrite(path)
    with pytest.raises(ParseError, match="overwritten after it was parsed"):
        program.compile(mgx.get_target("cpu"))
    assert len(entries()) == 1


def test_a_file_that_changes_while_its_cache_entry_is_loaded(path, monkeypatch):
    def load(*given: object) -> object:
        found = ours(*given)
        overwrite(path)
        return found

    compiled(path)
    ours = program_cache.load_cached
    monkeypatch.setattr(program_cache, "load_cached", load)
    with pytest.raises(ParseError, match="overwritten after it was parsed"):
        compiled(path)
    assert len(entries()) == 1


def test_a_file_that_is_replaced_is_compiled_as_it_was(path, tmp_path):
    wanted = result(compiled(path))
    program = mgx.parse_onnx(path)
    os.replace(model(tmp_path / "new.onnx", seed=2), path)
    program.compile(mgx.get_target("cpu"))
    assert runners(program) == [CpuRunner]
    np.testing.assert_array_equal(result(program), wanted)


def test_weights_that_were_overwritten_after_loading_are_refused(tmp_path):
    path = model(tmp_path / "b.onnx", "n")
    result(compiled(path), 3)
    program = compiled(path)
    overwrite(path)
    with pytest.raises(StoreError, match="its checksum differs"):
        result(program, 3)


def test_a_file_that_was_cut_off_is_refused(path):
    compiled(path)
    program = mgx.parse_onnx(path)
    os.truncate(path, 100)
    with pytest.raises(ParseError, match="overwritten after it was parsed"):
        program.get_main_module()


# what is not cached, and for which users


def test_sources_of_notes_are_not_referenced(path, monkeypatch):
    monkeypatch.setattr(Executable, "note_lost", lambda self: self.note("something is missing"))
    assert compiled(path).executable.notes == ["something is missing"]
    assert entries() == []


def test_programs_of_other_classes_are_not_kept(path, monkeypatch):
    class Own(mgx.Program):
        pass

    def parse(self: object, *args: object, **options: object) -> mgx.Program:
        program = ours(self, *args, **options)
        program.__class__ = Own
        return program

    ours = OnnxFrontend.parse
    monkeypatch.setattr(OnnxFrontend, "parse", parse)
    for _ in range(2):
        program = mgx.parse_onnx(path)
        program.compile(mgx.get_target("cpu"))
        assert (type(program), entries()) == (Own, [])


def test_entries_name_their_file(path):
    assert compiled(path).files == (path,)
    assert mgx.parse_onnx(path).files == (path,)


def test_several_threads_see_one_graph(path):
    compiled(path)
    program = mgx.parse_onnx(path)
    barrier = threading.Barrier(4)

    def look(_: int) -> object:
        barrier.wait()
        return program.graph

    with ThreadPoolExecutor(4) as pool:
        assert len({id(graph) for graph in pool.map(look, range(4))}) == 1


@pytest.mark.parametrize("error", [OSError("no room"), RuntimeError("wrong"), MemoryError()])
def test_unwritable_entries_are_not_cached(path, monkeypatch, error):
    def failing(*args: object) -> None:
        raise error

    monkeypatch.setattr(program_cache, "cached_chunks", failing)
    program = compiled(path)
    assert (runners(program), program.executable.notes, entries()) == ([CpuRunner], [], [])


def test_no_more_instances_are_cached_than_the_program_holds(tmp_path):
    path = model(tmp_path / "b.onnx", "n")
    for batch in ((1, 3), (4,), (1, 3)):
        program = compiled(path, options={"instances": 2})
        for n in batch:
            result(program, n)
        assert len(program.executable.instances()) == len(batch)
    assert runners(program) == [RestoredRunner] * 2  # the first process's entries are kept


def test_shapes_that_alternate_are_written_a_few_times_only(tmp_path, monkeypatch):
    written = []
    put = program_cache.DiskCache.put_file
    monkeypatch.setattr(
        program_cache.DiskCache, "put_file", lambda self, *given: (written.append(self.folder.name), put(self, *given))
    )
    program = compiled(model(tmp_path / "b.onnx", "n"), options={"instances": 1})
    for n in (1, 3) * 4:
        result(program, n)
    assert written.count("programs") == program_cache.INSTANCES


def test_an_entry_belongs_to_its_model(path, tmp_path):
    compiled(path)
    other = model(tmp_path / "other.onnx", seed=2)
    wanted = result(compiled(other))
    for folder in ("programs", "parsed"):
        first, second = entries(folder)
        data = first.read_bytes(), second.read_bytes()
        first.write_bytes(data[1])
        second.write_bytes(data[0])
    program = compiled(other)
    np.testing.assert_array_equal(result(program), wanted)
    (note,) = program.executable.notes
    assert note.endswith("it has no valid seal of this user for this model")


def test_metadata_is_sealed(path):
    compiled(path)
    (entry,) = entries()
    stored = read_file(entry, True)
    metadata = {**stored.metadata, "program": stored.metadata["program"].replace(b"out", b"tou")}
    literals = LiteralWriter()
    if stored.section.size:
        literals.array(np.array(stored.section))
    entry.write_bytes(b"".join(bytes(c) for c in msgpack_chunks(metadata, literals)))
    program = compiled(path)
    (note,) = program.executable.notes
    assert note.endswith("it has no valid seal of this user for this model")


def test_without_a_signature_nothing_is_stored_or_removed(path):
    compiled(path)
    (entry,) = entries()
    entry.with_name("of another").write_bytes(entry.read_bytes())
    seal = Path(os.environ["MGX_CACHE_DIR"]) / "seal.key"
    seal.chmod(0o644)
    program = compiled(path)
    assert (runners(program), program.executable.notes, len(entries())) == ([CpuRunner], [], 2)
    seal.chmod(0o600)
    program = mgx.parse_onnx(path)
    seal.chmod(0o644)
    program.compile(mgx.get_target("cpu"))
    assert (runners(program), program.executable.notes, len(entries())) == ([CpuRunner], [], 2)


def test_a_user_without_a_home_parses_and_compiles(path, monkeypatch):
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("MGX_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", home)
    assert runners(compiled(path)) == [CpuRunner]


def test_a_folder_that_cannot_be_looked_into_holds_nothing(path, monkeypatch, tmp_path):
    monkeypatch.setenv("MGX_CACHE_DIR", str(tmp_path / ("x" * 300)))
    assert runners(compiled(path)) == [CpuRunner]


def test_entries_are_for_their_user_alone(path):
    compiled(path)
    folder = Path(os.environ["MGX_CACHE_DIR"])
    for each in (folder, folder / "programs", folder / "parsed"):
        assert stat.S_IMODE(each.stat().st_mode) == 0o700
    for each in (*entries(), *entries("parsed")):
        assert stat.S_IMODE(each.stat().st_mode) == 0o600


# the fingerprint


def package(folder: Path) -> Path:
    folder.mkdir()
    for name in ("__init__.py", "b.py", "data.txt"):
        (folder / name).write_text("")
        os.utime(folder / name, ns=(10**18, 10**18))
    return folder


def stamped(folder: Path) -> str:
    fingerprints._fingerprint.cache_clear()
    return fingerprints._fingerprint((folder.name,), tuple(sys.path))


def test_the_stamp_is_that_of_the_codes_files(tmp_path, monkeypatch):
    folder = package(tmp_path / "some_package_of_ours")
    monkeypatch.syspath_prepend(tmp_path)
    seen = [stamped(folder)]
    assert seen[0]
    (folder / "data.txt").write_text("more")
    assert stamped(folder) == seen[0]

    def another() -> bool:
        seen.append(stamped(folder))
        return seen[-1] not in seen[:-1]

    (folder / "b.py").write_text("x = 1")
    os.utime(folder / "b.py", ns=(10**18, 10**18))
    assert another()
    (folder / "b.py").write_text("x = 2")
    os.utime(folder / "b.py", ns=(10**18, 10**18))
    assert another()  # size and modification time are as before
    (folder / "my.libs").mkdir()
    for name in ("c.pyc", "lib.so.3", "my.libs/lib.so"):
        (folder / name).write_text("")
        assert another(), name
    (tmp_path / "other-1.0.dist-info").mkdir()
    assert another()


def test_code_that_changed_since_mgx_was_imported_has_no_stamp(tmp_path, monkeypatch):
    folder = package(tmp_path / "another_package_of_ours")
    monkeypatch.syspath_prepend(tmp_path)
    assert stamped(folder)
    monkeypatch.setattr(fingerprints, "IMPORTED", IMPORTED)
    assert 0 < time.time_ns() - IMPORTED < 10**15
    assert stamped(folder) == ""  # the modification time is set back


def test_code_without_accessible_source_has_no_stamp(tmp_path, monkeypatch, path):
    monkeypatch.syspath_prepend(tmp_path)
    folder = package(tmp_path / "linked_package_of_ours")
    monkeypatch.setattr(fingerprints, "_packages", lambda *_: (folder.name,))
    assert fingerprints.fingerprint(STAGES)
    (folder / "c.py").symlink_to(tmp_path / "nowhere")
    fingerprints._fingerprint.cache_clear()
    assert fingerprints.fingerprint(STAGES) == ""
    with zipfile.ZipFile(tmp_path / "packages.zip", "w") as file:
        file.writestr("zipped_package_of_ours/__init__.py", "")
    monkeypatch.syspath_prepend(tmp_path / "packages.zip")
    for name in ("zipped_package_of_ours", "missing_package.of_ours", ""):
        monkeypatch.setattr(fingerprints, "_packages", lambda *_, name=name: (name,))
        assert fingerprints.fingerprint(STAGES) == ""
    assert runners(compiled(path)) == [CpuRunner]
    assert entries() == []


def test_the_packages_of_passes_are_part_of_the_stamp():
    class Passing:
        @hookimpl
        def passes(self, stage, options):
            package = "package_of_passes" if options.fast_math else "package_of_exact_passes"
            return [Lazy("p", f"{package}.module:thing")] if stage == "lower" else []

    found = Plugins()
    found.register(Passing(), "passing")
    for exact in (False, True):
        packages = fingerprints._packages(found, STAGES, CompileOptions(fast_math=not exact))
        assert ("package_of_passes" in packages, "package_of_exact_passes" in packages) == (not exact, exact)


def test_options_whose_passes_have_no_stamp_keep_a_program_out(path, monkeypatch):
    compiled(path)
    ours = program_cache.fingerprint
    monkeypatch.setattr(
        program_cache, "fingerprint", lambda stages, options=None: ours(stages) if options is None else ""
    )
    assert runners(compiled(path)) == [RestoredRunner]
    for _ in range(2):
        assert runners(compiled(path, options={"fast_math": False})) == [CpuRunner]
    assert len(entries()) == 1


def test_plugins_that_were_registered_by_hand_have_no_stamp(path, monkeypatch):
    found = Plugins()
    monkeypatch.setattr(plugins, "_manager", [found])
    assert fingerprints.fingerprint(STAGES)
    found.register(type("ByHand", (), {})(), "by hand")
    assert fingerprints.fingerprint(STAGES) == ""
    assert runners(compiled(path)) == [CpuRunner]
    assert entries() == []


def test_memory_for_reading_the_model_is_released(tmp_path):
    path = tmp_path / "weights.bin"
    np.arange(1 << 18, dtype=np.float32).tofile(path)
    with path.open("rb") as file:
        source, read = (np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8) for _ in range(2))
    assert digests.digest_of(source) == hashlib.sha256(path.read_bytes()).hexdigest()
    assert resident_of(path) == 0
    writer = LiteralWriter(Sources(source))
    writer.array(read.view(np.float32).reshape(512, 512))
    assert writer.table[0][2] == -1  # its location is unchanged
    assert resident_of(path) == 0


@pytest.mark.parametrize("changed", [None, 0, literals.COMPARED, literals.COMPARED * 2 + 5])
def test_weights_are_named_by_their_place_only_where_all_bytes_are_there(tmp_path, changed):
    data = np.arange(literals.COMPARED * 2 + 8).astype(np.uint8)
    other = data.copy()
    if changed is not None:
        other[changed] ^= 1
    maps = []
    for name, bytes_ in (("source", other), ("read", data)):
        bytes_.tofile(tmp_path / name)
        with (tmp_path / name).open("rb") as file:
            maps.append(np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8))
    writer = LiteralWriter(Sources(maps[0]))
    writer.array(maps[1])
    assert writer.table == [["uint8", [data.size], -1 if changed is None else 0, data.size, zlib.crc32(data)]]


def test_comparing_with_the_file_needs_little_memory(tmp_path):
    path = tmp_path / "weights.bin"
    np.zeros(1 << 23, np.uint8).tofile(path)
    with path.open("rb") as file:
        source, read = (np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8) for _ in range(2))
    writer = LiteralWriter(Sources(source))
    tracemalloc.start()
    try:
        writer.array(read)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
