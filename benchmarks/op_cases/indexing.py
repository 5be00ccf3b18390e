"""Cases of operators that move elements."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .case import Case, ints, normal, one, random, whole


def indexing() -> Iterator[Case]:
    """Yields Gather*, Scatter*, Slice, Concat, Split, Pad, Tile, Expand, Transpose and related operators."""
    yield from _indexed()
    yield from _slices()
    yield from _transposed()


def _indexed() -> Iterator[Case]:
    """Yields Gather* and Scatter*."""
    x, table = normal(1000, 1000), normal(30_000, 256)
    yield one("Gather", "embedding", table, whole(30_000, 16, 128), constants=[0])
    yield one("Gather", "axis 1", x, whole(1000, 500), axis=1)
    yield one("Gather", "axis 1 permutes channels", normal(8, 64, 32, 32), random.permutation(64), axis=1)
    yield one("Gather", "scalars", normal(100_000), whole(100_000, 100_000))
    yield one("Gather", "uint8 rows of 3", whole(255, 50_000, 3, dtype=np.uint8), whole(50_000, 50_000))
    yield one("Gather", "float16", table.astype(np.float16), whole(30_000, 2048))
    yield one("GatherElements", "axis 1", x, whole(1000, 1000, 1000), axis=1)
    yield one("GatherElements", "axis 0", x, whole(1000, 1000, 1000), axis=0)
    yield one("GatherElements", "middle", normal(16, 200, 64), whole(200, 16, 100, 64), axis=1)
    yield one("GatherElements", "int64", whole(9, 1000, 1000), whole(1000, 1000, 100), axis=1)
    yield one("GatherND", "points", normal(256, 256, 16), whole(256, 20_000, 2))
    yield one("GatherND", "scalars", normal(256, 256), whole(256, 100_000, 2))
    yield one("GatherND", "batch_dims", normal(16, 1000, 32), whole(1000, 16, 500, 1), batch_dims=1)
    for reduction in ("none", "add", "max", "mul"):
        yield one(
            "ScatterND",
            f"rows {reduction}",
            normal(10_000, 64),
            whole(10_000, 20_000, 1),
            normal(20_000, 64),
            reduction=reduction,
        )
        yield one(
            "ScatterElements",
            f"axis 0 {reduction}",
            x,
            whole(1000, 1000, 1000),
            normal(1000, 1000),
            reduction=reduction,
            axis=0,
        )
    yield one(
        "ScatterND", "one row, many times", normal(100, 64), whole(2, 20_000, 1), normal(20_000, 64), reduction="add"
    )
    yield one("ScatterND", "scalars add", normal(256, 256), whole(256, 100_000, 2), normal(100_000), reduction="add")
    yield one("ScatterND", "cache", normal(1, 8, 2048, 64), whole(8, 8, 3, dtype=np.int64), normal(8, 64))
    yield one("ScatterElements", "axis 1", x, whole(1000, 1000, 200), normal(1000, 200), axis=1)
    yield one(
        "ScatterElements",
        "one place, many times",
        normal(10),
        np.zeros(100_000, np.int64),
        normal(100_000),
        reduction="add",
    )


def _slices() -> Iterator[Case]:
    """Yields Slice, Concat, Split, Pad, Tile and Expand."""
    x = normal(1000, 1000)
    for name, starts, ends, axes, steps in (
        ("rows", [100], [900], [0], [1]),
        ("columns", [100], [900], [1], [1]),
        ("every second", [0, 0], [1000, 1000], [0, 1], [2, 2]),
        ("every third column", [1], [1000], [1], [3]),
        ("backwards", [-1], [-2000], [1], [-1]),
        ("rows backwards", [-1], [-2000], [0], [-1]),
    ):
        given = [ints(*v) for v in (starts, ends, axes, steps)]
        yield one("Slice", name, x, *given, constants=[1, 2, 3, 4])
    yield one(
        "Slice",
        "space to depth of an image",
        normal(1, 3, 640, 640),
        ints(0, 0),
        ints(640, 640),
        ints(2, 3),
        ints(2, 2),
        constants=[1, 2, 3, 4],
    )
    for axis in (0, 1, 2, 3):
        yield one("Concat", f"axis {axis}", *(normal(4, 32, 28, 28) for _ in range(4)), axis=axis)
    yield one("Concat", "64 short", *(normal(1, 256) for _ in range(64)), axis=1)
    yield one("Concat", "columns of 1", *(normal(20_000, 1) for _ in range(8)), axis=1)
    yield one("Concat", "uint8", whole(255, 512, 512, dtype=np.uint8), whole(255, 512, 512, dtype=np.uint8), axis=1)
    for axis in (0, 1, 2, 3):
        yield one("Split", f"axis {axis}", normal(4, 32, 32, 32), outputs=4, axis=axis, num_outputs=4)
    yield one("Split", "columns of 1", normal(20_000, 8), outputs=8, axis=1, num_outputs=8)
    for mode in ("constant", "reflect", "edge", "wrap"):
        yield one("Pad", f"image {mode}", normal(4, 16, 56, 56), ints(0, 0, 3, 3, 0, 0, 3, 3), constants=[1], mode=mode)
        yield one("Pad", f"sound {mode}", normal(1, 80_000), ints(0, 400, 0, 400), constants=[1], mode=mode)
    yield one("Pad", "uint8", whole(255, 3, 480, 640, dtype=np.uint8), ints(0, 16, 16, 0, 16, 16), constants=[1])
    yield one("Pad", "crop", normal(4, 16, 56, 56), ints(0, 0, -3, -3, 0, 0, -3, -3), constants=[1])
    yield one("Tile", "rows", normal(100, 256), ints(20, 1), constants=[1])
    yield one("Tile", "columns", normal(500, 10), ints(1, 100), constants=[1])
    yield one("Tile", "both, int64", whole(9, 50, 10), ints(20, 50), constants=[1])
    yield one("Expand", "rows", normal(1, 1000), ints(1000, 1000), constants=[1])
    yield one("Expand", "columns", normal(1000, 1), ints(1000, 1000), constants=[1])
    yield one("Expand", "heads", normal(1, 8, 1, 512, 64), ints(1, 8, 4, 512, 64), constants=[1])


def _transposed() -> Iterator[Case]:
    """Yields operators that permute elements."""
    for shape, perm in (
        ((1000, 1000), [1, 0]), ((1024, 1024), [1, 0]), ((8, 64, 56, 56), [0, 2, 3, 1]), ((8, 56, 56, 64), [0, 3, 1, 2]),
        ((8, 128, 12, 64), [0, 2, 1, 3]), ((8, 12, 128, 64), [0, 1, 3, 2]), ((8, 12, 128, 64), [0, 3, 1, 2]),
        ((16, 16, 16, 16, 16), [4, 3, 2, 1, 0]), ((2, 3, 32, 32, 32), [0, 2, 3, 4, 1]), ((32, 8, 8, 8, 16), [0, 2, 1, 4, 3]),
        ((100_000, 3), [1, 0]), ((3, 100_000), [1, 0]), ((4, 7, 8, 7, 8, 32), [0, 1, 3, 2, 4, 5]), ((1, 720, 1280, 3), [0, 3, 1, 2]),
    ):  # fmt: skip
        yield one("Transpose", f"{shape} {perm}", normal(*shape), perm=perm)
    for dtype in (np.uint8, np.int64, np.float16):
        yield one(
            "Transpose", f"{dtype.__name__} (8, 64, 56, 56)", whole(99, 8, 64, 56, 56, dtype=dtype), perm=[0, 2, 3, 1]
        )
    for dtype in (np.float32, np.int64):
        yield one("Trilu", f"{dtype.__name__} upper", whole(99, 1000, 1000, dtype=dtype), upper=1)
    yield one("Trilu", "lower k=-1 batch", normal(16, 200, 200), ints(-1), constants=[1], upper=0)
    yield one("ReverseSequence", "time", normal(100, 16, 64), whole(100, 16, low=1), time_axis=0, batch_axis=1)
    yield one("ReverseSequence", "batch", normal(16, 100, 64), whole(100, 16, low=1), time_axis=1, batch_axis=0)
    for block in (2, 4):
        yield one("SpaceToDepth", f"{block}", normal(4, 16, 64, 64), blocksize=block)
        for mode in ("DCR", "CRD"):
            yield one("DepthToSpace", f"{block} {mode}", normal(4, 64, 32, 32), blocksize=block, mode=mode)
