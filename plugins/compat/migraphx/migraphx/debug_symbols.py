"""Debug symbols: names that a program's user gives to instructions, or that parsing gives them on demand."""

from __future__ import annotations

from collections.abc import Iterable

from mgx_core import Instruction, Module, Program

__all__ = ["add_symbols", "has_symbols", "remove_symbols", "show_sources", "symbols_of"]


class Symbol(str):
    """A name among an instruction's sources that is a debug symbol; the others serve reports and errors alone."""

    __slots__ = ()


def symbols_of(ins: Instruction) -> set[str]:
    return {str(s) for s in ins.sources if isinstance(s, Symbol)}


def add_symbols(ins: Instruction, symbols: Iterable[str]) -> None:
    known = symbols_of(ins)
    ins.sources = (*ins.sources, *(Symbol(s) for s in sorted(set(symbols) - known)))


def remove_symbols(ins: Instruction) -> None:
    ins.sources = tuple(s for s in ins.sources if not isinstance(s, Symbol))


def show_sources(program: Program) -> None:
    """Makes the names of the model's nodes, which every instruction keeps, debug symbols."""
    for module in program.graph:
        for ins in module:
            ins.sources = tuple(map(Symbol, ins.sources))


def has_symbols(module: Module) -> bool:
    return any(isinstance(s, Symbol) for ins in module for s in ins.sources)
