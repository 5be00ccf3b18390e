"""The object graph of a SavedModel, which maps captured variables without a restore function to checkpoint entries.

A variable that Keras made stands twice in the main graph when `tf.saved_model.save` writes a module that holds a Keras model: as
what the signatures capture, and as what the checkpoint restores.  The object graph says that both are one.
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

TRACKED: Final = "_CHECKPOINTABLE_OBJECT_GRAPH"  # the checkpoint's own graph of objects
VALUE: Final = "VARIABLE_VALUE"


def captured(model: Model, bundle: Bundle) -> Iterator[tuple[str, str]]:
    """Yields the node of each variable that a function of the main graph captures, and its key in the checkpoint.

    Errors: ParseError for damaged graphs of objects.
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
    """Yields numbers and keys of the objects that two graphs reach from the root by the same names."""
    stack, seen = [(0, 0)], {0}
    while stack:
        here, there = stack.pop()
        if not (0 <= here < len(saved) and 0 <= there < len(tracked)):
            raise ParseError(f"the objects of the model lack number {here}, or those of its checkpoint number {there}")
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
