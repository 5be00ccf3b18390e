"""Arithmetic on numbers other than sizes, as float64 or int64 scalars, and comparisons, which assertions read."""

from __future__ import annotations

import torch

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.converting.arithmetic import divide_floor

from ..calls import ARITHMETIC
from ..converter import Converter, converts
from ..node import Node, Scalar

__all__: list[str] = []


def arithmetic(name: str) -> Converter:
    def convert(n: Node, *xs: Scalar) -> Instruction:
        if isinstance(n.value, torch.SymInt) and n.fx.target in ARITHMETIC:
            return n.add(name, *(n.tensor(x, dt.int64) for x in xs))
        if not isinstance(n.value, torch.SymFloat):
            n.unsupported(f"it returns a {type(n.value).__name__}, a float is required")
        return n.add(name, *(n.tensor(x, dt.float64) for x in xs))

    return convert


for _python, _name in (
    ("truediv", "div"), ("add", "add"), ("sub", "sub"), ("mul", "mul"), ("pow", "pow"), ("mod", "mod"), ("neg", "neg"),
    ("abs", "abs"), ("sym_max", "max"), ("sym_min", "min"), ("_sym_sqrt", "sqrt"), ("_sym_log2", "log2"),
):  # fmt: skip
    converts(_python, domain="python")(arithmetic(_name))


@converts("floordiv", domain="python")
def floordiv(n: Node, x: Scalar, y: Scalar) -> Instruction:
    if not isinstance(n.value, torch.SymInt):
        n.unsupported(f"it returns a {type(n.value).__name__}, an integer is required")
    return divide_floor(n, n.tensor(x, dt.int64), n.tensor(y, dt.int64))


@converts("sym_float", domain="python")
def sym_float(n: Node, x: Scalar) -> Instruction:
    return n.tensor(x, dt.float64)


def comparison(name: str) -> Converter:
    def convert(n: Node, x: Scalar, y: Scalar) -> Instruction:
        exact = not any(isinstance(n.given(i), (float, torch.SymFloat)) for i in (0, 1))
        kind = dt.int64 if exact else dt.float64
        return n.add(name, n.tensor(x, kind), n.tensor(y, kind))

    return convert


for _python, _name in (
    ("eq", "equal"), ("ne", "not_equal"), ("lt", "less"), ("le", "less_or_equal"), ("gt", "greater"), ("ge", "greater_or_equal"),
):  # fmt: skip
    converts(_python, domain="python")(comparison(_name))


def logical(name: str) -> Converter:
    def convert(n: Node, *xs: Scalar) -> Instruction:
        return n.add(name, *(n.tensor(x, dt.bool_) for x in xs))

    return convert


for _python, _name in (("and_", "logical_and"), ("or_", "logical_or"), ("sym_not", "not")):
    converts(_python, domain="python")(logical(_name))


@converts("sym_ite", domain="python")
def sym_ite(n: Node, condition: Scalar, x: Scalar, y: Scalar) -> Instruction:
    kind = dt.float64 if isinstance(n.value, torch.SymFloat) else dt.int64
    return n.add("where", n.tensor(condition, dt.bool_), n.tensor(x, kind), n.tensor(y, kind))
