"""Attention groups: both products, the softmax between them, heads merged by strides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Instruction, Kernels, Module, No, Operation
from mgx_core.ops.control import Group
from mgx_core.shape import AnyShape

from ..emitter import Emitter
from ..kernel import Results
from ..values import Value, packed_strides
from .offer import FLOATS, offer
from .products import product

__all__ = ["PLANS"]

PLANS = Kernels("cpu")


def is_attention(op: Operation, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    if getattr(op, "tag", "") != "attention":
        return No("the group is no attention")
    dots = [i for i in modules[0] if i.op.name == "dot"]
    if any(d.shape.dtype not in FLOATS for d in dots):
        return No(f"attention of {dots[0].shape.dtype}")
    return None


@offer(PLANS, Group, when=is_attention, name="attention")
def emit_attention(e: Emitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    body = modules[0]
    env: dict[Instruction, Value] = dict(zip(body.parameters.values(), (a for a in args if a is not None), strict=True))
    last = [i for i in body if i.op.name == "dot"][-1]
    for ins in body:
        if ins.is_param or ins.is_return:
            continue
        if ins is last and (out := _merged(e, ins)) is not None:
            env[ins] = product(e, env[ins.inputs[0]], env[ins.inputs[1]], None, out)
        else:
            env[ins] = e.emit(ins, env)
    return env[body.outputs[0]]


def _merged(e: Emitter, dot: Instruction) -> Value | None:
    """Where the second product writes so that the transpose after it is a view of dense memory."""
    if len(dot.users) != 1 or dot.users[0].op.name != "transpose":
        return None
    permutation: tuple[int, ...] = dot.users[0].op.permutation  # type: ignore[attr-defined]
    if permutation[-1] != len(permutation) - 1:
        return None
    lens = dot.shape.lens()
    return e.allocate(dot.shape.dtype, lens, packed_strides(lens, list(permutation)))
