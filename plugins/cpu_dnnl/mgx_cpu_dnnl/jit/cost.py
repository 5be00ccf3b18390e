"""The costs of primitives, by which plans weigh work; apart from the code for primitives, which most processes never write."""

from __future__ import annotations

from typing import Final

__all__ = ["COST", "VECTORS64"]

# rough vector instructions a primitive takes, for grains and for the choice between keeping and recomputing
COST: Final[dict[str, int]] = {
    "div": 8, "exact_div": 8, "sqrt": 8, "rsqrt": 16, "exp": 14, "exp_negative": 13,
    "expm1": 18, "log": 24, "log2": 25, "log1p": 34,
    "erf": 22, "tanh": 20, "sigmoid": 20, "sin": 50, "cos": 50, "tan": 60, "pow": 110,
    "mod": 40, "fmod": 30, "sign": 4, "max": 2, "min": 2,
}  # fmt: skip
COST.update(dict.fromkeys(("asin", "acos", "atan"), 30))
COST.update(dict.fromkeys(("sinh", "cosh", "asinh", "acosh", "atanh"), 300))

# functions of float64 that run as vectors, of half as many elements and with more steps than those of float32
VECTORS64: Final = frozenset({"exp", "exp_negative", "tanh", "sigmoid", "sin", "cos"})
