"""The object graph of a SavedModel: maps captured variables that no restore function assigns to checkpoint entries.

`tf.saved_model.save` of a module that contains a Keras model stores each Keras variable as two nodes of the main graph: one that
the signatures capture, and one that the checkpoint restores.  The object graph identifies them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError

from mgx_core import ParseError
from mgx_core.types.strings import encoded

from .model import Model
from .wire.bundle import Bundle
from .wire.messages import message

__all__ = ["captured"]

TRACKED: Final = "_CHECKPOINTABLE_OBJECT_GRAPH"  # key of the checkpoint's object graph
VALUE: Final = "VARIABLE_VALUE"


def captured(model: Model, bundle: Bundle) -> Iterator[tuple[str, str]]:
    """Yields the node of each variable that a function of the main graph captures, with its checkpoint key.

    Errors: ParseError for corrupt object graphs.
    """
    if not model.objects or encoded(TRACKED) not in bundle.entries:
        return
    saved = _message("SavedObjectGraph", model.objects)
    tracked = _message("TrackableObjectGraph", encoded(str(np.asarray(bundle.read(TRACKED)).reshape(())[()])))
    keys = dict(_keys(saved.nodes, tracked.nodes))
    for node in model.graph.nodes.values():
        for name in model.functions.called(node.proto):
            bound = list(saved.concrete_functions[name].bound_inputs) if name in saved.concrete_functions else []
            for port, number in zip(node.inputs[max(0, len(node.inputs) - len(bound)) :], bound, strict=False):
                if number in keys:
                    yield model.graph.origin(port).node, keys[number]


def _keys(saved: Any, tracked: Any) -> Iterator[tuple[int, str]]:
    """Yields ids and checkpoint keys of the objects that have the same path from the root in both object graphs."""
    stack, seen = [(0, 0)], {0}
    while stack:
        here, there = stack.pop()
        if not (0 <= here < len(saved) and 0 <= there < len(tracked)):
            raise ParseError(f"the model has no object {here}, or its checkpoint no object {there}")
        for attribute in tracked[there].attributes:
            if attribute.name == VALUE:
                yield here, attribute.checkpoint_key
        children = {child.local_name: child.node_id for child in tracked[there].children}
        for child in saved[here].children:
            if child.local_name in children and child.node_id not in seen:
                seen.add(child.node_id)
                stack.append((child.node_id, children[child.local_name]))


def _message(name: str, data: bytes) -> Any:
    made = message(name)()
    try:
        made.ParseFromString(data)
    except (DecodeError, RecursionError, ValueError) as error:
        raise ParseError(f"the model's {name} is damaged: {error}") from None
    return made
