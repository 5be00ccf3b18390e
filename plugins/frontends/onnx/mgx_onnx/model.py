"""Reads model files: a validated ModelProto, opsets, local functions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field

from google.protobuf.message import DecodeError

from mgx_core import ParseError, UnsupportedError
from mgx_core.records import dataclass
from mgx_core.sources import mistaken, unreadable
from mgx_core.types.argument import Array
from mgx_core.types.mapped import map_file

from .messages import onnx
from .weights import split_weights

__all__ = ["Model", "NEWEST_OPSET", "functions_of", "opsets_of", "read_model", "read_model_bytes"]

NEWEST_OPSET = 28
# see `mgx_core.sources`
MISTAKEN = (
    (4, b"ORTM", "is in onnxruntime's own format, which only onnxruntime reads: use the .onnx file it was made from"),
    (0, b"ir_version:", "is a model as text: save it with onnx.save(onnx.load(path, format='textproto'), path)"),
)


@dataclass
class Model:
    """A model and the raw data of its large initializers by position, as views of the file."""

    proto: onnx.ModelProto
    weights: dict[int, Array] = field(default_factory=dict)


def read_model(path: str | os.PathLike[str]) -> Model:
    """Parses a model file.  Errors: ParseError if the file is missing, truncated or not a model."""
    try:
        text, weights = split_weights(map_file(path).bytes)
    except OSError as error:
        raise unreadable(path, error) from None
    try:
        return Model(read_model_bytes(text), weights)
    except ParseError as error:
        raise error.located(f"file {os.fspath(path)!r}") from None


def read_model_bytes(data: bytes) -> onnx.ModelProto:
    """Parses a model from bytes.  Errors: ParseError if they are not a model."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(bytes(data))
    except (DecodeError, RecursionError, ValueError) as error:
        raise ParseError(
            f"not an ONNX model{mistaken(data, MISTAKEN) or f' (damaged or truncated): {error}'}"
        ) from None
    if not model.HasField("graph"):
        raise ParseError(f"not an ONNX model{mistaken(data, MISTAKEN) or ': it has no graph'}")
    _check_names(model)
    return model


def _check_names(model: onnx.ModelProto) -> None:
    """Errors: ParseError if a name is not UTF-8 (protobuf returns such strings as bytes)."""
    graphs: list[onnx.GraphProto] = [model.graph]
    nodes: list[onnx.NodeProto] = [n for f in model.functions for n in f.node]
    words: list[object] = [w for o in model.opset_import for w in (o.domain,)]
    for f in model.functions:
        words += [f.name, f.domain, *f.input, *f.output, *f.attribute, *(o.domain for o in f.opset_import)]
    while graphs or nodes:
        while graphs:
            graph = graphs.pop()
            nodes.extend(graph.node)
            words.append(graph.name)
            for info in (*graph.input, *graph.output):
                words.append(info.name)
                words += _extents_named(info.type)
            words += [t.name for t in graph.initializer] + [s.values.name for s in graph.sparse_initializer]
        while nodes:
            node = nodes.pop()
            words += [node.name, node.op_type, node.domain, node.overload, *node.input, *node.output]
            for a in node.attribute:
                words += [a.name, a.ref_attr_name]
                if a.HasField("g"):
                    graphs.append(a.g)
                graphs.extend(a.graphs)
    if {str}.issuperset(map(type, words)):
        return
    for word in words:
        if not isinstance(word, str):
            raise ParseError(f"damaged model: the name {word!r} is not UTF-8")


def _extents_named(given: onnx.TypeProto) -> list[object]:
    """Returns the symbolic dimension names in a type, including those of sequence and optional elements."""
    words: list[object] = []
    while True:
        words += [d.dim_param for t in (given.tensor_type, given.sparse_tensor_type) for d in t.shape.dim]
        if given.HasField("sequence_type"):
            given = given.sequence_type.elem_type
        elif given.HasField("optional_type"):
            given = given.optional_type.elem_type
        elif given.HasField("map_type"):
            given = given.map_type.value_type
        else:
            return words


def opsets_of(model: onnx.ModelProto) -> Mapping[str, int]:
    """Returns opset versions by domain, the default domain as ``""``.

    Errors: ParseError if one domain is imported in two versions; UnsupportedError for opsets newer than this frontend knows.
    """
    found: dict[str, int] = {}
    for entry in model.opset_import:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if found.setdefault(domain, entry.version) != entry.version:
            raise ParseError(f"opset {domain or 'ai.onnx'} is imported as both {found[domain]} and {entry.version}")
    if not model.opset_import:
        found[""] = 1
    version = found.get("", 1)
    if version > NEWEST_OPSET:
        raise UnsupportedError(
            f"the model needs opset {version} of ai.onnx; this frontend supports 1 to {NEWEST_OPSET}"
        )
    if version < 1:
        raise ParseError(f"opset {version} of ai.onnx does not exist")
    return found


def functions_of(model: onnx.ModelProto) -> dict[tuple[str, str, str], onnx.FunctionProto]:
    """Returns the local functions by domain, name and overload.  Errors: ParseError if two share all three."""
    found: dict[tuple[str, str, str], onnx.FunctionProto] = {}
    for function in model.functions:
        domain = "" if function.domain == "ai.onnx" else function.domain
        key = (domain, function.name, getattr(function, "overload", ""))
        if key in found:
            raise ParseError(f"several local functions are named {domain}::{function.name}")
        found[key] = function
    return found
