"""Values of options against the types that their annotations state."""

from __future__ import annotations

import dataclasses
import operator
import os
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from .errors import ParameterError, suggestion

__all__ = ["check_options", "record_of"]

R = TypeVar("R")

WORDS: Final[dict[Any, str]] = {
    bool: "true or false",
    int: "an int",
    float: "a number",
    str: "a string",
    bytes: "bytes",
    types.NoneType: "None",
    os.PathLike: "a path",
}


def record_of(kind: type[R], what: str, given: Mapping[str, Any]) -> R:
    """Returns a record of options from their values by name; what: the options, for messages.

    Errors: ParameterError for a name that is not a field's, and what the record raises.
    """
    known = [f.name for f in dataclasses.fields(cast(Any, kind))]
    for name in given:
        if name not in known:
            raise ParameterError(f"there is no {what} {name!r}; {suggestion(name, known)}")
    return kind(**given)


def check_options(who: str, stated: Callable[..., Any] | type[Any], options: Mapping[str, Any]) -> None:
    """Compares options with the annotations of a record's fields, or of a function's parameters; what has none may be anything.

    Errors: ParameterError, which names the option, what it must be and what was given.
    """
    if not options:
        return
    try:
        hints = typing.get_type_hints(stated)
    except (NameError, TypeError, AttributeError):
        return  # names that are there for type checkers alone
    for name, value in options.items():
        if name in hints and not _fits(value, hints[name]):
            raise ParameterError(f"{who}: {name} must be {_words(hints[name], value)}, got {value!r}")


def _fits(value: Any, wanted: Any) -> bool:
    """Returns True if a value is of a type; types that are not told apart here take any."""
    origin, parts = typing.get_origin(wanted) or wanted, typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is typing.Literal:
        return value in parts
    if origin is bool:
        return isinstance(value, bool) or (_is_int(value) and value in (0, 1))
    if origin is int:
        return _is_int(value)
    if origin is float:
        return _is_int(value) or isinstance(value, float)
    if origin is Mapping or origin is dict:
        key, item = parts or (Any, Any)
        return isinstance(value, Mapping) and all(_fits(k, key) and _fits(v, item) for k, v in value.items())
    if origin is Sequence or origin is list:
        item = parts[0] if parts else Any
        listed = isinstance(value, Sequence) or (hasattr(value, "__len__") and hasattr(value, "__getitem__"))
        return listed and not isinstance(value, (str, bytes, Mapping)) and all(_fits(v, item) for v in value)
    return not isinstance(origin, type) or origin not in WORDS or isinstance(value, origin)


def _is_int(value: Any) -> bool:
    """Returns True for an int, also one of NumPy's, other than a bool."""
    if isinstance(value, bool):
        return False
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def _words(wanted: Any, value: Any) -> str:
    """Returns a type as users say it; what a list or mapping holds only where the value is one."""
    origin, parts = typing.get_origin(wanted) or wanted, typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_words(part, value) for part in parts)
    if origin is typing.Literal:
        return f"one of {', '.join(map(repr, parts))}"
    if origin is Mapping or origin is dict:
        held = _several(parts[1]) if len(parts) == 2 and isinstance(value, Mapping) else ""
        return "a mapping by name" + (f" of {held}" if held else "")
    if origin is Sequence or origin is list:
        held = _several(parts[0]) if parts and not isinstance(value, Mapping) else ""
        return "a list" + (f" of {held}" if held else "")
    return WORDS.get(origin, str(getattr(origin, "__name__", origin)))


def _several(wanted: Any) -> str:
    """Returns the plural of a type that a list or mapping holds; empty where it may hold anything."""
    origin = typing.get_origin(wanted) or wanted
    many = {bool: "true and false", int: "ints", float: "numbers", str: "strings"}
    if origin is Sequence or origin is list:
        return "lists"
    return many.get(origin, "")
