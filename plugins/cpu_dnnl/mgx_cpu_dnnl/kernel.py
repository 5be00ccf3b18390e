"""Kernels of the cpu target: an op and the function that puts its steps into a native program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from mgx_core import Instruction, Kernel, Launch, Module, No, Operation, Shape, ShapeError
from mgx_core.ops.control import GetTupleElem
from mgx_core.targets.kernel_emission import Results
from mgx_core.types.argument import Array
from mgx_core.types.dim import symbols_of

__all__ = ["CpuKernel", "Emit", "runs_natively"]

Emit: TypeAlias = "Callable[[Any, Any, Sequence[Module], Sequence[Any]], Results | No]"


class CpuKernel(Kernel):
    """An op to be put into a native program by ``emit(emitter, op, modules, operands)`` for each set of shapes.

    `emit` decides by the op and by how its operands lie; the numbers of a constant it asks the emitter for (`constant`,
    `memory`), so that the emission cache knows (see `mgx_core.targets.emission_cache`).
    open_axis: the axis of the results whose extent depends on data; `emit` then gives memory for the most that there can be,
    and an int64 [1] with the extent that is taken.
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

    def with_op(self, op: Operation) -> CpuKernel:
        return CpuKernel(self.name, op, self.modules, self.emit, self.open_axis)

    def taken(self, *results: Array) -> Array | tuple[Array, ...]:
        """The parts of open results that are taken, given the results and their count.

        Errors: ShapeError if the count is more than there can be, as one that an operand states may be.
        """
        assert self.open_axis is not None
        *wholes, count = results
        n, parts = int(count[0]), []
        for whole in wholes:
            axis = self.open_axis % whole.ndim
            if not 0 <= n <= whole.shape[axis]:
                raise ShapeError(
                    f"{self.op.name} can give 0 to {whole.shape[axis]} elements along axis {axis}, not {n}"
                )
            parts.append(
                np.ascontiguousarray(whole[tuple(slice(n) if a == axis else slice(None) for a in range(whole.ndim))])
            )
        return parts[0] if len(parts) == 1 else tuple(parts)

    def __repr__(self) -> str:
        return self.name


def runs_natively(ins: Instruction) -> bool:
    """True if a launch whose extents depend on data runs as a native program once its inputs are there."""
    kernel = ins.op.kernel if isinstance(ins.op, Launch) else None
    if not isinstance(kernel, CpuKernel):
        return False
    if isinstance(kernel.op, GetTupleElem):
        return True  # nothing is computed
    if not all(i.is_absent or isinstance(i.result, Shape) for i in ins.inputs):
        return False
    if kernel.open_axis is not None:
        return True
    if not isinstance(ins.result, Shape):
        return False
    if any(not i.is_absent and not i.shape.ranked for i in ins.inputs):
        return True
    if not ins.shape.ranked:
        return False
    given = {s for i in ins.inputs if not i.is_absent for d in i.shape.dims for s in symbols_of(d)}
    return {s for d in ins.shape.dims for s in symbols_of(d)} <= given
