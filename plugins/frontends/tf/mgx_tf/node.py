"""The node that is passed to converters: attributes with defaults, and instruction builder."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from mgx_core import Instruction, Module
from mgx_core.converting.channels_last import ChannelsLastBuilder
from mgx_core.converting.known import Known
from mgx_core.types.argument import Array
from mgx_core.types.dtype import DType
from mgx_core.types.strings import decoded

from .context import Context
from .control_graph import Frame, Places
from .graph import FunctionGraph, Graph, GraphNode, Port
from .values import Value
from .wire.tensors import dims_of, dtype_of, has_dtype, tensor_array

__all__ = ["Node", "Surroundings"]

_REQUIRED: Any = object()


class Surroundings(Protocol):
    """The interface of the enclosing scope that nodes use."""

    context: Context
    graph: Graph
    module: Module
    prefix: str
    attributes: Mapping[str, Any]
    values: dict[str, Sequence[Value | None]]
    places: Places

    def absent(self) -> Instruction: ...
    def value(self, port: Port) -> Value: ...
    def within(
        self, module: Module, frame: Frame | None = None, conditions: Mapping[Port, int] | None = None
    ) -> Surroundings: ...
    def submodule(self, name: str) -> Module: ...
    def function(self, name: str) -> FunctionGraph: ...
    def call(
        self, n: Node, name: str, attributes: Mapping[str, Any], given: Sequence[Value], module: Module | None = None
    ) -> list[Value]: ...
    def call_as_read(
        self, n: Node, name: str, attributes: Mapping[str, Any], given: Sequence[Value]
    ) -> list[Value | None]: ...
    def branch(self, n: Node, name: str, build: Callable[[Module], list[Value]]) -> tuple[Module, list[Value]]: ...


class Node(ChannelsLastBuilder):
    """A TensorFlow node under conversion."""

    def __init__(self, scope: Surroundings, node: GraphNode) -> None:
        self.scope = scope
        self.node = node
        self.op_type = node.op
        self.name = node.name

    @property
    def module(self) -> Module:
        return self.scope.module

    @property
    def known(self) -> Known:
        return self.scope.context.known

    def absent(self) -> Instruction:
        return self.scope.absent()

    def sources(self) -> tuple[str, ...]:
        return (self.scope.prefix + self.name,)

    def __repr__(self) -> str:
        where = f" in {self.scope.graph.name}" if self.scope.graph.name else ""
        return f"node {self.scope.prefix + self.name!r} ({self.op_type}){where}"

    def has(self, name: str) -> bool:
        return self._attribute(name) is not None

    def _attribute(self, name: str) -> Any:
        """Returns an AttrValue, resolved in the enclosing function call if it is a placeholder; None if absent."""
        if name not in self.node.attributes:
            return None
        found = self.node.attributes[name]
        if found.WhichOneof("value") == "placeholder":
            return self.scope.attributes.get(found.placeholder)
        return found

    def _value(self, name: str, kind: str, default: Any) -> Any:
        found = self._attribute(name)
        if found is None:
            if default is _REQUIRED:
                raise self.error(f"attribute {name!r} is required")
            return None
        held = found.WhichOneof("value")
        if held != kind and (held is not None or kind != "list"):  # TensorFlow writes some empty lists as no value
            raise self.error(f"attribute {name!r} must be of kind {kind}, got {held}")
        return getattr(found, kind)

    def int(self, name: str, default: Any = _REQUIRED) -> builtins.int:
        found = self._value(name, "i", default)
        return builtins.int(default if found is None else found)

    def float(self, name: str, default: Any = _REQUIRED) -> builtins.float:
        found = self._value(name, "f", default)
        return builtins.float(default if found is None else found)

    def flag(self, name: str, default: bool = False) -> bool:
        """Returns a boolean attribute."""
        found = self._value(name, "b", default)
        return bool(default if found is None else found)

    def string(self, name: str, default: Any = _REQUIRED) -> str:
        found = self._value(name, "s", default)
        return str(default) if found is None else decoded(found)

    def ints(self, name: str, default: Sequence[builtins.int] = ()) -> list[builtins.int]:
        found = self._value(name, "list", default)
        return [builtins.int(v) for v in (default if found is None else found.i)]

    def floats(self, name: str, default: Sequence[builtins.float] = ()) -> list[builtins.float]:
        found = self._value(name, "list", default)
        return [builtins.float(v) for v in (default if found is None else found.f)]

    def strings(self, name: str) -> list[str]:
        found = self._value(name, "list", ())
        return [] if found is None else [decoded(v) for v in found.s]

    def dtype(self, name: str = "T", default: Any = _REQUIRED) -> DType:
        """Returns an element type attribute.  Errors: UnsupportedError for resources and variants."""
        found = self._value(name, "type", default)
        if found is None:
            kind: DType = default
            return kind
        return dtype_of(found)

    def has_elements(self, name: str = "T") -> bool:
        """True if a type attribute is an element type, not that of resources or variants."""
        return has_dtype(self._value(name, "type", _REQUIRED))

    def dtypes(self, name: str) -> list[DType]:
        """Returns a list of element types.  Errors: UnsupportedError for resources and variants."""
        found = self._value(name, "list", ())
        return [] if found is None else [dtype_of(code) for code in found.type]

    def shapes(self, name: str) -> list[Any]:
        """Returns a list of TensorShapeProtos."""
        found = self._value(name, "list", ())
        return [] if found is None else list(found.shape)

    def shape(self, name: str = "shape") -> list[builtins.int] | None:
        """Returns a shape attribute, -1 for unknown extents; None for an unknown rank."""
        found = self._value(name, "shape", None)
        return None if found is None else dims_of(found)

    def tensor(self, name: str = "value") -> Array:
        found = self._value(name, "tensor", _REQUIRED)
        return tensor_array(found, self.scope.context.options.limit_bytes)

    def function(self, name: str = "f") -> Any:
        """Returns a function attribute: the function's name with its own attributes."""
        return self._value(name, "func", _REQUIRED)

    def functions(self, name: str = "branches") -> list[Any]:
        return list(self._value(name, "list", _REQUIRED).func)
