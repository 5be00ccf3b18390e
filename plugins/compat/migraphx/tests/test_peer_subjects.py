"""The subjects of MIGraphX's test/py, file by file, in mgx's own tests.

Subjects with a file of their own are tested there: debug symbols, verification, compile modes, symbolic extents and ONNX's
backend; macros in test_macros.py, files for viewers in test_stored_programs.py.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import migraphx

F32 = np.float32
CONV = [
    helper.make_node("Conv", ["0", "1", "2"], ["c"], kernel_shape=[5, 5]),
    helper.make_node("Relu", ["c"], ["r"]),
    helper.make_node("MaxPool", ["r"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
]
CONV_INPUTS = {"0": [1, 3, 32, 32], "1": [1, 3, 5, 5], "2": [1]}


def saved(
    folder: Path, nodes: list[Any], inputs: dict[str, list[Any]], kind: int = TensorProto.FLOAT, **kinds: int
) -> str:
    """Writes a model with one result, y."""
    given = [helper.make_tensor_value_info(n, kinds.get(n, kind), dims) for n, dims in inputs.items()]
    y = helper.make_tensor_value_info("y", kinds.get("y", kind), None)
    made = helper.make_model(
        helper.make_graph(nodes, "g", given, [y]), opset_imports=[helper.make_opsetid("", 13)], ir_version=8
    )
    onnx.save(made, folder / "model.onnx")
    return str(folder / "model.onnx")


@pytest.fixture
def conv(tmp_path: Path) -> migraphx.program:
    """Returns a convolution with bias, relu and pooling; all three operands are parameters."""
    return migraphx.parse_onnx(saved(tmp_path, CONV, CONV_INPUTS))


def generated(p: migraphx.program) -> dict[str, migraphx.argument]:
    return {name: migraphx.generate_argument(s) for name, s in p.get_parameter_shapes().items()}


def reference(conv: migraphx.program, params: dict[str, migraphx.argument]) -> np.ndarray:
    copied = migraphx.load_buffer(migraphx.save_buffer(conv))
    copied.compile(migraphx.get_target("ref"))
    return np.array(copied.run(params)[-1])


# test_cpu, test_numpy


@pytest.mark.parametrize("name", ["ref", "cpu"])
def test_cpu_keeps_the_shapes_that_were_promised(name: str, conv: migraphx.program, capsys: Any) -> None:
    promised = conv.get_output_shapes()[-1]
    conv.compile(migraphx.get_target(name))
    assert conv.get_output_shapes()[-1] == promised
    params = generated(conv)
    result = conv.run(params)[-1]
    assert result.get_shape() == promised and promised.lens() == [1, 1, 14, 14]
    np.testing.assert_allclose(np.array(result), reference(conv, params), rtol=1e-4, atol=1e-5)
    conv.get_main_module().print()
    assert "convolution" in capsys.readouterr().out


def test_cpu_accepts_buffers_of_bytes_and_a_scalar(tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["0", "1"], ["y"])]
    p = migraphx.parse_onnx(saved(tmp_path, nodes, {"0": [2, 3, 4, 5], "1": []}, TensorProto.UINT8))
    p.compile(migraphx.get_target("ref"))
    whole, one = memoryview(bytes(range(120))).cast("B", [2, 3, 4, 5]), memoryview(bytes([1])).cast("B", ())
    result = p.run({"0": migraphx.argument(whole), "1": migraphx.argument(one)})[-1]
    assert result.tolist() == list(range(1, 121))


# test_array, test_gpu, test_gpu_offload, test_gpu_async: on the emulated device


@pytest.mark.usefixtures("emulated")
def test_array_of_a_device_is_a_buffer(conv: migraphx.program) -> None:
    conv.compile(migraphx.get_target("gpu"))
    params = generated(conv)
    one, other = conv.run(params)[-1], conv.run(params)[-1]
    assert one == other and one.tolist() == other.tolist()
    view = memoryview(one)
    assert list(view.shape) == one.get_shape().lens()
    assert [s // view.itemsize for s in view.strides] == one.get_shape().strides()
    assert [struct.unpack_from("f", one, 4 * i)[0] for i in range(5)] == one.tolist()[:5]


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize(("kind", "dtype"), [(TensorProto.INT64, np.int64), (TensorProto.UINT64, np.uint64)])
def test_gpu_computes_wide_integers(kind: int, dtype: Any, tmp_path: Path) -> None:
    p = migraphx.parse_onnx(
        saved(tmp_path, [helper.make_node("Sub", ["x", "b"], ["y"])], {"x": [2, 3], "b": [2, 3]}, kind)
    )
    p.compile(migraphx.get_target("gpu"))
    x, b = np.full((2, 3), 2**40 + 7, dtype), np.arange(6, dtype=dtype).reshape(2, 3)
    assert p.run({"x": x, "b": b})[0].tolist() == (x - b).reshape(-1).tolist()


@pytest.mark.usefixtures("emulated")
def test_gpu_computes_in_half_precision(tmp_path: Path) -> None:
    nodes = [helper.make_node("Sub", ["0", "1"], ["y"])]
    p = migraphx.parse_onnx(saved(tmp_path, nodes, {"0": [1, 2, 3], "1": [2, 3]}, TensorProto.FLOAT16))
    p.compile(migraphx.get_target("gpu"))
    x, y = np.arange(6, dtype=np.float16).reshape(1, 2, 3), np.full((2, 3), 0.5, np.float16)
    assert np.array_equal(np.array(p.run({"0": x, "1": y})[0]), x - y)


@pytest.mark.usefixtures("emulated")
def test_gpu_fills_positions_up(tmp_path: Path) -> None:
    kinds = {"x": TensorProto.BOOL, "y": TensorProto.INT64}
    p = migraphx.parse_onnx(saved(tmp_path, [helper.make_node("NonZero", ["x"], ["y"])], {"x": [2, 2]}, **kinds))
    p.compile(migraphx.get_target("gpu"))
    result = p.run({"x": np.array([[True, False], [True, True]])})[0]
    assert np.array(result).tolist() == [[0, 1, 1, 0], [0, 0, 1, 0]]


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("offload_copy", [True, False])
def test_gpu_reads_the_condition_of_a_branch(offload_copy: bool, tmp_path: Path) -> None:
    def branch(name: str, a: str, b: str) -> onnx.GraphProto:
        result = helper.make_tensor_value_info(f"of_{name}", TensorProto.FLOAT, [2, 3])
        return helper.make_graph([helper.make_node("Add", [a, b], [f"of_{name}"])], name, [], [result])

    node = helper.make_node(
        "If", ["cond"], ["y"], then_branch=branch("then", "x", "x"), else_branch=branch("else", "z", "z")
    )
    p = migraphx.parse_onnx(saved(tmp_path, [node], {"cond": [1], "x": [2, 3], "z": [2, 3]}, cond=TensorProto.BOOL))
    p.compile(migraphx.get_target("gpu"), offload_copy=offload_copy)
    given = {"x": np.ones((2, 3), F32), "z": np.full((2, 3), 2, F32)}
    for chosen, wanted in ((True, 2), (False, 4)):
        values = {n: migraphx.argument(v) for n, v in {**given, "cond": np.array([chosen])}.items()}
        if not offload_copy:
            values = {n: migraphx.to_gpu(v) for n, v in values.items()}
            values |= {n: migraphx.allocate_gpu(s) for n, s in p.get_parameter_shapes().items() if n not in values}
        result = p.run(values)[-1]
        assert (result if offload_copy else migraphx.from_gpu(result)).tolist() == [wanted] * 6


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("offload_copy", [True, False])
def test_gpu_runs_batches_of_a_range(offload_copy: bool, tmp_path: Path) -> None:
    sizes = migraphx.shape.dynamic_dimension(1, 4, {2, 4})
    extents = [sizes, *(migraphx.shape.dynamic_dimension(n, n) for n in (3, 4))]
    path = saved(tmp_path, [helper.make_node("Relu", ["0"], ["y"])], {"0": ["n", 3, 4]})
    p = migraphx.parse_onnx(path, map_dyn_input_dims={"0": extents})
    assert p.get_parameter_shapes()["0"].dynamic()
    p.compile(migraphx.get_target("gpu"), offload_copy=offload_copy)
    for rows in (2, 3):
        x = np.linspace(-1, 1, rows * 12, dtype=F32).reshape(rows, 3, 4)
        given = migraphx.argument(x)
        result = p.run({"0": given if offload_copy else migraphx.to_gpu(given)})[0]
        assert np.array_equal(np.array(result if offload_copy else migraphx.from_gpu(result)), np.maximum(x, 0))


@pytest.mark.usefixtures("emulated")
def test_gpu_runs_on_a_stream_without_copies(conv: migraphx.program) -> None:
    params = generated(conv)
    wanted = reference(conv, params)
    conv.compile(migraphx.get_target("gpu"), offload_copy=False)
    there = {n: migraphx.to_gpu(a) for n, a in params.items()}
    there |= {n: migraphx.allocate_gpu(s) for n, s in conv.get_parameter_shapes().items() if n not in there}
    for run in (lambda: conv.run(there), lambda: conv.run_async(there, 0, "ihipStream_t")):
        results = run()
        migraphx.gpu_sync()
        np.testing.assert_allclose(np.array(migraphx.from_gpu(results[-1])), wanted, rtol=1e-4, atol=1e-5)


# test_instruction, test_op, test_literal, test_module_construct


def test_instruction_and_op_have_descriptions() -> None:
    m = migraphx.program().get_main_module()
    square = migraphx.shape(lens=[3, 3])
    x, y = m.add_parameter("x", square), m.add_parameter("y", square)
    total = m.add_instruction(migraphx.op("add"), [x, y])
    assert total.shape() == square and total.op().name() == "add" and total.inputs() == [x, y]
    mean = migraphx.op("reduce_mean", axes=[1, 2, 3, 4])
    assert mean.name() == "reduce_mean" and mean.values()["axes"] == [1, 2, 3, 4]


def test_literal_of_one_value_or_a_list() -> None:
    s = migraphx.shape(lens=[3, 3])
    m = migraphx.program().get_main_module()
    for values in (migraphx.fill_argument(s, 10), migraphx.create_argument(s, [10] * 9)):
        assert values.tolist() == m.add_literal(values).get_literal().tolist() == [10] * 9
    assert m.add_literal(np.full((3, 3), 10, F32)).get_literal() == migraphx.fill_argument(s, 10)


@pytest.mark.parametrize("chosen", [True, False])
def test_module_construct_branches_with_values_from_around_them(chosen: bool) -> None:
    p = migraphx.program()
    m, square = p.get_main_module(), migraphx.shape(lens=[3, 3])
    cond = m.add_parameter("cond", migraphx.shape(type="bool", lens=[1], strides=[0]))
    x, y = m.add_parameter("x", square), m.add_parameter("y", square)
    arms = []
    for name, value in (("yes", x), ("no", y)):
        arms.append(p.create_module(name))
        arms[-1].add_return([arms[-1].add_instruction(migraphx.op("identity"), [value])])
    both = m.add_instruction(migraphx.op("if"), [cond], arms)
    m.add_return([m.add_instruction(migraphx.op("get_tuple_elem", index=0), [both])])
    p.compile(migraphx.get_target("ref"))
    nine = np.arange(9, dtype=F32).reshape(3, 3)
    result = p.run({"cond": np.array(chosen), "x": nine, "y": 2 * nine})[-1]
    assert np.array_equal(np.array(result), nine if chosen else 2 * nine)


# test_save_load, test_autocast_fp8


@pytest.mark.parametrize("format", ["msgpack", "json"])
def test_save_and_load_give_an_equal_program(format: str, conv: migraphx.program, tmp_path: Path) -> None:
    path = str(tmp_path / "saved")
    migraphx.save(conv, path, format=format)
    for read in (migraphx.load(path, format=format), migraphx.load_buffer(migraphx.save_buffer(conv, format), format)):
        assert read.get_output_shapes()[-1] == conv.get_output_shapes()[-1]
        assert read == conv and read.sort() == conv.sort()


def test_autocast_makes_float_parameters_of_narrow_ones() -> None:
    def add(kind: str, widened: bool) -> migraphx.program:
        p = migraphx.program()
        m = p.get_main_module()
        x, y = (m.add_parameter(n, shape=migraphx.shape(type=kind)) for n in "xy")
        if widened:
            narrow = migraphx.op("convert", target_type=migraphx.shape.type_t.fp8e4m3fnuz_type)
            x, y = (m.add_instruction(narrow, [v]) for v in (x, y))
        total = m.add_instruction(migraphx.op("add"), [x, y])
        if widened:
            total = m.add_instruction(migraphx.op("convert", target_type=migraphx.shape.type_t.float_type), [total])
        m.add_return([total])
        return p

    narrow, wide = add("fp8e4m3fnuz_type", False), add("float_type", False)
    migraphx.autocast_fp8(narrow)
    assert narrow == add("float_type", True)
    migraphx.autocast_fp8(wide)
    assert wide == add("float_type", False)
