"""The node that is passed to converters: attributes, opset and instruction builder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

from mgx_core import Instruction, Module
from mgx_core.converting.builder import InstructionBuilder
from mgx_core.converting.known import Known
from mgx_core.types.dim import bounds
from mgx_core.types.shape import AnyShape

from .attribute_types import attribute_type, attribute_types
from .messages import onnx
from .options import OnnxOptions
from .tensors import DataFolder, sparse_array, tensor_array

__all__ = ["Node", "Surroundings"]

_REQUIRED: Any = object()
LOOSE = {("Cast", "to")}  # an int, or a string before opset 6


class Surroundings(Protocol):
    """The interface of the enclosing `GraphParser` that nodes use."""

    @property
    def module(self) -> Module: ...
    @property
    def options(self) -> OnnxOptions: ...
    @property
    def known(self) -> Known: ...
    @property
    def folder(self) -> DataFolder: ...
    @property
    def channel_block(self) -> int: ...
    def lookup(self, name: str) -> Instruction | None: ...
    def absent(self) -> Instruction: ...
    def sources(self, node: Node) -> tuple[str, ...]: ...
    def inline_graph(self, node: Node, graph: onnx.GraphProto) -> list[Instruction]: ...
    def subgraph(self, node: Node, graph: onnx.GraphProto, name: str, inputs: Sequence[AnyShape] = ()) -> Module: ...


class Node(InstructionBuilder):
    """An ONNX node under conversion."""

    def __init__(self, parser: Surroundings, proto: onnx.NodeProto, version: int) -> None:
        self.parser = parser
        self.proto = proto
        self.version = version
        self.op_type: str = proto.op_type
        self.domain: str = proto.domain
        self.name: str = proto.name or next((o for o in proto.output if o), "")
        self._attributes = {a.name: a for a in proto.attribute}
        self._asked: set[str] = set()
        outputs = list(proto.output)
        while outputs and not outputs[-1]:
            outputs.pop()
        self.outputs = len(outputs)

    @property
    def module(self) -> Module:
        return self.parser.module

    @property
    def known(self) -> Known:
        return self.parser.known

    def absent(self) -> Instruction:
        return self.parser.absent()

    def sources(self) -> tuple[str, ...]:
        return self.parser.sources(self)

    def __repr__(self) -> str:
        domain = f"{self.domain}::" if self.domain else ""
        return f"node {self.name!r} ({domain}{self.op_type}, opset {self.version})"

    def output_used(self, index: int) -> bool:
        """Returns True if output `index` has a name."""
        return index < self.outputs and bool(self.proto.output[index])

    def has(self, name: str) -> bool:
        self._asked.add(name)
        return name in self._attributes

    def without_effect(self) -> list[str]:
        """Returns the attributes that the converter did not read and the standard does not define."""
        left = self._attributes.keys() - self._asked
        return sorted(left - attribute_types(self.op_type, self.version, self._standard_domain).keys()) if left else []

    @property
    def _standard_domain(self) -> str:
        return "" if self.domain == "ai.onnx" else self.domain

    def attr(self, name: str, default: Any = _REQUIRED) -> Any:
        """Returns an attribute's value: int, float, str, list of these, array (tensors), GraphProto; `default` if it is absent.

        Errors: ParseError if it is malformed, or absent without a default.
        """
        self._asked.add(name)
        a = self._attributes.get(name)
        if a is None:
            if default is _REQUIRED:
                raise self.error(f"attribute {name!r} is required")
            return default
        kind = onnx.AttributeProto
        if a.type and (self.op_type, name) not in LOOSE:
            wanted = attribute_type(self.op_type, self.version, self._standard_domain, name, a.type)
            if wanted is not None and wanted != a.type:
                return self._coerced(a, wanted)
        match a.type:
            case kind.FLOAT:
                return a.f
            case kind.INT:
                return a.i
            case kind.STRING:
                return self._decoded(a.s, name)
            case kind.TENSOR:
                return tensor_array(a.t, self.parser.folder, self.parser.options.limit_bytes)
            case kind.SPARSE_TENSOR:
                return sparse_array(a.sparse_tensor, self.parser.folder, self.parser.options.limit_bytes)
            case kind.GRAPH:
                return a.g
            case kind.TYPE_PROTO:
                return a.tp
            case kind.FLOATS:
                return list(a.floats)
            case kind.INTS:
                return list(a.ints)
            case kind.STRINGS:
                return [self._decoded(s, name) for s in a.strings]
            case kind.TENSORS:
                limit = self.parser.options.limit_bytes
                return [tensor_array(t, self.parser.folder, limit) for t in a.tensors]
            case kind.GRAPHS:
                return list(a.graphs)
        return self._untyped(a, default)

    def _coerced(self, a: onnx.AttributeProto, wanted: int) -> Any:
        """Converts between numeric types, and one-element lists and numbers, which exporters mix up."""
        kind = onnx.AttributeProto
        one, many = (kind.FLOAT, kind.INT), (kind.FLOATS, kind.INTS)
        numbers = (*one, *many)
        if a.type not in numbers or wanted not in numbers:
            if {a.type, wanted} == {kind.STRING, kind.STRINGS}:
                words = [self._decoded(w, a.name) for w in (a.strings or [a.s])]
                if wanted == kind.STRINGS or len(words) == 1:
                    return words if wanted == kind.STRINGS else words[0]
            names = kind.AttributeType
            got = names.Name(a.type) if a.type in names.values() else a.type
            raise self.error(f"attribute {a.name!r} must be of type {names.Name(wanted)}, got {got}")
        values: list[Any] = [a.f if a.type == kind.FLOAT else a.i] if a.type in one else list(a.floats or a.ints)
        if wanted in (kind.INT, kind.INTS):
            if not all(math.isfinite(v) and float(v).is_integer() for v in values):
                raise self.error(f"attribute {a.name!r} must contain integers, got {values}")
            values = [int(v) for v in values]
        else:
            values = [float(v) for v in values]
        if wanted in many:
            return values
        if len(values) != 1:
            raise self.error(f"attribute {a.name!r} must be one number, got {values}")
        return values[0]

    def _untyped(self, a: onnx.AttributeProto, default: Any) -> Any:
        """Returns the only non-empty field of an attribute without type, as old exporters write it."""
        for field in ("f", "i", "s", "t", "g"):
            if a.HasField(field):
                value = getattr(a, field)
                return self._decoded(value, a.name) if field == "s" else value
        for field in ("floats", "ints", "strings"):
            if getattr(a, field):
                return list(getattr(a, field))
        if default is _REQUIRED:
            raise self.error(f"attribute {a.name!r} has no value")
        return default

    def _decoded(self, data: bytes, name: str) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise self.error(f"attribute {name!r} is not UTF-8") from None

    def largest(self, x: Instruction) -> Instruction:
        """Returns a result with data-dependent extents, zero-padded to their maximum if `use_dyn_output` is off."""
        if self.parser.options.use_dyn_output or not x.shape.dynamic():
            return x
        return self.add("fixed_pad", x, output_lens=tuple(bounds(d)[1] for d in x.shape.dims))

    def parse_subgraph(self, graph: onnx.GraphProto, name: str, inputs: Sequence[Any] = ()) -> Module:
        """Returns a sub-graph as a module whose parameters have the shapes `inputs`."""
        return self.parser.subgraph(self, graph, name, inputs)
