"""Program files: contents, layout, and refused files."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import struct
import sys
from types import ModuleType

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mgx_core as mgx
from mgx_core import dim
from mgx_core import dtype as dt
from mgx_core.errors import MgxError, ParameterError, StoreError, UnsupportedError
from mgx_core.ir.graph import Graph
from mgx_core.ir.module import Module
from mgx_core.ir.verify import verify
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.ops.opset import OpSet
from mgx_core.plugins import manager as plugins
from mgx_core.program import Program
from mgx_core.store.codec import Decoder, Encoder
from mgx_core.types.argument import Argument
from mgx_core.types.dim import Dim
from mgx_core.types.dtype import DType
from mgx_core.types.shape import OptionalShape, SequenceShape, Shape, TupleShape

FORMATS = ["msgpack", "json"]
HEADER = struct.Struct("<8sIIQQQ16s8x")
n, m = dim.symbol("n", 1, 8, [2, 4]), dim.symbol("m", 2)


@op("store_every_kind")
class EveryKind(Operation):
    """One attribute of each type."""

    i: int = -3
    big: int = 1 << 70
    f: float = 0.1
    fs: tuple[float, ...] = (float("inf"), -0.0, float("-inf"))
    b: bool = False
    bs: tuple[bool, ...] = (True, False)
    s: str = 'a"\\ \n é \ud800'
    raw: bytes = b"\x00\xff"
    raws: tuple[bytes, ...] = (b"", b"a")
    t: DType | None = dt.bfloat16
    none: DType | None = None
    shape: Shape | None = Shape("float", [2, 2], [1, 2])
    d: Dim = n * m - 3
    ds: tuple[Dim, ...] = (2, -1, dim.maximum(n, m), (n + m) // 4, n * m % 3)
    nested: tuple[tuple[int, ...], ...] = ((1, 2), ())

    def infer(self, x: Shape) -> Shape:
        return x


class Mine(mgx.Target):
    """A target that runs everything with the reference implementations."""

    name = "mine"
    compiled: list[mgx.CompileOptions] = []

    def kernels(self, context):
        plans = mgx.Kernels("mine")
        plans.plan()(lambda op, inputs, context, modules=(): mgx.Reference(op))
        return plans

    def passes(self, stage, context, options):
        if stage == "legalize":
            self.compiled.append(options)
        return ()


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    """Installs a plugin manager with only our own target and ops."""
    plugin = ModuleType("store_plugin")
    plugin.Mine = Mine
    plugin.OPS = OpSet.of(EveryKind)
    plugin.targets = mgx.hookimpl(lambda: [mgx.Lazy("mine", "store_plugin:Mine")])
    plugin.operations = mgx.hookimpl(lambda: [mgx.Lazy("ops", "store_plugin:OPS")])
    monkeypatch.setitem(sys.modules, "store_plugin", plugin)
    manager = plugins.Plugins(discover=False)
    manager.register(plugin, "store_plugin")
    monkeypatch.setattr(plugins, "_manager", [manager])
    Mine.compiled = []
    return manager


def simple() -> Program:
    """relu(x + literal) for x: float32 [n, 3]."""
    program = Program(output_names=["first"])
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float", [n, 3]))
    bias = main.add_literal(np.arange(3, dtype=np.float32))
    wide = main.add(mgx.op("multibroadcast"), bias, x)
    total = main.add(mgx.op("add"), x, wide, sources=["node", "other, node"])
    main.add_return([main.add(mgx.op("relu"), total)])
    return program


def again(program: Program, format: str = "msgpack") -> Program:
    read = mgx.load_buffer(mgx.save_buffer(program, format))
    assert read == program
    assert verify(read.get_main_module()) == []
    return read


@pytest.mark.parametrize("format", FORMATS)
def test_a_program_comes_back(format, tmp_path):
    program = simple()
    program.save(tmp_path / "a.mxr", format)
    read = mgx.load(tmp_path / "a.mxr")
    assert read == program
    assert read.get_output_names() == ["first"]
    assert not read.is_compiled()
    relu = read.get_main_module().outputs[0]
    assert relu.inputs[0].sources == ("node", "other, node")
    assert read.get_parameter_shapes()["x"].dyn_dims()[0].optimals == {2, 4}
    assert [p.name for p in tmp_path.iterdir()] == ["a.mxr"]


@pytest.mark.parametrize("format", FORMATS)
def test_attributes_of_every_kind(format):
    program = Program()
    main = program.get_main_module()
    main.add_return([main.add(EveryKind(), main.add_parameter("x", Shape("float", [n, m])))])
    assert again(program, format).get_main_module().outputs[0].op == EveryKind()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", dt.ALL, ids=str)
def test_literals_of_every_type_come_back_bit_by_bit(dtype, format):
    if dtype.kind == "s":
        wild = np.array(["", "é", "\ud800", b"bytes", 'q"'], object)
    elif dtype.bits < 8:
        wild = np.arange(1 << dtype.bits).astype(np.int8).astype(dtype.numpy)
    else:
        bits = 2 if dtype.kind == "b" else 256
        wild = np.random.default_rng(0).integers(0, bits, 24 * dtype.size, np.uint8).view(dtype.numpy)
    values = [
        wild,
        wild[:1].reshape(()),
        wild[:0].reshape(0, 3),
        wild[:4].reshape(2, 2).T,
        np.broadcast_to(wild[1:2], (2, 2)),
    ]
    program = Program()
    main = program.get_main_module()
    literals = [main.add_literal(v) for v in values]
    main.add_return(literals)
    values = [ins.get_literal().to_numpy() for ins in literals]  # bytes became strings
    assert dtype.kind != "s" or values[0].tolist() == ["", "é", "\ud800", "bytes", 'q"']
    read = mgx.load_buffer(mgx.save_buffer(program, format))
    for value, got in zip(values, read.get_main_module().outputs, strict=True):
        back = got.get_literal().value
        assert (back.dtype, back.shape) == (value.dtype, value.shape)
        assert back.tolist() == value.tolist() if dtype.kind == "s" else back.tobytes() == value.tobytes()


@pytest.mark.parametrize("format", FORMATS)
def test_literals_of_other_kinds(format):
    a = np.float32([1, 2])
    values = [(a, np.array(["x"], object)), [a, a], None, (), (None, [a])]
    program = Program()
    main = program.get_main_module()
    main.add_return([main.add_literal(Argument.from_value(v)) for v in values])
    got = [o.get_literal().value for o in again(program, format).get_main_module().outputs]
    np.testing.assert_array_equal(got[0][0], a)
    assert got[0][1].tolist() == ["x"]
    assert isinstance(got[1], list)
    assert got[1][0] is got[1][1]
    assert got[2:4] == [None, ()]
    np.testing.assert_array_equal(got[4][1][0], a)


@pytest.mark.parametrize(
    "shape",
    [
        Shape("half", []),
        Shape("float", [0, 2]),
        Shape("float", [2, 3], [1, 2]),
        Shape("bf16", [n, m * n - 3, (n + 3) // 4, dim.broadcast(dim.symbol("a"), dim.symbol("b"))]),
        Shape.unranked(dt.string),
        TupleShape([Shape("int4", [n]), TupleShape([])]),
        SequenceShape(OptionalShape(Shape.unranked(dt.float32))),
    ],
    ids=str,
)
def test_shapes_of_every_kind(shape):
    program = Program()
    program.get_main_module().add_return([program.get_main_module().add_parameter("x", shape)])
    assert again(program).get_main_module().parameters["x"].result == shape


def nested_program() -> Program:
    return mgx.parse_program("""
        module main
          %c = @param["c"] -> bool[]
          %x = @param["x"] -> float32[2]
          %k = @literal(1.0, 2.0) -> float32[2]
          %1 = if(%c){then, else}
          %2 = get_tuple_elem[index=0](%1)
          %t = @literal(3) -> int64[]
          %3 = loop(%t, -, %2){body}
          @return(%3)
        module then
          %4 = add(%x, %k)
          @return(%4)
        module else
          %5 = if(%c){then, deep}
          %6 = get_tuple_elem[index=0](%5)
          @return(%6)
        module deep
          %d = mul(%x, %x)
          @return(%d)
        module body
          %n = @param["n"] -> int64[]
          %g = @param["g"] -> bool[]
          %s = @param["x"] -> float32[2]
          %7 = add(%s, %x)
          @return(%g, %7, %7)""")


@pytest.mark.parametrize("format", FORMATS)
def test_nested_modules_read_enclosing_values(format):
    read = again(nested_program(), format).get_main_module()
    branch = read.outputs[0].inputs[2].inputs[0]
    assert branch.modules[0] is branch.modules[1].outputs[0].inputs[0].modules[0]  # shared before and after
    assert read.outputs[0].inputs[1].is_absent


def test_data_dependent_symbols_are_recreated():
    program = Program()
    main = program.get_main_module()
    found = main.add(mgx.op("nonzero"), main.add_parameter("x", Shape("float", [4])))
    main.add_return([found])
    data = mgx.save_buffer(program)
    results = [mgx.load_buffer(data).get_main_module().outputs[0].result for _ in range(2)]
    assert results[0] != results[1]
    assert found.result not in results


def test_literals_are_mapped_read_only_and_aligned(tmp_path):
    program = Program()
    main = program.get_main_module()
    shared = np.arange(1000, dtype=np.float32)
    main.add_return([main.add_literal(np.int8([1, 2, 3])), *(main.add_literal(shared) for _ in range(2))])
    path = tmp_path / "a.mxr"
    mgx.save(program, path)
    small, one, two = (o.get_literal() for o in mgx.load(path).get_main_module().outputs)
    assert one.value.ctypes.data % 64 == small.value.ctypes.data % 64 == 0
    assert not one.value.flags.writeable
    assert one.data_ptr() == two.data_ptr()
    assert path.stat().st_size < 4000 + 2000
    size = HEADER.unpack(path.read_bytes()[:64])[5]
    assert size == 64 + 4000
    assert mgx.load(path, check=True) == program


def test_saving_over_the_file_that_is_mapped(tmp_path):
    program = Program()
    main = program.get_main_module()
    main.add_return([main.add_literal(np.arange(5000))])
    path = tmp_path / "a.mxr"
    mgx.save(program, path)
    read = mgx.load(path)
    mgx.save(read, path)
    mgx.save(simple(), path)
    assert read == program


# compiled programs


def test_a_compiled_program_is_ready_with_its_options(tmp_path, installed):
    program = simple()
    program.compile(installed.target("mine"), fast_math=False, instances=3, disable_passes=["merge-common"])
    mgx.save(program, tmp_path / "a.mxr")
    read = mgx.load(tmp_path / "a.mxr")
    assert read.is_compiled()
    assert read == program
    assert read.executable.options == program.executable.options
    assert Mine.compiled == [program.executable.options]  # loading does not optimize again
    assert read.executable.records == program.executable.records
    x = np.float32([[-5, 0, 1]])
    np.testing.assert_array_equal(np.asarray(read.run({"x": x})[0]), [[0, 1, 3]])
    read.executable = None
    assert read == mgx.parse_program(str(program))  # the optimized module is stored


def test_a_program_for_a_target_that_is_not_here_stays_uncompiled(monkeypatch, installed, caplog):
    program = simple()
    program.compile(installed.target("mine"))
    data = mgx.save_buffer(program)
    monkeypatch.setattr(plugins, "_manager", [plugins.Plugins(discover=False)])
    with caplog.at_level(logging.WARNING, "mgx"):
        read = mgx.load_buffer(data)
    assert not read.is_compiled()
    assert "target 'mine' is not installed" in caplog.text
    assert read.text(full=True) == program.text(full=True)


def test_lowered_modules_are_not_stored(installed):
    program = simple()
    program.compile(installed.target("mine"))
    program.run({"x": np.zeros((1, 3), np.float32)})
    lowered = program.executable.instances()[0].module
    with pytest.raises(StoreError, match=r"launch.*was created by lowering"):
        mgx.save_buffer(Program(Graph(lowered)))


# refused files


def test_unknown_ops_are_reported_with_the_writer_of_the_file(monkeypatch, tmp_path):
    program = Program()
    main = program.get_main_module()
    main.add_return([main.add(EveryKind(), main.add_parameter("x", Shape("float", [2])))])
    mgx.save(program, tmp_path / "a.mxr")
    monkeypatch.setattr(plugins, "_manager", [plugins.Plugins(discover=False)])
    with pytest.raises(
        UnsupportedError, match=r"a\.mxr: .*written by mgx 0.*with - -.*instruction 1.*'store_every_kind'"
    ):
        mgx.load(tmp_path / "a.mxr")


def test_unknown_formats():
    with pytest.raises(ParameterError, match="format must be one of 'msgpack', 'json', got 'xml'"):
        mgx.save(simple(), "a.mxr", format="xml")


def test_files_that_cannot_be_read_or_written(tmp_path):
    with pytest.raises(StoreError, match=r"none\.mxr: cannot be read: No such file"):
        mgx.load(tmp_path / "none.mxr")
    with pytest.raises(StoreError, match=r"a\.mxr: cannot be written: No such file"):
        mgx.save(simple(), tmp_path / "none" / "a.mxr")


@pytest.mark.parametrize("format", FORMATS)
def test_a_program_is_read_from_a_pipe(format):
    reader, writer = os.pipe()
    os.write(writer, mgx.save_buffer(simple(), format))
    os.close(writer)
    assert mgx.load(f"/dev/fd/{reader}") == simple()
    os.close(reader)


def test_another_file_is_not_read_to_its_end():
    with pytest.raises(StoreError, match="this is not an mgx program file"):
        mgx.load("/dev/zero")


@pytest.mark.parametrize("path", [".", "/"])
def test_a_folder_cannot_be_written(path):
    with pytest.raises(StoreError, match="cannot be written: Is a directory"):
        mgx.save(simple(), path)


def test_a_failed_save_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.mxr"
    mgx.save(simple(), path)
    broken = Program()
    broken.get_main_module().add_return([broken.get_main_module().add_literal(Argument.from_value({1: 2.0}))])
    with pytest.raises(StoreError, match="a literal of type dict cannot be stored"):
        mgx.save(broken, path)
    assert mgx.load(path) == simple()
    assert [p.name for p in tmp_path.iterdir()] == ["a.mxr"]


@pytest.mark.parametrize("data", [b"\x00" * 100, b"\x89MXX" + b"\0" * 90, b"PK\3\4", b"module main"])
def test_other_files(data):
    with pytest.raises(StoreError, match="this is not an mgx program file"):
        mgx.load_buffer(data)


def test_empty_files():
    with pytest.raises(StoreError, match="the file is empty"):
        mgx.load_buffer(b"")


@pytest.mark.parametrize("mapped", [False, True])
def test_every_cut_is_noticed(mapped, tmp_path):
    data = mgx.save_buffer(simple())
    path = tmp_path / "a.mxr"
    for size in [*range(1, 70), *range(70, len(data), 37), len(data) - 1]:
        path.write_bytes(data[:size])
        with pytest.raises(StoreError, match="truncated"):
            mgx.load(path) if mapped else mgx.load_buffer(data[:size])
    with pytest.raises(StoreError, match=f"it should have {len(data)} bytes and has {len(data) + 1}"):
        mgx.load_buffer(data + b"\0")


@pytest.mark.parametrize("data", [b"{}", b'{"a": 1}', b"[1]", b"  3"])
def test_json_that_holds_no_program_is_called_so(data):
    with pytest.raises(StoreError, match="not an mgx program file"):
        mgx.load_buffer(data)


def test_every_cut_of_json_is_noticed():
    data = mgx.save_buffer(simple(), "json").rstrip()
    for size in range(1, len(data), 29):
        with pytest.raises(StoreError, match="damaged or truncated JSON"):
            mgx.load_buffer(data[:size])


def test_damage_to_metadata_and_literals_is_noticed(tmp_path):
    data = mgx.save_buffer(simple())
    _, _, _, length, start, section, _ = HEADER.unpack(data[:64])
    for at in range(64, 64 + length, 11):
        with pytest.raises(StoreError, match="checksum of its metadata differs"):
            mgx.load_buffer(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    for at in range(start, start + section):
        damaged = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with pytest.raises(StoreError, match=r"literal 0 \(float32\[3\]\) is damaged: its checksum differs"):
            mgx.load_buffer(damaged)
    (tmp_path / "a.mxr").write_bytes(damaged)
    with pytest.raises(StoreError, match="literal 0"):
        mgx.load(tmp_path / "a.mxr", check=True)
    text = mgx.save_buffer(simple(), "json")
    with pytest.raises(StoreError, match="checksum of its program differs"):
        mgx.load_buffer(text.replace(b'"relu"', b'"abs"'))


def test_json_may_be_edited_once_the_digest_is_out():
    whole = json.loads(mgx.save_buffer(simple(), "json"))
    del whole["digest"]
    whole["program"]["main"]["nodes"][-2]["op"] = "abs"
    assert mgx.load_buffer(json.dumps(whole).encode()).get_main_module().outputs[0].name == "abs"


@pytest.mark.parametrize("format", FORMATS)
def test_newer_files(format):
    data = mgx.save_buffer(simple(), format)
    if format == "json":
        data = data.replace(b'"mxr": 3', b'"mxr": 7')
    else:
        data = data[:8] + struct.pack("<I", 7) + data[12:]
    with pytest.raises(StoreError, match="format 7, written by a newer mgx; this one reads up to format 3"):
        mgx.load_buffer(data)


def edited(change) -> bytes:
    """Edits a file's metadata and updates its checksum."""
    whole = json.loads(mgx.save_buffer(simple(), "json"))
    del whole["digest"]
    change(whole["program"])
    return json.dumps(whole).encode()


