"""Kernels for single ops: pointwise ops and reductions directly, normalizations through their decomposition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core.errors import No
from mgx_core.ir.module import Module
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.norm import GroupNorm, Parts
from mgx_core.ops.operation import Operation
from mgx_core.rules.decomposition import decomposed, module_of
from mgx_core.rules.engine import Builder
from mgx_core.types.shape import Shape

from .engine import Engine
from .kernel import JitKernel
from .pointwise import compile_pointwise
from .reduce import compile_reduce

__all__ = ["compile_op", "op_body"]


def op_body(op: Operation, inputs: Sequence[Shape | None]) -> Module | No:
    """Returns a module with the op, or with its decomposition if it has one; None: an absent input."""
    shapes = [None if x is None else x.as_standard() for x in inputs]
    if isinstance(op, Pointwise) or op.combine:
        return module_of(op, shapes)
    return decomposed(op, shapes) or No(f"{op.name} has no decomposition")


def compile_op(
    op: Operation, inputs: Sequence[Shape | None], outputs: Sequence[Shape], engine: Engine
) -> JitKernel | No:
    """Returns a kernel for a pointwise op, reduction, softmax or normalization."""
    if isinstance(op, GroupNorm):
        return _group_norm(op, inputs, outputs, engine)
    body = op_body(op, inputs)
    return body if isinstance(body, No) else _compile(body, inputs, outputs, engine, op.name)


def _compile(
    body: Module, inputs: Sequence[Shape | None], outputs: Sequence[Shape], engine: Engine, name: str
) -> JitKernel | No:
    given = [x for x in inputs if x is not None]
    for ins in body:
        if ins.op.combine:
            return compile_reduce(body, ins.op.reduced_axes(ins.inputs[0].shape.rank), given, outputs, engine, name)
    return compile_pointwise(body, given, outputs, engine, name)


def _group_norm(
    op: GroupNorm, inputs: Sequence[Shape | None], outputs: Sequence[Shape], engine: Engine
) -> JitKernel | No:
    """Decomposes a group norm with the channels split into groups and members, which avoids reshapes."""
    x = inputs[0]
    assert x is not None
    split = _split(x, op.num_groups)
    shapes = [split, *(None if f is None else _split_vector(f, op.num_groups, split.rank) for f in inputs[1:])]
    body = Module(op.name)
    args = [None if s is None else body.add_parameter(f"x{i}", s.as_standard()) for i, s in enumerate(shapes)]
    first = args[0]
    assert first is not None
    parts = Parts(Builder(body, body.add_return([first])), first)
    out = parts.normalized(parts.wide(first), tuple(range(2, split.rank)), op.epsilon, True)
    scale, bias = [*args[1:], None, None][:2]
    result: Any = parts.finish(out, scale, bias)
    body.replace_return([result])
    return _compile(body, shapes, [_split(o, op.num_groups) for o in outputs], engine, op.name)


def _split(x: Shape, groups: int) -> Shape:
    """Returns the view of [n, c, ..] as [n, groups, c / groups, ..]."""
    lens, steps = x.lens(), x.strides()
    each = lens[1] // groups
    return Shape(x.dtype, [lens[0], groups, each, *lens[2:]], [steps[0], steps[1] * each, steps[1], *steps[2:]])


def _split_vector(f: Shape, groups: int, rank: int) -> Shape:
    """Returns the view of [c] as [1, groups, c / groups, 1, ..]."""
    (c,), (step,) = f.lens(), f.strides()
    each = c // groups
    return Shape(f.dtype, [1, groups, each, *(1,) * (rank - 3)], [c * step, step * each, step, *(1,) * (rank - 3)])
