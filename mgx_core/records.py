"""A `dataclass` decorator without code generation per class, so that defining one takes a tenth of the standard library's time.

Constructors that only set fields share compiled code, in which names are replaced.  Does not support slots and ordering;
`field`, `fields`, `replace` and so on work as with `dataclasses`, and classes of either kind can derive from the other.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, FrozenInstanceError
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:  # type checkers have special support for the standard library's
    from dataclasses import dataclass
    from inspect import Signature
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, kw_only=False):
        """Turns a class into a dataclass; the arguments are those of `dataclasses.dataclass`."""
        return _declare(cls, frozen, eq, kw_only) if cls else lambda cls: _declare(cls, frozen, eq, kw_only)


__all__ = ["dataclass"]

_FIELD: Final = vars(dataclasses)["_FIELD"]  # the kind of plain fields; it has no public name
_OTHER: Final = ("ClassVar", "InitVar", "KW_ONLY")  # in annotations that declare no field, or change the following ones


def _declare(cls: Any, frozen: bool, eq: bool, kw_only: bool) -> Any:
    own = set(vars(cls))  # members defined in the class are kept
    if vars(cls).get("__hash__") is None:
        own.discard("__hash__")  # Python sets it to None in classes that define `__eq__`
    documented = cls.__doc__ is not None
    _collect(cls, frozen, kw_only)
    cls.__dataclass_params__ = _parameters(frozen, eq, kw_only)  # read by derived classes
    fields, arguments = dataclasses.fields(cls), _arguments(cls)
    members: dict[str, Any] = {"__repr__": _repr([f.name for f in fields if f.repr])}
    members["__match_args__"] = tuple(f.name for f in arguments if f.init and not f.kw_only)
    if "__init__" not in own:
        members |= {"__init__": _init(cls, arguments, frozen), "__signature__": _SIGNATURE}
    if eq:
        members["__eq__"] = _eq([f.name for f in fields if f.compare])
        hashed = [f.name for f in fields if (f.compare if f.hash is None else f.hash)]
        members["__hash__"] = _hash(hashed) if frozen else None
    if frozen:
        members["__setattr__"], members["__delattr__"] = _frozen(cls, frozenset(f.name for f in fields))
    made = {name: member for name, member in members.items() if name not in own}
    for name, member in made.items():
        if isinstance(member, FunctionType):
            member.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, member)
    if sys.version_info >= (3, 13) and "__replace__" not in own:
        cls.__replace__ = dataclasses.replace
    if not documented:
        cls.__doc__ = _DOCUMENTATION
    return cls


def _collect(cls: Any, frozen: bool, kw_only: bool) -> None:
    """Collects the fields of a class and its bases, and replaces each `field(...)` in the class by its default.

    Does the part of the standard library's decorator before methods are generated, in a fraction of its time.
    Errors: those of the standard library.
    """
    annotations = vars(cls).get("__annotations__", {})
    lazy = "__annotate_func__" in vars(cls)  # from Python 3.14, unless annotations are imported from __future__
    if lazy or any(word in str(kind) for kind in annotations.values() for word in _OTHER):
        _collect_all_kinds(cls, frozen, kw_only)
        return
    fields: dict[str, Any] = {}
    for base in cls.__mro__[-1:0:-1]:
        if hasattr(base, "__dataclass_fields__"):
            fields |= base.__dataclass_fields__
            if base.__dataclass_params__.frozen != frozen:
                mine, its = ("frozen", "non-frozen") if frozen else ("non-frozen", "frozen")
                raise TypeError(f"cannot inherit {mine} dataclass from a {its} one")
    for name, kind in annotations.items():
        given: Any = getattr(cls, name, MISSING)
        stated = isinstance(given, dataclasses.Field)
        made: Any = given if stated else dataclasses.field(default=given)
        for attribute, value in (("name", name), ("type", kind), ("_field_type", _FIELD)):
            setattr(made, attribute, value)
        if made.kw_only is MISSING:
            made.kw_only = kw_only
        if type(made.default).__hash__ is None:
            kind = type(made.default)
            raise ValueError(f"mutable default {kind} for field {name} is not allowed: use default_factory")
        fields[name] = made
        if stated and made.default is MISSING:
            delattr(cls, name)
        elif stated:
            setattr(cls, name, made.default)
    for name, value in vars(cls).items():
        if isinstance(value, dataclasses.Field):
            raise TypeError(f"{name!r} is a field but has no type annotation")
    cls.__dataclass_fields__ = fields


def _collect_all_kinds(cls: Any, frozen: bool, kw_only: bool) -> None:
    """Collects the fields by the standard library's decorator, which generates code for frozen classes derived from others."""
    if cls.__doc__ is None:
        cls.__doc__ = "replaced later"  # or the standard library writes one, before there is an `__init__`
    # it checks that bases are frozen, too
    frozen = frozen and any("__dataclass_fields__" in vars(base) for base in cls.__mro__[1:])
    dataclasses.dataclass(init=False, repr=False, eq=False, frozen=frozen, kw_only=kw_only)(cls)


