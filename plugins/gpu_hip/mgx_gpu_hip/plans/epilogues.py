"""Matches groups of a product or convolution with pointwise work to library epilogues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from mgx_core import Instruction, Module, No, Operation, Shape
from mgx_core.errors import Refused, or_refused
from mgx_core.ops.control import PointwiseGroup
from mgx_core.ops.convert import Convert
from mgx_core.ops.convolution import Convolution
from mgx_core.ops.linear import Dot
from mgx_core.ops.pointwise import Add
from mgx_core.ops.quantized_product import QuantDot
from mgx_core.ops.reshape import Reshape, Squeeze, Unsqueeze
from mgx_core.targets.epilogue import Link, read_chain
from mgx_core.targets.values import Value
from mgx_core.targets.view_steps import viewed
from mgx_core.types.dtype import DType, bfloat16, float16, float32

from ..emitter import GpuEmitter
from ..library.epilogue import Activation

__all__ = ["Fused", "Steps", "read_group"]


class Fused(NamedTuple):
    """A group split for a library: the anchor with its operands' values, and the remaining members.

    joint: the anchor, or its reshape that the epilogue reads.
    """

    anchor: Instruction
    joint: Instruction
    operands: list[Value]
    epilogue: Steps


@dataclass
class Steps:
    """A library epilogue: steps, operands by name, and the scale of the product.

    The operand `b_scale`, if any, has a factor per column, which the sums are multiplied by before all steps.
    """

    steps: list[Any] = field(default_factory=list)
    operands: dict[str, Value] = field(default_factory=dict)
    alpha: float = 1.0


def read_group(e: GpuEmitter, body: Module, args: Sequence[Any], kind: type[Operation]) -> Fused:
    """Splits a group around an anchor of this kind; emits the members before the anchor.  Errors: Refused."""
    if e.context.libraries is None:
        raise Refused("the device has no vendor libraries")
    env: dict[Instruction, Any] = dict(zip(body.parameters.values(), args, strict=True))
    parts = [i for i in body if not (i.is_param or i.is_return)]
    tail = parts[-1]
    anchor = next(i for i in parts if isinstance(i.op, kind))
    if 0 in anchor.shape.lens():
        raise Refused("an extent is 0")
    alone = tail is anchor  # nothing but members that compute its operands
    joint = anchor if alone else next((i for i in tail.inputs if _leads_to(i, anchor)), None)
    reshaped = joint is not anchor and kind is not Dot
    if not (alone or isinstance(tail.op, PointwiseGroup)) or joint is None or reshaped:
        raise Refused("an op between the anchor and its epilogue cannot be fused")
    skipped = {anchor, joint}
    at = joint
    while at is not anchor:
        at = at.inputs[0]
        skipped.add(at)
    for ins in parts[:-1]:
        if ins not in skipped:
            env[ins] = e.emit(ins, env)
    epilogue = or_refused(Steps() if alone else _read(e, tail, anchor, joint, env))
    return Fused(anchor, joint, [e.value_of(i, env) for i in anchor.inputs], epilogue)


def _leads_to(ins: Instruction, anchor: Instruction) -> bool:
    while ins is not anchor and isinstance(ins.op, (Reshape, Squeeze, Unsqueeze)) and len(ins.inputs) == 1:
        ins = ins.inputs[0]
    return ins is anchor


def _read(
    e: GpuEmitter, tail: Instruction, anchor: Instruction, joint: Instruction, env: dict[Instruction, Any]
) -> Steps | No:
    body = tail.modules[0]
    stored = body.outputs[0].shape.dtype
    # libraries keep the sums of narrower floats in float32 and round once, when they store the result, or not at all
    of = anchor.inputs[0].shape.dtype
    byte_floats = isinstance(anchor.op, QuantDot) and of.is_float and of.bits == 8
    rounds = stored in (float16, bfloat16) if byte_floats else isinstance(anchor.op, QuantDot) and stored is of
    widens = isinstance(anchor.op, Dot) and stored is float32 and anchor.shape.dtype in (float16, bfloat16)
    if len(body.outputs) != 1 or not (stored is anchor.shape.dtype or rounds or widens):
        return No("the group has several results, or one of another type than the product")
    parameters = list(body.parameters.values())
    links = read_chain(body, parameters[tail.inputs.index(joint)])
    if not isinstance(links, list):
        return links
    inner = {
        p: env[i] if i in env else e.value_of(i, env)
        for p, i in zip(parameters, tail.inputs, strict=True)
        if i is not joint
    }
    found = Steps()
    for link in links:
        if link.kind == "eltwise":
            if link.algorithm == "linear" and link.beta == 0 and not found.steps:
                found.alpha *= link.alpha
                continue
            step = _activation(link)
            if step is None:
                return No(f"libraries have no activation {link.algorithm}")
            found.steps.append(step)
            continue
        if link.algorithm == "mul" and link.operand is not None and byte_floats and not (found.steps or found.operands):
            factor = viewed(e, link.operand, inner)
            if factor is None or factor.shape.dtype is not float32 or not _is_bias(factor, anchor):
                return No("libraries multiply sums by a float32 factor per column")
            found.operands["b_scale"] = factor
            continue
        if link.algorithm != "add" or link.operand is None:
            return No(f"libraries have no {link.algorithm} of an operand")
        for term in _terms(link.operand, inner):
            if rounds and isinstance(term.op, Convert) and term.inputs[0].shape.dtype is stored:
                term = term.inputs[0]
            operand = viewed(e, term, inner)
            if operand is None:
                return No("an operand of the epilogue is computed inside the group")
            narrow = operand if operand.shape.dtype is stored else _exactly(e, operand, stored)
            if narrow is None:
                return No(f"libraries add operands of the stored type {stored}, got {operand.shape.dtype}")
            operand = narrow
            refused = _add(e, found, operand, anchor)
            if refused is not None:
                return refused
    return found


def _exactly(e: GpuEmitter, x: Value, to: DType) -> Value | None:
    """Returns a constant in another type, broadcast as before, if all its values have that type."""
    array = e.constant(x)
    if array is None:
        return None
    with np.errstate(over="ignore"):  # what overflows is not equal
        if not np.array_equal(array.astype(to.numpy).astype(array.dtype), array):
            return None
    once = tuple(slice(0, 1) if s == 0 else slice(None) for s in x.strides)
    made = e.derived_constant(x, ("exactly", to.name), lambda a: a[once].astype(to.numpy))
    if made is None:
        return None
    strides = [0 if s == 0 else t for s, t in zip(x.strides, made.strides, strict=True)]
    return Value(Shape(to, x.lens, strides), made.buffer)


def _terms(ins: Instruction, env: dict[Instruction, Any]) -> list[Instruction]:
    """Returns the terms of a sum inside the group."""
    if ins in env or not isinstance(ins.op, Add):
        return [ins]
    return [t for i in ins.inputs for t in _terms(i, env)]


def _add(e: GpuEmitter, found: Steps, operand: Value, anchor: Instruction) -> No | None:
    """Adds a term; two constant biases are added up."""
    lens = anchor.shape.lens()
    if operand.lens[-1] != lens[-1]:
        return No("an operand of the epilogue differs from the product in its columns")
    if not _is_bias(operand, anchor):
        name = "residual"
        if any(s == 0 and n != 1 for n, s in zip(operand.lens, operand.strides, strict=True)):
            return No("the epilogue adds a broadcast operand")
        if operand.lens != lens:
            operand = Value(Shape(operand.shape.dtype, lens), e.row_major(operand).buffer, e.row_major(operand).offset)
    else:
        name = "bias"
        mine, other = e.constant(operand), found.operands.get("bias")
        theirs = None if other is None else e.constant(other)
        sums = other is not None and all(s in ("bias", "residual") for s in found.steps[found.steps.index("bias") :])
        if mine is not None and theirs is not None and other is not None and sums:
            axis = 1 if isinstance(anchor.op, Convolution) else -1
            total = _along(mine, axis).astype(np.float32) + _along(theirs, axis).astype(np.float32)
            made = e.literal(total.astype(mine.dtype))
            found.operands["bias"] = Value(other.shape, made.buffer)
            return None
    if name in found.operands:
        return No("the epilogue adds more than one bias and one residual")
    found.operands[name] = operand
    found.steps.append(name)
    return None


def _along(array: Any, axis: int) -> Any:
    """Returns the values along the only axis on which an array varies."""
    return np.moveaxis(array, axis, -1).reshape(-1, array.shape[axis])[0]


def _activation(link: Link) -> Activation | None:
    match link.algorithm:
        case "relu":
            return Activation("relu", slope=link.alpha)
        case "clip":
            return Activation("relu", low=link.alpha, high=link.beta)
        case "logistic":
            return Activation("sigmoid")
        case "tanh" | "gelu_erf" | "gelu_tanh":
            return Activation(link.algorithm)
        case "swish":
            return Activation("swish", alpha=link.alpha)
        case "elu":
            return Activation("elu", alpha=link.alpha)
    return None


def _is_bias(operand: Value, anchor: Instruction) -> bool:
    """Returns True if an operand varies along the result's columns (dot) or channels (convolution) only.

    The rows of a product may be regrouped before the operand is added.
    """
    axis = 1 if isinstance(anchor.op, Convolution) else len(operand.lens) - 1
    varies = [a for a, (n, s) in enumerate(zip(operand.lens, operand.strides, strict=True)) if s and n != 1]
    return varies == [axis] and operand.strides[axis] == 1
