"""Variables that a run assigns and the next run reads."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_tf.wire.messages import message

F = np.dtype(np.float32)


def saved(new_graph: Any, folder: Path, more: str = "AssignAddVariableOp") -> Path:
    """Returns a SavedModel that adds its input to a variable, initially 1, and returns the old and the new value.

    more: another operator that assigns the variable.
    """
    model = message("SavedModel")(saved_model_schema_version=1)
    meta = model.meta_graphs.add()
    meta.meta_info_def.tags.append("serve")
    g = new_graph(meta.graph_def)
    g.node("VarHandleOp", "v", dtype=F)
    g.const("one", np.float32(1))
    g.node("AssignVariableOp", "begin", "v", "one", dtype=F)
    g.node("NoOp", "init", "^begin")
    g.placeholder("x", F, [])
    g.node("ReadVariableOp", "before", "v", dtype=F)
    g.node(more, "more", "v", "x", "^before", dtype=F)
    g.node("ReadVariableOp", "after", "v", "^more", dtype=F)
    signature = meta.signature_def["serving_default"]
    signature.inputs["x"].name, signature.inputs["x"].dtype = "x:0", 1
    for name in ("before", "after"):
        signature.outputs[name].name = f"{name}:0"
    meta.signature_def["__saved_model_init_op"].outputs["__saved_model_init_op"].name = "init"
    (folder / "saved_model.pb").write_bytes(model.SerializeToString())
    return folder


@pytest.mark.parametrize("target", ["ref", "cpu"])
def test_the_next_run_reads_assigned_values(target: str, new_graph: Any, tmp_path: Path):
    program = mgx.parse(saved(new_graph, tmp_path))
    program.compile(mgx.get_target(target))
    assert program.get_parameter_names() == ["x"] and program.get_output_names() == ["after", "before"]
    for x, before, after in ((2, 1, 3), (5, 3, 8)):
        got = [float(np.asarray(r)) for r in program.run({"x": np.float32(x)})]
        assert got == [after, before]
    program.reset_state()
    assert float(np.asarray(program.run({"x": np.float32(0)})[1])) == 1


def test_a_deep_copy_has_states_of_its_own(new_graph: Any, tmp_path: Path):
    program = mgx.parse(saved(new_graph, tmp_path))
    program.compile(mgx.get_target("ref"))
    program.run({"x": np.float32(2)})
    other = copy.deepcopy(program)
    for made, x, after in ((other, 5, 8), (other, 1, 9), (program, 4, 7)):
        assert float(np.asarray(made.run({"x": np.float32(x)})[0])) == after


@pytest.mark.parametrize("op", ["ResourceApplyGradientDescent", "ResourceScatterDiv", "ResourceSparseApplyAdam"])
def test_changes_of_variables_that_nothing_converts_are_refused(op: str, new_graph: Any, tmp_path: Path):
    """Even if their results are unused."""
    with pytest.raises(mgx.UnsupportedError, match=f"no converter for operator {op}"):
        mgx.parse(saved(new_graph, tmp_path, op))


def function(g: Any, name: str, arguments: dict[str, int], result: tuple[str, int], nodes: list[Any]) -> None:
    """Adds a function of some argument types to a graph's library; nodes: (op, name, inputs); all have T or dtype of float32."""
    made = g.proto.library.function.add()
    made.signature.name = name
    for given, kind in arguments.items():
        made.signature.input_arg.add(name=given, type=kind)
    made.signature.output_arg.add(name="r", type=result[1])
    for op, label, inputs in nodes:
        node = made.node_def.add(name=label, op=op, input=inputs)
        if "Variable" in op:
            node.attr["dtype"].type = 1
            made.control_ret[label] = label
        else:
            node.attr["T"].type = 3 if label == "next" else 1
    made.ret["r"] = result[0]


