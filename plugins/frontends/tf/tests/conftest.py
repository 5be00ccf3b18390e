"""Graphs built by hand, node by node, from TensorFlow's messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_tf.wire.messages import message
from mgx_tf.wire.tensors import DTYPES

CODES = {np.dtype(dtype.numpy): code for code, dtype in reversed(DTYPES.items()) if dtype.kind != "s"}
CODES[np.dtype(object)] = 7


class GraphBuilder:
    """Builds a graph from nodes; `data` is the serialized graph."""

    def __init__(self, proto: Any = None) -> None:
        self.proto = message("GraphDef")() if proto is None else proto

    def node(self, op: str, name: str, *inputs: str, **attributes: Any) -> str:
        made = self.proto.node.add(name=name, op=op, input=list(inputs))
        for key, value in attributes.items():
            fill(made.attr[key], value)
        return name

    def placeholder(self, name: str, dtype: Any, dims: list[int] | None) -> str:
        self.node("Placeholder", name)
        attr = self.proto.node[-1].attr
        attr["dtype"].type = CODES[np.dtype(dtype)]
        if dims is None:
            attr["shape"].shape.unknown_rank = True
        else:
            attr["shape"].shape.SetInParent()
            for d in dims:
                attr["shape"].shape.dim.add(size=d)
        return name

    def const(self, name: str, value: Any, dtype: Any = None) -> str:
        self.node("Const", name)
        attr = self.proto.node[-1].attr
        array = np.asarray(value, dtype)
        attr["dtype"].type = CODES[array.dtype]
        attr["value"].tensor.CopyFrom(tensor(array))
        return name

    @property
    def data(self) -> bytes:
        return bytes(self.proto.SerializeToString())


def tensor(array: np.ndarray) -> Any:
    made = message("TensorProto")(dtype=CODES[array.dtype])
    made.tensor_shape.SetInParent()
    for d in array.shape:
        made.tensor_shape.dim.add(size=d)
    if array.dtype == object:
        made.string_val.extend(str(w).encode() for w in array.reshape(-1))
    else:
        made.tensor_content = np.ascontiguousarray(array).tobytes()
    return made


def fill(attr: Any, value: Any) -> None:
    match value:
        case bool():
            attr.b = value
        case int():
            attr.i = value
        case float():
            attr.f = value
        case str():
            attr.s = value.encode()
        case np.dtype() | type():
            attr.type = CODES[np.dtype(value)]
        case list():
            attr.list.SetInParent()
            for v in value:
                match v:
                    case int():
                        attr.list.i.append(v)
                    case str():
                        attr.list.s.append(v.encode())
                    case list():
                        made = attr.list.shape.add()
                        for d in v:
                            made.dim.add(size=d)
                    case _:
                        attr.list.type.append(CODES[np.dtype(v)])
        case tuple():  # a function's name
            attr.func.name = value[0]


@pytest.fixture
def new_graph() -> type[GraphBuilder]:
    """Returns the class for building graphs."""
    return GraphBuilder
