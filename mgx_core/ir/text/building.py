"""Generates code that rebuilds a program: the traversal of modules and instructions; subclasses emit a language."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import ClassVar

from ...errors import UnsupportedError
from ...ops.operation import Operation
from ...types.argument import Argument
from ...types.dim import Dim, Sym, substitute, symbol, symbols_of
from ...types.dynamic_dimension import DynamicDimension
from ...types.shape import AnyShape, Shape
from ..instruction import Instruction
from ..module import Module

__all__ = ["BuildingCode", "unknown_rank"]


class BuildingCode(ABC):
    """Emits the calls that build a module: ``m0``, ``m1`` are modules, ``x0``, ``x1`` instructions, ``p`` is the program."""

    brackets: ClassVar[tuple[str, str]]
    """What a list stands in."""

    def __init__(self, main: Module) -> None:
        self.names: dict[Instruction, str] = {}
        self.modules: dict[Module, str] = {}
        self.symbols = _named(main)

    def extent_text(self, d: Sym) -> str:
        """Returns an extent of an attribute.  Errors: UnsupportedError if it is data-dependent."""
        unknown = sorted({s.name for s in symbols_of(d)} - self.symbols.keys())
        if unknown:
            raise UnsupportedError(f"code cannot state the extent {d}: {unknown[0]} is known only at run time")
        return str(substitute(d, self.symbols))

    def dimension(self, d: Dim) -> DynamicDimension:
        """Returns an extent of a parameter: an expression if its symbols are used elsewhere, else a range."""
        return DynamicDimension.of(substitute(d, self.symbols))

    @abstractmethod
    def quoted(self, text: str) -> str: ...

    @abstractmethod
    def assigned(self, name: str, value: str) -> str:
        """Returns the definition of a variable."""

    @abstractmethod
    def called(self, call: str) -> str:
        """Returns a call as a statement."""

    @abstractmethod
    def literal(self, own: str, name: str, literal: Argument) -> Iterator[str]:
        """Yields statements that add a constant to the module `own` as variable `name`."""

    @abstractmethod
    def op(self, op: Operation) -> str: ...

    @abstractmethod
    def shape(self, shape: AnyShape) -> str: ...

    def module(self, module: Module, made: str) -> Iterator[str]:
        """Yields the statements that build a module; made: the expression that creates it empty."""
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
        """Yields the statements that add one instruction to the module `own` as variable `name`."""
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
        """Returns a list literal."""
        return self.brackets[0] + ", ".join(items) + self.brackets[1]


def _named(main: Module) -> dict[str, Dim]:
    """Returns valid identifiers for the symbols of parameters that attributes or other extents also use."""
    everywhere = list(_instructions(main))
    dims = [
        d
        for ins in everywhere
        if ins.is_param and isinstance(ins.result, Shape) and ins.result.ranked
        for d in ins.result.dims
    ]
    found = {s.name: s for d in dims for s in symbols_of(d)}
    uses = Counter(s.name for d in dims for s in symbols_of(d))
    uses.update(name for ins in everywhere if not ins.is_param for name in ins.op.symbols())
    made: dict[str, Dim] = {}
    for name, of in found.items():
        if uses[name] > 1 and of.lo < of.hi:
            plain = re.sub(r"\W|^(?=\d)", "_", name)
            while plain != name and (plain in found or any(plain == str(d) for d in made.values())):
                plain += "_"
            made[name] = symbol(plain, of.lo, of.hi, of.optimals, written=True)
    return made


def unknown_rank(shape: AnyShape) -> str:
    """Returns the reason to refuse a tensor of unknown rank; empty for other types."""
    unranked = isinstance(shape, Shape) and not shape.ranked
    return ", whose rank a run finds out; fix the extents of the model's inputs when it is read" if unranked else ""


def _instructions(module: Module) -> Iterator[Instruction]:
    for ins in module:
        yield ins
        for inner in ins.modules:
            yield from _instructions(inner)
