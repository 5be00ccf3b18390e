"""Applies converters of real tensors to the real and imaginary parts of complex ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from mgx_core import Instruction

from .converter import converts, converts_complex
from .node import Complex, Node

__all__ = ["by_parts"]

# arguments with result elements; a real one has no imaginary part
ELEMENTS: Final = frozenset(("self", "input", "other", "tensors", "src", "source", "values", "value", "fill_value"))


def by_parts(*names: str) -> Callable[[Any], Any]:
    """Decorator for linear converters (moves and sums), which are applied separately to both parts of complex tensors."""

    def keep(function: Any) -> Any:
        converts(*names)(function)

        @wraps(function)
        def both(n: Node, *args: Any, **given: Any) -> Any:
            real, imag = (_called(n, function, which, args, given) for which in ("real", "imag"))
            if isinstance(real, (list, tuple)):
                return [Complex(a, b) for a, b in zip(real, imag, strict=True)]
            return Complex(real, imag)

        converts_complex(*names)(both)
        return function

    return keep


def _called(n: Node, function: Any, which: str, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
    """Returns one part of a converter's result."""
    schema = [a.name for a in n.fx.target._schema.arguments]
    places = [_part(n, a, which, name in ELEMENTS) for a, name in zip(args, schema, strict=False)]
    return function(n, *places, **{name: _part(n, a, which, name in ELEMENTS) for name, a in given.items()})


def _part(n: Node, x: Any, which: str, element: bool) -> Any:
    if isinstance(x, complex) and not element:
        n.unsupported(f"the complex factor {x}")
    if isinstance(x, (Complex, complex)):
        return getattr(x, which)
    if isinstance(x, (list, tuple)):
        return [_part(n, v, which, element) for v in x]
    if not element or which == "real":
        return x
    if isinstance(x, Instruction):
        return n.full_like(x, 0)
    return 0 if isinstance(x, (int, float)) and not isinstance(x, bool) else x