def nodes(program):
    return program["main"]["nodes"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda p: p["literals"][0].__setitem__(1, [1 << 40]),
            "literal 0: .* has 4398046511104 bytes, the file states 12",
        ),
        (
            lambda p: p["literals"].__setitem__(0, ["float32", [1 << 40], 0, 1 << 42, 0]),
            "bytes 0 to 4398046511104 exceed the section of 12",
        ),
        (lambda p: p["literals"][0].__setitem__(2, 4), "literal 0: bytes 4 to 16"),
        (lambda p: p["literals"][0].__setitem__(2, -64), "literal 0: bytes -64 to"),
        (
            lambda p: p["literals"][0].__setitem__(0, "int32"),
            "a literal of shape .*float32.* has a value of shape int32",
        ),
        (lambda p: p["literals"][0].__setitem__(0, "int33"), "'int33' is not an element type"),
        (
            lambda p: p["literals"][0].__setitem__(1, [1 << 40, "abc"]),
            "literal 0: its extents must be integers, got .*'abc'",
        ),
        (lambda p: p["literals"].clear(), "literal 0 does not exist, the file has 0"),
        (lambda p: nodes(p)[3].__setitem__("inputs", [0, 3]), "input 3 is not an earlier instruction"),
        (lambda p: nodes(p)[3].__setitem__("inputs", [0, -1]), "input -1 is not an earlier instruction"),
        (lambda p: nodes(p)[3].__setitem__("inputs", [0, 1]), "instruction 3: add.*must have equal dims"),
        (lambda p: nodes(p)[3].__setitem__("inputs", [0]), "instruction 3: add takes 2 inputs"),
        (lambda p: nodes(p)[3].__setitem__("inputs", "ab"), "is inconsistent"),
        (
            lambda p: nodes(p)[3]["shape"].__setitem__("dims", [9, 9]),
            r"add returns float32\[n, 3\], the file states float32\[9, 9\]",
        ),
        (lambda p: nodes(p)[3]["shape"].__setitem__("dims", [[[1, 5]], 3]), "is inconsistent"),
        (
            lambda p: nodes(p)[3]["shape"].__setitem__("dims", [[[1, ["floordiv", 1, 0]]], 3]),
            "extent 1 is divided by zero",
        ),
        (lambda p: nodes(p)[3].__setitem__("attributes", {"axis": 1}), "add has no attribute 'axis'"),
        (lambda p: nodes(p)[2].__setitem__("attributes", {"out_lens": 3}), "is inconsistent"),
        (lambda p: nodes(p).insert(1, nodes(p)[0]), "there are two parameters 'x'"),
        (lambda p: nodes(p).append(nodes(p)[-1]), "@return follows the module's return"),
        (lambda p: nodes(p)[0].pop("op"), "is inconsistent: KeyError: 'op'"),
        (lambda p: p["symbols"][0].__setitem__(1, 99), "bounds must satisfy"),
        (lambda p: p["symbols"].append(["n?3", 99, 4, []]), r"'n\?3': bounds must satisfy .* got min 99, max 4"),
        (lambda p: p.pop("main"), "is inconsistent: KeyError: 'main'"),
        (lambda p: p.__setitem__("main", 0), "is inconsistent"),
    ],
)
def test_metadata_that_does_not_fit_together(change, message):
    with pytest.raises(StoreError, match=message):
        mgx.load_buffer(edited(change))


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_corrupt_metadata_raises_our_own_errors(data):
    whole = json.loads(mgx.save_buffer(simple(), "json"))
    del whole["digest"]
    place = whole["program"]
    for _ in range(data.draw(st.integers(1, 6))):
        keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], (dict, list)) or data.draw(st.booleans()):
            place[key] = data.draw(
                st.sampled_from([None, -1, 0, 1 << 70, 0.5, "relu", "@param", [], [[]], {}, {"tuple": [{}]}])
            )
            break
        place = place[key]
    with contextlib.suppress(StoreError, UnsupportedError):
        mgx.load_buffer(json.dumps(whole).encode())


