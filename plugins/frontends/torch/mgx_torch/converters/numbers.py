"""Arithmetic on SymFloats and caller-supplied numbers, as float64 scalars."""

from __future__ import annotations

import torch

from mgx_core import Instruction
from mgx_core import dtype as dt

from ..converter import Converter, converts
from ..node import Node, Scalar

__all__: list[str] = []


def arithmetic(name: str) -> Converter:
    def convert(n: Node, *xs: Scalar) -> Instruction:
        if not isinstance(n.value, torch.SymFloat):
            n.unsupported(f"it returns a {type(n.value).__name__}, a float is required")
        return n.add(name, *(n.tensor(x, dt.float64) for x in xs))

    return convert


for _python, _name in (
    ("truediv", "div"), ("add", "add"), ("sub", "sub"), ("mul", "mul"), ("pow", "pow"), ("neg", "neg"), ("abs", "abs"),
    ("sym_max", "max"), ("sym_min", "min"), ("_sym_sqrt", "sqrt"), ("_sym_log2", "log2"),
):  # fmt: skip
    converts(_python, domain="python")(arithmetic(_name))


@converts("sym_float", domain="python")
def sym_float(n: Node, x: Scalar) -> Instruction:
    return n.tensor(x, dt.float64)
