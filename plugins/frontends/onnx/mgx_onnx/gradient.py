"""Reverse-mode automatic differentiation of parsed instructions, for the Gradient operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from mgx_core import Instruction
from mgx_core.ops.movement import Transpose
from mgx_core.types.dim import Dim

from .node import Node

__all__ = ["RULES", "gradients"]

Rule: TypeAlias = Callable[..., Sequence[Instruction | None]]
RULES: dict[str, Rule] = {}  # op -> (node, instruction, gradient of its result, *inputs) -> gradients of its inputs


def gradients(n: Node, y: Instruction, xs: Sequence[Instruction], at: Sequence[Instruction]) -> list[Instruction]:
    """Returns dy/dx for each of xs (the gradient of sum(y) if y has several elements), at the values `at`.

    Errors: UnsupportedError if y depends on one of xs through an op without a rule.
    """
    path = _between(y, xs)
    wanted = {*path, *xs}
    values = dict(zip(xs, at, strict=True))
    for i in path:  # recompute the part of y that depends on xs at the given values
        if i not in values:
            inputs = [values.get(j, j) for j in i.inputs]
            values[i] = i if list(i.inputs) == inputs else n.add(i.op, *inputs, modules=i.modules)
    out = values.get(y, y)
    sums: dict[Instruction, Instruction] = {y: n.full_like(out, 1)}
    for i in reversed(path):
        if i not in sums or i in xs:
            continue
        rule = RULES.get(i.name)
        if rule is None:
            n.unsupported(f"the gradient of {i.name} is not supported; supported are {', '.join(sorted(RULES))}")
        inputs = [values.get(j, j) for j in i.inputs]
        for j, part in zip(i.inputs, rule(n, values[i], sums[i], *inputs), strict=True):
            if part is not None and j in wanted:
                sums[j] = n.add("add", sums[j], part) if j in sums else part
    return [sums[x] if x in sums else n.full_like(v, 0) for x, v in zip(xs, at, strict=True)]


def _between(y: Instruction, xs: Sequence[Instruction]) -> list[Instruction]:
    """Returns, in order, the instructions between xs (excluded) and y (included)."""
    order: list[Instruction] = []
    depends: dict[Instruction, bool] = dict.fromkeys(xs, True)
    stack = [y]
    while stack:
        i = stack[-1]
        if i in depends:
            stack.pop()
            continue
        missing = [j for j in i.inputs if j not in depends]
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        depends[i] = any(depends[j] for j in i.inputs)
        if depends[i]:
            order.append(i)
    return order


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def keep(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, rule))
        return rule

    return keep


@_rule("identity", "contiguous")
def _same(n: Node, i: Instruction, g: Instruction, x: Instruction) -> Sequence[Instruction | None]:
    return [g]


@_rule("add")
def _add(n: Node, i: Instruction, g: Instruction, a: Instruction, b: Instruction) -> Sequence[Instruction | None]:
    return [g, g]


@_rule("sub")
def _sub(n: Node, i: Instruction, g: Instruction, a: Instruction, b: Instruction) -> Sequence[Instruction | None]:
    return [g, n.add("neg", g)]


@_rule("mul")
def _mul(n: Node, i: Instruction, g: Instruction, a: Instruction, b: Instruction) -> Sequence[Instruction | None]:
    return [n.add("mul", g, b), n.add("mul", g, a)]


@_rule("div")
def _div(n: Node, i: Instruction, g: Instruction, a: Instruction, b: Instruction) -> Sequence[Instruction | None]:
    part = n.add("div", g, b)
    return [part, n.add("neg", n.add("mul", part, i))]


@_rule("neg")
def _neg(n: Node, i: Instruction, g: Instruction, x: Instruction) -> Sequence[Instruction | None]:
    return [n.add("neg", g)]


@_rule("exp")
def _exp(n: Node, i: Instruction, g: Instruction, x: Instruction) -> Sequence[Instruction | None]:
    return [n.add("mul", g, i)]


@_rule("log")
def _log(n: Node, i: Instruction, g: Instruction, x: Instruction) -> Sequence[Instruction | None]:
    return [n.add("div", g, x)]


@_rule("sqrt")
def _sqrt(n: Node, i: Instruction, g: Instruction, x: Instruction) -> Sequence[Instruction | None]:
    return [n.add("div", g, n.add("add", i, i))]


@_rule("tanh")
def _tanh(n: Node, i: Instruction, g: Instruction, x: Instruction) -> Sequence[Instruction | None]:
    return [n.add("mul", g, n.add("sub", n.full_like(i, 1), n.add("mul", i, i)))]


@_rule("sigmoid")
def _sigmoid(n: Node, i: Instruction, g: Instruction, x: Instruction) -> Sequence[Instruction | None]:
    return [n.add("mul", n.add("mul", g, i), n.add("sub", n.full_like(i, 1), i))]


@_rule("relu")
def _relu(n: Node, i: Instruction, g: Instruction, x: Instruction) -> Sequence[Instruction | None]:
    zero = n.full_like(x, 0)
    return [n.add("where", n.add("greater", x, zero), g, zero)]


@_rule("dot")
def _dot(n: Node, i: Instruction, g: Instruction, a: Instruction, b: Instruction) -> Sequence[Instruction | None]:
    swap = [*range(a.shape.rank - 2), a.shape.rank - 1, a.shape.rank - 2]
    return [n.add("dot", g, n.transpose(b, swap)), n.add("dot", n.transpose(a, swap), g)]


@_rule("reshape", "squeeze", "unsqueeze", "flatten")
def _reshape(
    n: Node, i: Instruction, g: Instruction, x: Instruction, *dims: Instruction
) -> Sequence[Instruction | None]:
    return [n.reshape(g, x.shape.dims), *(None for _ in dims)]


@_rule("transpose")
def _transpose(n: Node, i: Instruction, g: Instruction, x: Instruction) -> Sequence[Instruction | None]:
    assert isinstance(i.op, Transpose)
    order = list(i.op.permutation)
    return [n.transpose(g, [order.index(axis) for axis in range(len(order))])]


@_rule("convert")
def _convert(n: Node, i: Instruction, g: Instruction, x: Instruction) -> Sequence[Instruction | None]:
    return [n.convert(g, x.shape.dtype) if x.shape.dtype.is_float else None]


@_rule("multibroadcast")
def _multibroadcast(
    n: Node, i: Instruction, g: Instruction, x: Instruction, *others: Instruction
) -> Sequence[Instruction | None]:
    out, lead = i.shape.dims, i.shape.rank - x.shape.rank
    axes = [*range(lead), *(lead + k for k, d in enumerate(x.shape.dims) if d != out[lead + k])]
    if any(x.shape.dims[axis - lead] != 1 for axis in axes if axis >= lead):
        n.unsupported(f"whether {x.shape} is broadcast to {i.shape} is known only at run time")
    summed = n.add("reduce_sum", g, axes=axes) if axes else g
    return [n.reshape(summed, x.shape.dims), *(None for _ in others)]


@_rule("reduce_sum")
def _reduce_sum(
    n: Node, i: Instruction, g: Instruction, x: Instruction, *axes: Instruction
) -> Sequence[Instruction | None]:
    kept: list[Dim] = list(g.shape.dims)
    if len(kept) != x.shape.rank:
        n.unsupported("the gradient of a sum without keepdims is not supported")
    return [n.broadcast_to(g, x.shape.dims), *(None for _ in axes)]
