"""Parsing of serialized `tf.Example` inputs, in models exported for serving."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.types.dtype import DType

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
    keys = _keys(n, sparse, dense, ragged)
    kinds = n.dtypes("ragged_split_types")
    if serialized.shape.rank == 0:
        one = _single(n, _parsed(n, n.unsqueeze(serialized, [0]), keys, defaults), keys)
        return (*one, *(n.literal([], kind) for kind in kinds))  # a single example has no rows to split
    made = _parsed(n, serialized, keys, defaults)
    parts, values, ragged_parts = _grouped(made, keys)
    return (*_by_part(parts), *values, *ragged_parts[::2], *_converted(n, ragged_parts[1::2], kinds))


@converts("ParseExample")
def parse_example_v1(n: Node, serialized: Instruction, names: Instruction, *rest: Instruction) -> Any:
    count, dense = n.int("Nsparse"), n.int("Ndense")
    words = [str(n.require(v, "feature names").reshape(-1)[0]) for v in rest[: count + dense]]
    keys = [words[:count], words[count:], []]
    parts, values, _ = _grouped(_parsed(n, serialized, keys, rest[count + dense :]), keys)
    return (*_by_part(parts), *values)


@converts("ParseSingleExample")
def parse_single_example(n: Node, serialized: Instruction, *defaults: Instruction) -> Any:
    keys = [n.strings("sparse_keys"), n.strings("dense_keys"), []]
    return _single(n, _parsed(n, n.unsqueeze(serialized, [0]), keys, defaults), keys)


@converts("ParseSequenceExampleV2")
def parse_sequence_example(
    n: Node,
    serialized: Instruction,
    names: Instruction,
    sparse: Instruction,
    dense: Instruction,
    ragged: Instruction,
    list_sparse: Instruction,
    list_dense: Instruction,
    list_ragged: Instruction,
    optional: Instruction,
    *defaults: Instruction,
) -> Any:
    keys, lists = _keys(n, sparse, dense, ragged), _keys(n, list_sparse, list_dense, list_ragged)
    may = [bool(v) for v in n.require(optional, "the lists that may be missing").reshape(-1)]
    absent = [name for name, one in zip(lists[1], may, strict=True) if one]
    split_types = [n.dtypes(f"{w}_ragged_split_types") for w in ("context", "feature_list")]
    return _sequences(n, serialized, keys, lists, absent, defaults, split_types)


@converts("ParseSequenceExample")
def parse_sequence_example_v1(n: Node, serialized: Instruction, names: Instruction, *defaults: Instruction) -> Any:
    keys, lists = ([n.strings(f"{w}_{kind}_keys") for kind in ("sparse", "dense")] for w in ("context", "feature_list"))
    absent = n.strings("feature_list_dense_missing_assumed_empty")
    return _sequences(n, serialized, [*keys, []], [*lists, []], absent, defaults)


@converts("ParseSingleSequenceExample")
def parse_single_sequence_example(n: Node, serialized: Instruction, optional: Instruction, *rest: Instruction) -> Any:
    absent = [str(w) for w in n.require(optional, "the lists that may be missing").reshape(-1)]
    counts = [n.int(w, 0) for w in ("Ncontext_sparse", "Ncontext_dense", "Nfeature_list_sparse", "Nfeature_list_dense")]
    words = [str(n.require(v, "feature names").reshape(-1)[0]) for v in rest[: sum(counts)]]
    given = iter(words)
    keys = [[next(given) for _ in range(count)] for count in counts]
    defaults = rest[len(words) : len(words) + counts[1]]  # followed by a name for messages
    made = _sequences(n, serialized, [*keys[:2], []], [*keys[2:], []], absent, defaults)
    return (*made[: len(made) - counts[3]],)  # without the lengths


def _sequences(
    n: Node,
    serialized: Instruction,
    keys: Sequence[Sequence[str]],
    lists: Sequence[Sequence[str]],
    absent: Sequence[str],
    defaults: Sequence[Instruction],
    split_types: Sequence[Sequence[DType]] = ((), ()),
) -> Any:
    """Returns the features of the context, then the feature lists, in the operator's order.

    keys, lists: names of sparse, dense and ragged ones; absent: dense lists that may be missing.
    """
    single = serialized.shape.rank == 0
    rows = n.unsqueeze(serialized, [0]) if single else serialized
    # in the encoding, an Example is the context of a SequenceExample
    found = _parsed(n, rows, keys, defaults, "context_")
    types = [n.dtypes(f"feature_list_{w}") for w in ("sparse_types", "dense_types", "ragged_value_types")]
    shapes = _dense_shapes(n, "feature_list_dense_shapes", types)
    made = n.items(
        n.add(
            "tf_parse_feature_lists",
            rows,
            optional=absent,
            **_attributes(lists, types, shapes),
        )
    )
    at, end = 3 * len(lists[0]), 3 * len(lists[0]) + 2 * len(lists[1])
    sparse, dense, ragged = made[:at], made[at:end], made[end:]
    values, steps = [list(dense[k::2]) for k in range(2)]
    outer, inner = ([*_converted(n, ragged[k::3], split_types[1])] for k in (1, 2))
    if single:
        context = [*_single(n, found, keys), *(n.literal(0, kind) for kind in split_types[0])]
        parts = _without_rows(n, _by_part(sparse))
        values, steps = ([n.squeeze(v, [0]) for v in some] for some in (values, steps))
        outer = [n.literal(0, kind) for kind in split_types[1]]  # a single example has no rows to split
    else:
        held, plain, rest = _grouped(found, keys)
        context = [*_by_part(held), *plain, *rest[::2], *_converted(n, rest[1::2], split_types[0])]
        parts = _by_part(sparse)
    return (*context, *parts, *values, *steps, *ragged[::3], *outer, *inner)


def _keys(n: Node, *names: Instruction) -> list[list[str]]:
    return [[str(w) for w in n.require(v, "feature names").reshape(-1)] for v in names]


def _converted(n: Node, values: Sequence[Instruction], kinds: Sequence[DType]) -> list[Instruction]:
    return [n.convert(v, kind) for v, kind in zip(values, kinds, strict=True)]


def _grouped(made: Sequence[Instruction], keys: Sequence[Sequence[str]]) -> list[Sequence[Instruction]]:
    """Returns the results for sparse, dense and ragged features."""
    at, end = 3 * len(keys[0]), 3 * len(keys[0]) + len(keys[1])
    return [made[:at], made[at:end], made[end:]]


def _by_part(made: Sequence[Instruction]) -> list[Instruction]:
    """Returns the results for sparse features in the operator's order: the indices of all, their values, their extents."""
    return [v for k in range(3) for v in made[k::3]]


