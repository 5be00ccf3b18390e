"""Variables that a run changes and the next run sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_tf.wire.messages import message

F = np.dtype(np.float32)


def saved(new_graph: Any, folder: Path) -> Path:
    """A SavedModel that adds its input to a variable, which begins as 1; it returns what the variable was and what it is."""
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
    g.node("AssignAddVariableOp", "more", "v", "x", "^before", dtype=F)
    g.node("ReadVariableOp", "after", "v", "^more", dtype=F)
    signature = meta.signature_def["serving_default"]
    signature.inputs["x"].name, signature.inputs["x"].dtype = "x:0", 1
    for name in ("before", "after"):
        signature.outputs[name].name = f"{name}:0"
    meta.signature_def["__saved_model_init_op"].outputs["__saved_model_init_op"].name = "init"
    (folder / "saved_model.pb").write_bytes(model.SerializeToString())
    return folder


@pytest.mark.parametrize("target", ["ref", "cpu"])
def test_the_next_run_sees_what_was_assigned(target: str, new_graph: Any, tmp_path: Path):
    program = mgx.parse(saved(new_graph, tmp_path))
    program.compile(mgx.get_target(target))
    assert program.get_parameter_names() == ["x"] and program.get_output_names() == ["after", "before"]
    for x, before, after in ((2, 1, 3), (5, 3, 8)):
        got = [float(np.asarray(r)) for r in program.run({"x": np.float32(x)})]
        assert got == [after, before]
    program.reset_state()
    assert float(np.asarray(program.run({"x": np.float32(0)})[1])) == 1


def test_an_assignment_in_a_branch_is_refused(new_graph: Any):
    g = new_graph()
    g.node("VarHandleOp", "v", dtype=F)
    g.placeholder("x", F, [])
    g.placeholder("c", np.dtype(bool), [])
    for name in ("yes", "no"):
        made = g.proto.library.function.add()
        made.signature.name = name
        for given, kind in (("a", 20), ("b", 1)):
            made.signature.input_arg.add(name=given, type=kind)
        made.signature.output_arg.add(name="r", type=1)
        made.node_def.add(name="set", op="AssignVariableOp", input=["a", "b"])
        made.ret["r"] = "b"
        made.control_ret["set"] = "set"
    g.node("If", "y", "c", "v", "x", then_branch=("yes",), else_branch=("no",))
    with pytest.raises(mgx.UnsupportedError, match="inside a loop or a branch"):
        mgx.parse_buffer(g.data, "tf", output_names=["y"])
