"""Reshape, Transpose, Expand, Tile and related operators, with shape operands known at parse time or at run time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from mgx_core import MgxError, ParseError
from mgx_onnx.backend import RefBackend
from mgx_onnx.frontend import parse_model
from mgx_onnx.options import OnnxOptions

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
LATE_AND_FIXED = pytest.mark.parametrize("fixed", [(), (1, 2, 3, 4)], ids=["late", "fixed"])


def i64(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


def symbolic(dims: list[Any], nodes: list[onnx.NodeProto], **literals: Any) -> onnx.ModelProto:
    """A model on one float input `x` with named extents."""
    graph = helper.make_graph(
        nodes,
        "symbolic",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_empty_tensor_value_info("y")],
        [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in literals.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@LATE_AND_FIXED
@pytest.mark.parametrize(
    ("op", "operand"),
    [
        ("Reshape", i64(4, 6)),
        ("Reshape", i64(0, -1)),
        ("Reshape", i64(-1, 1, 12)),
        ("Reshape", i64(24)),
        ("Expand", i64(5, 1, 3, 4)),
        ("Expand", i64(1)),
        ("Tile", i64(2, 1, 3)),
        ("Tile", i64(1, 0, 1)),
        ("Tile", i64(1, 1, 1)),
        ("Unsqueeze", i64(0, -1)),
        ("CenterCropPad", i64(5, 1, 4)),
        ("CenterCropPad", i64(1, 6, 2)),
    ],
)
def test_shape_operands(agree: Callable[..., Any], op: str, operand: Any, fixed: tuple[int, ...]) -> None:
    agree(op, X, operand, fixed=fixed)


@LATE_AND_FIXED
def test_squeeze(agree: Callable[..., Any], fixed: tuple[int, ...]) -> None:
    agree("Squeeze", X[:1, :, None], i64(0, -2), fixed=fixed)
    agree("Squeeze", X[:1, :, None])
    agree("Squeeze", X[:1], opset=11, axes=[0])


@LATE_AND_FIXED
def test_no_elements(agree: Callable[..., Any], fixed: tuple[int, ...]) -> None:
    agree("Reshape", X[:0], i64(0, 7, 0), allowzero=1, fixed=fixed)
    agree("Reshape", X[:0], i64(0, 12), fixed=fixed)
    agree("Expand", X[:1], i64(0, 3, 4), fixed=fixed)


def test_old_forms(run: Callable[..., Any]) -> None:
    assert run("Reshape", X, opset=1, shape=[6, -1])[0].shape == (6, 4)
    assert run("Tile", X, np.float32(2), np.float32(1), opset=1, fixed=(1, 2))[0].shape == (2, 6, 4)
    assert run("Unsqueeze", X, opset=1, axes=[0])[0].shape == (1, 2, 3, 4)


@pytest.mark.parametrize("axis", [-1, 0, 1, 3])
def test_flatten_and_transpose(agree: Callable[..., Any], axis: int) -> None:
    agree("Flatten", X, axis=axis)
    agree("Transpose", X)
    agree("Transpose", X, perm=[1, 2, 0])


def test_axes_of_a_transposition_may_count_from_the_end(run: Callable[..., Any]) -> None:
    np.testing.assert_array_equal(run("Transpose", X, perm=[0, -1, 1])[0], X.transpose(0, 2, 1))
    for perm in ([0, -1, 2], [0, -4, 1], [0, 1]):
        with pytest.raises(ParseError, match="perm must be a permutation of 3 axes"):
            run("Transpose", X, perm=perm)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_blocks(agree: Callable[..., Any], run: Callable[..., Any], mode: str) -> None:
    x = np.arange(2 * 8 * 3 * 2, dtype=np.float32).reshape(2, 8, 3, 2)
    (deep,) = agree("DepthToSpace", x, blocksize=2, mode=mode)
    np.testing.assert_array_equal(run("SpaceToDepth", deep, opset=28, blocksize=2, mode=mode)[0], x)
    if mode == "DCR":
        agree("SpaceToDepth", deep, blocksize=2)


@pytest.mark.parametrize(("batch", "time"), [(1, 0), (0, 1)])
def test_reverse_sequence(agree: Callable[..., Any], batch: int, time: int) -> None:
    lens = i64(1, 2, 0)[: X.shape[batch]]
    agree("ReverseSequence", X, lens, batch_axis=batch, time_axis=time)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes"),
    [
        ("Reshape", [X, i64(5, -1)], {}),
        ("Reshape", [X, i64(-1, -1)], {}),
        ("Reshape", [X, i64(2, 3, 4, 0)], {}),
        ("Reshape", [X, i64(-1, 0)], {"allowzero": 1}),
        ("Reshape", [X, i64(-2, 12)], {}),
        ("Transpose", [X], {"perm": [0, 1]}),
        ("Transpose", [X], {"perm": [0, 1, 1]}),
        ("Squeeze", [X, i64(0)], {}),
        ("Squeeze", [X, i64(7)], {}),
        ("Unsqueeze", [X, i64(0, 0)], {}),
        ("Flatten", [X], {"axis": 4}),
        ("Expand", [X, i64(2, 4)], {}),
        ("Expand", [X, i64(-1)], {}),
        ("Expand", [X, i64(1 << 40, 1, 1, 1)], {}),
        ("Tile", [X, i64(2)], {}),
        ("Tile", [X, i64(1, -1, 1)], {}),
        ("DepthToSpace", [X[None]], {"blocksize": 2}),
        ("DepthToSpace", [X[None]], {"blocksize": 0}),
        ("DepthToSpace", [X], {"blocksize": 1}),
        ("SpaceToDepth", [X[None]], {"blocksize": 2}),
        ("ReverseSequence", [X, i64(1, 1)], {"batch_axis": 0, "time_axis": 0}),
        ("CenterCropPad", [X, i64(1, 1)], {}),
    ],
)
def test_refused(run: Callable[..., Any], op: str, inputs: list[Any], attributes: dict[str, Any]) -> None:
    with pytest.raises((MgxError, ParseError), match=op):
        run(op, *inputs, fixed=(1,), **attributes)


def test_symbolic_reshape_keeps_the_extents() -> None:
    """Flattens all axes but the batch in the usual way: every extent remains an expression of the inputs' extents."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["b"]),
        helper.make_node("Unsqueeze", ["b", "axis"], ["b1"]),
        helper.make_node("Concat", ["b1", "rest"], ["to"], axis=0),
        helper.make_node("Reshape", ["x", "to"], ["y"]),
    ]
    model = symbolic(["batch", "len", 6], nodes, zero=np.int64(0), axis=i64(0), rest=i64(-1, 2))
    program = parse_model(model, OnnxOptions())
    (shape,) = program.get_output_shapes()
    assert [str(d) for d in shape.dims] == ["batch", "3*len", "2"]
    x = np.arange(60, dtype=np.float32).reshape(2, 5, 6)
    np.testing.assert_array_equal(RefBackend.run_model(model, [x])[0], x.reshape(2, 15, 2))


