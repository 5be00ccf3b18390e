"""Mutations of TensorFlow and TFLite models: of bytes, and of graphs, functions, variables and FlatBuffer tables."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from mgx_tf.wire.messages import message

__all__ = ["damaged"]

NUMBERS = (
    -(1 << 63),
    -(1 << 31),
    -2,
    -1,
    0,
    1,
    2,
    3,
    7,
    64,
    255,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    1 << 40,
    (1 << 63) - 1,
)
TYPES = (*range(1, 24), 101, 0, 29)


def damaged(files: dict[str, bytes], rng: random.Random) -> dict[str, bytes]:
    """Returns the files of a model, name to bytes, with one to six changes."""
    out = dict(files)
    for _ in range(rng.randint(1, 6)):
        name = rng.choice(sorted(out))
        graph = name.endswith(".pb") and rng.random() < 0.75
        try:
            out[name] = _said(name, out[name], rng) if graph else _bytes(out[name], rng)
        except Exception:  # it no longer parses as messages, or a value does not fit its field: change bytes
            out[name] = _bytes(out[name], rng)
    return out


def _bytes(data: bytes, rng: random.Random) -> bytes:
    made = bytearray(data)
    if not made:
        return data
    match rng.randrange(5):
        case 0:
            return bytes(made[: rng.randrange(len(made))])
        case 1:
            at, size = rng.randrange(len(made)), rng.choice((2, 4, 8))
            word = rng.choice(NUMBERS) & ((1 << 8 * size) - 1)
            made[at : at + size] = word.to_bytes(size, "little")
        case 2:
            at = rng.randrange(len(made))
            del made[at : at + rng.randint(1, 16)]
        case 3:
            at, other = rng.randrange(len(made)), rng.randrange(len(made))
            made[at:at] = made[other : other + rng.randint(1, 32)]
        case _:
            for _ in range(rng.randint(1, 4)):
                made[rng.randrange(len(made))] = rng.randrange(256)
    return bytes(made)


def _said(name: str, data: bytes, rng: random.Random) -> bytes:
    saved = Path(name).name == "saved_model.pb"
    made = message("SavedModel" if saved else "GraphDef")()
    made.ParseFromString(data)
    graph = rng.choice(made.meta_graphs).graph_def if saved else made
    lists = [graph.node, *(f.node_def for f in graph.library.function)]
    nodes = rng.choice([found for found in lists if len(found)])
    if rng.random() < 0.1 and saved:
        _signature(rng.choice(made.meta_graphs), rng)
    elif rng.random() < 0.1 and len(graph.library.function):
        _function(rng.choice(graph.library.function), graph, rng)
    else:
        _node(rng.choice(nodes), nodes, rng)
    return bytes(made.SerializeToString())


def _signature(meta: Any, rng: random.Random) -> None:
    signature = meta.signature_def[rng.choice(sorted(meta.signature_def))]
    infos = [*signature.inputs.values(), *signature.outputs.values()]
    info = rng.choice(infos)
    match rng.randrange(3):
        case 0:
            info.dtype = rng.choice(TYPES)
        case 1:
            _extents(info.tensor_shape, rng)
        case _:
            info.name = rng.choice([rng.choice(meta.graph_def.node).name, f"{info.name}9", ""])


def _function(function: Any, graph: Any, rng: random.Random) -> None:
    match rng.randrange(3):
        case 0:
            key = rng.choice(sorted(function.ret) or [""])
            function.ret[key] = f"{rng.choice(function.node_def).name}:output:{rng.choice((0, 1, 99))}"
        case 1:
            function.signature.name = rng.choice(graph.library.function).signature.name
        case _:
            del function.signature.input_arg[:1]


def _node(node: Any, nodes: Any, rng: random.Random) -> None:
    other = rng.choice(nodes)
    match rng.randrange(8):
        case 0:
            node.op = other.op
        case 1 if node.input:
            node.input[rng.randrange(len(node.input))] = rng.choice(
                [other.name, f"{other.name}:1", f"^{other.name}", "", "?"]
            )
        case 2:
            node.input.append(other.name)
        case 3 if node.input:
            del node.input[rng.randrange(len(node.input))]
        case 4:
            nodes.add().CopyFrom(other)
        case 5 if node.attr:
            del node.attr[rng.choice(sorted(node.attr))]
        case _:
            if node.attr:
                _attribute(node.attr[rng.choice(sorted(node.attr))], other, rng)


def _attribute(value: Any, other: Any, rng: random.Random) -> None:
    if rng.random() < 0.15 and other.attr:
        value.CopyFrom(other.attr[rng.choice(sorted(other.attr))])
        return
    match value.WhichOneof("value"):
        case "i":
            value.i = rng.choice(NUMBERS)
        case "f":
            value.f = rng.choice((0.0, -1.0, 1e30, float("nan"), float("inf")))
        case "b":
            value.b = not value.b
        case "type":
            value.type = rng.choice(TYPES)
        case "s":
            value.s = rng.choice((b"", b"SAME", b"VALID", b"NCHW", b"\xff\xfe", b"(a|a)*b", b"a" * 4000))
        case "shape":
            _extents(value.shape, rng)
        case "tensor":
            _tensor(value.tensor, rng)
        case "list":
            ints = value.list.i
            if ints and rng.random() < 0.7:
                ints[rng.randrange(len(ints))] = rng.choice(NUMBERS)
            elif ints:
                del ints[:1]
            else:
                value.list.i.append(rng.choice(NUMBERS))
        case "func":
            value.func.name = rng.choice((f"{value.func.name}x", other.name, ""))
        case _:
            value.i = rng.choice(NUMBERS)


def _extents(shape: Any, rng: random.Random) -> None:
    if shape.dim and rng.random() < 0.7:
        rng.choice(shape.dim).size = rng.choice(NUMBERS)
    elif rng.random() < 0.3:
        shape.unknown_rank = not shape.unknown_rank
    else:
        shape.dim.add(size=rng.choice(NUMBERS))


def _tensor(tensor: Any, rng: random.Random) -> None:
    match rng.randrange(4):
        case 0:
            _extents(tensor.tensor_shape, rng)
        case 1:
            tensor.dtype = rng.choice(TYPES)
        case 2:
            tensor.tensor_content = _bytes(tensor.tensor_content or b"\0" * 8, rng)
        case _:
            tensor.int_val.append(rng.choice((-1, 0, 1, 1 << 30)))
