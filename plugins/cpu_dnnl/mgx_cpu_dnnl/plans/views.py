"""Ops whose results are views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Kernels, Module, No, Shape
from mgx_core.ops.control import GetTupleElem
from mgx_core.targets.kernel_emission import emit_view
from mgx_core.targets.view_steps import VIEWS, emit_item
from mgx_core.types.shape import AnyShape

from .offer import NUMBERS, offer

__all__ = ["PLANS"]

PLANS = Kernels("cpu")


def tensors(op: Any, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    if not inputs or not isinstance(inputs[0], Shape) or inputs[0].dtype not in NUMBERS:
        return No("the operand is not a tensor of numbers")
    return None


offer(PLANS, *VIEWS, when=tensors, name="view")(emit_view)


offer(PLANS, GetTupleElem, name="item")(emit_item)
