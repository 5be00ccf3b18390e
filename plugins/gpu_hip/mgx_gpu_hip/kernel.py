"""Kernels of the gpu target: an op and the function that emits its steps on concrete shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from mgx_core import Kernel, Module, No, Operation
from mgx_core.targets.kernel_emission import Results

from .codegen.writing import Write

__all__ = ["Emit", "GpuKernel"]

# from an emitter, the op, its sub-modules and the values of its operands to those of its results; it may raise Refused
Emit: TypeAlias = Callable[[Any, Any, Sequence[Module], Sequence[Any]], Results | No]


class GpuKernel(Kernel):
    """An op to be emitted as launches by `emit`; with other shapes it is emitted again.

    write: the generator of its text, for kernels that have one.
    """

    __slots__ = ("emit", "modules", "name", "op", "open_axis", "write")

    emit: Emit

    def __init__(
        self,
        name: str,
        op: Operation,
        modules: Sequence[Module],
        emit: Emit,
        write: Write | None = None,
        open_axis: int | None = None,
    ) -> None:
        self.name = name
        self.op = op
        self.modules = tuple(modules)
        self.emit = emit
        self.write = write
        self.open_axis = open_axis

    def with_op(self, op: Operation) -> GpuKernel:
        return GpuKernel(self.name, op, self.modules, self.emit, self.write, self.open_axis)

    def run(self, args: Sequence[Any], modules: Sequence[Any] = (), run: Any = None) -> Any:
        """The op by its definition on the host, for what is decided only at run time; `run` knows extents found so far."""
        from mgx_core.ir.interpreter import Interpreter

        values = [a.to_host() if hasattr(a, "to_host") else a for a in args]
        return self.op.evaluate(values, self.modules, run or Interpreter().run)

    def __repr__(self) -> str:
        return self.name
