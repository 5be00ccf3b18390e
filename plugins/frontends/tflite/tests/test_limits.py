"""Files that reference the same bytes many times, and sparse constants with inconsistent metadata."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_tflite.model import read_model
from mgx_tflite.sparse import dense


def nested(subgraphs: int, tensors: int, name: bytes = b"") -> bytes:
    """Returns a model in which all subgraph offsets refer to one subgraph, and all tensor offsets to one tensor with a name."""
    data = bytearray(struct.pack("<I", 8) + b"TFL3")

    def table(fields: list[int]) -> int:
        """Adds a table of four-byte fields; returns its position."""
        places = struct.pack(
            f"<HH{len(fields)}H", 4 + 2 * len(fields), 4 + 4 * len(fields), *range(4, 4 + 4 * len(fields), 4)
        )
        data.extend(places)
        at = len(data)
        data.extend(struct.pack(f"<i{len(fields)}I", len(places), *fields))
        return at

    def point(at: int, to: int) -> None:
        struct.pack_into("<I", data, at, to - at)

    def vector(count: int) -> int:
        at = len(data)
        data.extend(struct.pack("<I", count) + bytes(4 * count))
        return at

    root = table([3, 0, 0])  # version, operator codes, subgraphs
    struct.pack_into("<I", data, 0, root)
    point(root + 8, vector(0))
    graphs = vector(subgraphs)
    point(root + 12, graphs)
    graph = table([0])
    for k in range(subgraphs):
        point(graphs + 4 + 4 * k, graph)
    held = vector(tensors)
    point(graph + 4, held)
    one = table([0, 0, 0, 0])  # shape, type, buffer, name
    for k in range(tensors):
        point(held + 4 + 4 * k, one)
    point(one + 4, vector(0))
    struct.pack_into("<II", data, one + 8, 13, 0)
    point(one + 16, len(data))
    data.extend(struct.pack("<I", len(name)) + name)
    return bytes(data)


def test_records_that_are_named_again_and_again_are_refused():
    with pytest.raises(mgx.ParseError, match="Tensors in addition to the records read so far exceed a file"):
        read_model(nested(500, 500), 1 << 30)
    with pytest.raises(mgx.ParseError, match="referenced too often"):
        read_model(nested(1, 1000, b"n" * 20000), 1 << 30)


class Level:
    """One level of a sparse constant: dense, or with segments and indices."""

    def __init__(self, size: int = 0, segments: Any = None, indices: Any = None) -> None:
        self.size, self.parts = size, {"ArraySegments": segments, "ArrayIndices": indices}

    def Format(self) -> int:
        return int(self.parts["ArraySegments"] is not None)

    def DenseSize(self) -> int:
        return self.size

    def ArraySegmentsType(self) -> int:
        return 1

    ArrayIndicesType = ArraySegmentsType

    def union(self, name: str, kind: str) -> Any:
        return type("Vector", (), {"ValuesAsNumpy": lambda _: np.array(self.parts[name], np.int32)})()


class Sparsity:
    def __init__(self, *levels: Level) -> None:
        self.levels = levels

    def TraversalOrderAsNumpy(self) -> Any:
        return np.arange(len(self.levels))

    def BlockMapLength(self) -> int:
        return 0

    def DimMetadataLength(self) -> int:
        return len(self.levels)

    def DimMetadata(self, k: int) -> Level:
        return self.levels[k]


def made(values: list[int], *levels: Level, dims: tuple[int, ...] = (2, 3), limit: int = 1 << 20) -> Any:
    return dense(np.array(values, np.uint8), dt.uint8, list(dims), Sparsity(*levels), limit).tolist()


def test_sparse_constants():
    assert made([7, 8, 9], Level(2), Level(0, [0, 1, 3], [2, 0, 1])) == [[0, 0, 7], [8, 9, 0]]


@pytest.mark.parametrize(
    ("segments", "indices", "reason"),
    [([0, 1, 3], [2, -1, 1], "outside extent 3"), ([0, 1, 3], [2, 3, 1], "outside extent 3"), ([0, 4, 4], [0, 1, 2, 2], "4 entries, at most 3")],
)  # fmt: skip
def test_sparse_places_outside_are_refused(segments: list[int], indices: list[int], reason: str):
    with pytest.raises(mgx.ParseError, match=reason):
        made([7] * len(indices), Level(2), Level(0, segments, indices))


def test_sparse_constants_have_a_limit():
    with pytest.raises(mgx.ParseError, match="limit_bytes"):
        made([1] * 64, Level(1000), Level(1000), dims=(1000, 1000), limit=1 << 20)