def _without_rows(n: Node, parts: Sequence[Instruction]) -> list[Instruction]:
    """Returns sparse features, by part, without the axis of examples."""
    count = len(parts) // 3
    indices = [n.slice(v, [1], [1], [v.shape.dims[1]]) for v in parts[:count]]
    extents = [n.slice(v, [0], [1], [v.shape.dims[0]]) for v in parts[2 * count :]]
    return [*indices, *parts[count : 2 * count], *extents]


def _single(n: Node, made: Sequence[Instruction], keys: Sequence[Sequence[str]]) -> list[Instruction]:
    """Returns the features of a single example, without the batch axis and the splits of ragged ones."""
    parts, values, ragged = _grouped(made, keys)
    return [*_without_rows(n, _by_part(parts)), *(n.squeeze(v, [0]) for v in values), *ragged[::2]]


def _parsed(
    n: Node,
    serialized: Instruction,
    keys: Sequence[Sequence[str]],
    defaults: Sequence[Instruction],
    prefix: str = "",
) -> tuple[Instruction, ...]:
    """Returns (indices, values, extents) of each sparse feature, the dense features, and (values, splits) of the ragged ones.

    prefix: of the names of attributes.
    """
    types = [n.dtypes(w) for w in (f"{prefix}sparse_types", f"T{prefix}dense", f"{prefix}ragged_value_types")]
    shapes = _dense_shapes(n, f"{prefix}dense_shapes", types)
    if serialized.shape.rank != 1:
        n.unsupported(f"examples in a tensor of rank {serialized.shape.rank}, a vector is required")
    return n.items(
        n.add(
            "tf_parse_example",
            serialized,
            *defaults,
            **_attributes(keys, types, shapes),
        )
    )


def _attributes(
    names: Sequence[Sequence[str]], types: Sequence[Sequence[DType]], shapes: Sequence[Sequence[int]]
) -> dict[str, Any]:
    """Returns the attributes of an op that describe the features of each kind; shapes: of the dense ones."""
    words = ("sparse", "dense", "ragged")
    described: dict[str, Any] = dict(zip(words, names, strict=True))
    described |= {f"{word}_types": kinds for word, kinds in zip(words, types, strict=True)}
    return described | {"dims": [d for s in shapes for d in s], "ranks": [len(s) for s in shapes]}


def _dense_shapes(n: Node, attribute: str, types: Sequence[Sequence[DType]]) -> list[list[int]]:
    """Returns the extents of dense features.  Errors: UnsupportedError for unknown ones and for features of other types."""
    if any(d not in KINDS for kinds in types for d in kinds):
        n.unsupported(f"features of other types than {', '.join(map(str, KINDS))}")
    shapes = [dims_of(s) for s in n.shapes(attribute)]
    if any(s is None or -1 in s for s in shapes):
        n.unsupported("dense features of unknown extents")
    return [s or [] for s in shapes]
