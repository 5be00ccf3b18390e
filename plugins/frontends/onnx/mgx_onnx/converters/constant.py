"""Constants, shape queries, ranges, identity matrices."""

from __future__ import annotations

import math

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.types.dim import Sym
from mgx_core.types.dtype import DType

from ..converter import converts
from ..node import Node
from ..tensors import dtype_of
from .movement import bounded, known_ints

SMALL = 1 << 16  # largest computed constant, in elements, that is stored as a literal

FORMS = (
    "value",
    "sparse_value",
    "value_float",
    "value_floats",
    "value_int",
    "value_ints",
    "value_string",
    "value_strings",
)


@converts("Constant")
def constant(n: Node) -> Instruction:
    given = [f for f in FORMS if n.has(f)]
    if len(given) != 1:
        n.fail(f"exactly one of {', '.join(FORMS)} is required, got {', '.join(given) or 'none'}")
    value = n.attr(given[0])
    kinds: dict[str, DType] = {"value_float": dt.float32, "value_int": dt.int64, "value_string": dt.string}
    kind = kinds.get(given[0].removesuffix("s"))
    return n.literal(value) if kind is None else n.literal(value, kind)


@converts("ConstantOfShape", since=9)
def constant_of_shape(n: Node, shape: Instruction) -> Instruction:
    value = n.attr("value", np.zeros(1, np.float32))
    if value.size != 1:
        n.fail(f"value must have one element, got {value.size}")
    return _filled(n, value.reshape(()), shape)


def _filled(n: Node, value: np.ndarray[tuple[int, ...], np.dtype[np.generic]], shape: Instruction) -> Instruction:
    dims = n.dims(shape)
    one = n.literal(value)
    if dims is None:
        return n.add("broadcast_with_dims", one, shape)
    return n.broadcast_to(one, bounded(n, dims, value.dtype.itemsize))


@converts("ConstantFill")
def constant_fill(n: Node, shape: Instruction | None = None) -> Instruction:
    """Converts ConstantFill, an experimental operator of early ONNX that some old models contain."""
    value = np.asarray(n.attr("value", 0.0)).astype(dtype_of(n.attr("dtype", 1)).numpy)
    if n.attr("extra_shape", None):
        n.unsupported("extra_shape is not supported")
    if n.attr("input_as_shape", 0):
        if shape is None or n.attr("shape", None):
            n.fail("input_as_shape requires an input and excludes attribute shape")
        return _filled(n, value, shape)
    if shape is not None:
        return n.broadcast_to(n.literal(value), shape.shape.dims)
    return n.broadcast_to(n.literal(value), bounded(n, n.attr("shape"), value.dtype.itemsize))


@converts("Shape")
def shape_of(n: Node, x: Instruction) -> Instruction:
    start, end = n.attr("start", 0), n.attr("end", None)
    if n.version < 15 and (n.has("start") or n.has("end")):
        n.fail("start and end exist since opset 15")
    if x.shape.ranked and not any(isinstance(d, Sym) for d in x.shape.dims[start:end]):
        return n.literal(np.array(x.shape.dims[start:end], np.int64))
    return n.add("dimensions_of", x, start=start, end=end)


@converts("Size")
def size_of(n: Node, x: Instruction) -> Instruction:
    if not x.shape.dynamic():
        return n.literal(np.array(math.prod(x.shape.lens()), np.int64))
    return n.reshape(n.add("reduce_prod", n.add("dimensions_of", x), axes=(0,)), ())


@converts("Range", since=11)
@converts("Range", domain="com.microsoft")
def range_(n: Node, start: Instruction, limit: Instruction, delta: Instruction | None = None) -> Instruction:
    if delta is None:  # optional in com.microsoft
        delta = n.literal(1, start.shape.dtype)
    if n.attr("stash_type", 1) != 1:
        n.unsupported(f"stash_type must be 1, got {n.attr('stash_type')}")
    kinds = {start.shape.dtype, limit.shape.dtype, delta.shape.dtype}
    if len(kinds) != 1:
        n.fail(f"start, limit and delta must share one type, got {', '.join(map(str, kinds))}")
    known = [n.constant(v) for v in (start, limit, delta)]
    if all(v is not None and v.size == 1 for v in known):
        first, stop, step = (float(v.reshape(-1)[0]) for v in known if v is not None)
        if step == 0 or not math.isfinite((stop - first) / step):
            n.fail(f"a range from {first} to {stop} by {step} is infinite")
        bounded(n, [max(0, math.ceil((stop - first) / step))], start.shape.dtype.size)
    return n.add("dynamic_range", start, limit, delta, length=n.known.count(start, limit, delta))


@converts("EyeLike", since=9)
def eye_like(n: Node, x: Instruction) -> Instruction:
    if x.shape.rank != 2:
        n.fail(f"the input must be a matrix, got {x.shape}")
    to = dtype_of(n.attr("dtype")) if n.has("dtype") else x.shape.dtype
    k = n.attr("k", 0)
    if x.shape.dynamic() or x.shape.elements() > SMALL:
        return n.add("eye_like", x, dtype=to, k=k)
    rows, columns = x.shape.lens()
    return n.literal(np.eye(rows, columns, max(-rows - 1, min(columns + 1, k)), np.int8), to)


@converts("ATen")
@converts("ATen", domain="org.pytorch.aten")
def aten(n: Node, *inputs: Instruction | None) -> Instruction:
    """Converts PyTorch's ATen operators, of which only embedding_bag is supported."""
    name = n.attr("operator", "")
    if name != "embedding_bag":
        n.unsupported(f"ATen operator {name!r} is not supported")
    weight, indices, offsets = (*inputs, None, None, None)[:3]
    if weight is None or indices is None or any(i is not None for i in inputs[3:]):
        n.unsupported("embedding_bag requires weight, indices and offsets")
    for setting in ("scale_grad_by_freq", "sparse", "include_last_offset"):
        if n.attr(setting, 0):
            n.unsupported(f"{setting} is not supported")
    reduce = {0: "reduce_sum", 1: "reduce_mean", 2: "reduce_max"}.get(n.attr("mode", 1))
    if reduce is None or indices.shape.rank != 1:
        n.fail(f"mode 0, 1 or 2 and a vector of indices are required, got {n.attr('mode', 1)} and {indices.shape}")
    begins = [0] if offsets is None else known_ints(n, offsets)
    if begins is None:
        if offsets is None or offsets.shape.dims != (1,):
            n.unsupported("offsets must be constant, or have one element")
        begins = [0]
    ends = [*begins[1:], indices.shape.dims[0]]
    bags = []
    for begin, end in zip(begins, ends, strict=True):
        rows = n.add("gather", weight, n.slice(indices, (0,), (begin,), (end,)), axis=0)
        bags.append(n.add(str(reduce), rows, axes=(0,)))
    return bags[0] if len(bags) == 1 else n.add("concat", *bags, axis=0)
