"""Debug symbols: names that users, or on request the parser, assign to instructions."""

from __future__ import annotations

from collections.abc import Iterable

from mgx_core import Instruction, Module, Program

__all__ = ["add_symbols", "has_symbols", "remove_symbols", "show_sources", "symbols_of"]


class Symbol(str):
    """A source name of an instruction that is a debug symbol; other source names are for reports and errors only."""

    __slots__ = ()


def symbols_of(ins: Instruction) -> set[str]:
    return {str(s) for s in ins.sources if isinstance(s, Symbol)}


def add_symbols(ins: Instruction, symbols: Iterable[str]) -> None:
    known = symbols_of(ins)
    ins.sources = (*ins.sources, *(Symbol(s) for s in sorted(set(symbols) - known)))


def remove_symbols(ins: Instruction) -> None:
    ins.sources = tuple(s for s in ins.sources if not isinstance(s, Symbol))


def show_sources(program: Program) -> None:
    """Turns the node names that each instruction records into debug symbols."""
    for module in program.graph:
        for ins in module:
            ins.sources = tuple(map(Symbol, ins.sources))


def has_symbols(module: Module) -> bool:
    return any(isinstance(s, Symbol) for ins in module for s in ins.sources)
