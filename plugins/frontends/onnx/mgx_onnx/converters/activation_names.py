"""Activations named by attributes of fused operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Instruction, UnsupportedError

from ..node import Node

__all__ = ["activate"]

PLAIN = {
    "relu": "relu",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "softplus": "softplus",
    "softsign": "softsign",
    "hardswish": "hard_swish",
}
WITH_NUMBERS = {
    "leakyrelu": ("leaky_relu", ("alpha",)),
    "elu": ("elu", ("alpha",)),
    "selu": ("selu", ("alpha", "gamma")),
    "thresholdedrelu": ("thresholded_relu", ("alpha",)),
    "hardsigmoid": ("hard_sigmoid", ("alpha", "beta")),
}


def activate(n: Node, x: Instruction, name: str, numbers: Sequence[float] = ()) -> Instruction:
    """Applies the activation `name` to x (none if empty).  numbers: its parameters in ONNX's order."""
    key = name.lower().replace("_", "")
    if key in ("", "none", "identity"):
        return x
    if key in ("silu", "swish"):
        return n.add("mul", x, n.add("sigmoid", x))
    if key in PLAIN:
        return n.add(PLAIN[key], x)
    if key in WITH_NUMBERS:
        op, fields = WITH_NUMBERS[key]
        given: dict[str, Any] = dict(zip(fields, numbers, strict=False))
        return n.add(op, x, **given)
    if key == "clip" and len(numbers) == 2:
        return n.pointwise("clip", x, *(n.literal(v, x.shape.dtype) for v in numbers))
    raise UnsupportedError(f"activation {name!r} with {len(numbers)} parameters").located(repr(n))
