"""Programs as code that builds them again: modules and instructions in order; subclasses write a language."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

from ...ops.operation import Operation
from ...types.argument import Argument
from ...types.shape import AnyShape
from ..instruction import Instruction
from ..module import Module

__all__ = ["BuildingCode"]


class BuildingCode(ABC):
    """Writes the calls that build a module: ``m0``, ``m1`` are modules, ``x0``, ``x1`` instructions, ``p`` is the program."""

    brackets: ClassVar[tuple[str, str]]
    """What a list stands in."""

    def __init__(self) -> None:
        self.names: dict[Instruction, str] = {}
        self.modules: dict[Module, str] = {}

    @abstractmethod
    def quoted(self, text: str) -> str: ...

    @abstractmethod
    def assigned(self, name: str, value: str) -> str:
        """Returns the statement that gives a new variable its value."""

    @abstractmethod
    def called(self, call: str) -> str:
        """Returns a call as a statement."""

    @abstractmethod
    def literal(self, own: str, name: str, literal: Argument) -> Iterator[str]:
        """Yields statements that add a constant to the module `own` and call it `name`."""

    @abstractmethod
    def op(self, op: Operation) -> str: ...

    @abstractmethod
    def shape(self, shape: AnyShape) -> str: ...

    def module(self, module: Module, made: str) -> Iterator[str]:
        """Yields the statements that fill a module; made: the expression that gives it while it is empty."""
        own = self.modules[module] = f"m{len(self.modules)}"
        yield self.assigned(own, made)
        for ins in module:
            for inner in ins.modules:
                if inner not in self.modules:
                    yield from self.module(inner, f"p.create_module({self.quoted(inner.name)})")
            if ins.is_return:
                yield self.called(f"{own}.add_return({self.listed(ins.inputs)})")
                continue
            name = f"x{len(self.names)}"
            yield from self.instruction(own, name, ins)
            self.names[ins] = name

    def instruction(self, own: str, name: str, ins: Instruction) -> Iterator[str]:
        """Yields the statements that add one instruction to the module `own` and call it `name`."""
        if ins.is_param:
            label: str = ins.op.label  # type: ignore[attr-defined]
            yield self.assigned(name, f"{own}.add_parameter({self.quoted(label)}, {self.shape(ins.result)})")
        elif ins.literal is not None:
            yield from self.literal(own, name, ins.literal)
        else:
            modules = f", {self.among([self.modules[m] for m in ins.modules])}" if ins.modules else ""
            yield self.assigned(name, f"{own}.add_instruction({self.op(ins.op)}, {self.listed(ins.inputs)}{modules})")

    def listed(self, inputs: Sequence[Instruction]) -> str:
        return self.among([self.names[i] for i in inputs])

    def among(self, items: Sequence[str]) -> str:
        """Returns a list of expressions."""
        return self.brackets[0] + ", ".join(items) + self.brackets[1]
