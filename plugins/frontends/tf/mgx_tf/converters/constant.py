"""Constants, shape queries, fills and ranges."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.converting.filling import broadcast_extents, filled, one_hot
from mgx_core.types.dim import ceil_div, maximum

from ..converter import converts, converts_values
from ..node import Node
from ..values import Complex, TensorList, Value


@converts_values("Const", "HostConst")
def const(n: Node) -> Value:
    file = n.scope.context.resources.asset(n.name)
    if file:
        return n.literal(np.array(file, object), dt.string)
    array = n.tensor("value")
    if array.dtype.kind == "c":
        return Complex(n.literal(np.ascontiguousarray(array.real)), n.literal(np.ascontiguousarray(array.imag)))
    return n.literal(array)


@converts_values("Placeholder")
def asset(n: Node) -> Value:
    file = n.scope.context.resources.asset(n.name)
    if not file:
        n.unsupported("an input that is neither in the signature nor an asset path")
    return n.literal(np.array(file, object), dt.string)


@converts_values(
    "Identity", "Snapshot", "RefIdentity", "PlaceholderWithDefault", "StopGradient", "PreventGradient", "GuaranteeConst",
    "DeepCopy", "Copy", "CopyHost", "XlaSharding", "_EagerConst",
)  # fmt: skip
def identity(n: Node, x: Value) -> Value:
    return x


@converts_values("IdentityN", "ShapeHolder")
def identity_n(n: Node, *xs: Value) -> Any:
    return xs


@converts_values("NoOp", "ControlTrigger", "Assert", "Print", "PrintV2", "DisableCopyOnRead", "DestroyResourceOp")
def nothing(n: Node, *xs: Value) -> Any:
    return xs[:1] if n.op_type == "Print" else ()


def _shape(n: Node, x: Value) -> Instruction:
    kind = n.dtype("out_type", dt.int32)
    tensor = x.real if isinstance(x, Complex) else x
    if not isinstance(tensor, Instruction):
        n.unsupported(f"the shape of a {type(x).__name__}")
    if tensor.shape.ranked and not tensor.shape.dynamic():
        return n.literal(np.array(tensor.shape.lens(), np.int64), kind)
    return n.convert(n.add("dimensions_of", tensor), kind)


@converts_values("Shape")
def shape(n: Node, x: Value) -> Instruction:
    return _shape(n, x)


@converts_values("ShapeN")
def shape_n(n: Node, *xs: Value) -> Any:
    return tuple(_shape(n, x) for x in xs)


@converts("Rank")
def rank(n: Node, x: Instruction) -> Instruction:
    return n.literal(x.shape.rank, dt.int32)


@converts("Size")
def size(n: Node, x: Instruction) -> Instruction:
    kind = n.dtype("out_type", dt.int32)
    if not x.shape.dynamic():
        return n.literal(x.shape.elements(), kind)
    lengths = n.add("dimensions_of", x)
    return n.convert(n.reshape(n.add("reduce_prod", lengths, axes=(0,)), ()), kind)


@converts("Fill")
def fill(n: Node, dims: Instruction, value: Instruction) -> Instruction:
    return filled(n, dims, value)


@converts("BroadcastTo")
def broadcast_to(n: Node, x: Instruction, dims: Instruction) -> Instruction:
    return filled(n, dims, x)


@converts("BroadcastArgs")
def broadcast_args(n: Node, a: Instruction, b: Instruction) -> Instruction:
    return broadcast_extents(n, a, b)


@converts_values("ZerosLike", "OnesLike")
def zeros_like(n: Node, x: Value) -> Value:
    value = 0 if n.op_type == "ZerosLike" else 1
    match x:
        case Complex():
            return Complex(n.full_like(x.real, value), n.full_like(x.imag, 0))
        case TensorList(stacked=Instruction() as stacked):
            return TensorList(x.dtype, n.full_like(stacked, value))
        case Instruction():
            return n.full_like(x, "" if x.shape.dtype.kind == "s" else value)
    return n.unsupported(f"zeros like a {type(x).__name__}")


@converts("Range")
def range_(n: Node, start: Instruction, limit: Instruction, delta: Instruction) -> Instruction:
    values = [n.constant(v) for v in (start, limit, delta)]
    dtype = start.shape.dtype
    if all(v is not None and v.size == 1 for v in values):
        first, stop, step = (v.reshape(())[()] for v in values if v is not None)
        if step == 0:
            n.fail("the step of a range must not be 0")
        if abs(float(stop - first) / float(step)) > 1 << 26:
            n.fail(f"a range from {first} to {stop} by {step} is rejected as too large")
        count = max(0, -int(-(float(stop) - float(first)) / float(step) // 1)) if dtype.is_float else None
        if count is None:
            return n.literal(np.array(range(int(first), int(stop), int(step)), np.int64), dtype)
        return n.literal(first + np.arange(count) * step, dtype)
    args = [n.reshape(v, ()) for v in (start, limit, delta)]
    if dtype.is_integer:
        known = [n.dims(v) for v in (start, limit, delta)]
        if all(k is not None for k in known):
            (first_,), (stop_,), (step_,) = (k for k in known if k is not None)
            if isinstance(step_, int) and step_ > 0:
                return n.add("dynamic_range", *args, length=maximum(ceil_div(stop_ - first_, step_), 0))
    return n.add("dynamic_range", *args)


@converts("LinSpace")
def lin_space(n: Node, start: Instruction, stop: Instruction, count: Instruction) -> Instruction:
    number = n.whole(count, "the number of steps")[0]
    if number < 1 or number > 1 << 24:
        n.fail(f"the number of steps must be at least 1, got {number}")
    dtype = start.shape.dtype
    places = n.literal(np.arange(number) / max(number - 1, 1), dtype)
    span = n.pointwise("sub", stop, start)
    made = n.pointwise("add", n.pointwise("mul", places, span), start)
    if number == 1:
        return made
    last = n.slice(made, [0], [0], [number - 1])
    return n.concat([last, n.reshape(stop, (1,))], 0)


@converts("OneHot")
def hot(n: Node, indices: Instruction, depth: Instruction, on: Instruction, off: Instruction) -> Instruction:
    return one_hot(n, indices, depth, on, off, n.int("axis", -1))


@converts("Empty")
def empty(n: Node, dims: Instruction) -> Instruction:
    return filled(n, dims, n.literal(0, n.dtype("dtype")))
