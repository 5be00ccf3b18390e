"""Checks values of options against type annotations."""

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

DESCRIPTIONS: Final[dict[Any, str]] = {
    bool: "true or false",
    int: "an int",
    float: "a number",
    str: "a string",
    bytes: "bytes",
    types.NoneType: "None",
    os.PathLike: "a path",
}


def record_of(kind: type[R], what: str, given: Mapping[str, Any]) -> R:
    """Creates a record of options from values by name; what: name of an option in messages.

    Errors: ParameterError for an unknown name; errors of the record.
    """
    known = [f.name for f in dataclasses.fields(cast(Any, kind))]
    for name in given:
        if name not in known:
            raise ParameterError(f"there is no {what} {name!r}; {suggestion(name, known)}")
    return kind(**given)


def check_options(who: str, stated: Callable[..., Any] | type[Any], options: Mapping[str, Any]) -> None:
    """Checks options against the annotations of a record's fields or a function's parameters; others may have any type.

    Errors: ParameterError that names the option, the required type and the value.
    """
    if not options:
        return
    try:
        hints = typing.get_type_hints(stated)
    except (NameError, TypeError, AttributeError):
        return  # annotations that only type checkers can resolve
    for name, value in options.items():
        if name in hints and not _fits(value, hints[name]):
            raise ParameterError(f"{who}: {name} must be {_description(hints[name], value)}, got {value!r}")


def _fits(value: Any, wanted: Any) -> bool:
    """Returns True if a value has a type, or if the type is not supported here."""
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
    return not isinstance(origin, type) or origin not in DESCRIPTIONS or isinstance(value, origin)


def _is_int(value: Any) -> bool:
    """Returns True for an int, including NumPy's, but not for a bool."""
    if isinstance(value, bool):
        return False
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def _description(wanted: Any, value: Any) -> str:
    """Describes a type for users; includes element types only if the value is a list or mapping."""
    origin, parts = typing.get_origin(wanted) or wanted, typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_description(part, value) for part in parts)
    if origin is typing.Literal:
        return f"one of {', '.join(map(repr, parts))}"
    if origin is Mapping or origin is dict:
        held = _plural(parts[1]) if len(parts) == 2 and isinstance(value, Mapping) else ""
        return "a mapping by name" + (f" of {held}" if held else "")
    if origin is Sequence or origin is list:
        held = _plural(parts[0]) if parts and not isinstance(value, Mapping) else ""
        return "a list" + (f" of {held}" if held else "")
    return DESCRIPTIONS.get(origin, str(getattr(origin, "__name__", origin)))


def _plural(wanted: Any) -> str:
    """Returns the plural of an element type; empty if there is none."""
    origin = typing.get_origin(wanted) or wanted
    many = {bool: "true and false", int: "ints", float: "numbers", str: "strings"}
    if origin is Sequence or origin is list:
        return "lists"
    return many.get(origin, "")
