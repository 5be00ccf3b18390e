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

# (emitter, op, sub-modules, operand values) -> result values; may raise Refused
Emit: TypeAlias = "Callable[[Any, Any, Sequence[Module], Sequence[Any]], Results | No]"
# (op, operand types, sub-modules) -> refusal or None
Check: TypeAlias = "Callable[[Any, Sequence[AnyShape | None], Sequence[Module]], No | None]"


class EmittedKernel(Kernel):
    """A kernel whose steps are added by ``emit(emitter, op, modules, operands)``, for each set of shapes.

    `emit` may depend on the op and the operands' layouts; it reads elements of constants only through the emitter (`constant`,
    `memory`), so that the emission cache is aware of it (see `mgx_core.targets.emission_cache`).
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
    """Decorator: registers an emit function as a plan for some ops (none: for all).

    name: of the plan, and with the op of its kernels; default: the function's without ``emit_``.  when: declines ops and types
    before emission.  open_axis: the result axis with a data-dependent extent, or a function that returns it for an op; see
    `Kernel`.  make: the class of the kernels.
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