def assigning(new_graph: Any, folder: Path, kind: str) -> Path:
    """Returns a SavedModel whose variable, initially 1, is incremented by x in an If, in n iterations of a While, or in its condition."""
    model = message("SavedModel")(saved_model_schema_version=1)
    meta = model.meta_graphs.add()
    meta.meta_info_def.tags.append("serve")
    g = new_graph(meta.graph_def)
    g.node("VarHandleOp", "v", dtype=F)
    g.const("one", np.float32(1))
    g.node("AssignVariableOp", "begin", "v", "one", dtype=F)
    g.node("NoOp", "init", "^begin")
    g.placeholder("x", F, [])
    g.placeholder("n", np.dtype(np.int32), [])
    both = {"a": 20, "b": 1}
    if kind == "If":
        function(g, "yes", both, ("b", 1), [("AssignAddVariableOp", "set", ["a", "b"])])
        function(g, "no", both, ("b", 1), [])
        g.node("If", "y", "n", "v", "x", then_branch=("yes",), else_branch=("no",))
    else:
        three = {"i": 3, **both}
        g.const("zero", np.int32(0))
        add = [("AssignAddVariableOp", "set", ["a", "b"])]
        for name, result, nodes in (
            ("goes", ("less:z:0", 10), [("Less", "less", ["i", "n"]), *(add if kind == "condition" else [])]),
            ("trip", ("next:z:0", 3), [("AddV2", "next", ["i", "k"]), *(add if kind == "While" else [])]),
        ):
            function(g, name, {**three, "n": 3, "k": 3}, result, nodes)
            made = g.proto.library.function[-1]
            if name == "trip":
                for given in ("a", "b", "n", "k"):
                    made.signature.output_arg.add(name=f"r_{given}", type={**three, "n": 3, "k": 3}[given])
                    made.ret[f"r_{given}"] = given
            else:
                made.node_def[0].attr["T"].type = 3
        g.const("step", np.int32(1))
        g.node("While", "y", "zero", "v", "x", "n", "step", cond=("goes",), body=("trip",))
    g.node("ReadVariableOp", "after", "v", "^y", dtype=F)
    signature = meta.signature_def["serving_default"]
    for name, code in (("x", 1), ("n", 3)):
        signature.inputs[name].name, signature.inputs[name].dtype = f"{name}:0", code
    signature.outputs["after"].name = "after:0"
    meta.signature_def["__saved_model_init_op"].outputs["__saved_model_init_op"].name = "init"
    (folder / "saved_model.pb").write_bytes(model.SerializeToString())
    return folder


@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize(
    ("kind", "runs"),
    [
        ("If", [(2, 1, 3), (5, 0, 3), (4, 7, 7)]),
        ("While", [(2, 3, 7), (9, 0, 7), (1, 2, 9)]),
        ("condition", [(2, 3, 9), (9, 0, 18), (1, 2, 21)]),  # evaluated once more than the body
    ],
)
def test_variables_are_assigned_in_branches_and_loops(
    target: str, kind: str, runs: list[tuple[int, int, int]], new_graph: Any, tmp_path: Path
):
    program = mgx.parse(assigning(new_graph, tmp_path, kind))
    program.compile(mgx.get_target(target))
    for x, n, after in runs:
        (got,) = program.run({"x": np.float32(x), "n": np.int32(n)})
        assert float(np.asarray(got)) == after
    program.reset_state()
    assert float(np.asarray(program.run({"x": np.float32(9), "n": np.int32(0)})[0])) == (
        10 if kind == "condition" else 1
    )


@pytest.mark.parametrize("target", ["ref", "cpu"])
def test_parts_of_variables_are_assigned(target: str, new_graph: Any, tmp_path: Path):
    """A row at a run-time index, as in attention caches, and every second column of the last rows."""
    model = message("SavedModel")(saved_model_schema_version=1)
    meta = model.meta_graphs.add()
    meta.meta_info_def.tags.append("serve")
    g, i = new_graph(meta.graph_def), np.dtype(np.int32)
    g.node("VarHandleOp", "v", dtype=F)
    g.const("zeros", np.zeros((4, 3), np.float32))
    g.node("AssignVariableOp", "begin", "v", "zeros", dtype=F)
    g.node("NoOp", "init", "^begin")
    g.placeholder("x", F, [3])
    g.placeholder("k", i, [])
    for name, value in (("ones", [1]), ("last", [2, 0]), ("end", [4, 3]), ("steps", [1, 2]), ("axis", 0), ("one", 1)):
        g.const(name, np.int32(value))
    g.const("five", np.float32(5))
    g.node("Add", "next", "k", "one", T=i)
    g.node("ExpandDims", "from", "k", "axis", T=i)
    g.node("ExpandDims", "to", "next", "axis", T=i)
    masks = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask"), 0)
    g.node(
        "ResourceStridedSliceAssign", "row", "v", "from", "to", "ones", "x", T=F, Index=i, shrink_axis_mask=1, **masks
    )
    parts = ["v", "last", "end", "steps", "five", "^row"]
    g.node("ResourceStridedSliceAssign", "part", *parts, T=F, Index=i, shrink_axis_mask=0, **masks)
    g.node("ReadVariableOp", "after", "v", "^part", dtype=F)
    signature = meta.signature_def["serving_default"]
    for name, code in (("x", 1), ("k", 3)):
        signature.inputs[name].name, signature.inputs[name].dtype = f"{name}:0", code
    signature.inputs["x"].tensor_shape.dim.add(size=3)
    signature.outputs["after"].name = "after:0"
    meta.signature_def["__saved_model_init_op"].outputs["__saved_model_init_op"].name = "init"
    (tmp_path / "saved_model.pb").write_bytes(model.SerializeToString())
    program = mgx.parse(tmp_path)
    program.compile(mgx.get_target(target))
    x, wanted = np.float32([1, 2, 3]), np.zeros((4, 3), np.float32)
    for k in (0, 3, 1):
        wanted[k] = x * (k + 1)
        wanted[2:, ::2] = 5
        (got,) = program.run({"x": x * (k + 1), "k": np.int32(k)})
        np.testing.assert_array_equal(np.asarray(got), wanted)
