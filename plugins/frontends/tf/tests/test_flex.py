"""TensorFlow operators in TFLite models: tensors, complex numbers, lists, tables, and corrupt attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_tf.wire.messages import message
from mgx_tflite.model import Model, Operator, Subgraph, Tensor
from mgx_tflite.options import TfliteOptions
from mgx_tflite.parser import parse_model


def flex(op: str, inputs: list[int], outputs: list[int], place: int = 0, **attributes: Any) -> Operator:
    """Returns an operator that contains a NodeDef; attributes are type numbers (int), strings or shapes."""
    node = message("NodeDef")(op=op)
    for name, value in attributes.items():
        if isinstance(value, str):
            node.attr[name].s = value.encode()
        elif isinstance(value, bool):
            node.attr[name].b = value
        else:
            node.attr[name].type = value
    builder = flexbuffers.Builder()
    with builder.Vector():
        builder.String(op)
        builder.String(node.SerializeToString().decode())
    return Operator(f"CUSTOM:Flex{op}", inputs, outputs, [], None, bytes(builder.Finish()), place)


def tensor(name: str, kind: Any, dims: list[int], value: Any = None) -> Tensor:
    return Tensor(name, kind, dims, None if value is None else np.asarray(value, kind.numpy), None)


def run(tensors: list[Tensor], operators: list[Operator], output: int, **given: Any) -> np.ndarray:
    inputs = [k for k, t in enumerate(tensors) if t.name in given]
    program = parse_model(Model([Subgraph("main", tensors, operators, inputs, [output])]), TfliteOptions())
    program.compile(mgx.get_target("ref"))
    return np.asarray(program.run(given)[0])


def test_an_operator_on_tensors():
    tensors = [tensor("x", dt.float32, [2, 3]), tensor("axis", dt.int32, [], 1), tensor("y", dt.float32, [2, 3])]
    x = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    found = run(tensors, [flex("Cumprod", [0, 1], [2], reverse=True)], 2, x=x)
    np.testing.assert_array_equal(found, np.flip(np.cumprod(np.flip(x, 1), 1), 1))


def test_complex_numbers_have_a_last_axis_for_their_parts():
    tensors = [tensor("x", dt.float32, [4]), tensor("z", dt.complex64, [4]), tensor("f", dt.complex64, [4])]
    tensors.append(tensor("y", dt.float32, [4]))
    operators = [flex("Complex", [0, 0], [1]), flex("FFT", [1], [2], 1), flex("ComplexAbs", [2], [3], 2)]
    x = np.float32([1, -2, 3, 5])
    np.testing.assert_allclose(run(tensors, operators, 3, x=x), np.abs(np.fft.fft(x + 1j * x)), rtol=1e-5)


def loop_of_lists(count: int) -> tuple[list[Subgraph], Any]:
    """Returns a loop that inserts doubled rows of x into a list whose element extents are not known before."""

    class Branches:
        def CondSubgraphIndex(self) -> int:
            return 1

        def BodySubgraphIndex(self) -> int:
            return 2

    class Plain:
        def FusedActivationFunction(self) -> int:
            return 0

        def Axis(self) -> int:
            return 0

        def BatchDims(self) -> int:
            return 0

    variant = Tensor("list", None, [], None, None)
    step, row = tensor("k", dt.int32, []), tensor("x", dt.float32, [count, 2])
    main = [
        row, tensor("open", dt.int32, [], -1), tensor("count", dt.int32, [], count), variant, tensor("zero", dt.int32, [], 0),
        tensor("end", dt.int32, []), variant, row, tensor("y", dt.float32, [count, 2]),
    ]  # fmt: skip
    operators = [
        flex("TensorListReserve", [1, 2], [3], element_dtype=1, shape_type=3),
        Operator("WHILE", [4, 3, 0], [5, 6, 7], [], Branches(), b"", 1),
        flex("TensorListStack", [6, 1], [8], 2, element_dtype=1),
    ]
    test = [step, variant, row, tensor("most", dt.int32, [], count), tensor("more", dt.bool_, [])]
    body = [step, variant, row, tensor("one", dt.int32, [], 1), tensor("next", dt.int32, []), tensor("r", dt.float32, [2]),
            tensor("twice", dt.float32, [2]), variant]  # fmt: skip
    trips = [
        Operator("ADD", [0, 3], [4], [], Plain(), b"", 0),
        Operator("GATHER", [2, 0], [5], [], Plain(), b"", 1),
        Operator("ADD", [5, 5], [6], [], Plain(), b"", 2),
        flex("TensorListSetItem", [1, 0, 6], [7], 3, element_dtype=1),
    ]
    return [
        Subgraph("main", main, operators, [0], [8]),
        Subgraph("test", test, [Operator("LESS", [0, 3], [4], [], None, b"", 0)], [0, 1, 2], [4]),
        Subgraph("body", body, trips, [0, 1, 2], [4, 7, 2]),
    ], Branches


def test_loops_carry_lists():
    graphs, _ = loop_of_lists(3)
    program = parse_model(Model(graphs), TfliteOptions())
    program.compile(mgx.get_target("ref"))
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(np.asarray(program.run({"x": x})[0]), 2 * x)


def test_damaged_attributes_are_refused():
    tensors = [tensor("x", dt.float32, [2]), tensor("y", dt.float32, [2])]
    for custom in (b"", b"\xff\xff", bytes(flexbuffers.Dumps([1, 2]))):
        with pytest.raises(mgx.ParseError, match="do not contain a NodeDef"):
            run(tensors, [Operator("CUSTOM:FlexRelu", [0], [1], [], None, custom, 0)], 1, x=np.zeros(2, np.float32))


def test_unknown_operators_are_named():
    tensors = [tensor("x", dt.float32, [2]), tensor("y", dt.float32, [2])]
    with pytest.raises(mgx.UnsupportedError, match="no converter for operator CUSTOM:FlexNoSuch"):
        run(tensors, [flex("NoSuch", [0], [1])], 1, x=np.zeros(2, np.float32))


def test_variables_live_from_run_to_run():
    """Variables persist between runs."""
    tensors = [tensor("x", dt.float32, []), tensor("one", dt.float32, [], 1), tensor("y", dt.float32, [])]
    tensors += [Tensor(f"v{k}", None, [], None, None) for k in range(2)]
    first = Operator("CALL_ONCE", [], [], [], Init(), b"", 0)
    steps = [
        first,
        flex("VarHandleOp", [], [3], 1, shared_name="v", dtype=1),
        flex("AssignAddVariableOp", [3, 0], [], 2, dtype=1),
        flex("ReadVariableOp", [3], [2], 3, dtype=1),
    ]
    begin = [
        flex("VarHandleOp", [], [4], 0, shared_name="v", dtype=1),
        flex("AssignVariableOp", [4, 1], [], 1, dtype=1),
    ]
    graphs = [Subgraph("main", tensors, steps, [0], [2]), Subgraph("init", tensors, begin, [], [])]
    program = parse_model(Model(graphs), TfliteOptions())
    program.compile(mgx.get_target("ref"))
    assert program.get_parameter_names() == ["x"]
    assert [float(np.asarray(program.run({"x": np.float32(x)})[0])) for x in (2, 5, -1)] == [3, 8, 7]
    program.reset_state()
    assert float(np.asarray(program.run({"x": np.float32(0)})[0])) == 1


class Init:
    def InitSubgraphIndex(self) -> int:
        return 1


@pytest.mark.parametrize("k", [0, 2])
def test_a_branch_may_leave_a_list_without_elements(k: int):
    """The other branch inserts x into the list."""

    class Ways:
        def ThenSubgraphIndex(self) -> int:
            return 1

        def ElseSubgraphIndex(self) -> int:
            return 2

    variant, at, row = Tensor("list", None, [], None, None), tensor("k", dt.int32, []), tensor("x", dt.float32, [2])
    main = [
        row, at, tensor("open", dt.int32, [], -1), tensor("count", dt.int32, [], 3), variant, tensor("one", dt.int32, [], 1),
        tensor("more", dt.bool_, []), variant, tensor("y", dt.float32, [3, 2]),
    ]  # fmt: skip
    operators = [
        flex("TensorListReserve", [2, 3], [4], element_dtype=1, shape_type=3),
        Operator("LESS", [5, 1], [6], [], None, b"", 1),
        Operator("IF", [6, 4, 1, 0], [7], [], Ways(), b"", 2),
        flex("TensorListStack", [7, 2], [8], 3, element_dtype=1),
    ]
    inside = [variant, at, row, variant]
    graphs = [
        Subgraph("main", main, operators, [0, 1], [8]),
        Subgraph("then", inside, [flex("TensorListSetItem", [0, 1, 2], [3], element_dtype=1)], [0, 1, 2], [3]),
        Subgraph("else", inside, [], [0, 1, 2], [0]),
    ]
    program = parse_model(Model(graphs), TfliteOptions())
    program.compile(mgx.get_target("ref"))
    x, wanted = np.float32([4, 5]), np.zeros((3, 2), np.float32)
    if k > 1:
        wanted[k] = x
    np.testing.assert_array_equal(np.asarray(program.run({"x": x, "k": np.int32(k)})[0]), wanted)
