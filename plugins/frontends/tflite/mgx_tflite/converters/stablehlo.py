"""StableHLO operators, which JAX's and PyTorch's converters write to .tflite files, and REDUCE_WINDOW."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.converting.strided import cut
from mgx_core.ops.reduce import Reduce, ReduceAll, ReduceAny, ReduceMax, ReduceMin, ReduceProd, ReduceSum
from mgx_core.types.dim import Dim, product
from mgx_core.types.memory_limit import require_memory

from ..converter import converts
from ..node import Node
from .control import results_of, while_
from .parts import inside, replaced

ELEMENTWISE = {
    "LOGISTIC": "sigmoid", "ADD": "add", "DIVIDE": "div", "MULTIPLY": "mul", "MAXIMUM": "max", "MINIMUM": "min", "ABS": "abs",
    "COSINE": "cos", "EXPONENTIAL": "exp", "FLOOR": "floor", "LOG": "log", "NEGATE": "neg", "POWER": "pow", "REMAINDER": "fmod",
    "RSQRT": "rsqrt", "SELECT": "where", "SUBTRACT": "sub", "TANH": "tanh", "SHIFT_LEFT": "bit_shift_left",
}  # fmt: skip
COMPARISONS = ("equal", "not_equal", "greater_or_equal", "greater", "less_or_equal", "less")  # by enumeration value
BODIES: dict[str, type[Reduce]] = {
    "ADD": ReduceSum, "MULTIPLY": ReduceProd, "MUL": ReduceProd, "MAXIMUM": ReduceMax, "MINIMUM": ReduceMin, "AND": ReduceAll,
    "OR": ReduceAny, "LOGICAL_AND": ReduceAll, "LOGICAL_OR": ReduceAny,
}  # fmt: skip


def _elementwise(op: str) -> Callable[..., Instruction]:
    def convert(n: Node, *xs: Instruction) -> Instruction:
        return n.pointwise(op, *xs)

    return convert


for _name, _op in ELEMENTWISE.items():
    converts(f"STABLEHLO_{_name}")(_elementwise(_op))


@converts("STABLEHLO_AND", "STABLEHLO_OR")
def logical(n: Node, x: Instruction, y: Instruction) -> Instruction:
    word = n.op_type.removeprefix("STABLEHLO_").lower()
    return n.pointwise(("bitwise_" if x.shape.dtype.is_integer else "logical_") + word, x, y)


@converts("STABLEHLO_CBRT")
def cube_root(n: Node, x: Instruction) -> Instruction:
    size = n.pointwise("pow", n.pointwise("abs", x), n.literal(1 / 3, x.shape.dtype))
    return n.pointwise("mul", n.pointwise("sign", x), size)


@converts("STABLEHLO_CLAMP")
def clamp(n: Node, low: Instruction, x: Instruction, high: Instruction) -> Instruction:
    return n.pointwise("clip", x, low, high)


@converts("STABLEHLO_COMPARE")
def compare(n: Node, x: Instruction, y: Instruction) -> Instruction:
    at = n.option("ComparisonDirection", 0)
    if not 0 <= at < len(COMPARISONS):
        n.fail(f"unknown StableHLO comparison {at}")
    return n.pointwise(COMPARISONS[at], x, y)


@converts("STABLEHLO_CONVERT")
def convert_type(n: Node, x: Instruction) -> Instruction:
    return n.convert(x, n.kind())


@converts("STABLEHLO_RESHAPE")
def reshape(n: Node, x: Instruction) -> Instruction:
    dims = n.output().dims
    if sum(d < 0 for d in dims) > 1:
        n.unsupported(f"several symbolic extents {dims}")
    return n.reshape(x, _resolved(x, dims))


def _resolved(x: Instruction, dims: Sequence[int]) -> list[Dim]:
    known = product(d for d in dims if d >= 0)
    return [d if d >= 0 else product(x.shape.dims) // known for d in dims]


@converts("STABLEHLO_TRANSPOSE")
def transpose(n: Node, x: Instruction) -> Instruction:
    return n.transpose(x, n.axes(n.options("Permutation"), x.shape.rank))


@converts("STABLEHLO_CONCATENATE")
def concatenate(n: Node, *xs: Instruction) -> Instruction:
    return n.concat(list(xs), n.option("Dimension", 0))


@converts("STABLEHLO_BROADCAST_IN_DIM")
def broadcast_in_dim(n: Node, x: Instruction) -> Instruction:
    dims, axes = n.output().dims, n.options("BroadcastDimensions")
    if any(d < 0 for d in dims):
        n.unsupported(f"symbolic extents {dims}")
    if len(axes) != x.shape.rank or sorted(set(axes)) != list(axes) or any(not 0 <= a < len(dims) for a in axes):
        n.fail(f"ascending axes of {dims} are required for {x.shape}, got {axes}")
    wide: list[Dim] = [1] * len(dims)
    for axis, d in zip(axes, x.shape.dims, strict=True):
        wide[axis] = d
    return n.broadcast_to(n.reshape(x, wide), dims)


@converts("STABLEHLO_SLICE")
def slice_(n: Node, x: Instruction) -> Instruction:
    starts, ends, steps = (n.options(w) for w in ("StartIndices", "LimitIndices", "Strides"))
    if any(s < 0 for s in starts) or any(s < 1 for s in steps):
        n.fail(f"begins of at least 0 and strides of at least 1 are required, got {starts} and {steps}")
    return cut(n, x, range(x.shape.rank), starts, ends, steps)


def _vector(n: Node, starts: Sequence[Instruction]) -> Instruction:
    return n.concat([n.reshape(n.convert(s, np.int64), (1,)) for s in starts], 0)


@converts("STABLEHLO_DYNAMIC_SLICE")
def dynamic_slice(n: Node, x: Instruction, *starts: Instruction) -> Instruction:
    sizes = n.options("SliceSizes")
    first = inside(n, x, sizes, _vector(n, starts))
    last = n.pointwise("add", first, n.literal(sizes, np.int64))
    return n.reshape(n.add("slice", x, first, last, axes=tuple(range(x.shape.rank))), sizes)


@converts("STABLEHLO_DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(n: Node, x: Instruction, update: Instruction, *starts: Instruction) -> Instruction:
    return replaced(n, x, update, _vector(n, starts))


@converts("STABLEHLO_PAD")
def pad(n: Node, x: Instruction, value: Instruction) -> Instruction:
    """Pads x at its edges, by possibly negative widths, and between its elements."""
    low, high, inner = (n.options(w) for w in ("EdgePaddingLow", "EdgePaddingHigh", "InteriorPadding"))
    for axis, between in enumerate(inner):
        if between > 0:
            dims = x.shape.dims
            wide = n.unsqueeze(x, [axis + 1])
            filler = n.broadcast_to(value, (*dims[: axis + 1], between, *dims[axis + 1 :]))
            step = between + 1
            made = n.reshape(n.concat([wide, filler], axis + 1), (*dims[:axis], dims[axis] * step, *dims[axis + 1 :]))
            x = n.slice(made, [axis], [0], [dims[axis] * step - between])
    if any(p > 0 for p in (*low, *high)):
        x = n.add("pad", x, None, value, pads=(*(max(p, 0) for p in low), *(max(p, 0) for p in high)))
    short = [a for a in range(x.shape.rank) if low[a] < 0 or high[a] < 0]
    if not short:
        return x
    ends = [x.shape.dims[a] + min(high[a], 0) for a in short]
    return n.slice(x, short, [max(-low[a], 0) for a in short], ends)


@converts("STABLEHLO_IOTA")
def iota(n: Node) -> Instruction:
    dims, axis = n.output().dims, n.option("IotaDimension", 0)
    if any(d < 0 for d in dims) or not 0 <= axis < len(dims):
        n.fail(f"known extents and an axis within them are required, got {dims} and {axis}")
    require_memory(dims, max(n.kind().size, 8), "the numbers")
    row = np.arange(dims[axis]).reshape([-1 if a == axis else 1 for a in range(len(dims))])
    return n.broadcast_to(n.literal(row, n.kind()), dims)


@converts("STABLEHLO_DOT_GENERAL")
def dot_general(n: Node, x: Instruction, y: Instruction) -> Instruction:
    sides = [[n.options(f"{side}{what}Dimensions") for what in ("Batching", "Contracting")] for side in ("Lhs", "Rhs")]
    (xb, xc), (yb, yc) = sides
    if len(xb) != len(yb) or len(xc) != len(yc) or x.shape.rank + y.shape.rank > 52:
        n.fail(f"both operands must have the same number of axes, got {sides}")
    letters = iter("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    left = [next(letters) for _ in range(x.shape.rank)]
    right = [next(letters) for _ in range(y.shape.rank)]
    for a, b in zip((*xb, *xc), (*yb, *yc), strict=True):
        right[b] = left[a]
    out = [left[a] for a in xb]
    out += [left[a] for a in range(x.shape.rank) if a not in (*xb, *xc)]
    out += [right[b] for b in range(y.shape.rank) if b not in (*yb, *yc)]
    equation = f"{''.join(left)},{''.join(right)}->{''.join(out)}"
    return n.convert(n.add("einsum", x, y, equation=equation), n.kind())


@converts("STABLEHLO_REDUCE")
def reduce(n: Node, x: Instruction, start: Instruction) -> Instruction:
    """Returns a reduction whose body is one operator; the initial value `start` is combined at the end."""
    name = n.scope.reducer(n.option("BodySubgraphIndex", -1))
    word = name.removeprefix("STABLEHLO_")
    if word not in BODIES:
        n.unsupported(f"a reduction by {name}")
    if BODIES[word] in (ReduceAll, ReduceAny) and x.shape.dtype is not dt.bool_:
        n.unsupported(f"a reduction of {x.shape.dtype} by {name}: it is supported for booleans only")
    made = n.squeeze(n.along_axes(BODIES[word], x, n.options("Dimensions")), n.options("Dimensions"))
    joins = {ReduceSum: "add", ReduceProd: "mul", ReduceMax: "max", ReduceMin: "min", ReduceAll: "logical_and"}
    return n.pointwise(joins.get(BODIES[word], "logical_or"), made, start)


@converts("STABLEHLO_COMPOSITE")
def composite(n: Node, *_: Instruction | None) -> Any:
    """Inlines the operators of a composite."""
    given = [n.scope.any(i) for i in n.operator.inputs]
    return results_of(n, n.scope.call(n.option("DecompositionSubgraphIndex", -1), given))


converts("STABLEHLO_WHILE")(while_)


@converts("REDUCE_WINDOW")
def reduce_window(
    n: Node,
    x: Instruction,
    start: Instruction,
    lengths: Instruction,
    strides: Instruction,
    dilations: Instruction,
) -> Instruction:
    """Returns a windowed reduction without padding; the initial value `start` is combined."""
    kinds = {1: ("add", "reduce_sum"), 2: ("mul", "reduce_prod"), 3: ("min", "reduce_min"), 4: ("max", "reduce_max"),
             5: ("logical_and", "reduce_all"), 6: ("logical_or", "reduce_any")}  # fmt: skip
    how = n.option("ReduceFunction", 0)
    if how not in kinds:
        n.unsupported(f"windows reduced by function {how}")
    sizes, steps, spread = (n.whole(v, "windows") for v in (lengths, strides, dilations))
    for axis in range(x.shape.rank):
        size, step, apart = sizes[axis], steps[axis], spread[axis]
        if size == 1 and step == 1:
            continue
        length = x.shape.dims[axis]
        if not isinstance(length, int) or min(size, step, apart) < 1 or length < (size - 1) * apart + 1:
            n.fail(f"windows of {size} by {step} do not fit axis {axis} of {x.shape}")
        count = (length - (size - 1) * apart - 1) // step + 1
        require_memory((count, size), 8, "the window positions")
        at = np.arange(count)[:, None] * step + np.arange(size)[None] * apart
        parts = n.add("gather", x, n.literal(at), axis=axis)
        x = n.squeeze(n.add(kinds[how][1], parts, axes=(axis + 1,)), [axis + 1])
    return n.pointwise(kinds[how][0], x, start)
