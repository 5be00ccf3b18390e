"""Mutations of models: of their bytes, and of their contents."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, TensorProto

__all__ = ["damaged", "mutated"]

INTS = [
    0,
    1,
    -1,
    2,
    3,
    7,
    -2,
    64,
    255,
    1 << 16,
    -(1 << 31),
    (1 << 31) - 1,
    1 << 31,
    1 << 40,
    (1 << 62),
    -(1 << 63),
    (1 << 63) - 1,
]
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, 3.4e38, float("inf"), float("-inf"), float("nan"), 2.5]
WORDS = ["", "x", "y", "nearest", "linear", "cubic", "SAME_UPPER", "VALID", "reverse", "bidirectional", "ij->ji", "...i,...i->...", "%s%n", "\x00", "é", "a" * 5000, "../x"]  # fmt: skip
DOMAINS = ["", "ai.onnx", "ai.onnx.ml", "com.microsoft", "own", "nowhere", "ai.onnx.preview.training"]


def damaged(data: bytes, rng: random.Random, other: bytes) -> bytes:
    """Returns the bytes with a few of them changed."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at = rng.randrange(len(out) + 1)
        span = rng.choice((1, 2, 4, 8, 32, 200))
        match rng.randrange(8):
            case 0 if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(out):
                out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 2:
                del out[at : at + span]
            case 3:
                out[at:at] = out[at : at + span]
            case 4:
                out[at:at] = rng.randbytes(span)
            case 5:
                start = rng.randrange(len(other) + 1)
                out[at : at + span] = other[start : start + span]
            case 6:
                out[at:at] = b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"[-rng.randrange(1, 10) :]
            case _:
                if rng.random() < 0.2:
                    del out[at:]
    return bytes(out)


def mutated(data: bytes, rng: random.Random, others: Sequence[bytes]) -> bytes:
    """Returns a mutant of a model."""
    other = rng.choice(others)
    if rng.random() < 0.25:
        return damaged(data, rng, other)
    model, donor = onnx.ModelProto(), onnx.ModelProto()
    try:
        model.ParseFromString(data)
        donor.ParseFromString(other)
    except DecodeError:
        return damaged(data, rng, other)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 6))):
        try:
            rng.choice(CHANGES)(model, rng, donor)
        except (AttributeError, IndexError, ValueError, TypeError):  # nothing to change there
            continue
    out: bytes = model.SerializeToString()
    return damaged(out, rng, other) if rng.random() < 0.05 else out


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for a in node.attribute:
            if a.type == AttributeProto.GRAPH:
                yield from graphs(a.g)


def a_graph(model: onnx.ModelProto, rng: random.Random) -> Any:
    return rng.choice([*graphs(model.graph), *model.functions])


def a_node(model: onnx.ModelProto, rng: random.Random) -> onnx.NodeProto:
    return rng.choice(a_graph(model, rng).node)


def names(graph: Any) -> list[str]:
    found = [o for n in graph.node for o in (*n.output, *n.input)]
    if isinstance(graph, onnx.GraphProto):
        found += [i.name for i in graph.input] + [i.name for i in graph.initializer]
    return [*found, "", "nobody"]


def change_op(model: Any, rng: random.Random, donor: Any) -> None:
    node = a_node(model, rng)
    if rng.random() < 0.5:
        node.op_type = rng.choice(OPS)
    else:
        node.op_type = a_node(donor, rng).op_type


def change_domain(model: Any, rng: random.Random, donor: Any) -> None:
    a_node(model, rng).domain = rng.choice(DOMAINS)


def change_opset(model: Any, rng: random.Random, donor: Any) -> None:
    rng.choice(model.opset_import).version = rng.choice([*range(1, 29), 0, -1, 1000, 1 << 40])


