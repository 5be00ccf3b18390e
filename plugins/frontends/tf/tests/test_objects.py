"""Variables that only the graph of Python objects ties to the checkpoint, as where a tf.Module that holds a Keras model is saved."""

from __future__ import annotations

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
    """A checkpoint that holds nothing but its graph of objects: the root's `net`, whose `kernel` is a variable."""

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
    """A model whose function captures objects 4 and 3; children: parent, child and name in its graph of objects."""
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
    with pytest.raises(mgx.ParseError, match="lack number 9"):
        list(captured(model(new_graph, (0, 9, "net")), Checkpoint()))


def test_a_damaged_graph_of_objects_is_refused(new_graph: Any):
    found = model(new_graph)
    found.objects = b"\xff\xff"
    with pytest.raises(mgx.ParseError, match="SavedObjectGraph is damaged"):
        list(captured(found, Checkpoint()))
