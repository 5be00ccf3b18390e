"""The printer of modules: readable, deterministic text that `parser` parses."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from ...ops.attributes import show
from ...ops.builtin import Param
from ...types.dim import Dim, Sym, Symbol, fresh_prefix, substitute, symbol, symbols_of
from ...types.polynomial import UNBOUNDED
from ...types.shape import OptionalShape, SequenceShape, Shape, TupleShape
from ..reading import Step, Steps, nested
from .literals import value_text

__all__ = ["RESERVED", "module_text", "program_text"]

RESERVED: Final = frozenset(
    {"true", "false", "none", "inf", "nan", "in", "optimals", "floordiv", "mod", "max", "min", "broadcast"}
)

_PLAIN_SYMBOL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_?.:]*")
_PLAIN_VALUE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./:\-]*")
_PLAIN_MODULE: Final = re.compile(r"[A-Za-z0-9_./:\-]+")


def program_text(module: Steps, full: bool = False) -> str:
    """Returns the text of a module and all modules below it, preceded by their symbols.

    full: write large literals out, so that the text can be parsed back; otherwise they are printed as a digest.
    """
    return "\n".join(_Writer(module, full).lines())


def module_text(module: Steps, full: bool = False) -> str:
    """Like `program_text` for a module that may be part of a larger one; values of enclosing modules are called ``%outer.N``."""
    return program_text(module, full)


class _Writer:
    """Assigns a printed name to every value, module and symbol, then prints line by line."""

    def __init__(self, root: Steps, full: bool) -> None:
        self.full = full
        self.modules: dict[Steps, str] = {}
        self.values: dict[Step, str] = {}
        self.symbols: dict[Symbol, str] = {}
        self.renamed: dict[str, Dim] = {}
        taken: set[str] = set()
        for module in nested(root):
            if module not in self.modules:
                self.modules[module] = _unique(module.name, taken)
        taken = set()
        for module in self.modules:
            for ins in module:
                if isinstance(ins.op, Param):
                    label = ins.op.label
                    self.values[ins] = _unique(f"_{label}" if label.isdigit() else label, taken)
        count = 0
        for module in self.modules:
            for ins in module:
                self._meet(ins)
                if ins not in self.values and not ins.is_return and not _unwritten(ins, module):
                    count += 1
                    self.values[ins] = str(count)

    def _meet(self, ins: Step) -> None:
        """Records the symbols of an instruction in order of appearance."""
        found: list[Symbol] = []
        for field in ins.op.fields:
            if "Dim" in field.annotation or "Shape" in field.annotation:
                found += _symbols(getattr(ins.op, field.name))
        found += _symbols(ins.result)
        for s in found:
            if s not in self.symbols:
                name = _printed(s, self.symbols.values())
                self.symbols[s] = name
                if name != s.name:
                    self.renamed[s.name] = symbol(name, s.lo, s.hi, s.optimals, s.written)

    def lines(self) -> Iterable[str]:
        for s, name in self.symbols.items():
            span = f" in {s.lo}..{'' if s.hi == UNBOUNDED else s.hi}" if s.lo or s.hi != UNBOUNDED else ""
            yield f"symbol {name}{span}" + (f" optimals {', '.join(map(str, s.optimals))}" if s.optimals else "")
        for module, name in self.modules.items():
            yield f"module {name if _PLAIN_MODULE.fullmatch(name) else show(name)}"
            for ins in module:
                if not _unwritten(ins, module):
                    yield f"  {self.line(ins)}"

    def line(self, ins: Step) -> str:
        args = ", ".join(map(self.value, ins.inputs))
        if ins.is_return:
            text = f"@return({args})"
        else:
            text = f"{self.value(ins)} = {self.operation(ins, args)} -> {self.attribute(ins.result)}"
        return f"{text}  # {', '.join(map(_source, ins.sources))}" if ins.sources else text

    def operation(self, ins: Step, args: str) -> str:
        op = ins.op
        if isinstance(op, Param):
            return f"@param[{show(op.label)}]"
        if ins.literal is not None:
            return f"@literal({value_text(ins.literal.value, self.full)})"
        if op.name == "launch":
            head = repr(op)
        else:
            inside = ", ".join(f"{f.name}={self.attribute(getattr(op, f.name))}" for f in op.fields)
            head = f"{op.name}[{inside}]" if inside else op.name
        modules = ", ".join(
            n if _PLAIN_MODULE.fullmatch(n) else show(n) for n in (self.modules[m] for m in ins.modules)
        )
        return f"{head}({args})" + (f"{{{modules}}}" if modules else "")

    def value(self, ins: Step) -> str:
        if ins.is_absent and ins not in self.values:
            return "-"
        name = self.values.get(ins)
        if name is None:
            name = self.values[ins] = f"outer.{len([v for v in self.values.values() if v.startswith('outer.')])}"
        return f"%{name}" if name.isdigit() or _PLAIN_VALUE.fullmatch(name) else f"%{show(name)}"

    def attribute(self, value: Any) -> str:
        """Returns the text of an attribute or shape, with the printed names of symbols."""
        match value:
            case Sym():
                return str(substitute(value, self.renamed) if self.renamed else value)
            case tuple():
                return f"[{', '.join(map(self.attribute, value))}]"
            case Shape() if not value.ranked:
                return str(value)
            case Shape():
                text = f"{value.dtype}[{', '.join(map(self.attribute, value.dims))}]"
                return text if value.standard() else f"{text}{{{', '.join(map(str, value.strides()))}}}"
            case TupleShape():
                return f"({', '.join(map(self.attribute, value.items))})"
            case SequenceShape():
                return f"sequence<{self.attribute(value.element)}>"
            case OptionalShape():
                return f"optional<{self.attribute(value.element)}>"
        return show(value)


def _unwritten(ins: Step, module: Steps) -> bool:
    """Returns True for absent inputs, which are printed as ``-`` at their uses."""
    return ins.is_absent and (module.returned is not None or ins is not module.last)


def _unique(wanted: str, taken: set[str]) -> str:
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}.{number}", number + 1
    taken.add(name)
    return name


def _symbols(value: Any) -> list[Symbol]:
    """Returns the symbols in an extent, a shape or a tuple of these, in order."""
    match value:
        case Sym():
            return sorted(symbols_of(value), key=_age)
        case Shape() if value.ranked and value.dynamic():
            return [s for d in value.dims for s in _symbols(d)]
        case TupleShape():
            return [s for item in value.items for s in _symbols(item)]
        case SequenceShape() | OptionalShape():
            return _symbols(value.element)
        case tuple():
            return [s for item in value for s in _symbols(item)]
    return []


def _age(s: Symbol) -> tuple[int, str]:
    return (int(s.name.rpartition("?")[2]), s.name) if fresh_prefix(s.name) is not None else (-1, s.name)


def _printed(s: Symbol, taken: Iterable[str]) -> str:
    """Returns a symbol's printed name: generated ones are renumbered, others quoted with backquotes if needed."""
    prefix = fresh_prefix(s.name)
    if prefix is not None:
        return f"{prefix if _PLAIN_SYMBOL.fullmatch(prefix) else 'n'}?{sum('?' in t for t in taken)}"
    if _PLAIN_SYMBOL.fullmatch(s.name) and s.name not in RESERVED:
        return s.name
    return "`" + s.name.encode("unicode_escape").decode().replace("`", "\\x60") + "`"


def _source(name: str) -> str:
    plain = name and name.isprintable() and name.strip() == name and not set('",#') & set(name)
    return name if plain else show(name)
