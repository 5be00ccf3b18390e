"""Fused reductions: selects between row and column kernels."""

from __future__ import annotations

from collections.abc import Sequence

from mgx_core import Module

from .bodies import Body
from .reduce_columns import columns_kernel
from .reduce_rows import rows_kernel
from .reductions import Plan
from .source import DeviceTraits, KernelSource, Tensor, entry_word

__all__ = ["fused_reduce"]

MIN_COLUMNS = 8  # minimum number of adjacent rows to read together


def fused_reduce(
    module: Module, inputs: Sequence[Tensor], outputs: Sequence[Tensor], traits: DeviceTraits, word: str = ""
) -> KernelSource:
    """Generates a kernel for a module of reductions over the same axes and pointwise ops around them.

    Errors: UnsupportedError for anything else.
    """
    body = Body.of(module, inputs)
    plan = Plan(body, list(inputs), list(outputs), word or entry_word(["reduce", *body.words]))
    if plan.main is not None and plan.rows and plan.length:
        n = plan.accesses.index(plan.main)
        across, along = plan.kept_strides(n), plan.reduced_strides(n)
        if across and across[-1] == 1 and plan.kept.dims[-1] >= MIN_COLUMNS and not (along and along[-1] == 1):
            return columns_kernel(plan, traits)
    return rows_kernel(plan, traits)