def change_inputs(model: Any, rng: random.Random, donor: Any) -> None:
    graph = a_graph(model, rng)
    node = rng.choice(graph.node)
    at = rng.randrange(len(node.input) + 1)
    match rng.randrange(4):
        case 0:
            node.input.insert(at, rng.choice(names(graph)))
        case 1:
            del node.input[at]
        case 2:
            node.input[at] = rng.choice(names(graph))
        case _:
            kept = list(node.input)
            rng.shuffle(kept)
            node.input[:] = kept


def change_outputs(model: Any, rng: random.Random, donor: Any) -> None:
    graph = a_graph(model, rng)
    node = rng.choice(graph.node)
    match rng.randrange(4):
        case 0:
            node.output.append(rng.choice(["extra", *names(graph)]))
        case 1:
            del node.output[rng.randrange(len(node.output))]
        case 2:
            node.output[rng.randrange(len(node.output))] = rng.choice(names(graph))
        case _:
            graph.output.add().name = rng.choice(names(graph))


def change_nodes(model: Any, rng: random.Random, donor: Any) -> None:
    graph = a_graph(model, rng)
    at = rng.randrange(len(graph.node))
    match rng.randrange(4):
        case 0:
            del graph.node[at]
        case 1:
            graph.node.add().CopyFrom(graph.node[at])
        case 2:
            graph.node.add().CopyFrom(a_node(donor, rng))
        case _:
            kept = [n for n in graph.node]  # noqa: C416
            rng.shuffle(kept)
            copies = onnx.GraphProto(node=kept).node
            del graph.node[:]
            graph.node.extend(copies)


def change_attribute(model: Any, rng: random.Random, donor: Any) -> None:
    node = a_node(model, rng)
    match rng.randrange(10):
        case 0:
            del node.attribute[rng.randrange(len(node.attribute))]
        case 1:
            node.attribute.add().CopyFrom(rng.choice(a_node(donor, rng).attribute))
        case 2:
            node.attribute.add().CopyFrom(onnx.helper.make_attribute(rng.choice(ATTRIBUTES), rng.choice(INTS)))
        case 3:
            rng.choice(node.attribute).type = rng.randrange(15)
        case 4:
            rng.choice(node.attribute).name = rng.choice(ATTRIBUTES)
        case _:
            change_value(rng.choice(node.attribute), rng)


def change_value(a: AttributeProto, rng: random.Random) -> None:
    match a.type:
        case AttributeProto.INT:
            a.i = rng.choice(INTS)
        case AttributeProto.FLOAT:
            a.f = rng.choice(FLOATS)
        case AttributeProto.STRING:
            a.s = rng.choice([*(w.encode() for w in WORDS), b"\xff\xfe"])
        case AttributeProto.TENSOR:
            change_tensor(a.t, rng)
        case AttributeProto.INTS:
            change_list(a.ints, rng, INTS)
        case AttributeProto.FLOATS:
            change_list(a.floats, rng, FLOATS)
        case AttributeProto.STRINGS:
            change_list(a.strings, rng, [w.encode() for w in WORDS])
        case AttributeProto.GRAPH:
            change_list(a.g.output if rng.random() < 0.5 else a.g.input, rng, [])


def change_list(values: Any, rng: random.Random, choices: list[Any]) -> None:
    kind = rng.randrange(4)
    if kind == 0 and choices:
        values.append(rng.choice(choices))
    elif kind == 1 and values:
        del values[rng.randrange(len(values))]
    elif kind == 2 and values and choices:
        values[rng.randrange(len(values))] = rng.choice(choices)
    elif choices and rng.random() < 0.3:
        del values[:]
        values.extend(rng.choices(choices, k=rng.randrange(6)))


