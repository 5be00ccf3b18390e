"""Cases of `ops.py`: models of one ONNX operation each, with realistic sizes and the attributes that affect how it runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Value = np.ndarray | None
random = np.random.default_rng(0)


@dataclass
class Case:
    """One operation: its name in the table, its operands, which of them are constants, its attributes."""

    name: str
    op: str
    inputs: Sequence[Value]
    constants: Sequence[int] = ()  # positions of operands that are initializers
    outputs: int = 1
    opset: int = 21
    domain: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)
    # tolerance relative to the largest value; larger only where onnxruntime is known to be inexact
    allowed: float = 1e-4


def normal(*shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> np.ndarray:
    return random.uniform(0.1, 1.1, shape).astype(np.float32)


def whole(high: int, *shape: int, dtype: Any = np.int64, low: int = 0) -> np.ndarray:
    return random.integers(low, high, shape).astype(dtype)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def one(op: str, note: str, *inputs: Value, **attributes: Any) -> Case:
    """Returns a case; keywords that are fields of `Case` set these, all others are attributes."""
    given = {k: attributes.pop(k) for k in ("constants", "outputs", "opset", "domain", "allowed") if k in attributes}
    return Case(f"{op} {note}", op, inputs, attributes=attributes, **given)


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


def indexing() -> Iterator[Case]:
    """Yields Gather*, Scatter*, Slice, Concat, Split, Pad, Tile, Expand, Transpose and related operators."""
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


def convolutions() -> Iterator[Case]:
    """Yields Conv, ConvTranspose, DeformConv, integer convolutions and pools."""

    def conv(
        note: str, x: tuple[int, ...], w: tuple[int, ...], op: str = "Conv", bias: bool = True, **attributes: Any
    ) -> Case:
        groups = attributes.get("group", 1)
        channels = w[1] * groups if op == "ConvTranspose" else w[0]
        fan = max(1, int(np.prod(w[1:])))
        given = [normal(*x), normal(*w) / np.float32(fan**0.5), *([normal(channels)] if bias else [])]
        return one(op, note, *given, constants=range(1, len(given)), **attributes)

    yield conv("1d k3", (4, 64, 500), (64, 64, 3), pads=[1, 1])
    yield conv("1d k3 dilation 16", (1, 64, 2000), (64, 64, 3), pads=[16, 16], dilations=[16])
    yield conv("1d wave k10 stride 5", (1, 1, 16000), (512, 1, 10), strides=[5])
    yield conv("1d depthwise k31", (1, 256, 500), (256, 1, 31), pads=[15, 15], group=256)
    yield conv("1d k400 stride 160", (1, 1, 32000), (80, 1, 400), strides=[160])
    yield conv("1d k7 causal", (1, 32, 4000), (32, 32, 7), pads=[6, 0])
    yield conv("2d 3x3", (1, 64, 56, 56), (64, 64, 3, 3), pads=[1] * 4)
    yield conv("2d 3x3 few channels", (1, 3, 224, 224), (8, 3, 3, 3), pads=[1] * 4)
    yield conv("2d 3x3 to 1 channel", (1, 32, 128, 128), (1, 32, 3, 3), pads=[1] * 4)
    yield conv("2d 3x3 to 3 channels", (1, 64, 128, 128), (3, 64, 3, 3), pads=[1] * 4)
    yield conv("2d 3x3 5 to 7 channels", (2, 5, 100, 100), (7, 5, 3, 3), pads=[1] * 4)
    yield conv("2d 3x3 dilation 2", (1, 64, 56, 56), (64, 64, 3, 3), pads=[2] * 4, dilations=[2, 2])
    yield conv("2d 3x3 dilation 12", (1, 256, 33, 33), (64, 256, 3, 3), pads=[12] * 4, dilations=[12, 12])
    yield conv("2d 3x3 stride 2", (1, 64, 56, 56), (128, 64, 3, 3), pads=[1] * 4, strides=[2, 2])
    yield conv("2d 2x2", (1, 32, 64, 64), (32, 32, 2, 2))
    yield conv("2d 4x4 stride 2", (1, 64, 64, 64), (128, 64, 4, 4), pads=[1] * 4, strides=[2, 2])
    yield conv("2d 4x4 same", (1, 16, 64, 64), (16, 16, 4, 4), auto_pad="SAME_UPPER")
    yield conv("2d 7x7 stride 2 stem", (1, 3, 224, 224), (64, 3, 7, 7), pads=[3] * 4, strides=[2, 2])
    yield conv("2d 16x16 stride 16 patches", (1, 3, 224, 224), (384, 3, 16, 16), strides=[16, 16])
    yield conv("2d 11x11", (1, 16, 64, 64), (16, 16, 11, 11), pads=[5] * 4)
    yield conv("2d 1x1 stride 3", (1, 64, 57, 57), (64, 64, 1, 1), strides=[3, 3])
    yield conv("2d 2x2 stride 4", (1, 32, 128, 128), (64, 32, 2, 2), strides=[4, 4])
    yield conv("2d 1x1 few channels", (4, 4, 128, 128), (6, 4, 1, 1))
    yield conv("2d 1x1 256 to 2", (1, 256, 64, 64), (2, 256, 1, 1))
    yield conv("2d 1x1 2 to 256", (1, 2, 64, 64), (256, 2, 1, 1))
    yield conv("2d 1x1 64", (1, 64, 56, 56), (64, 64, 1, 1))
    yield conv("2d 1x1 of one pixel", (1, 960, 1, 1), (240, 960, 1, 1))
    yield conv("2d 1x9", (1, 32, 64, 64), (32, 32, 1, 9), pads=[0, 4, 0, 4])
    yield conv("2d 9x1", (1, 32, 64, 64), (32, 32, 9, 1), pads=[4, 0, 4, 0])
    yield conv("2d pads of one side", (1, 32, 64, 64), (32, 32, 3, 3), pads=[2, 0, 0, 2])
    yield conv("2d depthwise 3x3", (1, 96, 56, 56), (96, 1, 3, 3), pads=[1] * 4, group=96)
    yield conv("2d depthwise 3x3 stride 2", (1, 96, 112, 112), (96, 1, 3, 3), pads=[1] * 4, strides=[2, 2], group=96)
    yield conv("2d depthwise 7x7", (1, 96, 56, 56), (96, 1, 7, 7), pads=[3] * 4, group=96)
    yield conv("2d depthwise 31x31", (1, 32, 32, 32), (32, 1, 31, 31), pads=[15] * 4, group=32)
    yield conv("2d depthwise 4x4 even", (1, 32, 64, 64), (32, 1, 4, 4), group=32)
    yield conv("2d depthwise 3x3 dilation 2", (1, 96, 56, 56), (96, 1, 3, 3), pads=[2] * 4, dilations=[2, 2], group=96)
    yield conv("2d depthwise multiplier 2", (1, 32, 56, 56), (64, 1, 3, 3), pads=[1] * 4, group=32)
    yield conv("2d depthwise 5x5, 7x7 image", (1, 480, 7, 7), (480, 1, 5, 5), pads=[2] * 4, group=480)
    yield conv("2d depthwise 30 channels", (1, 30, 60, 60), (30, 1, 3, 3), pads=[1] * 4, group=30)
    for groups, each in ((2, 32), (4, 16), (32, 4), (8, 3), (16, 24)):
        width = groups * each
        yield conv(f"2d {groups} groups of {each}", (1, width, 56, 56), (width, each, 3, 3), pads=[1] * 4, group=groups)
    yield conv("2d 1x1 4 groups", (1, 128, 28, 28), (128, 32, 1, 1), group=4)
    yield conv("2d batch 16", (16, 32, 14, 14), (64, 32, 3, 3), pads=[1] * 4)
    yield conv("3d 3x3x3", (1, 16, 16, 32, 32), (16, 16, 3, 3, 3), pads=[1] * 6)
    yield conv("3d 3x1x1", (1, 32, 8, 28, 28), (32, 32, 3, 1, 1), pads=[1, 0, 0, 1, 0, 0])
    yield conv("3d 1 channel", (1, 1, 32, 64, 64), (8, 1, 3, 3, 3), pads=[1] * 6)
    yield conv("3d depthwise", (1, 32, 8, 28, 28), (32, 1, 3, 3, 3), pads=[1] * 6, group=32)
    yield conv("3d dilation 2", (1, 16, 16, 24, 24), (16, 16, 3, 3, 3), pads=[2] * 6, dilations=[2, 2, 2])
    weights = one("Conv", "2d weights that vary", normal(1, 64, 28, 28), normal(64, 64, 3, 3), pads=[1] * 4)
    yield weights
    yield one("Conv", "depthwise, weights that vary", normal(1, 256, 29, 29), normal(256, 1, 5, 5), group=256)
    yield one(
        "Conv",
        "float16 3x3",
        normal(1, 32, 56, 56).astype(np.float16),
        (normal(32, 32, 3, 3) / 17).astype(np.float16),
        constants=[1],
        pads=[1] * 4,
    )

    def up(note: str, x: tuple[int, ...], w: tuple[int, ...], **attributes: Any) -> Case:
        return conv(note, x, w, "ConvTranspose", **attributes)

    yield up("2x2 stride 2", (1, 64, 32, 32), (64, 32, 2, 2), strides=[2, 2])
    yield up("4x4 stride 2", (1, 64, 32, 32), (64, 32, 4, 4), strides=[2, 2], pads=[1] * 4)
    yield up(
        "3x3 stride 2 output_padding",
        (1, 64, 32, 32),
        (64, 32, 3, 3),
        strides=[2, 2],
        pads=[1] * 4,
        output_padding=[1, 1],
    )
    yield up("3x3 stride 1", (1, 32, 32, 32), (32, 32, 3, 3), pads=[1] * 4)
    yield up("3x3 stride 3 dilation 2", (1, 32, 32, 32), (32, 16, 3, 3), strides=[3, 3], dilations=[2, 2])
    yield up("to 1 channel", (1, 32, 64, 64), (32, 1, 4, 4), strides=[2, 2], pads=[1] * 4)
    yield up("depthwise 4x4 stride 2", (1, 64, 32, 32), (64, 1, 4, 4), strides=[2, 2], pads=[1] * 4, group=64)
    yield up("2 groups", (1, 64, 32, 32), (64, 16, 4, 4), strides=[2, 2], pads=[1] * 4, group=2)
    yield up("stride 4 kernel 2", (1, 32, 32, 32), (32, 16, 2, 2), strides=[4, 4])
    yield up("1d k16 stride 8", (1, 128, 200), (128, 64, 16), strides=[8], pads=[4, 4])
    yield up("1d k3", (1, 64, 1000), (64, 64, 3), pads=[1, 1])
    yield up("3d 2x2x2 stride 2", (1, 32, 8, 16, 16), (32, 16, 2, 2, 2), strides=[2, 2, 2])
    yield up("large 16x16 stride 8", (1, 21, 32, 32), (21, 21, 16, 16), strides=[8, 8], pads=[4] * 4)
    offset = normal(1, 18, 32, 32)
    yield one(
        "DeformConv",
        "3x3",
        normal(1, 32, 32, 32),
        normal(32, 32, 3, 3) / 17,
        offset,
        normal(32),
        positive(1, 9, 32, 32),
        constants=[1, 3],
        pads=[1] * 4,
        opset=22,
    )
    yield one(
        "DeformConv",
        "2 offset groups",
        normal(1, 32, 32, 32),
        normal(32, 32, 3, 3) / 17,
        normal(1, 36, 32, 32),
        constants=[1],
        pads=[1] * 4,
        offset_group=2,
        opset=22,
    )
    yield one(
        "ConvInteger",
        "3x3",
        whole(255, 1, 32, 28, 28, dtype=np.uint8),
        whole(127, 32, 32, 3, 3, dtype=np.uint8),
        np.uint8(128) * np.ones((), np.uint8),
        constants=[1, 2],
        pads=[1] * 4,
    )
    for symmetric in (True, False):
        zero = np.array(0 if symmetric else 7, np.uint8)
        given = [
            whole(255, 1, 32, 28, 28, dtype=np.uint8),
            floats(0.02)[0],
            zero,
            whole(127, 32, 32, 3, 3, dtype=np.int8, low=-127),
            floats(0.01)[0],
            np.array(0, np.int8),
            floats(0.3)[0],
            zero,
        ]
        yield one(
            "QLinearConv", f"3x3 zero {zero}", *(np.asarray(g) for g in given), constants=range(1, 8), pads=[1] * 4
        )
        given[3] = whole(127, 32, 1, 3, 3, dtype=np.int8, low=-127)
        yield one(
            "QLinearConv",
            f"depthwise zero {zero}",
            *(np.asarray(g) for g in given),
            constants=range(1, 8),
            pads=[1] * 4,
            group=32,
        )
    image = normal(1, 64, 56, 56)
    for op in ("MaxPool", "AveragePool"):
        yield one(op, "3x3 stride 2", normal(1, 64, 112, 112), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
        yield one(op, "3x3 stride 1", image, kernel_shape=[3, 3], pads=[1] * 4)
        yield one(op, "2x2", image, kernel_shape=[2, 2], strides=[2, 2])
        yield one(op, "13x13", image, kernel_shape=[13, 13], pads=[6] * 4)
        yield one(op, "31x31 stride 1", normal(1, 16, 64, 64), kernel_shape=[31, 31], pads=[15] * 4)
        yield one(op, "28x28 stride 28", image, kernel_shape=[28, 28], strides=[28, 28])
        yield one(op, "ceil", image, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
        yield one(op, "dilations", image, kernel_shape=[3, 3], dilations=[2, 2], pads=[2] * 4)
        yield one(op, "1d 4", normal(4, 64, 4000), kernel_shape=[4], strides=[4])
        yield one(op, "1d 25 stride 1", normal(4, 32, 2000), kernel_shape=[25], pads=[12, 12])
        yield one(op, "3d 2x2x2", normal(1, 32, 16, 32, 32), kernel_shape=[2] * 3, strides=[2] * 3)
        yield one(op, "3d 3x3x3", normal(1, 32, 8, 28, 28), kernel_shape=[3] * 3, pads=[1] * 6)
        yield one(op, "7 channels", normal(8, 7, 56, 56), kernel_shape=[3, 3], strides=[2, 2])
    yield one("AveragePool", "pads counted", image, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1)
    yield one("MaxPool", "indices", image, kernel_shape=[2, 2], strides=[2, 2], outputs=2)
    yield one("MaxPool", "uint8", whole(255, 1, 64, 56, 56, dtype=np.uint8), kernel_shape=[2, 2], strides=[2, 2])
    yield one("LpPool", "3x3", image, kernel_shape=[3, 3], strides=[2, 2], p=2)
    for op in ("GlobalAveragePool", "GlobalMaxPool"):
        yield one(op, "(1, 64, 56, 56)", image)
        yield one(op, "(16, 512, 7, 7)", normal(16, 512, 7, 7))
    yield one("MaxUnpool", "2x2", normal(1, 64, 28, 28), unpooled(1, 64, 28, 28), kernel_shape=[2, 2], strides=[2, 2])


def unpooled(n: int, c: int, h: int, w: int) -> np.ndarray:
    """Returns indices of maxima in windows of 2x2, as MaxPool returns them."""
    plane, i, j = np.ogrid[: n * c, :h, :w]
    within = whole(2, n * c, h, w) * 2 * w + whole(2, n * c, h, w)
    return np.asarray((plane * 4 * h * w + i * 4 * w + j * 2 + within).reshape(n, c, h, w))


def products() -> Iterator[Case]:
    """Yields MatMul, Gemm, integer products, Einsum, Det, recurrent layers and attention."""
    for a, b in (
        ((1, 1024), (1024, 1024)), ((1, 4096), (4096, 1000)), ((4, 768), (768, 768)), ((128, 768), (768, 3072)),
        ((10_000, 8), (8, 8)), ((8, 10_000), (10_000, 8)), ((100_000, 3), (3, 3)), ((1000, 1000), (1000, 1)), ((1000,), (1000, 500)),
        ((2000, 64), (64, 1)), ((1000, 1), (1, 1000)), ((500, 2), (2, 500)), ((37, 211), (211, 53)),
        ((1000, 4, 4), (1000, 4, 4)), ((5000, 3, 3), (5000, 3, 1)), ((96, 64, 32), (96, 32, 64)), ((96, 1, 64), (96, 64, 128)),
        ((64, 10, 32), (32, 16)), ((8, 1, 49, 32), (1, 12, 32, 49)), ((1, 64, 64), (32, 64, 64)), ((64, 64), (32, 64, 64)),
        ((128, 128), (128, 128)), ((512, 512), (512, 512)),
    ):  # fmt: skip
        yield one("MatMul", f"{a} {b}", normal(*a), normal(*b))
        if len(b) == 2:
            yield one("MatMul", f"{a} {b} constant", normal(*a), normal(*b), constants=[1])
    for ta in (0, 1):
        for tb in (0, 1):
            a, b = ((300, 200) if ta else (200, 300)), ((250, 300) if tb else (300, 250))
            yield one("Gemm", f"transA={ta} transB={tb}", normal(*a), normal(*b), normal(250), transA=ta, transB=tb)
    yield one(
        "Gemm",
        "alpha beta column",
        normal(64, 256),
        normal(256, 512),
        normal(64, 1),
        constants=[1, 2],
        alpha=0.5,
        beta=2.0,
    )
    for dtype in (np.float64, np.float16):
        yield one("MatMul", f"{dtype.__name__} 200", normal(200, 200).astype(dtype), normal(200, 200).astype(dtype))
    yield one("MatMul", "int32 100", whole(9, 100, 100, dtype=np.int32), whole(9, 100, 100, dtype=np.int32))
    yield one("MatMul", "int64 100", whole(9, 100, 100), whole(9, 100, 100))
    for m in (1, 64):
        yield one(
            "MatMulInteger",
            f"({m}, 512, 512)",
            whole(255, m, 512, dtype=np.uint8),
            whole(127, 512, 512, dtype=np.int8),
            constants=[1],
        )
    for equation, shapes in (
        ("bij,bjk->bik", [(16, 64, 32), (16, 32, 64)]), ("ij,ij->i", [(1000, 500), (1000, 500)]), ("bhid,bhjd->bhij", [(2, 8, 128, 64)] * 2),
        ("i,j->ij", [(1000,), (800,)]), ("bij->bji", [(16, 200, 200)]), ("ii->i", [(1000, 1000)]), ("ij->", [(1000, 1000)]),
        ("bcxd,bcyd->bxyc", [(2, 4, 64, 32), (2, 4, 64, 32)]), ("abc,cd,ae->bde", [(20, 30, 40), (40, 20), (20, 10)]), ("nchw,c->nhw", [(4, 64, 32, 32), (64,)]),
        ("bnhd,hde->bne", [(4, 128, 8, 32), (8, 32, 256)]), ("ijk,ilk->ijl", [(50, 40, 8), (50, 30, 8)]),
    ):  # fmt: skip
        yield one("Einsum", equation, *(normal(*s) for s in shapes), equation=equation)
    yield one("Det", "(1000, 4, 4)", normal(1000, 4, 4))
    yield one("Det", "(10, 64, 64)", normal(10, 64, 64))
    yield from recurrent()
    yield from attention()


def recurrent() -> Iterator[Case]:
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        for steps, batch, width, hidden, direction in (
            (100, 1, 64, 128, "forward"), (100, 16, 64, 128, "bidirectional"), (10, 16, 128, 128, "forward"), (500, 1, 32, 32, "bidirectional"),
            (50, 4, 20, 30, "reverse"), (1, 1, 256, 512, "forward"),
        ):  # fmt: skip
            d = 2 if direction == "bidirectional" else 1
            given = [
                normal(steps, batch, width),
                normal(d, gates * hidden, width) / 10,
                normal(d, gates * hidden, hidden) / 10,
                normal(d, 2 * gates * hidden) / 10,
            ]
            yield one(
                op,
                f"{steps}x{batch} {width}-{hidden} {direction}",
                *given,
                constants=[1, 2, 3],
                outputs=2,
                hidden_size=hidden,
                direction=direction,
            )
    given = [
        normal(50, 16, 64),
        normal(1, 512, 64) / 10,
        normal(1, 512, 128) / 10,
        normal(1, 1024) / 10,
        whole(50, 16, dtype=np.int32, low=1),
    ]
    yield one("LSTM", "lengths", *given, constants=[1, 2, 3], outputs=2, hidden_size=128)
    yield one("LSTM", "lengths, last cells", *given, constants=[1, 2, 3], outputs=3, hidden_size=128)
    given = [normal(50, 16, 64), normal(1, 384, 64) / 10, normal(1, 384, 128) / 10, normal(1, 768) / 10]
    yield one(
        "GRU", "linear_before_reset", *given, constants=[1, 2, 3], outputs=2, hidden_size=128, linear_before_reset=1
    )


def attention() -> Iterator[Case]:
    for b, h, kv, s, t, d in (
        (1, 12, 12, 128, 128, 64),
        (8, 8, 8, 64, 64, 32),
        (1, 16, 4, 1, 1024, 64),
        (1, 8, 8, 512, 512, 64),
        (2, 4, 4, 200, 77, 40),
    ):
        q, k, v = normal(b, h, s, d), normal(b, kv, t, d), normal(b, kv, t, d)
        yield one("Attention", f"({b}, {h}/{kv}, {s}, {t}, {d})", q, k, v, opset=23)
        yield one("Attention", f"({b}, {h}/{kv}, {s}, {t}, {d}) mask", q, k, v, normal(s, t), opset=23)
        if s == t:
            yield one("Attention", f"({b}, {h}/{kv}, {s}, {t}, {d}) causal", q, k, v, opset=23, is_causal=1)
            yield one("Attention", f"({b}, {h}/{kv}, {s}, {t}, {d}) softcap", q, k, v, opset=23, softcap=30.0)
    for h, kv, s, past, d in ((8, 2, 1, 512, 64), (8, 8, 1, 1024, 64), (8, 2, 64, 0, 64), (16, 4, 16, 128, 64)):
        q, k, v = normal(1, s, h * d), normal(1, s, kv * d), normal(1, s, kv * d)
        lengths, total = np.array([past + s - 1], np.int32), np.array(past + s, np.int32)
        given = (q, k, v, normal(1, kv, past, d), normal(1, kv, past, d), lengths, total)
        yield one(
            "GroupQueryAttention",
            f"{h}/{kv} {s} after {past}",
            *given,
            outputs=3,
            domain="com.microsoft",
            num_heads=h,
            kv_num_heads=kv,
            constants=[6],
        )
    q, k, v = normal(1, 64, 512), normal(1, 64, 128), normal(1, 64, 128)
    given = (q, k, v, None, None, np.array([63], np.int32), np.array(64, np.int32))
    yield one(
        "GroupQueryAttention",
        "softcap, window",
        *given,
        outputs=3,
        domain="com.microsoft",
        num_heads=8,
        kv_num_heads=2,
        softcap=30.0,
        local_window_size=16,
        constants=[6],
    )
    yield one(
        "MultiHeadAttention",
        "128x768",
        normal(1, 128, 768),
        normal(1, 128, 768),
        normal(1, 128, 768),
        domain="com.microsoft",
        num_heads=12,
    )


def elementwise() -> Iterator[Case]:
    """Yields elementwise functions, broadcasts, casts and quantizations."""
    x = normal(256, 1024)
    for op in ("Erf", "Mish", "Tanh", "Sigmoid", "Exp", "Softplus", "Softsign", "Elu", "Selu", "HardSwish", "HardSigmoid", "LeakyRelu", "Sin", "Cos",
               "Tan", "Atan", "Sinh", "Asinh", "Floor", "Round", "Abs", "Neg", "Sign", "IsNaN", "Celu", "ThresholdedRelu", "Reciprocal"):  # fmt: skip
        yield one(op, "(256, 1024)", x, opset=22)
    for op in ("Sqrt", "Log"):
        yield one(op, "(256, 1024)", positive(256, 1024))
    for op in ("Asin", "Acos", "Atanh"):
        yield one(op, "(256, 1024)", positive(256, 1024) * np.float32(0.9))
    for kind in ("none", "tanh"):
        yield one("Gelu", kind, x, approximate=kind)
    for op in ("Erf", "Tanh", "Exp", "Log", "Sqrt", "Sin"):
        yield one(op, "float64", positive(256, 256).astype(np.float64))
    for op in ("Add", "Mul", "Div", "Pow", "Max"):
        for a, b in (
            ((256, 1024), (256, 1024)),
            ((256, 1024), (1024,)),
            ((256, 1024), (256, 1)),
            ((64, 1, 64, 32), (64, 64, 1)),
            ((8, 64, 28, 28), (64, 1, 1)),
            ((1000, 1), (1000,)),
        ):
            yield one(op, f"{a} {b}", positive(*a), positive(*b))
    for dtype in (np.int64, np.int32, np.uint8, np.float16, np.float64):
        for op in ("Add", "Mul", "Div", "Mod", "Less", "Equal"):
            if op in ("Add", "Div") or dtype in (np.int64, np.uint8):
                given = [whole(100, 256, 1024, dtype=dtype, low=1) for _ in range(2)]
                yield one(op, f"{dtype.__name__} (256, 1024)", *given)
    yield one("Mod", "fmod float", x, positive(256, 1024), fmod=1)
    yield one("Pow", "x^3", x, floats(3.0), constants=[1])
    yield one("Pow", "int64^2", whole(9, 256, 1024), ints(2), constants=[1])
    yield one("And", "(512, 1024)", whole(2, 512, 1024, dtype=bool), whole(2, 512, 1024, dtype=bool))
    yield one("Not", "(512, 1024)", whole(2, 512, 1024, dtype=bool))
    yield one("Xor", "(512, 1024) (512, 1)", whole(2, 512, 1024, dtype=bool), whole(2, 512, 1, dtype=bool))
    yield one(
        "BitShift",
        "uint8",
        whole(255, 512, 1024, dtype=np.uint8),
        whole(7, 512, 1024, dtype=np.uint8),
        direction="LEFT",
    )
    yield one("BitwiseAnd", "int32", whole(255, 512, 1024, dtype=np.int32), whole(255, 512, 1024, dtype=np.int32))
    yield one("Clip", "float", x, floats(-1.0)[0], floats(1.0)[0], constants=[1, 2])
    yield one("Clip", "int64", whole(9, 512, 1024), np.int64(2), np.int64(5), constants=[1, 2])
    yield one("PRelu", "channels", normal(4, 64, 56, 56), normal(64, 1, 1), constants=[1])
    yield one("Sum", "4", x, x + 1, x + 2, x + 3)
    yield one("Mean", "3", x, x + 1, x + 2)
    import onnx

    kinds = {
        np.float32: onnx.TensorProto.FLOAT,
        np.float16: onnx.TensorProto.FLOAT16,
        np.int64: onnx.TensorProto.INT64,
        np.int32: onnx.TensorProto.INT32,
    }
    kinds |= {
        np.uint8: onnx.TensorProto.UINT8,
        bool: onnx.TensorProto.BOOL,
        np.float64: onnx.TensorProto.DOUBLE,
        np.int8: onnx.TensorProto.INT8,
    }
    for a in kinds:
        for b in kinds:
            if a != b and {a, b} & {np.float32, np.int64, np.uint8}:
                yield one("Cast", f"{a.__name__} {b.__name__}", whole(2, 512, 1024, dtype=a), to=kinds[b])
    yield one("Cast", "float32 bfloat16", x, to=onnx.TensorProto.BFLOAT16)
    for dtype in (np.uint8, np.int8):
        zero = np.array(3, dtype)
        yield one("QuantizeLinear", f"{dtype.__name__}", x, floats(0.05)[0], zero, constants=[1, 2])
        yield one(
            "DequantizeLinear",
            f"{dtype.__name__}",
            whole(100, 512, 1024, dtype=dtype),
            floats(0.05)[0],
            zero,
            constants=[1, 2],
        )
        zeros = whole(5, 64, dtype=dtype)
        yield one(
            "QuantizeLinear",
            f"{dtype.__name__} channels",
            normal(4, 64, 28, 28),
            positive(64),
            zeros,
            constants=[1, 2],
            axis=1,
        )
        yield one(
            "DequantizeLinear",
            f"{dtype.__name__} channels",
            whole(100, 4, 64, 28, 28, dtype=dtype),
            positive(64),
            zeros,
            constants=[1, 2],
            axis=1,
        )
    yield one("QuantizeLinear", "int16", x, floats(0.05)[0], np.array(0, np.int16), constants=[1, 2])
    yield one("DynamicQuantizeLinear", "(256, 1024)", x, outputs=3)


def images_and_sound() -> Iterator[Case]:
    """Yields Resize, GridSample, RoiAlign, NonMaxSuppression, Fourier transforms."""
    small, large = normal(1, 16, 64, 64), normal(1, 3, 480, 640)
    for mode in ("nearest", "linear", "cubic"):
        for name, x, scales in (
            ("up 2", small, (1, 1, 2, 2)),
            ("up 1.7", small, (1, 1, 1.7, 1.7)),
            ("down 2", large, (1, 1, 0.5, 0.5)),
            ("down 0.35", large, (1, 1, 0.35, 0.35)),
        ):
            yield one("Resize", f"{mode} {name}", x, None, floats(*scales), constants=[2], mode=mode)
        yield one(
            "Resize",
            f"{mode} align_corners",
            small,
            None,
            None,
            ints(1, 16, 96, 96),
            constants=[3],
            mode=mode,
            coordinate_transformation_mode="align_corners",
        )
    for mode in ("linear", "cubic"):
        yield one(
            "Resize", f"{mode} antialias", large, None, floats(1, 1, 0.35, 0.35), constants=[2], mode=mode, antialias=1
        )
    yield one(
        "Resize",
        "nearest asymmetric floor",
        normal(1, 64, 28, 28),
        None,
        floats(1, 1, 2, 2),
        constants=[2],
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    yield one(
        "Resize",
        "linear uint8",
        whole(255, 1, 3, 240, 320, dtype=np.uint8),
        None,
        None,
        ints(1, 3, 224, 224),
        constants=[3],
        allowed=1 / 250,  # onnxruntime computes in fixed point
        mode="linear",
    )
    yield one("Resize", "linear NHWC", normal(1, 120, 160, 16), None, floats(1, 2, 2, 1), constants=[2], mode="linear")
    yield one("Resize", "linear 1d", normal(1, 80, 500), None, floats(1, 1, 2), constants=[2], mode="linear")
    yield one(
        "Resize", "linear 3d", normal(1, 4, 16, 32, 32), None, floats(1, 1, 2, 2, 2), constants=[2], mode="linear"
    )
    yield one(
        "Resize", "nearest 3d", normal(1, 4, 16, 32, 32), None, floats(1, 1, 2, 2, 2), constants=[2], mode="nearest"
    )
    grid = random.uniform(-1.1, 1.1, (2, 64, 64, 2)).astype(np.float32)
    for mode in ("nearest", "linear", "cubic"):
        for padding in ("zeros", "border", "reflection"):
            yield one("GridSample", f"{mode} {padding}", normal(2, 16, 64, 64), grid, mode=mode, padding_mode=padding)
    yield one(
        "GridSample",
        "linear aligned, many channels",
        normal(1, 256, 32, 32),
        grid[:1, :32, :32],
        mode="linear",
        align_corners=1,
    )
    yield one(
        "GridSample",
        "3d",
        normal(1, 4, 16, 16, 16),
        random.uniform(-1, 1, (1, 16, 16, 16, 3)).astype(np.float32),
        mode="linear",
    )
    yield one("AffineGrid", "(4, 3, 128, 128)", normal(4, 2, 3), ints(4, 3, 128, 128), constants=[1])
    for rois, channels, mode in ((100, 64, "avg"), (1000, 16, "avg"), (100, 64, "max")):
        corner = random.uniform(0, 30, (rois, 2)).astype(np.float32)
        boxes = np.concatenate([corner, corner + random.uniform(2, 20, (rois, 2)).astype(np.float32)], axis=1)
        yield one(
            "RoiAlign",
            f"{rois} of {channels} {mode}",
            normal(1, channels, 50, 50),
            boxes,
            np.zeros(rois, np.int64),
            output_height=7,
            output_width=7,
            sampling_ratio=2,
            mode=mode,
        )
    yield one(
        "RoiAlign",
        "adaptive",
        normal(1, 64, 50, 50),
        boxes,
        np.zeros(100, np.int64),
        output_height=7,
        output_width=7,
        sampling_ratio=0,
    )
    yield one(
        "MaxRoiPool",
        "100",
        normal(1, 64, 50, 50),
        np.concatenate([np.zeros((100, 1), np.float32), boxes], 1),
        pooled_shape=[7, 7],
        opset=21,
    )
    for count, classes, most, iou in (
        (100, 80, 100, 0.5),
        (1000, 1, 100, 0.5),
        (8400, 80, 300, 0.5),
        (20_000, 1, 1000, 0.7),
        (20_000, 20, 100, 0.5),
        (2000, 1, 2000, 0.99),
    ):
        middle = random.uniform(0, 600, (1, count, 2))
        extent = random.uniform(5, 100, (1, count, 2))
        boxes = np.concatenate([middle - extent / 2, middle + extent / 2], axis=2).astype(np.float32)
        scores = random.random((1, classes, count)).astype(np.float32)
        yield one(
            "NonMaxSuppression",
            f"{count}x{classes} most {most} iou {iou}",
            boxes,
            scores,
            ints(most),
            floats(iou),
            floats(0.4),
            constants=[2, 3, 4],
        )
    for n in (256, 400, 1024, 1000, 997):
        off = 1e-4 if n & (n - 1) == 0 else 1e-3  # onnxruntime's error against float64 is 3e-4, ours is 1e-6
        yield one("DFT", f"(32, {n})", normal(32, n, 1), None, np.array(1), constants=[2], opset=20, allowed=off)
    yield one("DFT", "onesided", normal(32, 512, 1), None, np.array(1), constants=[2], onesided=1, opset=20)
    yield one("DFT", "inverse complex", normal(32, 512, 2), None, np.array(1), constants=[2], inverse=1, opset=20)
    yield one("DFT", "axis 0", normal(256, 64, 2), None, np.array(0), constants=[2], opset=20)
    for frame, step in ((400, 160), (512, 128), (1024, 256)):
        yield one(
            "STFT",
            f"{frame}/{step}",
            normal(1, 16_000, 1),
            np.array(step),
            np.hanning(frame).astype(np.float32),
            constants=[1, 2],
        )
    yield one("MelWeightMatrix", "80", np.array(80), np.array(4096), np.array(16000), floats(0.0)[0], floats(8000.0)[0])
    yield one("HannWindow", "100000", np.array(100_000))
    yield one("Range", "100000", np.array(0), np.array(100_000), np.array(1))
    yield one("EyeLike", "1000", normal(1000, 1000))
    yield one("Col2Im", "3x3", normal(1, 16 * 9, 30 * 30), ints(32, 32), ints(3, 3), constants=[1, 2])
    yield one("CenterCropPad", "crop", normal(3, 480, 640), ints(3, 400, 400), constants=[1])
    yield one("NegativeLogLikelihoodLoss", "(64, 1000)", normal(64, 1000), whole(1000, 64))
    yield one("SoftmaxCrossEntropyLoss", "(64, 1000)", normal(64, 1000), whole(1000, 64), outputs=2)


FAMILIES = (selecting, indexing, reducing, convolutions, products, elementwise, images_and_sound)
