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
    few_outputs,
    folding,
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
    winograd_volumes,
)

__all__ = ["PLANS"]

# Rarely needed plans: modules, with the classes of their ops; a module is imported on the first lookup of one of its ops
LAZY: Final = {
    "attention_op": "attention:Attention",
    "bits": "bitwise:BitCast packing:PackInt4 packing:UnpackInt4",
    "coded_products": "coded_product:DequantDot",
    "convolution_weights": "convolution:ConvolutionWeights",
    "coupling": "coupling:PairwiseCoupling",
    "extents": "fill:DimensionsOf fill:DynamicRange",
    "indexing": (
        "index:GatherElements index:Gathernd pooling:MaxUnpool scatter:ScatterAdd scatter:ScatterMax "
        "scatter:ScatterMin scatter:ScatterMul scatter:ScatterNone scatter:ScatterndAdd scatter:ScatterndMax "
        "scatter:ScatterndMin scatter:ScatterndMul scatter:ScatterndNone"
    ),
    "matrices": "factorization:SolveTriangular linear:Det linear:Inverse",
    "open_extents": "select:Compress select:Nonzero select:Unique nms:Nonmaxsuppression",
    "ragged": "ragged:ReduceSlices",
    "recurrent": "recurrent:Gru recurrent:Lstm recurrent:Rnn",
    "rotary": "rotary:GqaRotaryEmbedding rotary:RotaryEmbedding",
    "sampling": "columns:Col2im sample:DeformConv sample:GridSample pooling:MaxPoolIndices roi:MaxRoiPool roi:Roialign",
    "selecting": (
        "reduce:Argmax reduce:Argmin reduce:ReduceAll reduce:ReduceAny softmax:Hardmax scan:PrefixScanProd "
        "scan:PrefixScanSum topk:Topk"
    ),
    "sequences": (
        "kv_cache:ConcatPastPresent movement:Reverse movement:ReverseSequence recurrent_states:RnnLastHsOutput "
        "recurrent_states:RnnVarSlLastOutput recurrent_states:RnnVarSlShiftOutput "
        "recurrent_states:RnnVarSlShiftSequence scatter:TensorScatter"
    ),
    "trees": "trees:TreeEnsemble",
}


def _load_plans(module: str) -> Kernels:
    found: Kernels = import_module(f".{module}", __name__).PLANS
    return found


def _add_lazy(plans: Kernels) -> Kernels:
    for module, classes in LAZY.items():
        plans.later([f"mgx_core.ops.{one}" for one in classes.split()], partial(_load_plans, module))
    return plans


PLANS: Kernels = _add_lazy(
    representation.PLANS
    + few_outputs.PLANS
    + winograd.PLANS
    + winograd_volumes.PLANS
    + pointwise_convolution.PLANS
    + grouped_convolution.PLANS
    + depthwise_convolution.PLANS
    + window_products.PLANS
    + folding.PLANS
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
