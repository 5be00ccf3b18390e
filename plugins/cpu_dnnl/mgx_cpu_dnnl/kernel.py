"""Kernels of the cpu target: an op and the function that puts its steps into a native program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from mgx_core import Module, Operation

from .values import Value

if TYPE_CHECKING:
    from .emitter import Emitter

__all__ = ["CpuKernel", "Declined", "Emit", "Results"]

Results: TypeAlias = "Value | tuple[Value, ...]"
Emit: TypeAlias = "Callable[[Emitter, Any, Sequence[Module], Sequence[Value | None]], Results]"


class Declined(Exception):
    """A plan finds, with concrete shapes at hand, that it cannot do the op after all; the text says why."""


class CpuKernel:
    """An op to be put into a native program by `emit`; with other shapes it is put there again."""

    __slots__ = ("emit", "modules", "name", "op")

    def __init__(self, name: str, op: Operation, modules: Sequence[Module], emit: Emit) -> None:
        self.name = name
        self.op = op
        self.modules = tuple(modules)
        self.emit = emit

    def with_op(self, op: Operation) -> CpuKernel:
        return CpuKernel(self.name, op, self.modules, self.emit)

    def run(self, args: Sequence[Any], modules: Sequence[Any] = (), run: Any = None) -> Any:
        """One op on arrays, for what is decided only while running."""
        from .single import run_single

        return run_single(self, args)

    def __repr__(self) -> str:
        return self.name