@cache
def _parameters(frozen: bool, eq: bool, kw_only: bool) -> Any:
    """Returns the standard library's record of a decorator's arguments."""
    empty: Any = type("Empty", (), {"__doc__": "A class without fields, for which no code is generated."})
    made = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(empty).__dataclass_params__
    made.init = made.repr = True
    made.frozen, made.eq = frozen, eq
    return made


def _arguments(cls: Any) -> list[Any]:
    """Returns the fields of a class and its `InitVar` pseudo-fields (arguments of `__post_init__`), in order.

    Errors: TypeError for a field without a default after one with a default.
    """
    kept = set(dataclasses.fields(cls))  # `InitVar` and `ClassVar` differ only in the type, which may be a string
    found = [f for f in cls.__dataclass_fields__.values() if f in kept or "ClassVar" not in str(f.type)]
    optional = ""
    for f in found:
        if f.init and not f.kw_only:
            if f.default is not MISSING or f.default_factory is not MISSING:
                optional = f.name
            elif optional:
                raise TypeError(
                    f"{cls.__qualname__}: argument {f.name!r} without a default follows {optional!r}, which has one"
                )
    return found


def _init(cls: Any, fields: Sequence[Any], frozen: bool) -> Callable[..., None]:
    names = [f.name for f in fields if f.init]
    positional = [f.name for f in fields if f.init and not f.kw_only]
    handed = {f.name for f in fields} - {f.name for f in dataclasses.fields(cls)}
    later = [f for f in fields if not f.init and f.default_factory is not MISSING]
    count = len(names) if names == positional else -1  # number of arguments of a call with all fields by position
    put: Callable[[Any, str, Any], None] = object.__setattr__ if frozen else setattr
    finish = getattr(cls, "__post_init__", None)
    known, plain = frozenset(names), _is_plain(cls, names, frozen) and not (handed or finish)
    defaults = {f.name: f.default for f in fields if f.init and f.default is not MISSING}
    made = [(f.name, f.default_factory) for f in fields if f.init and f.default_factory is not MISSING]
    if not (handed or later or made or finish):
        return _setting(cls, [f for f in fields if f.init], defaults, frozen)

    def __init__(self: Any, /, *args: Any, **given: Any) -> None:  # noqa: N807
        if plain and len(args) <= len(positional) and given.keys() <= known:
            values = {**defaults, **dict(zip(positional, args, strict=False)), **given}
            for name, make in made:
                if name not in values:
                    values[name] = make()
            if len(values) == len(names) and given.keys().isdisjoint(positional[: len(args)]):
                vars(self).update(values)
                for f in later:
                    put(self, f.name, f.default_factory())
                return
        if given or len(args) != count:
            args = _bound(cls, fields, positional, args, given)
        rest = []
        for name, value in zip(names, args, strict=True):
            if name in handed:
                rest.append(value)
            else:
                put(self, name, value)
        for f in later:
            put(self, f.name, f.default_factory())
        if finish is not None:
            self.__post_init__(*rest)

    return __init__


def _setting(cls: Any, fields: Sequence[Any], defaults: Mapping[str, Any], frozen: bool) -> Callable[..., None]:
    """Returns an `__init__` that only sets fields, in the globals of the class's module, where its annotations are resolved."""
    shared = _setter(tuple(f.kw_only for f in fields), frozen)
    code, renamed = shared.__code__, {f"x{n}": f.name for n, f in enumerate(fields)}
    if "self" in renamed.values():
        renamed["self"] = "__dataclass_self__"
    code = code.replace(
        co_varnames=tuple(renamed.get(n, n) for n in code.co_varnames),
        co_names=tuple(renamed.get(n, n) for n in code.co_names),
        co_consts=tuple(renamed.get(c, c) if isinstance(c, str) else c for c in code.co_consts),
    )
    module = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {"__name__": cls.__module__}
    positional = tuple(defaults[f.name] for f in fields if not f.kw_only and f.name in defaults)
    made = FunctionType(code, module, "__init__", positional or None, shared.__closure__)
    made.__kwdefaults__ = {f.name: defaults[f.name] for f in fields if f.kw_only and f.name in defaults} or None
    ordered = sorted(fields, key=attrgetter("kw_only"))
    made.__annotations__ = {**{f.name: f.type for f in ordered}, "return": None}
    return made


