"""Program files in the format that MIGraphX writes before compilation, written by hand."""

from __future__ import annotations

import json

import msgpack
import numpy as np
import onnx
import pytest

import migraphx
from mgx_core import DeviceError, StoreError, UnsupportedError


def shape(lens, strides, kind="float_type"):
    return {"type": kind, "lens": lens, "strides": strides, "dynamic_dimensions": [], "sub_shapes": []}


def node(output, name, operator=None, inputs=(), **more):
    return {"output": output, "name": name, "operator": operator, "inputs": list(inputs), "normalized": False} | more


def file(data, nodes=(), modules=None, **more):
    weight = node("main:@0", "@literal", shape=shape([3, 2], [1, 3]))
    weight["literal"] = {"shape": shape([3, 2], [1, 3]), "data": data}
    main = [
        weight,
        node("x", "@param", {"parameter": "x", "order": 0}, shape=shape([2, 3], [3, 1])),
        node("main:@1", "dot", {}, ["x", "main:@0"], shape=shape([2, 2], [2, 1])),
        *nodes,
    ]
    stored = {"main": {"name": "main", "nodes": main}} | (modules or {})
    return {"version": 8, "migraphx_version": "2.16.0", "targets": [], "contexts": [], "modules": stored} | more


WEIGHTS = np.arange(6, dtype=np.float32)  # of [3, 2] in column-major order
X = np.array([[1, 2, 3], [-4, 5, -6]], np.float32)
PRODUCT = X @ WEIGHTS.reshape(2, 3).T


def result(program):
    program.compile(migraphx.get_target("ref"))
    return np.array(program.run({"x": X})[0])


def test_msgpack_and_json(tmp_path) -> None:
    raw = WEIGHTS.tobytes()
    nodes = [
        node("main:@2", "relu", {}, ["main:@1"]),
        node("main:@3", "convert", {"target_type": 3}, ["main:@2"]),
        node("main:@4", "@return", {}, ["main:@3"]),
    ]
    whole = msgpack.packb(file([raw[:8], raw[8:]], nodes))  # binary data is split into pieces
    (tmp_path / "a.mxr").write_bytes(whole)
    (tmp_path / "a.json").write_text(json.dumps(file({"bytes": list(raw), "subtype": None}, nodes)))
    for program in map(migraphx.load, (tmp_path / "a.mxr", tmp_path / "a.json")):
        assert not program.is_compiled() and program.get_parameter_names() == ["x"]
        found = result(program)
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, np.maximum(PRODUCT, 0))
    np.testing.assert_array_equal(result(migraphx.load_buffer(whole)), np.maximum(PRODUCT, 0))


def test_the_last_value_is_the_result_and_modules_are_read() -> None:
    positive = {"name": "yes", "nodes": [node("yes:@0", "@return", {}, ["main:@1"])]}
    negative = {
        "name": "no",
        "nodes": [node("no:@0", "neg", {}, ["main:@1"]), node("no:@1", "@return", {}, ["no:@0"])],
    }
    condition = node("main:@2", "@literal", shape=shape([1], [0], "bool_type"))
    condition["literal"] = {"shape": shape([1], [0], "bool_type"), "data": b"\0"}
    branches = node("main:@3", "if", {}, ["main:@2"], module_inputs=["yes", "no"])
    chosen = node("main:@4", "get_tuple_elem", {"index": 0}, ["main:@3"])
    tree = file(WEIGHTS.tobytes(), [condition, branches, chosen], {"yes": positive, "no": negative})
    np.testing.assert_array_equal(result(migraphx.load_buffer(msgpack.packb(tree))), -PRODUCT)


def test_refusals(tmp_path) -> None:
    compiled = file(WEIGHTS.tobytes(), targets=[{"name": "gpu"}])
    with pytest.raises(UnsupportedError, match="after it was compiled"):
        migraphx.load_buffer(msgpack.packb(compiled))
    kernels = file(WEIGHTS.tobytes(), [node("main:@2", "gpu::code_object", {}, ["main:@1"])])
    with pytest.raises(UnsupportedError, match="gpu::code_object is an operation of a compiled program"):
        migraphx.load_buffer(msgpack.packb(kernels))
    short = file(WEIGHTS.tobytes()[:8])
    with pytest.raises(StoreError, match="2 elements, 6 are required"):
        migraphx.load_buffer(msgpack.packb(short))
    (tmp_path / "other.json").write_text('{"hello": 1}')
    with pytest.raises(StoreError, match=r"other\.json.*version, modules"):
        migraphx.load(tmp_path / "other.json")
    with pytest.raises(StoreError):
        migraphx.load_buffer(msgpack.packb(file(WEIGHTS.tobytes()))[:-30])


