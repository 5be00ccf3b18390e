"""Attributes of operations: supported types, validation, and text form."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from ..errors import ParameterError
from ..types import dtype as dt
from ..types.dim import Dim, Sym
from ..types.dim_text import parse
from ..types.shape import OptionalShape, SequenceShape, Shape, TupleShape
from ..types.traced_int import TracedInt

__all__ = ["MISSING", "Field", "show"]

MISSING: Final = object()  # marks an attribute without a default


def _int(value: Any) -> int:
    if value.__class__ is int:
        return value
    if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__index__"):
        raise TypeError("an int")
    return int(value.__index__())


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError("a float")
    return float(value)


def _bool(value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, (int, np.integer)) and value in (0, 1)):
        return bool(value)
    raise TypeError("a bool")


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a string")
    return value


def _dim(value: Any) -> Dim:
    if value.__class__ is int:
        return value
    if isinstance(value, Sym):
        return value
    if isinstance(value, str):
        return parse(value, {})
    return value if type(value) is TracedInt else _int(value)


def _bytes(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray)):
        raise TypeError("bytes")
    return bytes(value)


def _shape(value: Any) -> Any:
    if isinstance(value, (Shape, TupleShape, SequenceShape, OptionalShape)):
        return value
    raise TypeError("a shape")


def _optional(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else check(value)


# The types whose values need no conversion by a check.
PLAIN: Final[dict[Callable[[Any], Any], type]] = {_int: int, _dim: int, _float: float, _str: str}


def _many(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    plain = PLAIN.get(check)

    def checked(value: Any) -> tuple[Any, ...]:
        if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            raise TypeError("a sequence")
        values = tuple(value)
        if plain is not None and {plain}.issuperset(map(type, values)):
            return values
        return tuple(check(v) for v in values)

    return checked


_CHECKS: Final[dict[str, Callable[[Any], Any]]] = {
    "int": _int,
    "float": _float,
    "bool": _bool,
    "str": _str,
    "Dim": _dim,
    "bytes": _bytes,
    "DType": dt.of,
    "AnyShape": _shape,
    "Shape": _shape,
}
for _word in list(_CHECKS):
    _CHECKS[f"tuple[{_word}, ...]"] = _many(_CHECKS[_word])
_CHECKS["tuple[tuple[int, ...], ...]"] = _many(_many(_int))
for _word in list(_CHECKS):
    _CHECKS[f"{_word} | None"] = _optional(_CHECKS[_word])


class Field:
    """One attribute of an op: its name, the annotation (the key of its codec) and the default, if any."""

    __slots__ = ("annotation", "check", "choices", "default", "name")

    def __init__(self, owner: str, name: str, annotation: Any, default: Any) -> None:
        word = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
        if (not isinstance(annotation, str) and "[" in str(annotation)) or "|" in str(annotation):
            word = str(annotation).replace("typing.", "").replace("mgx_core.types.dtype.", "")
        self.name = name
        self.annotation: str = word
        self.choices: tuple[Any, ...] = ()
        if word.startswith("Literal["):
            self.choices = tuple(ast.literal_eval(f"[{word[8:-1]}]"))
            self.check: Callable[[Any], Any] = self._choose
        elif word in _CHECKS:
            self.check = _CHECKS[word]
        else:
            raise ParameterError(
                f"op {owner}: attribute {name} has type {word}; known are {', '.join(_CHECKS)}, Literal[...]"
            )
        try:
            self.default = default if default is MISSING else self.check(default)
        except (TypeError, ValueError) as error:
            wanted = error if self.choices else word
            raise ParameterError(
                f"op {owner}: the default of attribute {name} must be {wanted}, got {default!r}"
            ) from None

    def _choose(self, value: Any) -> Any:
        if value not in self.choices:
            raise TypeError(f"one of {', '.join(map(repr, self.choices))}")
        return value


def show(value: Any) -> str:
    """Returns an attribute value as printed in the text form."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return f"[{', '.join(map(show, value))}]"
    if isinstance(value, str):
        return '"' + value.encode("unicode_escape").decode().replace('"', '\\"') + '"'
    if isinstance(value, bytes):
        return f'b"{value.hex()}"'
    return repr(value)
