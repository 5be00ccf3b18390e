"""Kernel plans of the gpu target by family, in order of preference; most library plans precede generated kernels."""

from __future__ import annotations

from mgx_core import Kernels

from . import (
    attention,
    coded_products,
    convolutions,
    depthwise,
    few_channels,
    generated,
    joined_rows,
    loops,
    narrow_library,
    narrow_products,
    products,
    recurrent,
    side_by_side,
    single_rows,
    views,
)

__all__ = ["PLANS"]

PLANS: Kernels = (
    views.PLANS
    + single_rows.PLANS
    + joined_rows.PLANS
    + side_by_side.PLANS
    + products.PLANS
    + few_channels.PLANS
    + convolutions.PLANS
    + narrow_library.PLANS
    + coded_products.PLANS
    + narrow_products.PLANS
    + attention.PLANS
    + loops.PLANS
    + recurrent.PLANS
    + depthwise.PLANS
    + generated.PLANS
    + loops.DECOMPOSED
)
