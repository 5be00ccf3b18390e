"""The table of this package's converters: by namespace and operator of torch, with or without its overload."""

from __future__ import annotations

from mgx_core.converting.converters import Converter, Converters

__all__ = ["COMPLEX", "STANDARD", "Converter", "Converters", "converts", "converts_complex"]

COMPLEX = "complex "  # before the namespace: converters for operands or results that are complex
STANDARD = Converters()


def converts(*names: str, domain: str = "aten"):  # type: ignore[no-untyped-def]  # a decorator that keeps its function's type
    """Decorator: a function ``(node, *arguments)`` for operators of torch, ``name`` or ``name.overload``."""
    return STANDARD.converts(*names, domain=domain)


def converts_complex(*names: str, domain: str = "aten"):  # type: ignore[no-untyped-def]  # as `converts`
    """Decorator: as `converts`, for calls in which an operand or a result is complex."""
    return STANDARD.converts(*names, domain=COMPLEX + domain)