@cache
def _setter(keywords: tuple[bool, ...], frozen: bool) -> FunctionType:
    """Returns an `__init__` that sets fields x0, x1, ..; keywords: of each, whether it is given by name only."""
    names = [f"x{n}" for n in range(len(keywords))]
    named = [n for n, keyword in zip(names, keywords, strict=True) if keyword]
    arguments = ["self", *(n for n in names if n not in named), *(["*", *named] if named else [])]
    lines = [f"put(self, '{n}', {n})" if frozen else f"self.{n} = {n}" for n in names]
    inner = f"def __init__({', '.join(arguments)}): {'; '.join(lines) or 'pass'}"
    namespace: dict[str, Any] = {}
    exec(f"def setter(put):\n    {inner}\n    return __init__", namespace)
    made: FunctionType = namespace["setter"](object.__setattr__)
    made.__code__ = made.__code__.replace(co_filename=__file__)
    return made


def _is_plain(cls: Any, names: Sequence[str], frozen: bool) -> bool:
    """Returns True if setting fields only updates the instance dictionary (no slots, descriptors or `__setattr__`)."""
    found = [vars(base).get(name) for base in cls.__mro__ for name in names]
    whole = not any("__slots__" in vars(base) for base in cls.__mro__) and not any(hasattr(f, "__set__") for f in found)
    return whole and (frozen or cls.__setattr__ is object.__setattr__)


def _bound(
    cls: Any,
    fields: Sequence[Any],
    positional: Sequence[str],
    args: Sequence[Any],
    given: Mapping[str, Any],
) -> tuple[Any, ...]:
    """Binds arguments; returns the values of all fields in order.  Errors: TypeError, with Python's messages."""
    said = f"{cls.__qualname__}.__init__()"
    if len(args) > len(positional):
        raise TypeError(f"{said} takes {len(positional) + 1} positional arguments but {len(args) + 1} were given")
    values = dict(zip(positional, args, strict=False))
    for name in given:
        if name in values:
            raise TypeError(f"{said} got multiple values for argument {name!r}")
    values.update(given)
    bound = []
    for f in fields:
        if not f.init:
            continue
        value = values.pop(f.name, f.default)
        if value is MISSING:
            if f.default_factory is MISSING:
                raise TypeError(f"{said} missing required argument {f.name!r}")
            value = f.default_factory()
        bound.append(value)
    if values:
        raise TypeError(f"{said} got an unexpected keyword argument {next(iter(values))!r}")
    return tuple(bound)


def _repr(names: Sequence[str]) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: Any) -> str:  # noqa: N807
        return f"{type(self).__qualname__}({', '.join(f'{n}={getattr(self, n)!r}' for n in names)})"

    return __repr__


def _eq(names: Sequence[str]) -> Callable[[Any, Any], bool]:
    values = _values(names)

    def __eq__(self: Any, other: Any) -> bool:  # noqa: N807
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    return __eq__


def _hash(names: Sequence[str]) -> Callable[[Any], int]:
    values = _values(names)

    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(values(self))

    return __hash__


def _values(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Returns a function that returns the values of some attributes."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple([getattr(record, n) for n in names])


def _frozen(cls: Any, names: frozenset[str]) -> tuple[Callable[..., None], Callable[..., None]]:
    def __setattr__(self: Any, name: str, value: Any) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return __setattr__, __delattr__


class _Signature:
    """Descriptor that computes `__signature__` on demand, for `inspect` and `help`."""

    def __get__(self, instance: Any, owner: Any) -> Signature:
        from inspect import Parameter, Signature

        maker = next(c for c in owner.__mro__ if "__init__" in vars(c))
        if vars(maker).get("__signature__") is not self:  # a subclass that defines `__init__`
            raise AttributeError("__signature__")
        made = []
        for f in _arguments(maker):
            if f.init:
                kind = Parameter.KEYWORD_ONLY if f.kw_only else Parameter.POSITIONAL_OR_KEYWORD
                default = f.default_factory if f.default is MISSING else f.default
                made.append(
                    Parameter(
                        f.name, kind, default=Parameter.empty if default is MISSING else default, annotation=f.type
                    )
                )
        return Signature(sorted(made, key=lambda p: p.kind), return_annotation=None)


class _Documentation:
    """Descriptor that computes the docstring of a class without one on demand: its signature, as with `dataclasses`."""

    def __get__(self, instance: Any, owner: Any) -> str:
        from inspect import signature

        return f"{owner.__name__}{signature(owner)}".replace(" -> None", "")


_SIGNATURE: Final = _Signature()
_DOCUMENTATION: Final = _Documentation()
