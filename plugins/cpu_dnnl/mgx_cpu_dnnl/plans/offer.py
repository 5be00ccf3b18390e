"""Decorators by which the families offer their emit functions as plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mgx_core import Kernel, Kernels, No, Operation, Shape, TupleShape
from mgx_core import dtype as dt

from ..kernel import CpuKernel, Emit

__all__ = ["FLOATS", "Check", "NUMBERS", "offer", "only"]

FLOATS = frozenset({dt.float32, dt.bfloat16})
INTEGERS = frozenset({dt.int8, dt.uint8, dt.int16, dt.uint16, dt.int32, dt.uint32, dt.int64, dt.uint64})
NUMBERS = FLOATS | INTEGERS | {dt.float64, dt.float16, dt.bool_}

Check = Callable[[Any, Sequence[Any], Sequence[Any]], "No | None"]


def offer(
    plans: Kernels,
    *ops: type[Operation],
    when: Check,
    name: str = "",
    open_axis: int | Callable[[Any], int] | None = None,
) -> Callable[[Emit], Emit]:
    """Decorator: an emit function as a plan for some ops; `when` says no with a reason, or None.

    open_axis: the axis of the result whose extent depends on data, or what gives it for an op; see `CpuKernel`.
    """

    def keep(emit: Emit) -> Emit:
        label = name or emit.__name__.removeprefix("emit_")

        @plans.plan(*ops)
        def plan(op: Operation, inputs: Sequence[Any], context: Any, modules: Sequence[Any] = ()) -> Kernel | No:
            why = when(op, inputs, modules)
            if why is not None:
                return why
            opened = open_axis(op) if callable(open_axis) else open_axis
            return CpuKernel(f"{label} {op.name}", op, modules, emit, opened)

        plan.__name__ = label
        return emit

    return keep


def only(dtypes: frozenset[Any], operands: int | None = None) -> Check:
    """Returns a check that the first operands (all, if None) are tensors of some element types."""

    def check(op: Any, inputs: Sequence[Any], modules: Sequence[Any]) -> No | None:
        for n, shape in enumerate(inputs[:operands]):
            if shape is None:
                continue
            if isinstance(shape, TupleShape) or not isinstance(shape, Shape):
                return No(f"operand {n} is not a tensor")
            if shape.dtype not in dtypes:
                return No(f"operand {n} is of type {shape.dtype}")
        return None

    return check
