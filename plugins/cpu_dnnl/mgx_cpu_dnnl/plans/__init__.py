"""The plans of the cpu target, by family."""

from __future__ import annotations

from mgx_core import Kernels

from . import (
    attention,
    attention_op,
    byte_channels,
    byte_maps,
    byte_pairs,
    byte_tiles,
    coded_products,
    convolution,
    depthwise_convolution,
    grouped_convolution,
    indexing,
    integer_products,
    loop_products,
    loops,
    moves,
    open_extents,
    pointwise_convolution,
    pooling,
    products,
    recurrent,
    representation,
    rotary,
    sampling,
    selecting,
    sequences,
    trees,
    window_products,
    winograd,
)

__all__ = ["PLANS"]

PLANS: Kernels = (
    representation.PLANS
    + winograd.PLANS
    + pointwise_convolution.PLANS
    + grouped_convolution.PLANS
    + depthwise_convolution.PLANS
    + window_products.PLANS
    + convolution.PLANS
    + products.PLANS
    + byte_channels.PLANS
    + byte_pairs.PLANS
    + byte_tiles.PLANS
    + integer_products.PLANS
    + coded_products.PLANS
    + loop_products.PLANS
    + byte_maps.PLANS
    + attention.PLANS
    + attention_op.PLANS
    + rotary.PLANS
    + pooling.PLANS
    + recurrent.PLANS
    + loops.PLANS
    + moves.PLANS
    + indexing.PLANS
    + selecting.PLANS
    + sequences.PLANS
    + sampling.PLANS
    + trees.PLANS
    + open_extents.PLANS
)