def test_deep_metadata_is_refused():
    packed = b"\x91" * 100_000 + b"\0"
    head = HEADER.pack(
        b"\x89MXR\r\n\x1a\n", 1, 0, len(packed), 100_160, 0, hashlib.blake2b(packed, digest_size=16).digest()
    )
    with pytest.raises(StoreError, match="damaged"):
        mgx.load_buffer((head + packed).ljust(100_160, b"\0"))
    with pytest.raises(StoreError, match="damaged"):
        mgx.load_buffer(b'{"mxr": 1, "program": ' + b"[" * 100_000)


def test_nothing_is_pickled():
    data = mgx.save_buffer(simple())
    length = HEADER.unpack(data[:64])[3]
    assert set(msgpack.unpackb(data[64 : 64 + length])) == {
        "mgx", "plugins", "compiled", "outputs", "symbols", "literals", "main",
    }  # fmt: skip


def test_bytes_like_buffers():
    data = mgx.save_buffer(simple())
    assert mgx.load_buffer(bytearray(data)) == mgx.load_buffer(memoryview(data)) == simple()


def test_errors_are_mgx_errors():
    with pytest.raises(MgxError):
        mgx.load_buffer(b"nothing")


def test_a_module_without_return():
    program = Program(Graph(Module("other")))
    main = program.get_main_module()
    main.add(mgx.op("relu"), main.add_parameter("x", Shape("float", [2])))
    read = again(program).get_main_module()
    assert read.name == "other"
    assert read.returned is None
    assert [o.name for o in read.outputs] == ["relu"]


@pytest.mark.parametrize("format", FORMATS)
def test_results_of_as_many_rows_as_open_extents_have_elements(format: str) -> None:
    """The product of three symbolic extents exceeds 64 bits, the range of integers in msgpack."""
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", [dim.symbol(name) for name in "abc"]))
    main.add_return([main.add(mgx.op("nonzero"), x)])
    (found,) = mgx.load_buffer(mgx.save_buffer(program, format=format)).get_output_shapes()
    assert isinstance(found, Shape) and found.rank == 2 and dim.bounds(found.dims[1]) == (0, dim.UNBOUNDED)


def test_an_extent_that_a_file_names_many_times_is_made_once():
    extent: Dim = dim.symbol("n", 1, 100)
    for _ in range(8):
        extent = dim.maximum(extent // 2, 8) + extent
    encoder = Encoder()
    plain = encoder.dim(extent)
    decoder = Decoder(encoder.table())
    found = decoder.dim(plain)
    assert found == extent
    assert decoder.dim(Encoder().dim(extent)) is found
