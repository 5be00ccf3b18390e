"""A `NamedTuple` without code generation per class, so that defining one takes a fifth of the standard library's time.

``typing.NamedTuple`` compiles one function per class and, where annotations are strings, one expression per field.  Modules that
use this one import annotations from ``__future__``: fields are read from the class's ``__annotations__`` as it is defined.
"""

from __future__ import annotations

import collections
import sys
from collections.abc import Iterable
from functools import cache
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:  # type checkers have special support for the standard library's
    from typing import NamedTuple
else:

    class _Base(type):
        """Metaclass that returns a subclass of tuple instead of an instance of itself."""

        def __new__(cls, name, bases, namespace):
            if not bases:
                return type.__new__(cls, name, bases, namespace)
            for base in bases:
                if base is not _BASE:
                    raise TypeError(
                        f"{name} derives from NamedTuple and {base.__name__}: derive from NamedTuple alone, or from "
                        f"typing.NamedTuple for a generic class"
                    )
            return _declare(name, namespace)

    class _Declaration:
        def __mro_entries__(self, bases):
            return (_BASE,)

    _BASE = _Base("NamedTuple", (), {})
    NamedTuple = _Declaration()


__all__ = ["NamedTuple"]

_getter: Any = vars(collections)["_tuplegetter"]  # no public name; `property(itemgetter(n))` is slower to read
# the error for unknown fields, which depends on Python's version
_UNEXPECTED: Final = TypeError if sys.version_info >= (3, 13) else ValueError
_LAZY: Final = frozenset({"__annotate__", "__annotate_func__"})  # from Python 3.14, instead of `__annotations__`
_METHODS: Final = ("_make", "_replace", "_asdict")
_DATA: Final = ("_fields", "_field_defaults", "_field_types", "_source")
_RESERVED: Final = frozenset({"__new__", "__init__", "__slots__", "__getnewargs__", *_METHODS, *_DATA})


def _declare(name: str, namespace: dict[str, Any]) -> type:
    """Returns a class like ``typing.NamedTuple``'s; annotations remain strings, and methods may use ``super()``.

    Errors: AttributeError for a reserved member, ValueError for a field that starts with an underscore, TypeError for a field
    without a default after one with a default, or if annotations are evaluated lazily.
    """
    for member in _LAZY.intersection(namespace):
        raise TypeError(f"{name} has {member}: its module must import annotations from __future__")
    annotations = namespace.get("__annotations__", {})
    fields = tuple(annotations)
    defaults = {field: namespace[field] for field in fields if field in namespace}
    for member in _RESERVED.intersection(namespace):
        raise AttributeError(f"Cannot overwrite NamedTuple attribute {member}")
    for at, field in enumerate(fields):
        if field.startswith("_"):
            raise ValueError(f"Field names cannot start with an underscore: {field!r}")
        if field not in defaults and at and fields[at - 1] in defaults:
            raise TypeError(f"Non-default namedtuple field {field} cannot follow default field {fields[at - 1]}")
    written = f"{name}({', '.join(fields)}{',' * (len(fields) == 1)})"
    code = _constructor(len(fields)).replace(co_varnames=("_cls", *fields), co_qualname=f"{name}.__new__")
    new = FunctionType(code, {"new": tuple.__new__, "__name__": f"namedtuple_{name}"}, "__new__", (*defaults.values(),))
    new.__annotations__ = annotations
    new.__doc__ = f"Create new instance of {written}"
    getters = {field: _getter(at, f"Alias for field number {at}") for at, field in enumerate(fields)}
    own = {"_fields": fields, "_field_defaults": defaults, "__match_args__": fields, "__new__": new, "__slots__": ()}
    return type(name, (tuple,), {"__doc__": written, **_SHARED, **namespace, **own, **getters})


@cache
def _constructor(count: int) -> CodeType:
    """Returns the code of `__new__` for some number of fields, whose names are those of its arguments."""
    names = "".join(f"x{n}, " for n in range(count))
    made: FunctionType = eval(f"lambda _cls, {names}: new(_cls, ({names}))")
    code = made.__code__
    return code.replace(co_name="__new__", co_filename=__file__)


def _make(cls: Any, iterable: Iterable[Any]) -> Any:
    """Makes a new object from a sequence or iterable."""
    made = tuple.__new__(cls, iterable)
    if len(made) != len(cls._fields):
        raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
    return made


def _replace(self: Any, /, **values: Any) -> Any:
    """Returns a new object with some fields replaced by new values."""
    made = tuple.__new__(type(self), map(values.pop, self._fields, self))
    if values:
        raise _UNEXPECTED(f"Got unexpected field names: {[*values]!r}")
    return made


def _asdict(self: Any) -> dict[str, Any]:
    """Returns a dict of the fields' values by name."""
    return dict(zip(self._fields, self, strict=True))


def _repr(self: Any) -> str:
    """Returns the text that constructs an equal tuple."""
    return f"{type(self).__name__}({', '.join(f'{n}={v!r}' for n, v in zip(self._fields, self, strict=True))})"


def _arguments(self: Any) -> tuple[Any, ...]:
    """Returns self as a plain tuple; used by copy and pickle."""
    return tuple(self)


_SHARED: Final[dict[str, Any]] = {
    "_make": classmethod(_make),
    "_replace": _replace,
    "__replace__": _replace,
    "_asdict": _asdict,
    "__repr__": _repr,
    "__getnewargs__": _arguments,
}
