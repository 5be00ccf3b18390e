"""The standard op set: every family of this package."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from importlib import import_module
from typing import Final

from .builtin import Undefined, Unreachable
from .operation import Operation
from .opset import OpSet, declared_in

__all__ = ["STANDARD"]

# rules and passes import these in any case
COMMON: Final = (
    "activation", "broadcast", "coded_product", "columns", "compare", "concat", "control", "convert", "convolution", "fill",
    "index", "linear", "local_response", "movement", "norm", "packing", "pad", "pointwise", "pooling", "quantized",
    "quantized_product", "reduce", "reshape", "resize", "rotary", "sample", "slice", "softmax", "trigonometry",
)  # fmt: skip
# imported when a requested op is in none of the families above: most models need none of these
OTHERS: Final = (
    "attention", "bitwise", "coupling", "einsum", "factorization", "flex_attention", "fourier", "kv_cache",
    "linear_attention", "modules", "nms", "optional", "ragged", "random", "recurrent", "recurrent_states", "require", "roi",
    "scan", "scatter", "select", "sequence", "signal", "special", "topk", "trees",
)  # fmt: skip


def _family(name: str) -> Iterable[type[Operation]]:
    return declared_in(import_module(f".{name}", __package__))


STANDARD: Final = OpSet([Undefined, Unreachable], later=[partial(_family, name) for name in (*COMMON, *OTHERS)])
