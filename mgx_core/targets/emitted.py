"""Kernels defined by a function that emits their steps, and the decorator that registers such functions as plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, Self, TypeAlias

from ..errors import No
from ..ir.module import Module
from ..ops.operation import Operation
from ..types.shape import AnyShape
from .kernel import Kernel
from .kernel_emission import Results
from .kernel_table import Kernels

__all__ = ["Check", "Emit", "EmittedKernel", "offer"]

# from an emitter, the op, its sub-modules and the values of its operands to those of its results; it may raise Refused
Emit: TypeAlias = "Callable[[Any, Any, Sequence[Module], Sequence[Any]], Results | No]"
# refuses an op with its operands' types and its sub-modules, or gives None
Check: TypeAlias = "Callable[[Any, Sequence[AnyShape | None], Sequence[Module]], No | None]"


class EmittedKernel(Kernel):
    """An op whose steps ``emit(emitter, op, modules, operands)`` adds for each set of shapes.

    `emit` decides by the op and by how its operands lie; the numbers of a constant it asks the emitter for (`constant`,
    `memory`), so that the emission cache knows (see `mgx_core.targets.emission_cache`).
    """

    __slots__ = ("emit", "modules", "name", "op", "open_axis")

    emit: Emit

    def __init__(
        self, name: str, op: Operation, modules: Sequence[Module], emit: Emit, open_axis: int | None = None
    ) -> None:
        self.name = name
        self.op = op
        self.modules = tuple(modules)
        self.emit = emit
        self.open_axis = open_axis

    def with_op(self, op: Operation) -> Self:
        made = copy(self)
        made.op = op
        return made


def offer(
    table: Kernels,
    *ops: type[Operation],
    name: str = "",
    when: Check | None = None,
    open_axis: int | Callable[[Any], int] | None = None,
    make: Callable[..., EmittedKernel] = EmittedKernel,
) -> Callable[[Emit], Emit]:
    """Decorator: offers an emit function as a plan for some ops (none named: for any).

    name: of the plan, and with the op's of its kernels; by default the function's, without ``emit_``.  when: refuses ops and
    types before anything is emitted.  open_axis: the axis of the result whose extent depends on data, or what gives it for an
    op; see `Kernel`.  make: the kernels' class.
    """

    def keep(emit: Emit) -> Emit:
        label = name or emit.__name__.removeprefix("emit_")

        def plan(
            op: Operation, inputs: Sequence[AnyShape | None], context: Any, modules: Sequence[Module] = ()
        ) -> Kernel | No:
            refused = None if when is None else when(op, inputs, modules)
            if refused is not None:
                return refused
            return make(f"{label} {op.name}", op, modules, emit, open_axis(op) if callable(open_axis) else open_axis)

        plan.__name__, plan.__module__ = label, emit.__module__
        table.plan(*ops)(plan)
        return emit

    return keep
