"""Feature crosses of dense, sparse and ragged columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.types.dim import product

from ..converter import converts
from ..node import Node


@converts("SparseCross")
def cross(n: Node, *xs: Instruction) -> Any:
    columns, count = _columns(n, xs)
    if n.flag("hashed_output"):
        return _sparse(n, _hashes(n, count, columns))
    return _sparse(n, _words(n, count, columns, "_X_"))


@converts("SparseCrossV2")
def cross_v2(n: Node, *xs: Instruction) -> Any:
    columns, count = _columns(n, xs[:-1])
    return _sparse(n, _words(n, count, columns, str(n.require(xs[-1], "the separator").reshape(-1)[0])))


@converts("SparseCrossHashed")
def cross_hashed(n: Node, *xs: Instruction) -> Any:
    columns, count = _columns(n, xs[:-3])
    buckets, strong, salt = (n.require(v, "the hash's parameters").reshape(-1) for v in xs[-3:])
    key = [int(v) for v in salt] if bool(strong[0]) else []  # fingerprints have no salt
    hashed = range(len(columns) if key else n.int("N", 0))
    given = _operands(n, count, columns)
    return _sparse(n, n.items(n.add("tf_cross", *given, buckets=int(buckets[0]), hashed=tuple(hashed), key=tuple(key))))


@converts("RaggedCross")
def ragged_cross(n: Node, *xs: Instruction) -> Any:
    sizes = [len(n.dtypes(name)) for name in ("ragged_values_types", "ragged_splits_types", "sparse_values_types")]
    values, splits, rest = xs[: sizes[0]], xs[sizes[0] : sum(sizes[:2])], xs[sum(sizes[:2]) :]
    given, count = _columns(n, rest, sizes[2])
    sparse, dense = iter(given[: sizes[2]]), iter(given[sizes[2] :])
    ragged: list[tuple[Instruction, Instruction]] = []
    for value, split in zip(values, splits, strict=True):
        places, extents = n.items(n.add("tf_ragged_places", n.convert(split, dt.int64)))
        ragged.append((_value(n, value), n.squeeze(n.slice(places, [1], [0], [1]), [1])))
        count = n.slice(extents, [0], [0], [1]) if count is None else count
    order = {"R": iter(ragged), "S": sparse, "D": dense}
    columns = [next(order[kind]) for kind in n.string("input_order")]
    if n.flag("hashed_output"):
        found = _hashes(n, count, columns)
    else:
        found = _words(n, count, columns, "_X_")
    return found[0], n.convert(found[1], n.dtype("out_row_splits_type"))


def _columns(
    n: Node, xs: Sequence[Instruction], sparse: int | None = None
) -> tuple[list[tuple[Instruction, Instruction]], Instruction | None]:
    """Returns the values of sparse and dense columns with their rows, and the number of rows.

    xs: indices of the sparse columns, values, extents, then dense columns; sparse: the number of sparse columns.
    """
    wide = n.int("N", 0) if sparse is None else sparse
    indices, values, shapes, dense = xs[:wide], xs[wide : 2 * wide], xs[2 * wide : 3 * wide], xs[3 * wide :]
    columns = [
        (_value(n, x), n.squeeze(n.slice(at, [1], [0], [1]), [1])) for at, x in zip(indices, values, strict=True)
    ]
    for x in dense:
        rows = n.add("prefix_scan_sum", n.broadcast_to(n.literal(1, dt.int64), x.shape.dims), axis=0, exclusive=True)
        flat = (product(x.shape.dims),)
        columns.append((n.reshape(_value(n, x), flat), n.reshape(rows, flat)))
    if shapes:
        return columns, n.slice(shapes[0], [0], [0], [1])
    return columns, n.add("dimensions_of", dense[0], start=0, end=1) if dense else None


def _value(n: Node, x: Instruction) -> Instruction:
    return x if x.shape.dtype is dt.string else n.convert(x, dt.int64)


def _operands(
    n: Node, count: Instruction | None, columns: Sequence[tuple[Instruction, Instruction]]
) -> list[Instruction]:
    if count is None:
        n.fail("a cross of at least one column is required")
    return [count, *(v for pair in columns for v in pair)]


def _hashes(
    n: Node, count: Instruction | None, columns: Sequence[tuple[Instruction, Instruction]]
) -> tuple[Instruction, ...]:
    given = _operands(n, count, columns)
    return n.items(n.add("tf_cross", *given, buckets=n.int("num_buckets", 0), start=(n.int("hash_key"),)))


def _words(
    n: Node, count: Instruction | None, columns: Sequence[tuple[Instruction, Instruction]], separator: str
) -> tuple[Instruction, ...]:
    return n.items(n.add("tf_cross_words", *_operands(n, count, columns), separator=separator))


def _sparse(n: Node, found: Sequence[Instruction]) -> Any:
    """Returns crosses as a sparse tensor."""
    values, splits = found
    places, extents = n.items(n.add("tf_ragged_places", splits))
    return places, values, extents
