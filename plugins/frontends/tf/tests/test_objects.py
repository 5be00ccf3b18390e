"""Checkpoint entries that no restore function assigns: variables known only to the object graph, and tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_tf.graph import Functions, Graph
from mgx_tf.model import Model
from mgx_tf.objects import captured
from mgx_tf.wire.bundle import Bundle
from mgx_tf.wire.messages import message


class Checkpoint(Bundle):
    """A checkpoint with only an object graph: the root's `net`, whose `kernel` is a variable."""

    def __init__(self) -> None:
        tracked = message("TrackableObjectGraph")()
        for _ in range(3):
            tracked.nodes.add()
        tracked.nodes[0].children.add(node_id=2, local_name="net")
        tracked.nodes[2].children.add(node_id=1, local_name="kernel")
        tracked.nodes[1].attributes.add(name="VARIABLE_VALUE", checkpoint_key="net/kernel/.ATTRIBUTES/VARIABLE_VALUE")
        self.entries = {b"_CHECKPOINTABLE_OBJECT_GRAPH": b""}
        self.text = tracked.SerializeToString().decode("utf-8", "surrogateescape")

    def read(self, key: str) -> np.ndarray:
        return np.array(self.text, object)


def model(new_graph: Any, *children: tuple[int, int, str]) -> Model:
    """Returns a model whose function captures objects 4 and 3; children: parent, child and name in its object graph."""
    g = new_graph()
    g.placeholder("x", np.float32, [2])
    for name in ("other", "net/kernel"):
        g.node("VarHandleOp", name)
    g.node("StatefulPartitionedCall", "call", "x", "other", "net/kernel", f=("wrapper",))
    function = g.proto.library.function.add()
    function.signature.name = "wrapper"
    saved = message("SavedObjectGraph")()
    for _ in range(5):
        saved.nodes.add()
    for parent, child, name in children:
        saved.nodes[parent].children.add(node_id=child, local_name=name)
    saved.concrete_functions["wrapper"].bound_inputs.extend([4, 3])
    functions = Functions(g.proto.library.function)
    return Model(Graph(list(g.proto.node), functions.signatures), functions, objects=saved.SerializeToString())


def test_captured_variables_are_found_by_the_names_of_objects(new_graph: Any):
    found = model(new_graph, (0, 1, "net"), (1, 3, "kernel"), (0, 4, "untracked"))
    assert list(captured(found, Checkpoint())) == [("net/kernel", "net/kernel/.ATTRIBUTES/VARIABLE_VALUE")]


def test_objects_that_are_not_there_are_refused(new_graph: Any):
    with pytest.raises(mgx.ParseError, match="no object 9"):
        list(captured(model(new_graph, (0, 9, "net")), Checkpoint()))


def test_a_damaged_graph_of_objects_is_refused(new_graph: Any):
    found = model(new_graph)
    found.objects = b"\xff\xff"
    with pytest.raises(mgx.ParseError, match="SavedObjectGraph is damaged"):
        list(captured(found, Checkpoint()))


class TwoTables:
    """A checkpoint with two keys."""

    def __init__(self, prefix: object) -> None:
        self.arrays = {"t-keys": np.array([2, 4], np.int64), "t-values": np.array([[20.0], [40.0]], np.float32)}

    def read(self, key: str) -> np.ndarray:
        return self.arrays[key]


def restoring(new_graph: Any, folder: Path, extents: list[int]) -> Path:
    """Returns a SavedModel that looks up a table stored in its checkpoint; extents: those of a value."""
    saved = message("SavedModel")(saved_model_schema_version=1)
    meta = saved.meta_graphs.add()
    meta.meta_info_def.tags.append("serve")
    g = new_graph(meta.graph_def)
    g.node("MutableDenseHashTableV2", "table", key_dtype=np.dtype(np.int64), value_dtype=np.dtype(np.float32))
    shape = g.proto.node[-1].attr["value_shape"].shape
    shape.SetInParent()
    for extent in extents:
        shape.dim.add(size=extent)
    g.placeholder("x", np.int64, [-1])
    g.const("other", np.full(extents, -1, np.float32))
    g.node("LookupTableFindV2", "y", "table", "x", "other", Tin=np.dtype(np.int64), Tout=np.dtype(np.float32))
    g.node("StatefulPartitionedCall", "restore", "table", f=("restoring",))
    function = g.proto.library.function.add()
    function.signature.name = "restoring"
    function.signature.input_arg.add(name="handle", type=20)
    for name, value in (("names", ["t-keys", "t-values"]), ("parts", ["", ""]), ("prefix", "")):
        body = new_graph()
        body.const(name, np.array(value, object))
        function.node_def.add().CopyFrom(body.proto.node[0])
    function.node_def.add(name="read", op="RestoreV2", input=["prefix:output:0", "names:output:0", "parts:output:0"])
    given = ["handle", "read:tensors:0", "read:tensors:1"]
    function.node_def.add(name="fill", op="LookupTableImportV2", input=given)
    meta.saver_def.restore_op_name = "restore"
    signature = meta.signature_def["serving_default"]
    signature.inputs["x"].name, signature.inputs["x"].dtype = "x:0", 9
    signature.inputs["x"].tensor_shape.dim.add(size=-1)
    signature.outputs["y"].name = "y:0"
    (folder / "saved_model.pb").write_bytes(saved.SerializeToString())
    return folder


