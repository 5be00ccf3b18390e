"""Deferred nodes, which are converted at run time because the rank of an input is not known earlier.

A deferred node keeps its ONNX form; at run time, when every rank is known, it is converted like any other node and evaluated.
Programs whose ranks are all known never contain one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from mgx_core import (
    Instruction,
    MgxError,
    Module,
    OpSet,
    OptionalShape,
    SequenceShape,
    Shape,
    ShapeError,
    TupleShape,
    UnrankedError,
    define_op,
)
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Value, shape_of
from mgx_core.types.dim import symbol
from mgx_core.types.shape import AnyShape

from .functions import type_proto
from .messages import onnx
from .model_parser import parse_proto
from .node import Node
from .node_order import names_read
from .options import OnnxOptions
from .parser import GraphParser
from .tensors import dtype_of, shape_of_type

__all__ = ["OPS", "Deferred", "defer"]

TRIED: Final = (2, 1, 3, 4, 0)  # operand ranks tried to infer the result element types, which do not depend on ranks
# operators whose result has the extents of their first input, whatever the ranks of the others are
LIKE_FIRST: Final = frozenset({"Clip", "CumSum", "Scatter", "ScatterElements", "ScatterND", "TensorScatter", "Trilu"})


@define_op("onnx.deferred")
class Deferred(Operation):
    """One ONNX node that is converted at run time.

    xs: the node's inputs, including values captured by subgraphs -> tuple of its outputs, of the types in `results`.
    model: a model with this one node, and the functions it may call.
    """

    model: bytes
    results: tuple[AnyShape, ...]

    def infer(self, *xs: AnyShape) -> TupleShape:
        node = _node(self.model)
        if node.op_type in LIKE_FIRST and not node.domain:
            first = xs[[i.name for i in _parsed(self.model).graph.input].index(node.input[0])]
            if isinstance(first, Shape) and first.ranked:
                return TupleShape([first.as_standard(), *self.results[1:]])
        return TupleShape(self.results)

    def compute(self, *xs: Value) -> tuple[Value, ...]:
        shapes = tuple(_actual(declared, x) for declared, x in zip(_declared(self.model), xs, strict=True))
        try:
            module, args = _module(self.model, shapes), list(xs)
        except UnrankedError:
            # the result's rank also depends on the values of small operands
            module, taken = _module_for_values(self.model, shapes, xs)
            args = [xs[n] for n in taken]
        results = tuple(Interpreter().run(module, args))
        for n, (promised, result) in enumerate(zip(self.results, results, strict=False)):
            if isinstance(promised, Shape) and isinstance(result, np.ndarray):
                found = shape_of(result)
                if not isinstance(found, Shape) or found.dtype is not promised.dtype:
                    raise ShapeError(f"output {n} is {found}, but {promised} was inferred from its operands' types")
        return results

    def module_for(self, shapes: Sequence[AnyShape], values: Sequence[Value | None]) -> tuple[Module, list[int]] | None:
        """Returns the node as a module for operands of these shapes, and the operands that it uses; see `Operation`."""
        known = tuple(s.as_standard() if isinstance(s, Shape) else s for s in shapes)
        try:
            return _module_for_values(self.model, known, values)
        except MgxError:
            return None  # reported at run time, unless the values resolve it

    def __repr__(self) -> str:
        return f"onnx.deferred[{_node(self.model).op_type}]"


OPS = OpSet.of(Deferred)


@lru_cache(maxsize=256)
def _parsed(data: bytes) -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.ParseFromString(data)
    return model


def _node(data: bytes) -> onnx.NodeProto:
    node: onnx.NodeProto = _parsed(data).graph.node[0]
    return node


def _declared(data: bytes) -> list[AnyShape]:
    return [shape_of_type(i.type, lambda t: None) for i in _parsed(data).graph.input]


def _actual(declared: AnyShape, value: Value) -> AnyShape:
    """Returns the type of a value; the declared one for an empty sequence or an absent optional."""
    if value is None:
        return declared
    if isinstance(value, list):
        if not value or not isinstance(declared, (SequenceShape, OptionalShape)):
            return declared
        inner = declared.element if isinstance(declared, SequenceShape) else declared.element.element  # type: ignore[union-attr]
        found = shape_of(value)
        return found if isinstance(found, SequenceShape) else SequenceShape(inner)
    if isinstance(declared, OptionalShape):
        return OptionalShape(shape_of(np.ascontiguousarray(value)))
    return shape_of(value).as_standard() if isinstance(value, np.ndarray) else declared  # type: ignore[union-attr]


def _typed(data: bytes, shapes: tuple[AnyShape, ...]) -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.CopyFrom(_parsed(data))
    for info, shape in zip(model.graph.input, shapes, strict=True):
        info.type.CopyFrom(type_proto(shape))
    return model


@lru_cache(maxsize=1024)
def _module(data: bytes, shapes: tuple[AnyShape, ...]) -> Any:
    return parse_proto(_typed(data, shapes), OnnxOptions()).get_main_module()


def _module_for_values(
    data: bytes, shapes: tuple[AnyShape, ...], values: Sequence[Value | None]
) -> tuple[Module, list[int]]:
    """Returns the node's module with small operands as constants, and the positions of the remaining operands."""
    model = _typed(data, shapes)
    left = []
    for n, (info, x) in enumerate(zip(model.graph.input, values, strict=True)):
        if isinstance(x, np.ndarray) and x.size <= 4096 and x.dtype.kind in "iub":
            model.graph.initializer.append(
                onnx.numpy_helper.from_array(np.ascontiguousarray(x).reshape(x.shape), info.name)
            )
        else:
            left.append(n)
    return parse_proto(model, OnnxOptions()).get_main_module(), left


