"""Constants, shapes as values, ranges, identity matrices, embedding bags."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from mgx_core import MgxError, UnsupportedError
from mgx_onnx.backend import RefBackend
from mgx_onnx.frontend import parse_model
from mgx_onnx.options import OnnxOptions

X = np.zeros((2, 3, 4), np.float32)
LATE_AND_FIXED = pytest.mark.parametrize("fixed", [(), (0, 1, 2)], ids=["late", "fixed"])


@pytest.mark.parametrize(
    ("attribute", "value", "dtype"),
    [("value_float", 1.5, np.float32), ("value_floats", [1.5, 2], np.float32), ("value_int", -3, np.int64),
     ("value_ints", [1 << 40], np.int64), ("value_string", "a", object), ("value_strings", ["a", "b"], object),
     ("value_ints", [], np.int64)],
)  # fmt: skip
def test_constant(run: Callable[..., Any], attribute: str, value: Any, dtype: Any) -> None:
    if value == []:
        value = helper.make_attribute("value_ints", [], attr_type=onnx.AttributeProto.INTS)
        node = helper.make_node("Constant", [], ["y"])
        node.attribute.append(value)
        graph = helper.make_graph([node], "g", [], [helper.make_empty_tensor_value_info("y")])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
        assert RefBackend.run_model(model, [])[0].shape == (0,)
        return
    (out,) = run("Constant", **{attribute: value})
    assert out.dtype == np.dtype(dtype)
    assert out.tolist() == value


def test_constant_tensors(run: Callable[..., Any]) -> None:
    half = np.array([[1, 2]], np.float16)
    (out,) = run("Constant", value=onnx.numpy_helper.from_array(half))
    assert out.dtype == np.float16
    assert out.tolist() == [[1, 2]]
    values = onnx.numpy_helper.from_array(np.array([5, 7], np.float32), "v")
    sparse = helper.make_sparse_tensor(values, onnx.numpy_helper.from_array(np.array([1, 3]), "i"), [2, 2])
    assert run("Constant", sparse_value=sparse)[0].tolist() == [[0, 5], [0, 7]]
    with pytest.raises(MgxError, match="exactly one"):
        run("Constant", value_int=1, value_float=1.0)
    with pytest.raises(MgxError, match="exactly one"):
        run("Constant")


@LATE_AND_FIXED
def test_constant_of_shape(agree: Callable[..., Any], run: Callable[..., Any], fixed: tuple[int, ...]) -> None:
    agree("ConstantOfShape", np.array([2, 3]), fixed=fixed)
    value = onnx.numpy_helper.from_array(np.array([7], np.int8))
    for dims in ([2, 0], [], [1, 2, 1]):
        agree("ConstantOfShape", np.array(dims, np.int64), fixed=fixed, value=value)
    for bad in ([-1], [1 << 50]):
        with pytest.raises(MgxError):
            run("ConstantOfShape", np.array(bad), fixed=fixed)[0].copy()


def test_constant_fill(run: Callable[..., Any]) -> None:
    assert run("ConstantFill", shape=[2], value=3.0)[0].tolist() == [3, 3]
    (out,) = run("ConstantFill", np.array([1, 2]), input_as_shape=1, dtype=TensorProto.INT32, value=3.0, fixed=(0,))
    assert out.dtype == np.int32
    assert out.tolist() == [[3, 3]]


@pytest.mark.parametrize(("start", "end"), [(0, None), (1, None), (-1, None), (0, -1), (2, 1), (-9, 9)])
def test_shape(agree: Callable[..., Any], start: int, end: int | None) -> None:
    agree("Shape", X, start=start, **({} if end is None else {"end": end}))


def test_size(agree: Callable[..., Any]) -> None:
    agree("Size", X)
    agree("Size", np.float32(1))


def model_of(nodes: list[onnx.NodeProto], **literals: Any) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "m"])],
        [helper.make_empty_tensor_value_info("y")],
        [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in literals.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_size_of_symbolic_extents() -> None:
    model = model_of([helper.make_node("Size", ["x"], ["y"])])
    assert RefBackend.run_model(model, [X[0]])[0].tolist() == 12


def test_range_over_an_extent() -> None:
    """Positions 0..n-1 of an input with a symbolic extent keep that extent."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], start=1),
        helper.make_node("Squeeze", ["s"], ["n"]),
        helper.make_node("Range", ["zero", "n", "two"], ["y"]),
    ]
    model = model_of(nodes, zero=np.int64(0), two=np.int64(2))
    (shape,) = parse_model(model, OnnxOptions()).get_output_shapes()
    assert [str(d) for d in shape.dims] == ["((m+1)//2)"]
    assert RefBackend.run_model(model, [X[0, :, :3]])[0].tolist() == [0, 2]
    assert RefBackend.run_model(model, [X[0, :, :0]])[0].tolist() == []


@LATE_AND_FIXED
@pytest.mark.parametrize(
    ("start", "limit", "delta", "dtype"),
    [
        (1, 9, 2, np.int64),
        (9, 1, -3, np.int32),
        (1, 1, 1, np.int64),
        (0, 1, 0.3, np.float32),
        (0, -1, -0.25, np.float64),
    ],
)
def test_range(
    agree: Callable[..., Any], start: float, limit: float, delta: float, dtype: Any, fixed: tuple[int, ...]
) -> None:
    agree("Range", *(np.asarray(v, dtype) for v in (start, limit, delta)), fixed=fixed)


@LATE_AND_FIXED
def test_range_without_end(run: Callable[..., Any], fixed: tuple[int, ...]) -> None:
    for operands in ((0, 5, 0), (0.0, np.inf, 1.0)):
        with pytest.raises(MgxError):
            run("Range", *map(np.asarray, operands), fixed=fixed)


@pytest.mark.parametrize("k", [-5, -1, 0, 1, 5])
def test_eye_like(agree: Callable[..., Any], run: Callable[..., Any], k: int) -> None:
    agree("EyeLike", X[0], k=k)
    agree("EyeLike", X[0], k=k, dtype=TensorProto.INT32)
    model = model_of([helper.make_node("EyeLike", ["x"], ["y"], k=k)])
    np.testing.assert_array_equal(RefBackend.run_model(model, [X[0]])[0], np.eye(3, 4, k))


@pytest.mark.parametrize(("mode", "reduce"), [(0, np.sum), (1, np.mean), (2, np.max)])
def test_embedding_bag(run: Callable[..., Any], mode: int, reduce: Any) -> None:
    weight = np.arange(8, dtype=np.float32).reshape(4, 2)
    indices = np.array([3, 1, 0])
    (out,) = run("ATen", weight, indices, np.array([0, 2]), operator="embedding_bag", mode=mode, fixed=(2,))
    np.testing.assert_array_equal(out, np.stack([reduce(weight[[3, 1]], 0), reduce(weight[[0]], 0)]))
    (one,) = run("ATen", weight, indices, np.array([0]), operator="embedding_bag", mode=mode)
    np.testing.assert_allclose(one[0], reduce(weight[indices], 0), rtol=1e-6)
    with pytest.raises(UnsupportedError, match="frobnicate"):
        run("ATen", weight, operator="frobnicate")