@pytest.mark.parametrize("extents", [[], [1]])
def test_a_table_that_can_change_is_read_from_the_checkpoint(
    extents: list[int], new_graph: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Scalar values are also stored as rows of one element."""
    monkeypatch.setattr("mgx_tf.resources.Bundle", TwoTables)
    program = mgx.parse(restoring(new_graph, tmp_path, extents))
    program.compile(mgx.get_target("ref"))
    found = np.asarray(program.run({"x": np.int64([4, 3, 2])})[0])
    np.testing.assert_array_equal(found, np.float32([40, -1, 20]).reshape(3, *extents))


class PairsOfKeys(TwoTables):
    """A checkpoint of a table whose keys are rows of two."""

    def __init__(self, prefix: object) -> None:
        super().__init__(prefix)
        self.arrays["t-keys"] = np.array([[2, 4], [6, 8]], np.int64)


def test_a_table_with_rows_as_keys_is_rejected(new_graph: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mgx_tf.resources.Bundle", PairsOfKeys)
    with pytest.raises(mgx.UnsupportedError, match=r"'table' has keys of extents \[2\]: keys must be scalars"):
        mgx.parse(restoring(new_graph, tmp_path, []))


def with_inserts(new_graph: Any, folder: Path, op: str, *, at_first: bool) -> Path:
    """Returns a SavedModel whose table contains 2 and 4, and gets 4 and 6 by an op of its initialization, or of each run."""
    saved = message("SavedModel")(saved_model_schema_version=1)
    meta = saved.meta_graphs.add()
    meta.meta_info_def.tags.append("serve")
    g, kinds = new_graph(meta.graph_def), {"Tin": np.dtype(np.int64), "Tout": np.dtype(np.float32)}
    g.node("MutableHashTableV2", "table", key_dtype=np.dtype(np.int64), value_dtype=np.dtype(np.float32))
    given = g.const("keys", np.int64([2, 4])), g.const("values", np.float32([20, 40]))
    g.node("LookupTableImportV2", "fill", "table", *given, **kinds)
    more = [g.const("more keys", np.int64([4, 6])), g.const("more values", np.float32([44, 66]))]
    g.node(op, "change", "table", *more[: 1 if "Remove" in op else 2], "^fill", **kinds)
    g.node("NoOp", "init", "^change" if at_first else "^fill")
    g.placeholder("x", np.int64, [-1])
    controls = [] if at_first else ["^change"]
    g.node("LookupTableFindV2", "y", "table", "x", g.const("other", np.float32(-1)), *controls, **kinds)
    meta.signature_def["__saved_model_init_op"].outputs["__saved_model_init_op"].name = "init"
    signature = meta.signature_def["serving_default"]
    signature.inputs["x"].name, signature.inputs["x"].dtype = "x:0", 9
    signature.inputs["x"].tensor_shape.dim.add(size=-1)
    signature.outputs["y"].name = "y:0"
    (folder / "saved_model.pb").write_bytes(saved.SerializeToString())
    return folder


def test_insertions_of_an_initializer_keep_the_other_keys(new_graph: Any, tmp_path: Path):
    program = mgx.parse(with_inserts(new_graph, tmp_path, "LookupTableInsertV2", at_first=True))
    program.compile(mgx.get_target("ref"))
    assert np.asarray(program.run({"x": np.int64([2, 4, 6, 8])})[0]).tolist() == [20, 44, 66, -1]


@pytest.mark.parametrize("op", ["LookupTableInsertV2", "LookupTableRemoveV2"])
def test_tables_that_a_run_changes_are_refused(op: str, new_graph: Any, tmp_path: Path):
    with pytest.raises(mgx.UnsupportedError, match=f"node 'change' \\({op}\\)"):
        mgx.parse(with_inserts(new_graph, tmp_path, op, at_first=False))
