"""Parsing of serialized `tf.Example` inputs, in models exported for serving."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Instruction
from mgx_core import dtype as dt

from ..converter import converts
from ..node import Node
from ..wire.tensors import dims_of

KINDS = (dt.int64, dt.float32, dt.string)


@converts("ParseExampleV2")
def parse_example(
    n: Node,
    serialized: Instruction,
    names: Instruction,
    sparse: Instruction,
    dense: Instruction,
    ragged: Instruction,
    *defaults: Instruction,
) -> Any:
    keys = [[str(w) for w in n.require(v, "feature names").reshape(-1)] for v in (sparse, dense, ragged)]
    if serialized.shape.rank == 0 and not keys[2]:
        made = _parsed(n, n.unsqueeze(serialized, [0]), keys, defaults)
        return _single(n, made, len(keys[0]))
    made = _parsed(n, serialized, keys, defaults)
    count, dense_count = len(keys[0]), len(keys[1])
    rest = made[3 * count + dense_count :]
    splits = [n.convert(s, k) for s, k in zip(rest[1::2], n.dtypes("ragged_split_types"), strict=True)]
    return (*_by_part(made, count), *made[3 * count : 3 * count + dense_count], *rest[::2], *splits)


@converts("ParseExample")
def parse_example_v1(n: Node, serialized: Instruction, names: Instruction, *rest: Instruction) -> Any:
    count, dense = n.int("Nsparse"), n.int("Ndense")
    words = [str(n.require(v, "feature names").reshape(-1)[0]) for v in rest[: count + dense]]
    made = _parsed(n, serialized, [words[:count], words[count:], []], rest[count + dense :])
    return (*_by_part(made, count), *made[3 * count :])


@converts("ParseSingleExample")
def parse_single_example(n: Node, serialized: Instruction, *defaults: Instruction) -> Any:
    keys = [n.strings("sparse_keys"), n.strings("dense_keys"), []]
    return _single(n, _parsed(n, n.unsqueeze(serialized, [0]), keys, defaults), len(keys[0]))


def _by_part(made: Sequence[Instruction], count: int) -> list[Instruction]:
    """Returns the results in the operator's order: the indices of all sparse features, then their values, then their extents."""
    return [v for k in range(3) for v in made[k : 3 * count : 3]]


def _single(n: Node, made: Sequence[Instruction], count: int) -> Any:
    """Returns the features of a single example, without the batch axis."""
    parts = _by_part(made, count)
    indices = [n.slice(v, [1], [1], [2]) for v in parts[:count]]
    extents = [n.slice(v, [0], [1], [2]) for v in parts[2 * count :]]
    return (*indices, *parts[count : 2 * count], *extents, *(n.squeeze(v, [0]) for v in made[3 * count :]))


def _parsed(
    n: Node, serialized: Instruction, keys: Sequence[Sequence[str]], defaults: Sequence[Instruction]
) -> tuple[Instruction, ...]:
    """Returns (indices, values, extents) of each sparse feature, the dense features, and (values, splits) of the ragged ones."""
    types = [n.dtypes(w) for w in ("sparse_types", "Tdense", "ragged_value_types")]
    if any(d not in KINDS for kinds in types for d in kinds):
        n.unsupported(f"features of other types than {', '.join(map(str, KINDS))}")
    shapes = [dims_of(s) for s in n.shapes("dense_shapes")]
    if any(s is None or -1 in s for s in shapes):
        n.unsupported("dense features of unknown extents")
    if serialized.shape.rank != 1:
        n.unsupported(f"examples in a tensor of rank {serialized.shape.rank}, a vector is required")
    return n.items(
        n.add(
            "tf_parse_example",
            serialized,
            *defaults,
            sparse=keys[0],
            sparse_types=types[0],
            dense=keys[1],
            dense_types=types[1],
            dims=[d for s in shapes for d in s or ()],
            ranks=[len(s or ()) for s in shapes],
            ragged=keys[2],
            ragged_types=types[2],
        )
    )
