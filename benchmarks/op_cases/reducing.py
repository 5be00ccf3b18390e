"""Cases of reductions and normalizations."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .case import Case, ints, normal, one, positive, whole


def reducing() -> Iterator[Case]:
    """Yields reductions, cumulative sums, softmax and normalizations."""
    for op in ("ReduceSum", "ReduceMax", "ReduceMean", "ReduceL2", "ReduceLogSumExp", "ReduceProd"):
        for axes in ([0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2]):
            if op in ("ReduceSum", "ReduceMax") or axes in ([0], [2], [0, 2]):
                yield one(op, f"(64, 96, 128) {axes}", normal(64, 96, 128), ints(*axes), constants=[1])
    yield one("ReduceSum", "1000000", normal(1_000_000), ints(0), constants=[1])
    yield one("ReduceSum", "(100000, 3) [1]", normal(100_000, 3), ints(1), constants=[1])
    yield one("ReduceSum", "(3, 100000) [0]", normal(3, 100_000), ints(0), constants=[1])
    yield one("ReduceSum", "(32, 8, 32, 16, 4) [1, 3]", normal(32, 8, 32, 16, 4), ints(1, 3), constants=[1])
    yield one("ReduceSum", "int64", whole(9, 1000, 1000), ints(1), constants=[1])
    yield one("ReduceMax", "uint8", whole(9, 1000, 1000, dtype=np.uint8), ints(1), constants=[1])
    yield one("ReduceMin", "bool", whole(2, 1000, 1000, dtype=bool), ints(1), constants=[1])
    yield one("ReduceSum", "float64", normal(1000, 1000).astype(np.float64), ints(1), constants=[1])
    for shape, axis in (((1000, 1000), 0), ((1000, 1000), 1), ((1_000_000,), 0), ((16, 500, 64), 1), ((20_000, 8), 1)):
        yield one("CumSum", f"{shape} axis={axis}", normal(*shape), np.array(axis), constants=[1])
    yield one("CumSum", "exclusive reverse", normal(1000, 1000), np.array(1), constants=[1], exclusive=1, reverse=1)
    yield one("CumSum", "int64", whole(9, 1000, 1000), np.array(1), constants=[1])
    for shape in ((64, 96, 128), (8, 21, 128, 128), (12 * 128, 128), (1, 50257), (20_000, 10), (8192, 49)):
        for axis in range(len(shape)):
            if shape[axis] > 1:
                yield one("Softmax", f"{shape} axis={axis}", normal(*shape), axis=axis)
    yield one("LogSoftmax", "(64, 5000)", normal(64, 5000), axis=1)
    yield one("Hardmax", "(64, 5000)", normal(64, 5000), axis=1)
    yield one("Softmax", "float16", normal(512, 512).astype(np.float16), axis=1)
    yield one("Softmax", "float64", normal(512, 512).astype(np.float64), axis=1)
    for rows, width in ((512, 768), (4096, 96), (64, 4096), (50_000, 16)):
        yield one(
            "LayerNormalization",
            f"({rows}, {width})",
            normal(rows, width),
            normal(width),
            normal(width),
            constants=[1, 2],
        )
        yield one("RMSNormalization", f"({rows}, {width})", normal(rows, width), normal(width), constants=[1], opset=23)
        yield one("LpNormalization", f"({rows}, {width})", normal(rows, width), axis=1, p=2)
    yield one(
        "LayerNormalization",
        "axis 1 of 4",
        normal(16, 16, 28, 28),
        normal(16, 28, 28),
        normal(16, 28, 28),
        constants=[1, 2],
        axis=1,
    )
    image = normal(4, 64, 56, 56)
    scale, bias = normal(64), normal(64)
    for groups in (1, 8, 32, 64):
        yield one("GroupNormalization", f"{groups} groups", image, scale, bias, constants=[1, 2], num_groups=groups)
    for shape in ((4, 64, 56, 56), (16, 64, 7, 7), (2, 64, 16, 16, 16), (4, 64, 4000)):
        yield one("InstanceNormalization", f"{shape}", normal(*shape), scale, bias, constants=[1, 2])
        given = (scale, bias, normal(64), positive(64))
        yield one("BatchNormalization", f"{shape}", normal(*shape), *given, constants=[1, 2, 3, 4])
    yield one("MeanVarianceNormalization", "(4, 64, 56, 56)", image)
    for size in (3, 5):
        yield one("LRN", f"size {size}", image, size=size)
    yield one("LRN", "size 5, one image of 27x27", normal(1, 96, 27, 27), size=5)
