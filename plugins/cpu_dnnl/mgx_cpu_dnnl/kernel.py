"""Kernels of the cpu target: an op and the function that puts its steps into a native program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mgx_core import Kernel, Module, Operation, ShapeError
from mgx_core.types.argument import Array

from .values import Value

if TYPE_CHECKING:
    from .emitter import Emitter

__all__ = ["CpuKernel", "Declined", "Emit", "Results"]

Results: TypeAlias = "Value | tuple[Value, ...]"
Emit: TypeAlias = "Callable[[Emitter, Any, Sequence[Module], Sequence[Value | None]], Results]"


class Declined(Exception):
    """A plan finds, with concrete shapes at hand, that it cannot do the op after all; the text says why."""


class CpuKernel(Kernel):
    """An op to be put into a native program by `emit`; with other shapes it is put there again.

    `emit` decides by the op and by how its operands lie.  The numbers of a constant it asks the emitter for (`constant`,
    `memory`): what it does without them is done again, without asking, for operands that lie alike.
    open_axis: the axis of the results whose extent depends on data; `emit` then gives memory for the most that there can be,
    and an int64 [1] that says how much of it is taken.
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

    def run(self, args: Sequence[Any], modules: Sequence[Any] = (), run: Any = None) -> Any:
        """One op on arrays, for what is decided only while running."""
        from .run_op import run_single

        return run_single(self, args)

    def __repr__(self) -> str:
        return self.name
