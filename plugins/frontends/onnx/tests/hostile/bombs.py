"""Small files that would require immense memory or time."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from case import add, array, graph, i64, info, model, one
from nodes import IMAGE, X, both
from onnx import TensorProto as T
from onnx import helper as h

n = h.make_node
HUGE = 10**12
ROW = np.ones((1, 10**6), np.float32)

both("memory", "ConstantOfShape", "ConstantOfShape", np.array([HUGE]))
both("memory", "ConstantOfShape, many axes", "ConstantOfShape", np.array([10**4] * 5))
both("memory", "ConstantOfShape, then a sum", "ConstantOfShape", np.array([10**10]))
both("memory", "Expand", "Expand", X, np.array([HUGE, 2, 3]))
both("memory", "Tile", "Tile", X, np.array([10**6, 10**6]))
both("memory", "Pad", "Pad", X, np.array([10**6, 10**6, 10**6, 10**6]))
both("memory", "Pad by edges", "Pad", X, np.array([10**6, 10**6, 10**6, 10**6]), mode="edge")
both("memory", "Range", "Range", np.array(0), np.array(HUGE), np.array(1))
both("memory", "Range of floats", "Range", np.float32(0), np.float32(1e12), np.float32(0.5))
both("memory", "Resize by factors", "Resize", IMAGE, None, np.array([1, 1, 1e6, 1e6], np.float32))
both("memory", "Resize to extents", "Resize", IMAGE, None, None, np.array([1, 2, 10**6, 10**6]), mode="linear")
both("memory", "Upsample", "Upsample", IMAGE, np.array([1, 1, 1e6, 1e6], np.float32), opset=9)
both("memory", "OneHot", "OneHot", np.zeros(100, np.int64), np.array([HUGE]), np.array([0.0, 1.0]))
both("memory", "CenterCropPad", "CenterCropPad", X, np.array([10**6, 10**7]))
both("memory", "HannWindow", "HannWindow", np.array(HUGE))
both(
    "memory",
    "MelWeightMatrix",
    "MelWeightMatrix",
    np.array(10**6),
    np.array(10**9),
    np.array(16000),
    np.float32(0),
    np.float32(8000),
)
both("memory", "DFT", "DFT", np.ones((1, 4, 1), np.float32), np.array(HUGE))
both(
    "memory",
    "MaxUnpool",
    "MaxUnpool",
    IMAGE,
    np.zeros(IMAGE.shape, np.int64),
    np.array([1, 2, 10**6, 10**7]),
    kernel_shape=[2, 2],
)
both("memory", "AffineGrid", "AffineGrid", np.ones((1, 2, 3), np.float32), np.array([1, 1, 10**6, 10**7]))
both("memory", "Col2Im", "Col2Im", np.ones((1, 1, 1), np.float32), np.array([10**6, 10**6]), np.array([10**6, 10**6]))
both("memory", "Gather", "Gather", ROW, np.zeros(10**6, np.int64))
add("memory", "Add", lambda folder: one("Add", ROW, ROW.T.copy()))
add("memory", "MatMul", lambda folder: one("MatMul", ROW.T.copy(), ROW))
add("memory", "Where", lambda folder: one("Where", ROW > 0, ROW.T.copy(), ROW))
add("memory", "Einsum", lambda folder: one("Einsum", *[np.ones(1000, np.float32)] * 5, equation="a,b,c,d,e->abcde"))
add("memory", "Conv with pads", lambda folder: one("Conv", IMAGE, np.ones((2, 2, 2, 2), np.float32), pads=[10**6] * 4))
add(
    "memory",
    "ConvTranspose with strides",
    lambda folder: one("ConvTranspose", IMAGE, np.ones((2, 2, 2, 2), np.float32), strides=[10**6, 10**6]),
)
add(
    "memory",
    "RoiAlign",
    lambda folder: one(
        "RoiAlign", IMAGE, np.array([[0, 0, 1, 1]], np.float32), np.array([0]), output_height=10**6, output_width=10**6
    ),
)
add(
    "memory",
    "MaxRoiPool",
    lambda folder: one("MaxRoiPool", IMAGE, np.array([[0, 0, 0, 1, 1]], np.float32), pooled_shape=[10**6, 10**6]),
)
for op in ("RandomNormal", "RandomUniform"):
    add("memory", op, lambda folder, o=op: one(o, shape=[HUGE]))
add("memory", "Multinomial", lambda folder: one("Multinomial", X, sample_size=HUGE))
add(
    "memory",
    "EyeLike",
    model([n("ConstantOfShape", ["d"], ["z"]), n("EyeLike", ["z"], ["y"])], [], ["y"], [i64("d", 10**6, 10**6)]),
)
add(
    "memory",
    "NonZero of an expansion",
    model([n("Expand", ["x", "d"], ["z"]), n("NonZero", ["z"], ["y"])], [info("x", (1,))], ["y"], [i64("d", HUGE)]),
)
add(
    "memory",
    "sum over an expansion",
    model(
        [n("Expand", ["x", "d"], ["z"]), n("ReduceSum", ["z"], ["y"])],
        [info("x", (1,)), info("d", (1,), T.INT64)],
        ["y"],
    ),
    "either",
)
add("memory", "input of 10^12 elements", model([n("Relu", ["x"], ["y"])], [info("x", (HUGE,))]))
for times in (40, 70):
    nodes = [n("Concat", [f"t{k}" if k else "x"] * 2, [f"t{k + 1}"], axis=0) for k in range(times)]
    add("memory", f"doubled {times} times", model(nodes, [info("x")], [f"t{times}"]))


def growing(step: list, state: list, trips: int = 10**9, kind: int = T.FLOAT, rows: bool = False) -> object:
    body = graph(
        [n("Identity", ["k"], ["k2"]), *step],
        [info("i", (), T.INT64), info("k", (), T.BOOL), info("s", state, kind)],
        ["k2", "s2", *(["s"] if rows else [])],
    )
    outputs = ["y", "r"] if rows else ["y"]
    return model([n("Loop", ["c", "", "x"], outputs, body=body)], [info("x", (2,), kind)], outputs, [array("c", trips)])


for trips in (10**9, 1000):  # a few more than are allowed
    few = "" if trips > 1000 else f", {trips} trips"
    doubled = [n("Concat", ["s", "s"], ["s2"], axis=0)]
    add("memory", f"Loop that doubles{few}", growing(doubled, ["n"], trips))
    words = [n("StringConcat", ["s", "s"], ["s2"])]
    add("memory", f"Loop that doubles words{few}", growing(words, [2], trips, kind=T.STRING))
    expanded = [
        n("Shape", ["s"], ["d"]),
        n("Add", ["d", "d"], ["e"]),
        n("Expand", ["u", "e"], ["s2"]),
        n("Cast", ["i"], ["u"], to=T.FLOAT),
    ]
    add("memory", f"Loop that expands{few}", growing(expanded, ["n"], trips))
gathering = graph(
    [n("Identity", ["k"], ["k2"]), n("ConstantOfShape", ["d"], ["row"])],
    [info("i", (), T.INT64), info("k", (), T.BOOL)],
    ["k2", "row"],
)
add(
    "memory",
    "Loop that gathers rows",
    model([n("Loop", ["c", ""], ["y"], body=gathering)], [], ["y"], [array("c", 10**9), i64("d", 10**7)]),
)
squaring = graph(
    [n("Identity", ["k"], ["k2"]), n("ConcatFromSequence", ["s"], ["t"], axis=0), n("SequenceInsert", ["s", "t"], ["s2"])],
    [info("i", (), T.INT64), info("k", (), T.BOOL), h.make_tensor_sequence_value_info("s", T.FLOAT, None)], ["k2", "s2"],
)  # fmt: skip
for trips in (10**6, 1000):
    nodes = [
        n("SequenceConstruct", ["x"], ["q"]),
        n("Loop", ["c", "", "q"], ["z"], body=squaring),
        n("SequenceLength", ["z"], ["y"]),
    ]
    few = "" if trips > 1000 else f", {trips} trips"
    add("memory", f"Loop that doubles a sequence{few}", model(nodes, [info("x", (2,))], ["y"], [array("c", trips)]))


def png(width: int, height: int, rows: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(bytes((width + 1) * rows)))
        + chunk(b"IEND", b"")
    )


def picture(data: bytes) -> object:
    return lambda folder: one("ImageDecoder", np.frombuffer(data, np.uint8))


add("images", "PNG of 10^10 pixels", picture(png(100_000, 100_000, 10)))
add("images", "PNG of 2^62 pixels", picture(png((1 << 31) - 1, (1 << 31) - 1, 0)), "either")
add("images", "truncated PNG", picture(png(64, 64, 64)[:80]), "either")
add("images", "PNG without rows", picture(png(64, 64, 0)), "either")
add("images", "no bytes", picture(b""), "either")
add("images", "noise", picture(np.random.default_rng(0).bytes(2000)), "either")
add("images", "PostScript", picture(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9999 9999\n(x) run\n"), "either")
add(
    "images",
    "BMP of 2^62 pixels",
    picture(
        b"BM"
        + struct.pack("<IHHIIiiHHIIiiII", 100, 0, 0, 54, 40, (1 << 31) - 1, (1 << 31) - 1, 1, 24, 0, 0, 0, 0, 0, 0)
    ),
    "either",
)
add("images", "text image of 10^10 pixels", picture(io.BytesIO(b"P3 100000 100000 255 1 2 3").getvalue()), "either")

WORDS = np.array(["a" * 5000 + "!", "x" * 5000], object)
for pattern in (
    "(a+)+$",
    "(a|a)*b",
    "(a*)*$",
    "(.*)*x",
    "(a|aa)+$",
    "((a?){30}){30}$",
    "(.*a){12}",
    "a{1000}",
    "(a{1,100}){1,100}",
    "(x+x+)+y",
    "^(([a-z])+.)+[A-Z]([a-z])+$",
):
    add("expressions", f"{pattern}", lambda folder, p=pattern: one("RegexFullMatch", WORDS, pattern=p), "either")
for pattern in ("(", "[", "a{2,1}", "*a", "\\", "(?<=a)b", "a{100000}{100000}", "(" * 20_000 + ")" * 20_000, "[z-a]"):
    add(
        "expressions",
        f"bad {pattern[:20]} {len(pattern)}",
        lambda folder, p=pattern: one("RegexFullMatch", WORDS, pattern=p),
        "either" if "?" in pattern else "refuse",
    )
add(
    "expressions",
    "long alternatives",
    lambda folder: one("RegexFullMatch", WORDS, pattern="|".join(f"a{k}" for k in range(5000))),
    "either",
)
add(
    "expressions",
    "StringSplit into 10^5",
    lambda folder: one("StringSplit", np.array([" ".join("a" * 10**5)], object), outputs=2),
    "run",
)
add(
    "expressions",
    "Tokenizer",
    lambda folder: one(
        "Tokenizer", WORDS, domain="com.microsoft", mark=0, pad_value="", mincharnum=1, tokenexp="(a+)+b"
    ),
    "either",
)
