"""A rewrite rule, and the hook that registers it."""

from __future__ import annotations

from mgx_core import ROUNDING, Builder, Instruction, Lazy, No, Rules, hookimpl
from mgx_core.ops.activation import Relu
from mgx_core.ops.pointwise import Abs, Exp, Mul, Sqrt

mgx_interface = 1
RULES = Rules("example")


@RULES.on(Mul, changes=ROUNDING)
def square_of_root(i: Instruction, b: Builder) -> Instruction | No | None:
    """sqrt(x) * sqrt(x) -> x, if x is never negative"""
    left, right = i.inputs
    if left is not right or not isinstance(left.op, Sqrt):
        return None
    (x,) = left.inputs
    return x if isinstance(x.op, (Abs, Exp, Relu)) else No(f"{x.name} may be negative")


@hookimpl
def rules(target: str) -> list[Lazy]:
    return [Lazy("example", "example_mgx_custom_rule:RULES", "square-of-root")]