def of_literal(lens, strides, data=bytes(16)):
    made = node("main:@0", "@literal", shape=shape(lens, strides))
    made["literal"] = {"shape": shape(lens, strides), "data": data}
    return {"version": 8, "modules": {"main": {"name": "main", "nodes": [made]}}}


@pytest.mark.parametrize(
    ("tree", "error", "message"),
    [
        (of_literal([4], [-1]), StoreError, "strides of a literal must not be negative"),
        (of_literal([2, 2], [1, -2]), StoreError, "strides of a literal must not be negative"),
        (of_literal([1 << 40], [0]), DeviceError, "a literal of extents .* would take"),
        (of_literal([2, 0], [1 << 62, 1]), StoreError, "OverflowError"),
        (of_literal([1], [1], 1 << 40), StoreError, "must be bytes, got the number"),
        (of_literal([1], [1], [4]), StoreError, "must be bytes, got the number"),
        (of_literal([1], [1], {"bytes": 1 << 45}), StoreError, "must be bytes, got the number"),
    ],
)
def test_literals_are_stored_in_their_data(tree, error, message) -> None:
    with pytest.raises(error, match=message):
        migraphx.load_buffer(msgpack.packb(tree))


@pytest.mark.parametrize("around", ["main", "no"])
def test_modules_within_themselves(around) -> None:
    condition = node("main:@2", "@literal", shape=shape([1], [0], "bool_type"))
    condition["literal"] = {"shape": shape([1], [0], "bool_type"), "data": b"\0"}
    yes = {"name": "yes", "nodes": [node("yes:@0", "@return", {}, ["main:@1"])]}
    inner = node("no:@0", "if", {}, ["main:@2"], module_inputs=["yes", around])
    no = {"name": "no", "nodes": [inner, node("no:@1", "get_tuple_elem", {"index": 0}, ["no:@0"])]}
    branches = node("main:@3", "if", {}, ["main:@2"], module_inputs=["yes", "no"])
    tree = file(WEIGHTS.tobytes(), [condition, branches], {"yes": yes, "no": no})
    with pytest.raises(StoreError, match=f"module '{around}' is called by an instruction inside it"):
        migraphx.load_buffer(msgpack.packb(tree))


def doubling(depth: int) -> dict[str, object]:
    """Returns a file of `depth` modules, each of which runs the next one in both branches of an `if`."""
    modules = {}
    for i in range(depth - 1):
        both = node(f"m{i}:@0", "if", {}, ["c"], module_inputs=[f"m{i + 1}"] * 2)
        result = node(f"m{i}:@1", "get_tuple_elem", {"index": 0}, [f"m{i}:@0"])
        modules[f"m{i}"] = {"name": f"m{i}", "nodes": [both, result]}
    modules[f"m{depth - 1}"] = {"name": f"m{depth - 1}", "nodes": [node("last:@0", "neg", {}, ["main:@1"])]}
    branches = [
        node("c", "@param", {"parameter": "c", "order": 1}, shape=shape([1], [0], "bool_type")),
        node("main:@2", "if", {}, ["c"], module_inputs=["m0", "m0"]),
        node("main:@3", "get_tuple_elem", {"index": 0}, ["main:@2"]),
    ]
    return file(WEIGHTS.tobytes(), branches, modules)


def test_modules_whose_copies_would_be_too_many() -> None:
    program = migraphx.load_buffer(msgpack.packb(doubling(4)))
    program.compile(migraphx.get_target("ref"))
    found = np.array(program.run({"x": X, "c": np.array([True])})[0])
    assert np.array_equal(found, -PRODUCT)
    with pytest.raises(
        StoreError, match=r"at most 100000 instructions are supported, with a copy of a module for each"
    ):
        migraphx.load_buffer(msgpack.packb(doubling(100)))


def test_files_that_are_nested_too_deeply() -> None:
    with pytest.raises(StoreError, match="RecursionError"):
        migraphx.load_buffer(b'{"a":' + b"[" * 100000)


def test_a_file_for_netron(tmp_path) -> None:
    p = migraphx.program()
    main = p.get_main_module()
    main.add_return([main.add_instruction(migraphx.op("neg"), [main.add_parameter("x", migraphx.shape(lens=[2]))])])
    p.write_netron_output(tmp_path / "p.onnx")
    assert onnx.load(tmp_path / "p.onnx").graph.node[0].op_type == "neg"
