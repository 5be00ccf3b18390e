"""Decomposes operators on lists of tensors, which optimizers and gradient clipping use, into one operator per tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

__all__ = ["on_lists"]

# operators that do to each tensor of their lists what the function of this name does
ALIKE: Final = (
    "abs", "acos", "add", "asin", "atan", "ceil", "clamp_max", "clamp_min", "clone", "cos", "cosh", "div", "erf", "erfc", "exp",
    "expm1", "floor", "frac", "lerp", "lgamma", "log", "log10", "log1p", "log2", "max", "maximum", "minimum", "mm", "mul", "neg",
    "pow", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "sub", "tan", "tanh", "trunc",
)  # fmt: skip


def on_lists() -> dict[Any, Callable[..., Any]]:
    """Returns decompositions by overload, as far as this version of torch has the operators."""
    functions: dict[str, Callable[..., Any]] = {name: getattr(torch, name) for name in ALIKE}
    functions |= {"addcdiv": addcdiv, "addcmul": addcmul, "copy": copied, "norm": norm, "zero": torch.zeros_like}
    found: dict[Any, Callable[..., Any]] = {}
    for name, function in functions.items():
        packet = getattr(torch.ops.aten, f"_foreach_{name}", None)
        for overload in () if packet is None else packet.overloads():
            op = getattr(packet, overload)
            if not op._schema.is_mutable:
                found[op] = by_item(function)
    # torch's functions of this name require tensors
    for name, bound in (("maximum", torch.clamp_min), ("minimum", torch.clamp_max)):
        packet = getattr(torch.ops.aten, f"_foreach_{name}")
        found |= {packet.Scalar: by_item(bound), packet.ScalarList: by_item(bound)}
    return found


def by_item(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function on lists: it passes the items at each place, and the same value of what is not a list."""

    def decompose(*args: Any, **kwargs: Any) -> list[Any]:
        count = next(len(a) for a in args if isinstance(a, (list, tuple)))
        return [
            function(*(a[k] if isinstance(a, (list, tuple)) or _is_vector(a) else a for a in args), **kwargs)
            for k in range(count)
        ]

    return decompose


def _is_vector(x: Any) -> bool:
    """Returns True for a tensor with a number for each place, rather than one for all."""
    return isinstance(x, Tensor) and x.dim() == 1


def addcdiv(x: Tensor, first: Tensor, second: Tensor, value: Any = 1) -> Tensor:
    return x + value * (first / second) if isinstance(value, Tensor) else torch.addcdiv(x, first, second, value=value)


def addcmul(x: Tensor, first: Tensor, second: Tensor, value: Any = 1) -> Tensor:
    return x + value * (first * second) if isinstance(value, Tensor) else torch.addcmul(x, first, second, value=value)


def copied(x: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    return source.to(x.dtype).expand_as(x).clone()


def norm(x: Tensor, order: Any = 2, dtype: Any = None) -> Tensor:
    return torch.linalg.vector_norm(x, order, dtype=dtype)
