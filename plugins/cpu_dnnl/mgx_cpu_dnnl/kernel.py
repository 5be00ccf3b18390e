"""Kernels of the cpu target: an op and the function that puts its steps into a native program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from mgx_core import Kernel, Module, No, Operation
from mgx_core.targets.kernel_emission import Results

__all__ = ["CpuKernel", "Emit"]

Emit: TypeAlias = "Callable[[Any, Any, Sequence[Module], Sequence[Any]], Results | No]"


class CpuKernel(Kernel):
    """An op to be put into a native program by ``emit(emitter, op, modules, operands)`` for each set of shapes.

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

    def with_op(self, op: Operation) -> CpuKernel:
        return CpuKernel(self.name, op, self.modules, self.emit, self.open_axis)

    def __repr__(self) -> str:
        return self.name
