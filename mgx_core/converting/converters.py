"""Converter tables: functions that convert one operator of a format, looked up by domain, name and version."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, TypeAlias, TypeVar

from ..errors import MgxError, ParseError, PluginError, UnsupportedError, takes
from ..ir.instruction import Instruction
from ..named_tuples import NamedTuple
from ..plugins.manager import manager as plugin_manager
from ..plugins.missing import absent

__all__ = ["Arity", "Converter", "Converters", "Entry", "arity_of", "converted", "fitting", "no_converter"]

Converter: TypeAlias = Callable[..., Any]  # (node, *inputs) -> an instruction, or a tuple of them for several outputs
C = TypeVar("C", bound=Converter)


class Arity(NamedTuple):
    """The inputs of a converter: names, minimum and maximum count, and which are optional."""

    names: tuple[str, ...]
    least: int
    most: int | None
    optional: frozenset[int]


@cache
def arity_of(converter: Converter) -> Arity:
    """Returns the arity from the converter's signature."""
    kinds = inspect.Parameter
    given = list(inspect.signature(converter).parameters.values())[1:]
    plain = [p for p in given if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
    least = sum(1 for p in plain if p.default is kinds.empty)
    most = None if any(p.kind is kinds.VAR_POSITIONAL for p in given) else len(plain)
    stated = ("None", "Any", "Optional")
    optional = {
        n
        for n, p in enumerate(plain)
        if p.default is not kinds.empty or any(word in str(p.annotation) for word in stated)
    }
    return Arity(tuple(p.name for p in plain), least, most, frozenset(optional))


class Entry(NamedTuple):
    """A table entry: the first version it applies to, and whether it overrides another package's converter."""

    since: int
    converter: Converter
    replaces: bool = False


class Converters:
    """Converters by (domain, operator); lookup selects the highest `since` not above the model's version.

    Immutable by convention; tables are combined with ``+``.  Packages add theirs through the hook `converters`.
    later: functions that add more when called, in the order in which they are called until an operator is found; all of its
    versions must be added by one of them.
    """

    def __init__(self, later: Iterable[Callable[[], object]] = ()) -> None:
        self._by_name: dict[tuple[str, str], list[Entry]] = {}
        self._later = list(later)
        self._lock = threading.RLock()  # held while `later` functions run

    def converts(self, *names: str, domain: str = "", since: int = 1, replaces: bool = False) -> Callable[[C], C]:
        """Decorator: a function ``(node, *inputs)`` for operators `names` of `domain` from version `since` on.

        replaces: True to override the frontend's or another package's converter from that version on.
        """

        def keep(function: C) -> C:
            for name in names:
                entries = self._by_name.setdefault((domain, name), [])
                for version, other, _ in entries:
                    if version == since:
                        raise PluginError(
                            f"two converters for {domain}{'::' if domain else ''}{name} since version {since}: "
                            f"{other.__module__}.{other.__name__} and {function.__module__}.{function.__name__}"
                        )
                entries.append(Entry(since, function, replaces))
                entries.sort(key=lambda e: -e.since)
            return function

        return keep

    @property
    def complete(self) -> bool:
        """Returns True if all `later` functions have run."""
        return not self._later

    def entries(self, domain: str, name: str) -> tuple[Entry, ...]:
        """Returns the entries of an operator, newest first."""
        self._add_until(lambda: (domain, name) in self._by_name)
        return tuple(self._by_name.get((domain, name), ()))

    def find(self, domain: str, name: str, version: int) -> Converter | None:
        """Returns the newest converter of an operator up to a version; None if there is none."""
        for entry in self._by_name.get((domain, name)) or self.entries(domain, name):
            if entry.since <= version:
                return entry.converter
        return None

    def knows(self, domain: str, name: str) -> bool:
        return bool(self.entries(domain, name))

    def names(self) -> list[tuple[str, str]]:
        self._add_until(lambda: False)
        return sorted(self._by_name)

    def _add_until(self, found: Callable[[], bool]) -> None:
        with self._lock:
            while self._later and not found():
                self._later[0]()
                self._later.pop(0)

    def __add__(self, other: Converters) -> Converters:
        out = Converters()
        for side in (self, other):
            for domain, name in side.names():
                for since, function, replaces in side.entries(domain, name):
                    out.converts(name, domain=domain, since=since, replaces=replaces)(function)
        return out


def fitting(converter: Converter, inputs: list[Instruction | None]) -> list[Instruction | None]:
    """Returns the inputs padded to the converter's parameters.

    Errors: ParseError for too few, too many, or a required one that is absent.
    """
    names, least, most, optional = arity_of(converter)
    given = list(inputs)
    while most is not None and len(given) > most and given[-1] is None:
        given.pop()
    if len(given) < least or (most is not None and len(given) > most):
        raise ParseError(takes(least, most, names, len(given)))
    for place, (name, value) in enumerate(zip(names, given, strict=False)):
        if value is None and place not in optional:
            raise ParseError(f"input {place} ({name}) is required, but absent")
    return given


def no_converter(operator: str, otherwise: str = "", near: Sequence[str] = ()) -> UnsupportedError:
    """Returns the error for an operator without a converter; it lists plugins that failed to load their converters.

    otherwise: what else a model may do; near: operators whose names resemble it.
    """
    return UnsupportedError(
        f"no converter for operator {operator}; a package adds one through the plugin hook `converters`{otherwise}"
        f"{absent(plugin_manager().records, 'converters')}{f'; did you mean {near[0]!r}?' if near else ''}"
    )


def converted(
    converter: Converter, node: Any, inputs: list[Instruction | None], frontend: str
) -> Sequence[Instruction | None]:
    """Returns the results of a converter for a node.

    frontend: the frontend's package; exceptions of its converters pass through, since they fail only on malformed nodes.
    Errors: ParseError for inputs that do not fit; PluginError, with name and package, for exceptions of other packages'
    converters and for results other than instructions.
    """
    given = fitting(converter, inputs)
    try:
        made = converter(node, *given)
    except (MgxError, MemoryError, RecursionError):
        raise
    except Exception as error:
        if _package(converter) == frontend:
            raise
        raise PluginError(f"{_named(converter)} failed: {type(error).__name__}: {error}") from error
    if made.__class__ is Instruction:
        return (made,)
    if made is None and _package(converter) != frontend:
        raise PluginError(
            f"{_named(converter)} gave None; it must return an instruction, or a tuple of them for several outputs"
        )
    results = tuple(made) if isinstance(made, (tuple, list)) else (made,)
    for result in results:
        if result is not None and not isinstance(result, Instruction):
            raise PluginError(f"{_named(converter)} must return an instruction or a tuple of them, got {result!r}")
    return results


def _package(converter: Converter) -> str:
    return str(getattr(converter, "__module__", "?")).partition(".")[0]


def _named(converter: Converter) -> str:
    return f"converter {getattr(converter, '__name__', 'converter')!r} of package {_package(converter)}"