@pytest.mark.parametrize(
    ("node", "literals", "dims", "meant"),
    [
        (helper.make_node("Flatten", ["x"], ["y"], axis=2), {}, "6*n 4", lambda x: x.reshape(-1, 4)),
        (
            helper.make_node("Expand", ["x", "s"], ["y"]),
            {"s": i64(3, 1, 6, 4)},
            "3 n 6 4",
            lambda x: np.broadcast_to(x, (3, *x.shape)),
        ),
        (helper.make_node("Tile", ["x", "r"], ["y"]), {"r": i64(2, 1, 2)}, "2*n 6 8", lambda x: np.tile(x, (2, 1, 2))),
        (
            helper.make_node("Slice", ["x", "a", "b"], ["y"]),
            {"a": i64(0, 1), "b": i64(99999999999, -1)},
            "n 4 4",
            lambda x: x[:, 1:-1],
        ),
        (
            helper.make_node("Slice", ["x", "a", "b", "c", "d"], ["y"]),
            {"a": i64(-1), "b": i64(-(1 << 62)), "c": i64(0), "d": i64(-1)},
            "n 6 4",
            lambda x: x[::-1],
        ),
        (helper.make_node("Split", ["x"], ["y"], axis=1, num_outputs=1), {}, "n 6 4", lambda x: x),
        (
            helper.make_node("Pad", ["x", "p"], ["y"]),
            {"p": i64(1, 0, 0, 2, 0, 1)},
            "n+3 6 5",
            lambda x: np.pad(x, ((1, 2), (0, 0), (0, 1))),
        ),
        (helper.make_node("Trilu", ["x"], ["y"]), {}, "n 6 4", np.triu),
        (helper.make_node("Gather", ["x", "i"], ["y"], axis=1), {"i": i64(0, -1)}, "n 2 4", lambda x: x[:, [0, -1]]),
        (
            helper.make_node("CenterCropPad", ["x", "s"], ["y"], axes=[1, 2]),
            {"s": i64(2, 6)},
            "n 2 6",
            lambda x: np.pad(x[:, 2:4], ((0, 0), (0, 0), (1, 1))),
        ),
    ],
    ids=lambda v: v.op_type if isinstance(v, onnx.NodeProto) else "",
)
def test_symbolic(node: onnx.NodeProto, literals: dict[str, Any], dims: str, meant: Callable[[Any], Any]) -> None:
    model = symbolic(["n", 6, 4], [node], **literals)
    (shape,) = parse_model(model, OnnxOptions()).get_output_shapes()
    assert " ".join(map(str, shape.dims)) == dims
    for n in (1, 3):
        x = np.arange(n * 24, dtype=np.float32).reshape(n, 6, 4)
        np.testing.assert_array_equal(RefBackend.run_model(model, [x])[0], meant(x))
