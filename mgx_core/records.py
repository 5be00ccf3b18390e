"""`dataclass` as the standard library's, made without generated code: importing a class costs a tenth of the time.

For classes without slots that are not ordered; `field`, `fields`, `replace` and the others of `dataclasses` work on them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, FrozenInstanceError
from reprlib import recursive_repr
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:  # type checkers know the standard library's, and what it makes
    from dataclasses import dataclass
    from inspect import Signature
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, kw_only=False):
        """Returns a class made a dataclass; the arguments are those of `dataclasses.dataclass`."""
        return _declare(cls, frozen, eq, kw_only) if cls else lambda cls: _declare(cls, frozen, eq, kw_only)


__all__ = ["dataclass"]


def _declare(cls: Any, frozen: bool, eq: bool, kw_only: bool) -> Any:
    own = set(vars(cls))  # what a class defines itself stays
    if vars(cls).get("__hash__") is None:
        own.discard("__hash__")  # Python's word for a class with an `__eq__`
    dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
    fields = dataclasses.fields(cls)
    members: dict[str, Any] = {"__signature__": _SIGNATURE, "__repr__": _repr([f.name for f in fields if f.repr])}
    if eq:
        members["__eq__"] = _eq([f.name for f in fields if f.compare])
        hashed = [f.name for f in fields if (f.compare if f.hash is None else f.hash)]
        members["__hash__"] = _hash(hashed) if frozen else None
    if frozen:
        members["__setattr__"], members["__delattr__"] = _frozen(cls, frozenset(f.name for f in fields))
    made = {name: member for name, member in members.items() if name not in own}
    made["__init__"] = _init(cls, fields, frozen)
    for name, member in made.items():
        if isinstance(member, FunctionType):
            member.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, member)
    return cls


def _init(cls: Any, fields: Sequence[Any], frozen: bool) -> Callable[..., None]:
    names = [f.name for f in fields if f.init]
    positional = [f.name for f in fields if f.init and not f.kw_only]
    later = [f for f in fields if not f.init and f.default_factory is not MISSING]
    count = len(names) if names == positional else -1  # the number of positional arguments that give everything
    put: Callable[[Any, str, Any], None] = object.__setattr__ if frozen else setattr
    finish = getattr(cls, "__post_init__", None)

    def __init__(self: Any, *args: Any, **given: Any) -> None:  # noqa: N807
        if given or len(args) != count:
            args = _bound(cls, fields, positional, args, given)
        for name, value in zip(names, args, strict=True):
            put(self, name, value)
        for f in later:
            put(self, f.name, f.default_factory())
        if finish is not None:
            self.__post_init__()

    return __init__


def _bound(
    cls: Any,
    fields: Sequence[Any],
    positional: Sequence[str],
    args: Sequence[Any],
    given: Mapping[str, Any],
) -> tuple[Any, ...]:
    """Returns a value for each field that is an argument, in order.  Errors: TypeError, in Python's words."""
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
    def __eq__(self: Any, other: Any) -> bool:  # noqa: N807
        if other.__class__ is not self.__class__:
            return NotImplemented
        return [getattr(self, n) for n in names] == [getattr(other, n) for n in names]

    return __eq__


def _hash(names: Sequence[str]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(tuple([getattr(self, n) for n in names]))

    return __hash__


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
    """Gives `inspect` and `help` the arguments of a class, found out when they ask."""

    def __get__(self, instance: Any, owner: Any) -> Signature:
        from inspect import Parameter, Signature

        if "__dataclass_fields__" not in vars(owner):  # a subclass with an `__init__` of its own, perhaps
            raise AttributeError("__signature__")
        made = []
        for f in dataclasses.fields(owner):
            if f.init:
                kind = Parameter.KEYWORD_ONLY if f.kw_only else Parameter.POSITIONAL_OR_KEYWORD
                default = f.default_factory if f.default is MISSING else f.default
                made.append(
                    Parameter(
                        f.name, kind, default=Parameter.empty if default is MISSING else default, annotation=f.type
                    )
                )
        return Signature(sorted(made, key=lambda p: p.kind), return_annotation=None)


_SIGNATURE: Final = _Signature()
