"""Element types supported by plans, and checks for them; re-exports the core's `offer`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import No, Shape
from mgx_core import dtype as dt
from mgx_core.targets.emitted import Check, offer

__all__ = ["FLOATS", "NUMBERS", "Check", "constant_parameters", "offer", "only"]

FLOATS = frozenset({dt.float32, dt.bfloat16})
INTEGERS = frozenset({dt.int8, dt.uint8, dt.int16, dt.uint16, dt.int32, dt.uint32, dt.int64, dt.uint64})
NUMBERS = FLOATS | INTEGERS | {dt.float64, dt.float16, dt.bool_}


def only(dtypes: frozenset[Any], operands: int | None = None) -> Check:
    """Returns a check that the first `operands` operands (None: all) are tensors of these element types."""

    def check(op: Any, inputs: Sequence[Any], modules: Sequence[Any]) -> No | None:
        for n, shape in enumerate(inputs[:operands]):
            if shape is None:
                continue
            if not isinstance(shape, Shape):
                return No(f"operand {n} is not a tensor")
            if shape.dtype not in dtypes:
                return No(f"operand {n} has the unsupported type {shape.dtype}")
        return None

    return check


def constant_parameters(op: Any, inputs: Sequence[Any], modules: Sequence[Any]) -> No | None:
    """Refuses ops whose parameters are operands instead of constant attributes, and unsupported element types."""
    if any(s is not None for s in inputs[1:]):
        return No("the parameters are operands, not attributes")
    return only(NUMBERS, 1)(op, inputs, modules)