def defer(parser: GraphParser, node: Node, error: MgxError) -> tuple[Instruction, ...]:
    """Returns the node as a deferred instruction; raises `error` if its results' element types are unknown as well."""
    model = onnx.ModelProto(ir_version=10)
    names: dict[str, Instruction] = {}
    for name in names_read(node.proto):
        found = parser.find(name)
        if found is not None and not found.is_absent:
            names[name] = found
    put = model.graph.node.add()
    put.CopyFrom(node.proto)
    for position, name in enumerate(put.input):
        if name and name not in names:
            put.input[position] = ""
    if put.domain == "ai.onnx":
        put.domain = ""
    for name, ins in names.items():
        info = model.graph.input.add()
        info.name = name
        info.type.CopyFrom(type_proto(ins.result))
    for n in range(node.outputs):
        if not put.output[n]:
            put.output[n] = f"unused_output_{n}"
        model.graph.output.add().name = put.output[n]
    for domain, version in parser.opsets.items():
        model.opset_import.append(onnx.helper.make_opsetid(domain, version))
    model.functions.extend(parser.context.functions.values())
    results = _result_types(parser, node, model, error)
    op = Deferred(model=model.SerializeToString(deterministic=True), results=results)
    made = parser.module.add(op, *names.values(), sources=parser.sources(node))
    return tuple(node.get(made, n) for n in range(node.outputs))


def _result_types(parser: GraphParser, node: Node, model: onnx.ModelProto, error: MgxError) -> tuple[AnyShape, ...]:
    domain = "" if node.domain in ("", "ai.onnx") else node.domain
    try:
        schema = onnx.defs.get_schema(node.op_type, node.version, domain)
    except onnx.defs.SchemaError:
        return _types_by_trial(model, error)
    bound: dict[str, AnyShape] = {}
    formals = list(schema.inputs)
    if (not formals and node.proto.input) or (not schema.outputs and node.outputs):
        raise error from None
    for position, name in enumerate(node.proto.input):
        formal = formals[min(position, len(formals) - 1)]
        found = parser.find(name) if name else None
        if found is not None and not found.is_absent:
            kind = _open(found.result)
            if bound.setdefault(formal.type_str, kind) != kind and formal.is_homogeneous:
                raise error from None  # several types are possible, which only the converter resolves
    out = []
    for position in range(node.outputs):
        formal = schema.outputs[min(position, len(schema.outputs) - 1)]
        out.append(_result_type(node, schema, formal.type_str, bound, error))
    return tuple(out)


def _types_by_trial(model: onnx.ModelProto, error: MgxError) -> tuple[AnyShape, ...]:
    """Infers result types of an operator without schema by trial conversion at some rank; ranks are then dropped."""
    data = model.SerializeToString(deterministic=True)
    for rank in TRIED:
        shapes = [_of_rank(s, rank, f"tried_{n}") for n, s in enumerate(_declared(data))]
        try:
            program = parse_proto(_typed(data, tuple(shapes)), OnnxOptions())
        except MgxError:
            continue  # the operator may require another rank
        return tuple(_open(s) for s in program.get_output_shapes())
    raise error from None


def _of_rank(shape: AnyShape, rank: int, name: str) -> AnyShape:
    """Returns a tensor's type with symbolic extents of a rank, if its own rank is unknown."""
    if not isinstance(shape, Shape) or shape.ranked:
        return shape
    return Shape(shape.dtype, [symbol(f"{name}_{axis}") for axis in range(rank)])


def _result_type(node: Node, schema: Any, word: str, bound: dict[str, AnyShape], error: MgxError) -> AnyShape:
    if node.op_type in ("Cast", "EyeLike", "RandomNormalLike", "RandomUniformLike", "Bernoulli"):
        code = node.attr("to" if node.op_type == "Cast" else "dtype", 0)
        if code:
            return Shape.unranked(dtype_of(int(code)))
    if node.op_type == "ConstantOfShape":
        value = node.attr("value", np.zeros(1, np.float32))
        return Shape.unranked(shape_of(value).dtype)  # type: ignore[union-attr]
    if word in bound:
        return bound[word]
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}.get(word, ())
    if len(allowed) == 1:
        (word,) = allowed
    if word.startswith("tensor("):
        from mgx_core import dtype as dt

        return Shape.unranked(dt.of(word[7:-1]))
    if node.op_type in ("SequenceAt", "ConcatFromSequence", "OptionalGetElement"):
        for shape in bound.values():
            if isinstance(shape, (SequenceShape, OptionalShape)):
                return _open(shape.element)
    if node.op_type in ("SplitToSequence", "SequenceConstruct"):
        return SequenceShape(next(iter(bound.values())))
    if len(bound) == 1:
        (only,) = bound.values()
        if not allowed or not isinstance(only, Shape) or f"tensor({_onnx_word(only)})" in allowed:
            return only
    raise error


def _onnx_word(shape: Shape) -> str:
    """Returns the element type's name in ONNX's type strings."""
    return {"float32": "float", "float64": "double"}.get(shape.dtype.name, shape.dtype.name)


def _open(shape: AnyShape) -> AnyShape:
    """Returns the same type without ranks."""
    match shape:
        case Shape():
            return Shape.unranked(shape.dtype)
        case SequenceShape():
            return SequenceShape(_open(shape.element))
        case OptionalShape():
            return OptionalShape(_open(shape.element))
    return shape
