"""Generators of random nodes: one function for each family of operators, or for what exporters write for one layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from draw import Graph, NotDrawn, typed
from onnx import helper, numpy_helper

__all__ = ["FAMILIES", "drawn"]

Family = Callable[[Graph], Any]
FAMILIES: dict[Family, float] = {}
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint32, np.uint64]


def family(weight: float = 1.0) -> Callable[[Family], Family]:
    """Decorator: registers a generator with a relative frequency."""

    def enter(function: Family) -> Family:
        FAMILIES[function] = weight
        return function

    return enter


# elements --------------------------------------------------------------------------------------------------------------


@family(4)
def unary(g: Graph) -> str:
    bounded = "Relu Sigmoid Tanh Neg Abs Erf Sin Cos Elu Selu Celu LeakyRelu HardSigmoid HardSwish Softplus Softsign Mish Identity"
    op, x = g.one([*bounded.split(), "Exp", "Sqrt", "Reciprocal", "Gelu"]), g.real()
    if op == "Exp":
        x = g.add("Tanh", [x])
    if op in ("Sqrt", "Reciprocal"):
        x = g.add("Add", [g.add("Abs", [x]), g.fixed(np.float32(0.5))])
    some = {"alpha": g.one([0.01, 0.2, 1.5])} if op in ("Elu", "Celu", "LeakyRelu") and g.odds(0.7) else {}
    return g.add(op, [x], **some)


@family()
def unary_that_steps(g: Graph) -> str:
    return g.add(g.one(["Floor", "Ceil", "Round", "Sign", "IsNaN", "IsInf"]), [g.real(exact=True)])


@family(5)
def binary(g: Graph) -> str:
    op, x = g.one(["Add", "Sub", "Mul", "Add", "Mul", "Div", "Max", "Min", "Sum", "Mean", "Pow"]), g.real()
    if op == "Pow":
        return g.add(op, [x, g.fixed(np.float32(g.one([1, 2, 3])))])
    operands = [x, g.fitting(x, "positive" if op == "Div" else "")]
    if op in ("Sum", "Mean", "Max", "Min"):
        operands += [g.fitting(x) for _ in range(g.between(0, 2))]
    return g.add(op, operands if op == "Div" or g.odds(0.5) else operands[::-1])


@family(1.5)
def integers(g: Graph) -> str:
    dtype = np.dtype(g.one(INTEGERS))
    x = g.pick(lambda v: v.dtype == dtype and v.size > 0, exact=True) if g.odds(0.5) else g.new(g.shape(), dtype)
    op = g.one(
        [
            "Add",
            "Sub",
            "Mul",
            "Div",
            "Mod",
            "Max",
            "Min",
            "Abs",
            "Sign",
            "BitwiseAnd",
            "BitwiseXor",
            "Clip",
            "MatMul",
            "ReduceMax",
            "CumSum",
        ]
    )
    rank = g.values[x].ndim
    if op in ("Abs", "Sign"):
        return g.add(op, [x])
    if op == "ReduceMax":
        return reduced(g, op, x)
    if op == "CumSum":
        return g.add(op, [x, g.fixed(np.array(g.axis(rank)))], exclusive=g.between(0, 1), reverse=g.between(0, 1))
    if op == "Clip":
        return g.add(op, [x, g.fixed(np.array(1, dtype)), g.fixed(np.array(6, dtype))])
    if op == "MatMul":
        return g.add(op, [x, g.new([g.values[x].shape[g.axis(rank) * 0 - 1], g.extent()], dtype)])
    y = g.fitting(x, exact=True)
    if op in ("Div", "Mod"):
        y = g.fixed(np.maximum(g.values[y], 1))
    return g.add(op, [x, y])


@family(2)
def chosen(g: Graph) -> str:
    x = g.any(exact=True) if g.odds(0.3) else g.real(exact=True)
    if g.values[x].dtype.kind == "b":
        return g.add(g.one(["And", "Or", "Xor"]), [x, g.fitting(x, exact=True)])
    condition = g.add(g.one(["Equal", "Less", "Greater"]), [x, g.fitting(x, exact=True)])
    other = g.real()
    return g.add("Where", [condition, other, g.fitting(other)])


@family()
def clip(g: Graph) -> str:
    x, (low, high) = g.real(), g.one([(-1, 1), (0, 6), (1, -1)])
    return g.add("Clip", [x, *(g.fixed(np.float32(n)) if g.odds(0.7) else "" for n in (low, high))])


@family(1.5)
def cast(g: Graph) -> str:
    x = g.any(exact=True)
    to = np.dtype(g.one([np.float32, np.float32, np.float64, np.int64, np.int32, np.uint8, np.bool_]))
    value = g.values[x]
    if value.dtype.kind == "f" and to.kind in "iu" and not ((value >= np.iinfo(to).min) & (value < 2**31)).all():
        raise NotDrawn("a number that the integer does not hold")
    return g.add("Cast", [x], to=helper.np_dtype_to_tensor_dtype(to))


# sums ------------------------------------------------------------------------------------------------------------------


def reduced(g: Graph, op: str, x: str) -> str:
    rank, keep = g.values[x].ndim, g.between(0, 1)
    axes = g.axes(rank, g.between(0, rank))
    if g.opset >= 18 or op == "ReduceSum":
        return g.add(op, [x, g.fixed(np.array(axes, np.int64))] if g.odds(0.85) else [x], keepdims=keep)
    return g.add(op, [x], keepdims=keep, **({"axes": axes} if axes else {}))


@family(3)
def reduction(g: Graph) -> str:
    op = g.one(["Sum", "Mean", "Max", "Min", "L1", "L2", "SumSquare", "LogSumExp", "Mean", "Sum"])
    return reduced(g, f"Reduce{op}", g.real())


@family()
def along(g: Graph) -> str:
    x = g.real(1)
    axis = g.axis(g.values[x].ndim)
    if g.odds(0.3):
        return g.add("CumSum", [x, g.fixed(np.array(axis))], exclusive=g.between(0, 1), reverse=g.between(0, 1))
    return g.add(g.one(["Softmax", "Softmax", "LogSoftmax"]), [x], axis=axis)


@family()
def order(g: Graph) -> Any:
    x = g.real(1, exact=True)
    if g.special:
        raise NotDrawn("where NaN stands is open")
    axis = g.axis(g.values[x].ndim)
    if g.odds(0.5):
        return g.add(g.one(["ArgMax", "ArgMin"]), [x], axis=axis, select_last_index=g.between(0, 1))
    return g.add("TopK", [x, g.ints(g.between(1, g.values[x].shape[axis]))], 2, axis=axis, largest=g.between(0, 1))


# positions
# -------------------------------------------------------------------------------------------------------------


@family(3)
def reshape(g: Graph) -> str:
    x = g.any()
    rest, lens = g.values[x].size, []
    while rest > 1 and len(lens) < 4:
        lens.append(g.one([d for d in range(2, rest + 1) if rest % d == 0]))
        rest //= lens[-1]
    lens = [*lens, *([rest] if rest > 1 else []), *([1] if g.odds(0.4) else [])]
    lens = [lens[i] for i in g.rng.permutation(len(lens))]
    if lens and g.odds(0.5):
        lens[g.between(0, len(lens) - 1)] = -1
    return g.add("Reshape", [x, g.ints(*lens)])


@family(3)
def transpose(g: Graph) -> str:
    x = g.any(1)
    return g.add("Transpose", [x], perm=[int(a) for a in g.rng.permutation(g.values[x].ndim)])


@family()
def squeeze(g: Graph) -> str:
    x = g.any(0, 4)
    ones = [a for a, n in enumerate(g.values[x].shape) if n == 1]
    if ones and g.odds(0.6):
        return g.add("Squeeze", [x, g.ints(*ones)] if g.odds(0.7) else [x])
    return g.add("Unsqueeze", [x, g.ints(*g.axes(g.values[x].ndim + 1, 1))])


@family(2)
def slices(g: Graph) -> str:
    x = g.any(1)
    axis = g.axis(g.values[x].ndim)
    n = g.values[x].shape[axis]
    if g.odds(0.7):
        start, end, step = g.between(0, n - 1), g.one([n, -1, 2**63 - 1, g.between(0, n)]), g.one([1, 1, 2, 3])
    else:
        start, end, step = g.one([-1, n - 1, n + 3]), g.one([-n - 1, -(2**31), g.between(-n, n)]), g.one([-1, -2])
    return g.add("Slice", [x, *map(g.ints, (start, end, axis, step))])


@family(1.5)
def pad(g: Graph) -> str:
    x = g.any(1)
    lens, mode = g.values[x].shape, g.one(["constant", "constant", "edge", "reflect"])
    most = [min(3, n - 1) if mode == "reflect" else 3 for n in lens]
    pads = [-1 if n > 2 and g.odds(0.1) else g.between(0, m) for _ in range(2) for n, m in zip(lens, most, strict=True)]
    return g.add("Pad", [x, g.ints(*pads)], mode=mode)


@family(2)
def gather(g: Graph) -> str:
    x = g.any(1)
    value = g.values[x]
    axis = g.axis(value.ndim)
    n = value.shape[axis]
    if g.odds(0.3):
        lens = [g.between(1, m) for m in value.shape]
        return g.add("GatherElements", [x, g.fixed(g.rng.integers(-n, n, lens))], axis=axis)
    at = np.asarray(g.rng.integers(-n, n, [2, 3][: g.between(0, 2)]))
    return g.add("Gather", [x, g.fixed(at.astype(g.one([np.int64, np.int32])))], axis=axis)


@family()
def by_positions(g: Graph) -> str:
    x = g.any(1)
    lens = g.values[x].shape
    k, rows = g.between(1, len(lens)), g.between(1, 4)
    rows = min(rows, math.prod(lens[:k]))
    at = np.stack(np.unravel_index(g.rng.permutation(math.prod(lens[:k]))[:rows], lens[:k]), -1)
    if g.odds(0.5):
        return g.add("GatherND", [x, g.fixed(at)])
    return g.add("ScatterND", [x, g.fixed(at), g.new([rows, *lens[k:]], g.values[x].dtype)])


def beside(g: Graph, x: str, axis: int) -> list[str]:
    """Returns values that can be concatenated with x, including x."""
    like = g.values[x]
    rest = [n for a, n in enumerate(like.shape) if a != axis % like.ndim]
    return [
        name
        for name, v in g.values.items()
        if v.dtype == like.dtype
        and v.ndim == like.ndim
        and [n for a, n in enumerate(v.shape) if a != axis % v.ndim] == rest
    ]


@family(2)
def concat(g: Graph) -> str:
    x = g.any(1)
    axis = g.axis(g.values[x].ndim)
    return g.add("Concat", [x, *(g.one(beside(g, x, axis)) for _ in range(g.between(0, 3)))], axis=axis)


@family(1.5)
def concat_again(g: Graph) -> str:
    """Concatenates the same values repeatedly, and concatenations with their views, like dense blocks."""
    x = g.real(2)
    axis = g.between(0, g.values[x].ndim - 1)
    parts = [g.one(beside(g, x, axis)) for _ in range(g.between(2, 4))]
    made: str = g.add("Concat", parts, axis=axis)
    for _ in range(g.between(1, 2)):
        parts = [*parts, g.one([made, made, g.add("Relu", [made]), g.one(beside(g, x, axis))])]
        made = g.add("Concat", parts if g.odds(0.8) else parts[::-1], axis=axis)
    return made


@family(1.5)
def split(g: Graph) -> Any:
    x = g.any(1)
    axis = g.axis(g.values[x].ndim)
    n = g.values[x].shape[axis]
    cuts = sorted(g.between(0, n) for _ in range(g.between(0, 3)))
    parts = np.diff([0, *cuts, n])
    return g.add("Split", [x, g.fixed(parts.astype(np.int64))], len(parts), axis=axis)


@family(1.5)
def repeated(g: Graph) -> str:
    x = g.any(0, 4)
    lens = g.values[x].shape
    if g.odds(0.4):
        return g.add("Tile", [x, g.ints(*(g.one([1, 1, 2, 3]) for _ in lens))])
    wanted = [g.between(1, 4) if n == 1 else g.one([1, n]) for n in lens]
    return g.add("Expand", [x, g.ints(*([2] if g.odds(0.3) else []), *wanted)])


# extents that depend on data ------------------------------------------------------------------------------------------


@family(1.5)
def counted(g: Graph) -> Any:
    """Selects or counts rows by their contents."""
    x = g.real(1, 3, exact=True)
    lens = g.values[x].shape
    axis = g.between(0, len(lens) - 1)
    match g.between(0, 4):
        case 0:
            return g.add("NonZero", [g.add("Greater", [x, g.fixed(np.float32(0.25))])])
        case 1:
            kept = g.give(g.rng.random(lens[axis]) < 0.6)
            return g.add("Compress", [x, kept], axis=axis)
        case 2:
            at = g.add("NonZero", [g.add("Greater", [x, g.fixed(np.float32(0))])])
            return g.add("GatherND", [x, g.add("Transpose", [at], perm=[1, 0])])
        case 3:
            ends = g.give(np.array([g.between(0, lens[axis])]), "input")
            return g.add("Slice", [x, g.ints(0), ends, g.ints(axis)])
    parts = g.between(0, lens[axis])
    sizes = g.give(np.array([parts, lens[axis] - parts]), "input")
    return g.add("Split", [x, sizes], 2, axis=axis)


@family(1.5)
def shaped_by_values(g: Graph) -> Any:
    """Computes extents from other extents or from integer inputs."""
    x = g.any(1, 4)
    lens = g.values[x].shape
    match g.between(0, 4):
        case 0:
            cut = g.between(1, len(lens))
            rest = g.add("Slice", [g.add("Shape", [x]), g.ints(cut), g.ints(len(lens))]) if cut < len(lens) else ""
            return g.add("Reshape", [x, g.add("Concat", [g.ints(-1), *([rest] if rest else [])], axis=0)])
        case 1:
            wanted = g.give(np.array([n if n > 1 else g.between(1, 3) for n in lens]), "input")
            return g.add("Expand", [x, wanted])
        case 2:
            n = g.give(np.array(g.between(0, 6)), "input")
            made = g.add("Range", [g.fixed(np.array(0)), n, g.fixed(np.array(g.between(1, 2)))])
            return g.add("Cast", [made], to=onnx.TensorProto.FLOAT)
        case 3:
            wanted = g.give(np.array([-1, lens[-1]]), "input")
            return g.add("Reshape", [x, wanted])
    dims = g.add("Gather", [g.add("Shape", [x]), g.fixed(np.arange(len(lens))[:: g.one([1, -1])].copy())])
    return g.add("ConstantOfShape", [dims], value=numpy_helper.from_array(np.array([0.5], np.float32)))


@family(2)
def shape_arithmetic(g: Graph) -> Any:
    """Computes new extents of a tensor from its extents, as exporters write it."""
    x = g.any(1, 4)
    lens = g.values[x].shape
    dims = g.add("Shape", [x])

    def one(at: int) -> str:
        if g.odds(0.5):
            made = g.add("Gather", [dims, g.fixed(np.array(at))])
            return g.add("Unsqueeze", [made, g.ints(0)])
        return g.add("Slice", [dims, g.ints(at), g.ints(at + 1), *([g.ints(0)] if g.odds(0.5) else [])])

    def changed(n: str) -> str:
        """Returns the same number, computed in a roundabout way."""
        match g.between(0, 7):
            case 0:
                return g.add("Div", [g.add("Mul", [n, g.ints(6)]), g.ints(g.one([6, 6, 3]))])
            case 1:
                return g.add("Sub", [g.add("Add", [n, g.ints(5)]), g.ints(5)])
            case 2:
                wide = g.add("Cast", [n], to=onnx.TensorProto.FLOAT)
                made = g.add(g.one(["Floor", "Ceil"]), [g.add("Mul", [wide, g.fixed(np.float32([1]))])])
                return g.add("Cast", [made], to=onnx.TensorProto.INT64)
            case 3:
                return g.add("Where", [g.add("Equal", [n, g.ints(-1)]), g.ints(1), n])
            case 4:
                return g.add(g.one(["Max", "Min"]), [n, one(g.between(0, len(lens) - 1))])
            case 5:
                return g.add("ReduceMax", [g.add("Concat", [n, n], axis=0)], keepdims=1)
            case 6:
                return g.add("Reshape", [g.add("Reshape", [n, g.fixed(np.zeros(0, np.int64))]), g.ints(1)])
        return n

    parts = [one(a) for a in range(len(lens))]
    parts = [changed(p) if g.odds(0.4) else p for p in parts]
    whole = g.add("Concat", parts, axis=0) if g.odds(0.9) else dims
    match g.between(0, 5):
        case 0:
            return g.add("Reshape", [x, g.add("Concat", [*parts[:-1], g.ints(-1)], axis=0)])
        case 1:
            return g.add("Expand", [g.new([1] * len(lens)), whole])
        case 2:
            return g.add("ConstantOfShape", [whole])
        case 3:
            at = g.between(0, len(lens) - 1)
            return g.add("Slice", [x, g.ints(0), changed(parts[at]), g.ints(at)])
        case 4:
            n = g.add("Squeeze", [changed(parts[0])]) if g.opset >= 13 else parts[0]
            return g.add("Range", [g.fixed(np.array(0)), n, g.fixed(np.array(1))])
    return g.add("Mul", [whole, g.add("Div", [whole, whole])])


# products --------------------------------------------------------------------------------------------------------------


@family(4)
def matmul(g: Graph) -> str:
    x = g.real(1, 4)
    k, n = g.values[x].shape[-1], max(1, g.extent())
    made: str = g.add("MatMul", [x, g.new(g.one([[k, n], [k, n], [k]]), kind="small")])
    if g.odds(0.5):
        made = g.add("Add", [made, g.new(g.values[made].shape[-1:])])
    return g.add(g.one(["Relu", "Sigmoid", "Tanh"]), [made]) if g.odds(0.3) else made


@family()
def siblings(g: Graph) -> Any:
    """Adds products of one value, each followed by other work."""
    x = g.real(2, 3)
    k, op = g.values[x].shape[-1], g.one(["Relu", "Sigmoid", "Neg"])
    parts = [g.add("MatMul", [x, g.new([k, g.between(1, 8)], kind="small")]) for _ in range(g.between(2, 3))]
    if g.odds(0.6):
        parts = [g.add(op, [g.add("Add", [p, g.new(g.values[p].shape[-1:])])]) for p in parts]
    return g.add("Concat", parts, axis=-1) if g.odds(0.5) else parts


@family()
def gemm(g: Graph) -> str:
    x = g.real(2, 2)
    left, right = g.between(0, 1), g.between(0, 1)
    m, k = g.values[x].shape[::-1] if left else g.values[x].shape
    n = max(1, g.extent())
    inputs = [x, g.new([n, k] if right else [k, n], kind="small"), g.new(g.one([[m, n], [n], [1, n], [m, 1], []]))]
    return g.add("Gemm", inputs, transA=left, transB=right, alpha=g.one([1.0, 0.5]), beta=g.one([1.0, 0.0, -1.0]))


@family()
def einsum(g: Graph) -> str:
    text = g.one(
        [
            "ij,jk->ik",
            "bij,bjk->bik",
            "bhid,bhjd->bhij",
            "ii->i",
            "ij->ji",
            "i,j->ij",
            "bij,ij->bj",
            "ij,kj,k->i",
            "bchw,c->bhwc",
        ]
    )
    lens = {letter: g.between(1, 5) for letter in text}
    return g.add("Einsum", [g.new([lens[c] for c in part]) for part in text.split("->")[0].split(",")], equation=text)


def image(g: Graph) -> str:
    try:
        return g.pick(lambda v: v.dtype == np.float32 and 3 <= v.ndim <= 5 and 0 < v.size < 3000)
    except NotDrawn:
        rank = g.between(1, 3)
        return g.new(
            [g.between(1, 2), g.one([1, 2, 3, 4, 6, 8]), *(g.between(1, 20 // rank**2 + 3) for _ in range(rank))]
        )


@family(3)
def convolution(g: Graph) -> str:
    x = image(g)
    _, c, *lens = g.values[x].shape
    group = g.one([1, 1, c, g.one([n for n in range(1, c + 1) if c % n == 0])])
    kernel, out, backwards = [g.between(1, 3) for _ in lens], g.between(1, 4), g.odds(0.3)
    weights = [c, out, *kernel] if backwards else [out * group, c // group, *kernel]
    made: str = g.add(
        "ConvTranspose" if backwards else "Conv",
        [x, g.new(weights, kind="small"), *([g.new([out * group])] if g.odds(0.6) else [])],
        pads=[g.between(0, 2) for _ in range(2 * len(lens))],
        strides=[g.one([1, 1, 2, 3]) for _ in lens],
        dilations=[g.one([1, 1, 2]) for _ in lens],
        group=group,
    )
    return g.add(g.one(["Relu", "Sigmoid", "LeakyRelu"]), [made]) if g.odds(0.5) else made


@family(1.5)
def pool(g: Graph) -> str:
    x = image(g)
    lens = g.values[x].shape[2:]
    op, kernel = (
        g.one(["MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"]),
        [g.between(1, min(3, n)) for n in lens],
    )
    if op.startswith("Global"):
        return g.add(op, [x])
    pads = [g.between(0, k - 1) for _ in range(2) for k in kernel]
    more = {"count_include_pad": g.between(0, 1)} if op == "AveragePool" else {}
    strides = [g.one([1, 2, 3]) for _ in lens]
    return g.add(op, [x], kernel_shape=kernel, pads=pads, strides=strides, ceil_mode=g.between(0, 1), **more)


# layers ----------------------------------------------------------------------------------------------------------------


@family(2)
def norm(g: Graph) -> str:
    op = g.one(["Batch", "Layer", "Layer", "Instance"])
    x = g.real(1) if op == "Layer" else g.real(2) if op == "Batch" else image(g)
    lens = g.values[x].shape
    if op == "Layer":
        axis = g.axis(len(lens))
        return g.add("LayerNormalization", [x, *(g.new(lens[axis:]) for _ in range(2))], axis=axis)
    count, kinds = (4, ["positive", "", "small", "positive"]) if op == "Batch" else (2, ["", ""])
    return g.add(f"{op}Normalization", [x, *(g.new([lens[1]], kind=k) for k in kinds[:count])])


@family()
def norm_in_parts(g: Graph) -> str:
    x = g.real(2)

    def mean(v: str) -> Any:
        return g.add("ReduceMean", [v, g.ints(-1)]) if g.opset >= 18 else g.add("ReduceMean", [v], axes=[-1])

    apart: str = g.add("Sub", [x, mean(x)]) if g.odds(0.7) else x
    square = g.add("Mul", [apart, apart]) if g.odds(0.5) else g.add("Pow", [apart, g.fixed(np.float32(2))])
    root = g.add("Sqrt", [g.add("Add", [mean(square), g.fixed(np.float32(1e-2))])])
    made: str = g.add("Div", [apart, root]) if g.odds(0.5) else g.add("Mul", [apart, g.add("Reciprocal", [root])])
    return g.add("Mul", [made, g.new(g.values[x].shape[-1:])])


@family(2)
def attention(g: Graph) -> str:
    b, h, s, t, d, e = (
        g.between(1, 2),
        g.between(1, 4),
        g.one([1, 2, 5]),
        g.one([1, 3, 8]),
        g.one([1, 2, 4, 8]),
        g.one([2, 3]),
    )
    groups = g.one([n for n in range(1, h + 1) if h % n == 0])

    def heads(length: int, count: int, size: int) -> Any:
        made = g.add("MatMul", [g.new([b, length, 6]), g.new([6, count * size], kind="small")])
        return g.add("Transpose", [g.add("Reshape", [made, g.ints(0, -1, count, size)])], perm=[0, 2, 1, 3])

    def spread(x: str, size: int) -> Any:
        wide = g.add("Expand", [g.add("Unsqueeze", [x, g.ints(2)]), g.ints(b, groups, h // groups, t, size)])
        return g.add("Reshape", [wide, g.ints(b, h, t, size)])

    q, k, v = heads(s, h, d), spread(heads(t, groups, d), d), spread(heads(t, groups, e), e)
    scores = g.add("MatMul", [q, g.add("Transpose", [k], perm=[0, 1, 3, 2])])
    scores = g.add("Mul", [scores, g.fixed(np.float32(g.one([d**-0.5, 0.3])))])
    match g.between(0, 3):
        case 0:
            scores = g.add("Add", [scores, g.new(g.one([[b, 1, s, t], [s, t], [b, 1, 1, t], [h, 1, 1]]))])
        case 1:
            seen = g.rng.random([b, 1, s, t]) < 0.7
            seen[..., 0] = True
            scores = g.add("Where", [g.give(seen), scores, g.fixed(np.float32(g.one([-1e4, -3.4e38])))])
        case 2:
            scores = g.add("Add", [scores, g.fixed(np.triu(np.full([s, t], -1e4, np.float32), 1))])
    made = g.add("MatMul", [g.add("Softmax", [scores], axis=-1), v])
    return g.add("Reshape", [g.add("Transpose", [made], perm=[0, 2, 1, 3]), g.ints(0, 0, -1)])


@family(1.5)
def quantized(g: Graph) -> str:
    if g.special:
        raise NotDrawn("what NaN becomes is open")

    def there_and_back(x: str) -> Any:
        g.rounds = g.rounds or x not in g.exact
        dtype = g.one([np.int8, np.uint8])
        by = [g.fixed(np.float32(g.one([0.02, 0.0373, 0.1]))), g.fixed(dtype(g.between(0, 9)))]
        return g.add("DequantizeLinear", [g.add("QuantizeLinear", [x, *by]), *by])

    x = g.real(2)
    k, n = g.values[x].shape[-1], g.between(1, 9)
    codes = [
        g.fixed(g.rng.integers(-127, 128, [k, n]).astype(np.int8)),
        g.fixed((g.rng.random(n) * 0.02 + 0.002).astype(np.float32)),
    ]
    weights = g.add("DequantizeLinear", [*codes, g.fixed(np.zeros(n, np.int8))], axis=1)
    return there_and_back(g.add("MatMul", [there_and_back(x), weights]))


@family()
def recurrent(g: Graph) -> Any:
    op, t, b, i, h = (
        g.one(["LSTM", "GRU", "RNN"]),
        g.between(1, 4),
        g.between(1, 3),
        g.one([1, 3, 4]),
        g.one([1, 2, 7, 8]),
    )
    way, gates = g.one(["forward", "reverse", "bidirectional"]), {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    d = 2 if way == "bidirectional" else 1
    inputs = [g.new([t, b, i]), *(g.new([d, gates * h, n], kind="small") for n in (i, h))]
    inputs.append(g.new([d, 2 * gates * h], kind="small") if g.odds(0.6) else "")
    inputs.append(g.fixed(g.rng.integers(1, t + 1, b).astype(np.int32)) if g.odds(0.3) else "")
    more = {"linear_before_reset": g.between(0, 1)} if op == "GRU" else {}
    return g.add(op, inputs, 2, hidden_size=h, direction=way, **more)


# control ---------------------------------------------------------------------------------------------------------------


def body(g: Graph, x: str) -> str:
    """Adds ops that preserve extents."""
    for _ in range(g.between(1, 3)):
        value = g.values[x]
        if g.odds(0.5):
            x = g.add(g.one(["Tanh", "Relu", "Neg"]), [x])
        else:
            x = g.add(g.one(["Add", "Mul"]), [x, g.new([n if g.odds(0.5) else 1 for n in value.shape], kind="small")])
    return g.add("Identity", [x])


def subgraph(g: Graph, inputs: Sequence[str], outputs: Sequence[str]) -> onnx.GraphProto:
    def info(name: str, shape: bool) -> onnx.ValueInfoProto:
        return typed(name, g.values[name], shape)

    constants = [numpy_helper.from_array(np.asarray(v), n) for n, v in g.constants.items()]
    given, made = [info(i, True) for i in inputs], [info(o, False) for o in outputs]
    return helper.make_graph(g.nodes, g.name(), given, made, constants)


@family(0.7)
def branches(g: Graph) -> None:
    x = g.real()
    graphs = []
    for _ in range(2):
        inner = Graph(g.rng, g.opset, g.special, g)
        graphs.append(subgraph(inner, [], [body(inner, x)]))
    name = g.name()
    made = helper.make_node("If", [g.give(np.array(g.odds(0.5)))], [name], name=f"If_{name}")
    made.attribute.extend(
        helper.make_attribute(k, v) for k, v in zip(("then_branch", "else_branch"), graphs, strict=True)
    )
    g.add_node(made)


@family(0.7)
def loop(g: Graph) -> None:
    x, inner = g.real(), Graph(g.rng, g.opset, g.special, g)
    turn, go, state = inner.name(), inner.name(), inner.name()
    inner.values |= {turn: np.array(0), go: np.array(True), state: g.values[x]}
    y = body(inner, state)
    outputs = [inner.add("Identity", [go]), y, *([inner.add("Neg", [y])] if g.odds(0.5) else [])]
    graph = subgraph(inner, [turn, go, state], outputs)
    names = [g.name() for _ in outputs[1:]]
    inputs = [g.give(np.array(g.between(1, 3))), g.fixed(np.array(True)), x]
    g.add_node(helper.make_node("Loop", inputs, names, name=f"Loop_{names[0]}", body=graph))


def drawn(seed: Sequence[int]) -> tuple[Graph, list[str]]:
    """Returns a graph and the names of its results: unread values, and some that other nodes read, too."""
    rng = np.random.default_rng(seed)
    g = Graph(rng, int(rng.choice([13, 17, 18, 20, 21, 22])), special=bool(rng.random() < 0.05))
    for _ in range(g.between(1, 3)):
        g.give(g.numbers(g.shape()), "input")
    # a few families at a time, so that they are combined more often
    chosen_ones = [f for f in FAMILIES if g.odds(0.4)] or list(FAMILIES)
    weights = np.array([FAMILIES[f] for f in chosen_ones])
    wanted = g.between(3, 40)
    for _ in range(2 * wanted):
        if len(g.nodes) >= wanted:
            break
        try:
            chosen_ones[int(rng.choice(len(chosen_ones), p=weights / weights.sum()))](g)
        except NotDrawn:
            continue
    made = [o for node in g.nodes if node.op_type != "Constant" for o in node.output]
    read = {i for node in g.nodes for i in node.input}
    results = [o for o in made if o not in read or g.odds(0.12)]
    return g, [results[i] for i in rng.permutation(len(results))]
