"""Parses extents from text."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from ..errors import ParseError, ShapeError
from .dim import FUNCTIONS, Dim, symbol

__all__ = ["parse"]


def parse(text: str, symbols: Mapping[str, Dim]) -> Dim:
    """Returns an extent from its text; names are looked up in `symbols`, unknown ones become unbounded symbols.

    Errors: ParseError for anything that is not sums, products, ``//``, ``%``, ``max``, ``min`` and ``broadcast``.
    """
    names: dict[str, str] = {}

    def stand_in(word: str) -> str:
        return names.setdefault(word, f"s{len(names)}")

    source, word = "", ""
    for ch in text + " ":  # names may hold characters that Python identifiers may not (data-dependent symbols hold '?')
        if ch.isalnum() or ch in "_?.:":
            word += ch
            continue
        if word:
            source += word if word.isdigit() or word in FUNCTIONS else stand_in(word)
        word, source = "", source + ch
    back = {v: k for k, v in names.items()}

    def walk(node: ast.AST) -> Dim:
        match node:
            case ast.Constant(value=int() as value):
                return value
            case ast.Name(id=name):
                known = symbols.get(back.get(name, name))
                return symbol(back.get(name, name)) if known is None else known
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -walk(operand)
            case ast.BinOp(left=left, op=operator, right=right):
                a, b = walk(left), walk(right)
                match operator:
                    case ast.Add():
                        return a + b
                    case ast.Sub():
                        return a - b
                    case ast.Mult():
                        return a * b
                    case ast.FloorDiv():
                        return FUNCTIONS["floordiv"](a, b)
                    case ast.Mod():
                        return FUNCTIONS["mod"](a, b)
            case ast.Call(func=ast.Name(id=function), args=[first, second]) if function in FUNCTIONS:
                return FUNCTIONS[function](walk(first), walk(second))
        raise ParseError(f"{text!r} is not an extent")

    try:
        return walk(ast.parse(source.strip(), mode="eval").body)
    except ShapeError as error:
        raise ParseError(f"{text!r} is not an extent: {error.message}") from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ParseError(f"{text!r} is not an extent") from error
