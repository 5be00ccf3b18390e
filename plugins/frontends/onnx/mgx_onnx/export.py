"""Exports programs as ONNX models for viewers: instructions become nodes of the domain ``mgx``, modules graph attributes.

No runtime implements these operators, so the models can only be viewed. Programs of any stage can be exported.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper

from mgx_core import Instruction, Launch, Module, OptionalShape, Program, SequenceShape, Shape, TupleShape, __version__
from mgx_core.ops.control import GetTupleElem, If
from mgx_core.targets.kernel import op_of

from .tensors import ONNX_TYPES

__all__ = ["DOMAIN", "SMALL", "exported", "write_model"]

DOMAIN: Final = "mgx"
SMALL: Final = 1024  # maximum bytes of a constant whose values are written


def exported(program: Program, small: int = SMALL) -> onnx.ModelProto:
    """Returns a program, parsed or optimized, as an ONNX model.

    small: constants of more bytes are written without their values, as type and extents only.
    """
    graph = _Exporter(small).graph(program.shown, program.graph.main.name, program.get_output_names())
    opsets = [helper.make_opsetid(DOMAIN, 1), helper.make_opsetid("", 18)]
    model = helper.make_model(
        graph, opset_imports=opsets, ir_version=10, producer_name="mgx", producer_version=__version__
    )
    if program.executable is not None:
        helper.set_model_props(model, {"target": program.executable.target.name})
    return model


def write_model(program: Program, path: str | os.PathLike[str], small: int = SMALL) -> None:
    """Writes `exported` to a file."""
    onnx.save_model(exported(program, small), os.fspath(path))


class _Exporter:
    """Writes graphs, with value names that are unique in the whole model."""

    def __init__(self, small: int) -> None:
        self.small = small
        self.names: dict[Instruction, str] = {}
        self.parts: dict[Instruction, list[str]] = {}
        self.taken: set[str] = {""}

    def graph(self, module: Module, name: str, outputs: Sequence[str] = ()) -> onnx.GraphProto:
        graph = onnx.GraphProto(name=name)
        for label, ins in module.parameters.items():
            self.names[ins] = self._unique(label)
            graph.input.append(value_info(self.names[ins], ins.result))
        for ins in module:
            if ins.literal is not None:
                self.names[ins] = self._unique("constant")
                self._constant(graph, ins)
            elif ins.is_absent:
                self.names[ins] = ""
            elif not (ins.is_param or ins.is_return):
                self._node(graph, ins)
        for n, out in enumerate(module.outputs):
            graph.output.append(
                value_info(self._output(graph, out, outputs[n] if n < len(outputs) else ""), out.result)
            )
        return graph

    def _output(self, graph: onnx.GraphProto, ins: Instruction, wanted: str) -> str:
        """Returns the name of a result; adds an identity if the value has another name."""
        name = self._value(ins)
        made_here = any(name in node.output for node in graph.node)
        if made_here and (not wanted or wanted == name) and all(o.name != name for o in graph.output):
            return name
        result = self._unique(wanted or f"{name}_result")
        graph.node.append(helper.make_node("identity", [name], [result], domain=DOMAIN))
        return result

    def _unique(self, wanted: str) -> str:
        name, n = wanted or "value", 1
        while name in self.taken:
            n += 1
            name = f"{wanted or 'value'}_{n}"
        self.taken.add(name)
        return name

    def _value(self, ins: Instruction) -> str:
        if ins not in self.names and ins in self.parts:  # a tuple that is used as a whole
            return self.parts[ins][0] if self.parts[ins] else ""
        return self.names.get(ins, "")

    def _constant(self, graph: onnx.GraphProto, ins: Instruction) -> None:
        assert ins.literal is not None
        value, shape, name = ins.literal.value, ins.result, self.names[ins]
        if not isinstance(value, np.ndarray) or not isinstance(shape, Shape) or shape.dtype not in ONNX_TYPES:
            graph.node.append(helper.make_node("literal", [], [name], domain=DOMAIN, type=str(shape)))
            return
        tensor = TensorProto(name=name, dims=value.shape, data_type=ONNX_TYPES[shape.dtype])
        if shape.dtype.kind == "s":
            tensor.string_data.extend(str(v).encode() for v in value.flat[: self.small // 8])
        elif value.nbytes <= self.small and shape.dtype.bits >= 8:
            tensor.raw_data = np.ascontiguousarray(value).tobytes()
        graph.initializer.append(tensor)

    def _node(self, graph: onnx.GraphProto, ins: Instruction) -> None:
        op = op_of(ins)
        if isinstance(op, GetTupleElem) and ins.inputs and ins.inputs[0] in self.parts:
            self.names[ins] = self.parts[ins.inputs[0]][op.index]
            return
        stem = ins.sources[0] if ins.sources else op.name
        items = ins.result.items if isinstance(ins.result, TupleShape) else None
        if items is None:
            outputs = [self._unique(stem)]
            self.names[ins] = outputs[0]
            graph.value_info.append(value_info(outputs[0], ins.result))
        else:
            outputs = self.parts[ins] = [self._unique(f"{stem}_{n}") for n in range(len(items))]
            graph.value_info.extend(value_info(o, s) for o, s in zip(outputs, items, strict=True))
        node = onnx.NodeProto(
            op_type=op.name,
            domain=DOMAIN,
            name=outputs[0] if outputs else stem,
            output=outputs,
            input=[self._value(i) for i in ins.inputs],
        )
        for field in op.fields:
            made = attribute(field.name, getattr(op, field.name))
            if made is not None:
                node.attribute.append(made)
        if isinstance(ins.op, Launch):
            for key, text in (("kernel", ins.op.kernel.name), ("plan", ins.op.plan), ("place", ins.op.place)):
                node.attribute.append(helper.make_attribute(f"launch_{key}", text))
        for n, inner in enumerate(ins.modules):
            body = self.graph(inner, inner.name)
            name = (
                ("then_branch", "else_branch")[n] if isinstance(op, If) and n < 2 else "body" if n == 0 else f"body_{n}"
            )
            node.attribute.append(helper.make_attribute(name, body))
        node.doc_string = "from " + ", ".join(ins.sources) if ins.sources else ""
        graph.node.append(node)


def attribute(name: str, value: Any) -> onnx.AttributeProto | None:
    """Returns an op's attribute, as text if ONNX has no type for it; None if it is not set."""
    if value is None:
        return None
    if isinstance(value, (bool, int)):
        return helper.make_attribute(name, int(value))
    if isinstance(value, (float, str, bytes)):
        return helper.make_attribute(name, value)
    if isinstance(value, tuple):
        if not value:
            return helper.make_attribute(name, [], attr_type=onnx.AttributeProto.INTS)
        for kind in (int, float, str):
            if all(isinstance(v, kind) for v in value):
                return helper.make_attribute(name, [kind(v) for v in value])
        return helper.make_attribute(name, json.dumps(value, default=str))
    return helper.make_attribute(name, str(value))


def value_info(name: str, shape: Any) -> onnx.ValueInfoProto:
    """Returns a value's type, left empty if ONNX cannot express it."""
    info = onnx.ValueInfoProto(name=name)
    made = type_of(shape)
    if made is not None:
        info.type.CopyFrom(made)
    return info


def type_of(shape: Any) -> onnx.TypeProto | None:
    if isinstance(shape, Shape) and shape.dtype in ONNX_TYPES:
        dims = [d if isinstance(d, int) else str(d) for d in shape.dims] if shape.ranked else None
        return helper.make_tensor_type_proto(ONNX_TYPES[shape.dtype], dims)
    if isinstance(shape, (SequenceShape, OptionalShape)):
        inner = type_of(shape.element)
        if inner is not None:
            wrap = (
                helper.make_sequence_type_proto if isinstance(shape, SequenceShape) else helper.make_optional_type_proto
            )
            return wrap(inner)
    return None
