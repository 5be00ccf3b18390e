"""Kernel plans of the gpu target by family, in order of preference; most library plans precede generated kernels."""

from __future__ import annotations

from mgx_core import Kernels

from . import (
    attention,
    cached_attention,
    coded_products,
    concats,
    convolutions,
    depthwise,
    few_channels,
    fused_gemv,
    gemv,
    generated,
    half_convolutions,
    horizontal_fusion,
    lookups,
    loops,
    narrow_library,
    narrow_products,
    products,
    recurrent,
    scaled_products,
    views,
    window_products,
)

__all__ = ["PLANS"]

PLANS: Kernels = (
    views.PLANS
    + gemv.PLANS
    + fused_gemv.PLANS
    + cached_attention.PLANS
    + horizontal_fusion.PLANS
    + products.PLANS
    + few_channels.PLANS
    + half_convolutions.PLANS
    + convolutions.PLANS
    + narrow_library.PLANS
    + scaled_products.PLANS
    + coded_products.PLANS
    + narrow_products.PLANS
    + attention.PLANS
    + concats.PLANS
    + lookups.PLANS
    + loops.PLANS
    + recurrent.PLANS
    + depthwise.PLANS
    + window_products.PLANS
    + generated.PLANS
    + loops.DECOMPOSED
)