def change_tensor(tensor: TensorProto, rng: random.Random) -> None:
    match rng.randrange(6):
        case 0:
            change_list(tensor.dims, rng, INTS)
        case 1:
            tensor.data_type = rng.randrange(28)
        case 2:
            tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data) + 1)]
        case 3 if tensor.raw_data:
            data = bytearray(tensor.raw_data)
            data[rng.randrange(len(data))] = rng.choice((0, 0x7F, 0x80, 0xFF))
            tensor.raw_data = bytes(data)
        case 4 if tensor.data_type == TensorProto.INT64:
            count = len(tensor.raw_data) // 8
            tensor.raw_data = b"".join((rng.choice(INTS) & ((1 << 64) - 1)).to_bytes(8, "little") for _ in range(count))
        case _:
            tensor.external_data.add(key=rng.choice(("location", "offset", "length")), value=rng.choice(WORDS))
            tensor.data_location = rng.choice((0, 1))


def change_weight(model: Any, rng: random.Random, donor: Any) -> None:
    change_tensor(rng.choice(model.graph.initializer), rng)


def change_initializers(model: Any, rng: random.Random, donor: Any) -> None:
    at = rng.randrange(len(model.graph.initializer))
    tensor = model.graph.initializer[at]
    match rng.randrange(3):
        case 0:
            info = onnx.helper.make_tensor_value_info(
                tensor.name, tensor.data_type or 1, list(tensor.dims) if rng.random() < 0.6 else None
            )
            model.graph.input.add().CopyFrom(info)
            del model.graph.initializer[at]
        case 1:
            sparse = model.graph.sparse_initializer.add()
            sparse.values.CopyFrom(tensor)
            sparse.dims.extend(rng.choices(INTS, k=2))
            del model.graph.initializer[at]
        case _:
            tensor.name = rng.choice(names(model.graph))


def change_type(model: Any, rng: random.Random, donor: Any) -> None:
    info = rng.choice([i for g in graphs(model.graph) for i in g.input])
    tensor = info.type.tensor_type
    match rng.randrange(6):
        case 0:
            tensor.elem_type = rng.randrange(28)
        case 1:
            tensor.ClearField("shape")
        case 2:
            rng.choice(tensor.shape.dim).dim_value = rng.choice(INTS)
        case 3:
            rng.choice(tensor.shape.dim).dim_param = rng.choice(["n", "n + 1", "m", "1", "", "*"])
        case 4:
            tensor.shape.dim.add().dim_value = rng.choice((1, 2, 0))
        case _:
            inner = onnx.TypeProto()
            inner.CopyFrom(info.type)
            kind = rng.choice((info.type.sequence_type, info.type.optional_type))
            kind.elem_type.CopyFrom(inner)


def wrap(model: Any, rng: random.Random, donor: Any) -> None:
    """Wraps the whole graph in an If or Loop."""
    inner = onnx.GraphProto()
    inner.CopyFrom(model.graph)
    model.graph.node.add().CopyFrom(
        onnx.helper.make_node(
            rng.choice(("If", "Loop", "Scan", "SequenceMap")),
            names(model.graph)[:2],
            ["wrapped"],
            **{rng.choice(("body", "then_branch")): inner},
        )
    )


def change_function(model: Any, rng: random.Random, donor: Any) -> None:
    function = model.functions.add()
    function.name, function.domain = rng.choice(OPS), rng.choice(DOMAINS)
    node = a_node(model, rng)
    function.node.add().CopyFrom(node)
    function.input.extend(node.input)
    function.output.extend(node.output)
    if rng.random() < 0.5:
        node.op_type, node.domain = function.name, function.domain


CHANGES: list[Callable[[Any, random.Random, Any], None]] = [
    change_op, change_op, change_domain, change_opset, change_inputs, change_inputs, change_outputs, change_nodes, change_attribute,
    change_attribute, change_attribute, change_attribute, change_weight, change_weight, change_initializers, change_type, change_type,
    wrap, change_function,
]  # fmt: skip
OPS = sorted({s.name for s in onnx.defs.get_all_schemas()})
ATTRIBUTES = sorted({a for s in onnx.defs.get_all_schemas() for a in s.attributes})
