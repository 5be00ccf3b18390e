"""Cases of operators that select elements."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .case import Case, floats, ints, normal, one, random, whole


def selecting() -> Iterator[Case]:
    """Yields TopK, Unique, NonZero, Compress, ArgMax, Where, OneHot."""
    sizes = [((46080,), 1000, -1), ((1_000_000,), 10, -1), ((1_000_000,), 1000, -1), ((1_000_000,), 100_000, -1)]
    sizes += [((1, 50257), 50, -1), ((1, 50257), 50257, -1), ((10_000, 64), 2, -1), ((1000, 1000), 1, -1)]
    sizes += [((1000, 1000), 500, -1), ((1000, 1000), 10, 0), ((8, 2000, 20), 100, 1), ((64, 8, 56, 56), 4, 1)]
    for shape, k, axis in sizes:
        yield one("TopK", f"{shape} k={k} axis={axis}", normal(*shape), ints(k), constants=[1], outputs=2, axis=axis)
    yield one("TopK", "46080 k=1000 smallest", normal(46080), ints(1000), constants=[1], outputs=2, largest=0)
    yield one("TopK", "46080 k=1000 unsorted", normal(46080), ints(1000), constants=[1], outputs=2, sorted=0)
    yield one(
        "TopK", "46080 k=46080 ascending", np.arange(46080.0, dtype=np.float32), ints(46080), constants=[1], outputs=2
    )
    yield one("TopK", "46080 k=1000 equal values", np.ones(46080, np.float32), ints(1000), constants=[1], outputs=2)
    yield one("TopK", "int64 100000 k=100", whole(10**6, 100_000), ints(100), constants=[1], outputs=2)
    for n, high in ((10_000, 100), (100_000, 100), (100_000, 10**9)):
        yield one("Unique", f"{n} of {high}", whole(high, n), outputs=4)
        yield one("Unique", f"{n} of {high} unsorted", whole(high, n), outputs=4, sorted=0)
    yield one("Unique", "rows 2000x8", whole(3, 2000, 8), axis=0)
    for n, share in ((1_000_000, 0.5), (1_000_000, 0.01), (100_000, 0.5)):
        yield one("NonZero", f"{n} {share}", random.random(n) < share)
    yield one("NonZero", "3d float", normal(64, 64, 64) * (random.random((64, 64, 64)) < 0.3).astype(np.float32))
    yield one("NonZero", "2d int64", whole(2, 1000, 1000))
    yield one("Compress", "flat 1000000", normal(1_000_000), random.random(1_000_000) < 0.5)
    yield one("Compress", "rows", normal(10_000, 64), random.random(10_000) < 0.5, axis=0)
    yield one("Compress", "columns", normal(1000, 1000), random.random(1000) < 0.5, axis=1)
    for op in ("ArgMax", "ArgMin"):
        for shape, axis in (
            ((1000, 1000), 1),
            ((1000, 1000), 0),
            ((16, 21, 128, 128), 1),
            ((200_000, 4), 1),
            ((1, 50257), 1),
        ):
            yield one(op, f"{shape} axis={axis}", normal(*shape), axis=axis, keepdims=0)
    yield one("ArgMax", "last (1000, 1000)", normal(1000, 1000), axis=1, select_last_index=1)
    yield one("ArgMax", "uint8 (1000, 1000)", whole(255, 1000, 1000, dtype=np.uint8), axis=1)
    a, b = normal(512, 1024), normal(512, 1024)
    yield one("Where", "same", whole(2, 512, 1024, dtype=bool), a, b)
    yield one("Where", "mask of rows", whole(2, 512, 1, dtype=bool), a, b)
    yield one("Where", "mask of columns, scalar", whole(2, 1024, dtype=bool), floats(-1e9), b)
    yield one("Where", "attention mask", whole(2, 4, 1, 128, 128, dtype=bool), normal(4, 12, 128, 128), floats(-1e9))
    yield one("Where", "int64", whole(2, 512, 1024, dtype=bool), whole(9, 512, 1024), whole(9, 1024))
    yield one("Where", "outer", whole(2, 300, 1, 300, dtype=bool), normal(1, 20, 300), normal(300, 20, 1))
    hot = np.array([0, 1], np.float32)
    yield one("OneHot", "1000 of 1000", whole(1000, 1000), ints(1000), hot, constants=[1])
    yield one("OneHot", "segmentation axis 1", whole(21, 2, 256, 256), ints(21), hot, constants=[1], axis=1)
    yield one("OneHot", "small depth", whole(4, 100_000), ints(4), hot, constants=[1])
