"""The converter table of this package, by torch namespace and operator, with or without overload."""

from __future__ import annotations

from mgx_core.converting.converters import Converter, Converters

__all__ = ["COMPLEX", "STANDARD", "Converter", "Converters", "converts", "converts_complex"]

COMPLEX = "complex "  # namespace prefix of converters for complex operands or results
STANDARD = Converters()


def converts(*names: str, domain: str = "aten"):  # type: ignore[no-untyped-def]  # a decorator that keeps its function's type
    """Decorator: registers ``(node, *arguments)`` for torch operators, ``name`` or ``name.overload``."""
    return STANDARD.converts(*names, domain=domain)


def converts_complex(*names: str, domain: str = "aten"):  # type: ignore[no-untyped-def]  # as `converts`
    """Decorator: as `converts`, for calls with a complex operand or result."""
    return STANDARD.converts(*names, domain=COMPLEX + domain)
