"""Costs of primitives and of threads for plans; separate from their code generators, which most processes never import."""

from __future__ import annotations

from typing import Final

from mgx_core.types.traced_int import larger

__all__ = ["COST", "DIVIDING", "VECTORS64", "grain_for"]

# rough vector instructions of a primitive, for grain sizes and for choosing between storing and recomputing values
COST: Final[dict[str, int]] = {
    "div": 8, "exact_div": 8, "sqrt": 8, "rsqrt": 16, "exp": 14, "exp_negative": 13,
    "expm1": 18, "log": 24, "log2": 25, "log1p": 34,
    "erf": 22, "tanh": 20, "sigmoid": 20, "sin": 50, "cos": 50, "tan": 60, "pow": 110,
    "mod": 40, "fmod": 30, "sign": 4, "max": 2, "min": 2,
}  # fmt: skip
COST.update(dict.fromkeys(("asin", "acos", "atan"), 30))
COST.update(dict.fromkeys(("sinh", "cosh", "asinh", "acosh", "atanh"), 300))

# functions that contain a division, for which oneDNN's post-ops take longer than ours
DIVIDING: Final = frozenset({"sigmoid", "tanh"})

# vectorized float64 functions: half as many lanes and more terms than their float32 versions
VECTORS64: Final = frozenset({"exp", "exp_negative", "tanh", "sigmoid", "sin", "cos"})


def grain_for(work: int, each: int) -> int:
    """Returns the minimum items per thread, which together take at least `work` if one takes `each`."""
    return larger(1, work // larger(1, each))
