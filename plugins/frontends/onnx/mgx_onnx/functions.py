"""Instantiates function bodies, model-local and standard, with a call's arguments and attributes."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mgx_core import Instruction, OptionalShape, ParseError, SequenceShape, Shape
from mgx_core.records import dataclass
from mgx_core.types.shape import AnyShape

from .messages import onnx
from .node import Node
from .tensors import onnx_type

AttributeProto = onnx.AttributeProto
FunctionProto = onnx.FunctionProto
NodeProto = onnx.NodeProto

__all__ = ["Body", "expanded_nodes", "function_body", "standard_body", "type_proto"]


@dataclass
class Body:
    """A function ready to be inlined: its nodes, the caller's name for each formal input, its outputs, its opsets."""

    nodes: list[NodeProto]
    inputs: dict[str, str]
    outputs: list[str]
    opsets: Mapping[str, int]
    local: bool


def function_body(function: FunctionProto, call: NodeProto, opsets: Mapping[str, int], local: bool = True) -> Body:
    """Returns a function for one call.  Errors: ParseError for too many arguments or a missing required attribute."""
    if len(call.input) > len(function.input) or len(call.output) > len(function.output):
        raise ParseError(
            f"function {function.name!r} has {len(function.input)} inputs and {len(function.output)} outputs, "
            f"the call has {len(call.input)} and {len(call.output)}"
        )
    given = {a.name: a for a in call.attribute}
    values: dict[str, AttributeProto] = {a.name: a for a in function.attribute_proto}
    values.update({name: a for name, a in given.items() if name in values or name in function.attribute})
    names = list(call.input) + [""] * (len(function.input) - len(call.input))
    own = {o.domain if o.domain != "ai.onnx" else "": o.version for o in function.opset_import}
    nodes = [_with_attributes(n, values) for n in function.node]
    return Body(nodes, dict(zip(function.input, names, strict=True)), list(function.output), {**opsets, **own}, local)


def expanded_nodes(
    nodes: Iterable[NodeProto],
    functions: Mapping[tuple[str, str, str], FunctionProto],
    limit_nodes: int,
    limit_depth: int,
) -> int:
    """Returns the number of nodes after inlining all local functions, without expanding them.

    Errors: ParseError for more than `limit_nodes`, for calls deeper than `limit_depth`, for functions that call themselves.
    """
    counts: dict[tuple[str, str, str], int] = {}
    open_calls: set[tuple[str, str, str]] = set()

    def count(inside: Iterable[NodeProto], depth: int) -> int:
        if depth > limit_depth:
            raise ParseError(f"subgraphs and functions nest deeper than {limit_depth} (option limit_depth)")
        total = 0
        for node in inside:
            key = ("" if node.domain == "ai.onnx" else node.domain, node.op_type, node.overload)
            total += called(key, depth) if key in functions else 1
            for a in node.attribute:
                for graph in [a.g] if a.type == AttributeProto.GRAPH else a.graphs:
                    total += count(graph.node, depth + 1)
            if total > limit_nodes:
                raise ParseError(f"the model has more than {limit_nodes} nodes after inlining (option limit_nodes)")
        return total

    def called(key: tuple[str, str, str], depth: int) -> int:
        if key not in counts:
            if key in open_calls:
                raise ParseError(f"function {key[0]}::{key[1]} calls itself")
            open_calls.add(key)
            counts[key] = count(functions[key].node, depth + 1)
            open_calls.discard(key)
        return counts[key]

    return count(nodes, 0)


def _with_attributes(node: NodeProto, values: Mapping[str, AttributeProto]) -> NodeProto:
    """Returns a copy of a node with attribute references replaced by values (dropped if the caller sets none)."""
    if not any(a.ref_attr_name or a.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for a in node.attribute):
        return node
    copy = NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    for a in node.attribute:
        if a.ref_attr_name:
            if a.ref_attr_name in values:
                put = copy.attribute.add()
                put.CopyFrom(values[a.ref_attr_name])
                put.name = a.name
            continue
        put = copy.attribute.add()
        put.CopyFrom(a)
        for graph in [put.g] if put.type == AttributeProto.GRAPH else put.graphs:
            inner = [_with_attributes(n, values) for n in graph.node]
            del graph.node[:]
            graph.node.extend(inner)
    return copy


def standard_body(node: Node, domain: str, version: int, inputs: Sequence[Instruction | None]) -> Body | None:
    """Returns the standard's function body of an operator, or None."""
    try:
        schema: Any = onnx.defs.get_schema(node.op_type, version, domain)  # onnx's stubs lack its function bodies
    except onnx.defs.SchemaError:
        return None
    if not schema.has_function and not schema.has_context_dependent_function:
        return None
    importlib.import_module("onnx.defs")  # schemas need the full package to read bodies: see messages.py
    function = FunctionProto()
    if schema.has_context_dependent_function:
        types = [b"" if i is None else type_proto(i.result).SerializeToString() for i in inputs]
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= version]
        newest = max(versions) if versions else max(schema.context_dependent_function_opset_versions, default=version)
        text = schema.get_context_dependent_function_with_opset_version(newest, node.proto.SerializeToString(), types)
        if not text:
            return None
        function.ParseFromString(text)
    else:
        versions = [v for v in schema.function_opset_versions if v <= version]
        text = schema.get_function_with_opset_version(max(versions)) if versions else schema.function_body
        if isinstance(text, bytes):
            function.ParseFromString(text)
        else:
            function.CopyFrom(text)
    defaults = {a.name: a.default_value for a in schema.attributes.values() if a.default_value.type}
    call = NodeProto()
    call.CopyFrom(node.proto)
    for name, value in defaults.items():
        if not node.has(name):
            put = call.attribute.add()
            put.CopyFrom(value)
            put.name = name
    known = set(function.attribute) | {a.name for a in function.attribute_proto}
    function.attribute.extend(a.name for a in call.attribute if a.name not in known)
    return function_body(function, call, {domain: version}, local=False)


def type_proto(shape: AnyShape) -> Any:
    """Returns the ONNX type of a shape; symbolic extents are left unset."""
    out = onnx.TypeProto()
    match shape:
        case Shape():
            out.tensor_type.elem_type = onnx_type(shape.dtype)
            if shape.ranked:
                out.tensor_type.shape.SetInParent()
                for d in shape.dims:
                    put = out.tensor_type.shape.dim.add()
                    if isinstance(d, int):
                        put.dim_value = d
        case SequenceShape():
            out.sequence_type.elem_type.CopyFrom(type_proto(shape.element))
        case OptionalShape():
            out.optional_type.elem_type.CopyFrom(type_proto(shape.element))
    return out
