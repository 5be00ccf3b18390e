"""The standard op set: every family of this package."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from .builtin import Undefined
from .opset import OpSet

__all__ = ["STANDARD"]

FAMILIES: Final = [
    "activation",
    "attention",
    "bitwise",
    "broadcast",
    "coded_product",
    "columns",
    "compare",
    "concat",
    "control",
    "convert",
    "convolution",
    "einsum",
    "fill",
    "flex_attention",
    "fourier",
    "index",
    "kv_cache",
    "linear",
    "linear_attention",
    "local_response",
    "modules",
    "movement",
    "nms",
    "norm",
    "optional",
    "packing",
    "pad",
    "pointwise",
    "pooling",
    "quantized",
    "quantized_product",
    "random",
    "recurrent",
    "recurrent_states",
    "reduce",
    "reshape",
    "resize",
    "roi",
    "rotary",
    "sample",
    "scan",
    "scatter",
    "select",
    "sequence",
    "signal",
    "slice",
    "softmax",
    "topk",
    "trees",
    "trigonometry",
]
STANDARD: OpSet = OpSet.in_module(*(import_module(f".{name}", __package__) for name in FAMILIES)) | OpSet.of(Undefined)
