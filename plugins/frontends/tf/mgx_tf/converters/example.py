"""Serialized examples as inputs, which models have that were exported for serving."""

from __future__ import annotations

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
    given = [[str(w) for w in n.require(v, "names of features").reshape(-1)] for v in (sparse, dense, ragged)]
    types = [n.dtypes(w) for w in ("sparse_types", "Tdense", "ragged_value_types")]
    if any(d not in KINDS for kinds in types for d in kinds):
        n.unsupported(f"features of other types than {', '.join(map(str, KINDS))}")
    shapes = [dims_of(s) for s in n.shapes("dense_shapes")]
    if any(s is None or -1 in s for s in shapes):
        n.unsupported("dense features of unknown extents")
    if serialized.shape.rank != 1:
        n.unsupported(f"examples in a tensor of rank {serialized.shape.rank}, a vector is required")
    made = n.items(
        n.add(
            "tf_parse_example",
            serialized,
            *defaults,
            sparse=given[0],
            sparse_types=types[0],
            dense=given[1],
            dense_types=types[1],
            dims=[d for s in shapes for d in s or ()],
            ranks=[len(s or ()) for s in shapes],
            ragged=given[2],
            ragged_types=types[2],
        )
    )
    count, dense_count = len(given[0]), len(given[1])
    parts = [list(made[k : 3 * count : 3]) for k in range(3)]
    rest = made[3 * count + dense_count :]
    splits = [n.convert(s, k) for s, k in zip(rest[1::2], n.dtypes("ragged_split_types"), strict=True)]
    return (*parts[0], *parts[1], *parts[2], *made[3 * count : 3 * count + dense_count], *rest[::2], *splits)
