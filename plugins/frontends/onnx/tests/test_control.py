"""Branches: shapes that do not fit, constants of inlined ones, results of different ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import mgx_core as mgx
from mgx_core.ir.module import everywhere
from mgx_core.ops.control import If

GOOD, BAD = "Neg", "MatMul"


def branch(kind: str) -> onnx.GraphProto:
    """Returns a branch on x, or one that multiplies matrices that do not fit after a node that does."""
    nodes = [helper.make_node("Neg", ["x"], ["n"])]
    nodes.append(
        helper.make_node("MatMul", ["n", "w"], ["r"]) if kind == BAD else helper.make_node("Abs", ["n"], ["r"])
    )
    return helper.make_graph(nodes, kind, [], [helper.make_empty_tensor_value_info("r")])


def model(then: str, other: str) -> bytes:
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], "choice", then_branch=branch(then), else_branch=branch(other))],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2]), helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.ones((5, 2), np.float32), "w")],
    )  # fmt: skip
    made: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8
    ).SerializeToString()
    return made


@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize("taken", [True, False])
def test_an_invalid_branch_fails_only_if_it_is_taken(target: str, taken: bool, tmp_path: Path) -> None:
    program = mgx.parse_onnx_buffer(model(*((GOOD, BAD) if taken else (BAD, GOOD))))
    mgx.save(program, tmp_path / "kept.mxr")
    x = np.float32([[-1, 2]])
    for one in (program, mgx.load(tmp_path / "kept.mxr")):
        one.compile(mgx.get_target(target), validate=True)
        assert np.asarray(one.run({"x": x, "c": np.bool_(taken)})[0]).tolist() == [[1, 2]]
        with pytest.raises(mgx.ShapeError, match=r"node 'choice'.*cannot run: node 'r' \(MatMul.*got float32\[1, 2\]"):
            one.run({"x": x, "c": np.bool_(not taken)})


def test_two_invalid_branches_are_refused() -> None:
    with pytest.raises(mgx.ShapeError, match=r"node 'choice'.*node 'r' \(MatMul"):
        mgx.parse_onnx_buffer(model(BAD, BAD))


def test_a_branch_with_an_unknown_operator_is_refused() -> None:
    made = onnx.load_from_string(model(GOOD, GOOD))
    made.graph.node[0].attribute[0].g.node[1].op_type = "Absent"
    with pytest.raises(mgx.MgxError, match="Absent"):
        mgx.parse_onnx_buffer(made.SerializeToString())


def test_a_constant_that_a_deferred_node_of_an_inlined_branch_reads_first_is_kept() -> None:
    nodes = [helper.make_node("Squeeze", ["x"], ["s"]), helper.make_node("ReduceSum", ["s", "axes"], ["r"])]
    taken = helper.make_graph(nodes, "taken", [], [helper.make_empty_tensor_value_info("r")])
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], then_branch=taken, else_branch=branch(GOOD))],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.array(True), "c"), numpy_helper.from_array(np.array([-1]), "axes")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    program = mgx.parse_onnx_buffer(made.SerializeToString())
    program.compile(mgx.get_target("ref"))
    assert np.asarray(program.run({"x": np.ones((3, 2), np.float32)})[0]).tolist() == [[2], [2], [2]]


@pytest.mark.parametrize(("joined", "ifs"), [(False, 1 + 2 + 4 * 3), (True, 1 + 2 + 4 + 2)])
def test_branches_of_different_ranks_are_copied_into_few_levels(joined: bool, ifs: int) -> None:
    """In a row, or all read by one sum.  Each doubles the copies: eight took six seconds."""
    nodes, inputs, value = [], ["c0", "c1", "c2", "c3", "c4"], "x"
    for c in inputs:
        read = "x" if joined else value
        wider = [helper.make_node("Unsqueeze", [read, "axis"], [f"{c}wide"])]
        same = [helper.make_node("Neg", [read], [f"{c}same"])]
        then, other = (
            helper.make_graph(body, c, [], [helper.make_empty_tensor_value_info(body[0].output[0])])
            for body in (wider, same)
        )
        nodes.append(helper.make_node("If", [c], [f"{c}taken"], then_branch=then, else_branch=other))
        if joined:
            nodes.append(helper.make_node("Add", [value, f"{c}taken"], [value := f"{c}out"]))
        else:
            nodes.append(helper.make_node("Neg", [f"{c}taken"], [value := f"{c}out"]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])]
        + [helper.make_tensor_value_info(c, TensorProto.BOOL, []) for c in inputs],
        [helper.make_empty_tensor_value_info(value)],
        [numpy_helper.from_array(np.array([0]), "axis")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    program = mgx.parse_onnx_buffer(made.SerializeToString())
    program.compile(mgx.get_target("ref"))
    given = {c: np.bool_(c in ("c0", "c3", "c4")) for c in inputs}
    wanted = [[2, 4]] if joined else [[[[-1, -2]]]]
    assert np.asarray(program.run({"x": np.float32([1, 2]), **given})[0]).tolist() == wanted
    (instance,) = program.executable.instances()  # type: ignore[union-attr]
    assert sum(isinstance(ins.op, If) for _, ins in everywhere(instance.module)) == ifs


def test_updates_of_unknown_rank_leave_the_extents_of_the_data_known() -> None:
    nodes = [helper.make_node("Squeeze", ["u"], ["s"]), helper.make_node("ScatterND", ["x", "i", "s"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("u", TensorProto.FLOAT, ["k", "m"]),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2]),
            helper.make_tensor_value_info("i", TensorProto.INT64, [2, 2]),
        ],
        [helper.make_empty_tensor_value_info("y")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    program = mgx.parse_onnx_buffer(made.SerializeToString())
    assert [str(s) for s in program.get_output_shapes()] == ["float32[n, 2]"]
    program.compile(mgx.get_target("ref"))
    given = {"u": np.array([[5, 6]], np.float32), "x": np.zeros((3, 2), np.float32), "i": np.array([[0, 1], [2, 0]])}
    assert np.asarray(program.run(given)[0]).tolist() == [[0, 5], [0, 0], [6, 0]]
