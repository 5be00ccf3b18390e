"""The plans of the cpu target, by family."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Final

from mgx_core import Kernels

from . import (
    attention,
    byte_channels,
    byte_maps,
    byte_pairs,
    byte_tiles,
    convolution,
    depthwise_convolution,
    grouped_convolution,
    integer_products,
    loop_products,
    loops,
    moves,
    pointwise_convolution,
    pooling,
    products,
    representation,
    window_products,
    winograd,
)

__all__ = ["PLANS"]

# plans that few programs need: their modules, and the families of their ops, are imported when one of these is asked for
RARE: Final = {
    "attention_op": ("attention",),
    "coded_products": ("dequant_dot",),
    "indexing": (
        "gather_elements", "gathernd", "max_unpool", "scatter_add", "scatter_max", "scatter_min", "scatter_mul", "scatter_none",
        "scatternd_add", "scatternd_max", "scatternd_min", "scatternd_mul", "scatternd_none",
    ),
    "open_extents": ("compress", "nonmaxsuppression", "nonzero"),
    "recurrent": ("gru", "lstm", "rnn"),
    "rotary": ("rotary_embedding",),
    "sampling": ("col2im", "deform_conv", "grid_sample", "max_pool_indices", "max_roi_pool", "roialign"),
    "selecting": (
        "argmax", "argmin", "hardmax", "prefix_scan_prod", "prefix_scan_sum", "reduce_all", "reduce_any", "topk",
    ),
    "sequences": (
        "reverse", "reverse_sequence", "rnn_last_hs_output", "rnn_var_sl_last_output", "rnn_var_sl_shift_output",
        "rnn_var_sl_shift_sequence", "tensor_scatter",
    ),
    "trees": ("tree_ensemble",),
}  # fmt: skip


def _made(module: str) -> Kernels:
    found: Kernels = import_module(f".{module}", __name__).PLANS
    return found


def _with_rare(plans: Kernels) -> Kernels:
    for module, names in RARE.items():
        plans.later(names, partial(_made, module))
    return plans


PLANS: Kernels = _with_rare(
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
    + loop_products.PLANS
    + byte_maps.PLANS
    + attention.PLANS
    + pooling.PLANS
    + loops.PLANS
    + moves.PLANS
)
