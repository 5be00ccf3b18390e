"""Decides whether rows are computed independently; a program may then run on the upper bound of rows and discard the excess."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ops.broadcast import Broadcast, Multibroadcast
from ..ops.concat import Concat
from ..ops.elementwise import Pointwise
from ..ops.index import Gather, Gathernd
from ..ops.linear import Dot
from ..ops.movement import Contiguous, Transpose
from ..ops.operation import Operation
from ..ops.pointwise import Identity
from ..ops.reshape import Flatten, Reshape, Squeeze, Unsqueeze
from ..ops.roi import Roialign
from ..ops.slice import Slice
from ..types.dim import Sym, symbols_of
from ..types.shape import Shape
from .kernel import op_of

__all__ = ["independent"]


class _DependentError(Exception):
    """Rows depend on each other, or an extent is not simply their number."""


def _named(result: Any, symbols: set[str]) -> tuple[int, str] | None:
    axis = _axis(result, symbols)
    if axis is None or not isinstance(result, Shape):
        return None
    rows = result.dims[axis]
    assert isinstance(rows, Sym) and rows.symbol is not None
    return axis, rows.symbol.name


def independent(module: Module, symbols: set[str]) -> list[tuple[int, str] | None] | None:
    """Returns the row axis and symbol of each output, if no row of any value depends on other rows or on their number."""
    try:
        _check(module, symbols)
        return [_named(o.result, symbols) for o in module.outputs]
    except _DependentError:
        return None


def _axis(result: Any, symbols: set[str]) -> int | None:
    if not isinstance(result, Shape) or not result.ranked:
        raise _DependentError
    found = None
    for axis, d in enumerate(result.dims):
        if isinstance(d, int):
            continue
        lone = d.symbol
        if lone is None or lone.name not in symbols or len(symbols_of(d)) != 1 or found is not None:
            raise _DependentError
        found = axis
    return found


def _check(module: Module, symbols: set[str]) -> None:
    for ins in module:
        if ins.is_return or ins.is_absent:
            continue
        own = _axis(ins.result, symbols)
        if ins.is_param or ins.is_literal:
            continue
        axes = [None if i.is_absent else _axis(i.result, symbols) for i in ins.inputs]
        if own is None and all(a is None for a in axes):
            continue
        op = op_of(ins)
        if op.fused:
            _check(ins.modules[0], symbols)
        elif not _keeps(op, ins, own, axes):
            raise _DependentError


def _keeps(op: Any, ins: Instruction, own: int | None, axes: list[int | None]) -> bool:
    if isinstance(op, Pointwise):
        return all(a is None or a == own for a in axes)
    if isinstance(op, (Gather, Gathernd, Roialign)):  # negative indices depend on the extent of the indexed axis
        return axes[0] is None and own is not None
    if own is None or any(a is not None for a in axes[1:] if not isinstance(op, Concat)):
        return False
    rule = _RULES.get(type(op), _reduces)
    return rule(op, ins, own, axes)


def _reshapes(op: Any, ins: Instruction, own: int, axes: list[int | None]) -> bool:
    if len(axes) != 1 or axes[0] is None:
        return False
    before, after = ins.inputs[0].shape.dims[: axes[0]], ins.shape.dims[:own]
    return bool(math.prod(before) == math.prod(after))


def _reduces(op: Any, ins: Instruction, own: int, axes: list[int | None]) -> bool:
    over = op.reduced_axes(ins.inputs[0].shape.rank) if len(axes) == 1 else ()
    return axes[0] is not None and bool(over) and axes[0] not in over


def _joins(op: Any, ins: Instruction, own: int, axes: list[int | None]) -> bool:
    # row counts with different symbols must be equal, which is checked once their values are known
    return op.axis % ins.shape.rank != own and all(i.shape.dims[own] == ins.shape.dims[own] for i in ins.inputs)


_RULES: Final[dict[type[Operation], Callable[[Any, Instruction, int, list[int | None]], bool]]] = {
    **dict.fromkeys(
        (Transpose, Squeeze, Unsqueeze, Multibroadcast, Broadcast, Identity, Contiguous),
        lambda op, ins, own, axes: len(axes) == 1,
    ),
    **dict.fromkeys((Reshape, Flatten), _reshapes),
    Slice: lambda op, ins, own, axes: len(axes) == 1 and own not in {a % ins.shape.rank for a in op.axes},
    Concat: _joins,
    Dot: lambda op, ins, own, axes: len(axes) == 2 and axes[0] not in (None, ins.inputs[0].shape.rank - 1),
}
