"""Sets of ops by name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..errors import ParameterError, PluginError, UnsupportedError
from .operation import Operation, undeclared

__all__ = ["OpSet", "declared_in"]


class OpSet:
    """A set of ops by name; immutable, united with ``|``.  Two different ops of the same name are an error that names both.

    later: functions that return more ops, called in order until a requested name is found.  Errors of such sets on contested
    and unknown names are adopted.
    """

    __slots__ = ("_by_name", "_contested", "_lacking", "_later", "_lock", "_plain")

    def __init__(
        self, ops: Iterable[type[Operation]] = (), later: Iterable[Callable[[], Iterable[type[Operation]]]] = ()
    ) -> None:
        self._lacking = ""
        self._contested: dict[str, str] = {}
        self._by_name: dict[str, type[Operation]] = {}
        self._plain: dict[str, Operation] = {}  # ops without attributes are immutable and shared
        self._later = list(later)
        self._lock = threading.RLock()  # guards the addition of ops
        self._add(ops)

    def _add(self, ops: Iterable[type[Operation]]) -> None:
        for cls in ops:
            if not (isinstance(cls, type) and issubclass(cls, Operation)):
                raise ParameterError(f"an OpSet holds classes of operations, got {cls!r}")
            if "name" not in vars(cls) or not cls.name:
                raise ParameterError(f"{undeclared(cls)}; put @define_op('...') above it")
            known = self._by_name.setdefault(cls.name, cls)
            if known is not cls:
                raise ParameterError(
                    f"two ops are called {cls.name!r}: {known.__module__}.{known.__qualname__} and "
                    f"{cls.__module__}.{cls.__qualname__}"
                )

    def _all(self, until: str | None = None) -> dict[str, type[Operation]]:
        """Returns all ops by name, or enough of them to look up one name."""
        if self._later and (until is None or until not in self._by_name):
            with self._lock:
                while self._later and (until is None or until not in self._by_name):
                    more = self._later[0]()
                    self._add(more)
                    if isinstance(more, OpSet):
                        self._contested.update(more._contested)
                        self._lacking = self._lacking or more._lacking
                    self._later.pop(0)
        return self._by_name

    @classmethod
    def of(cls, *ops: type[Operation]) -> OpSet:
        return cls(ops)

    @classmethod
    def in_module(cls, *modules: Any) -> OpSet:
        """Returns all ops declared in some Python modules."""
        return cls(op for module in modules for op in declared_in(module))

    def make(self, name: str, /, **attributes: Any) -> Operation:
        """Returns an op by name.

        Errors: UnsupportedError for unknown names, PluginError for contested ones, ParameterError for bad attributes.
        """
        if not attributes and name in self._plain:
            return self._plain[name]
        found = self.get(name)
        if found is None:
            import difflib

            close = difflib.get_close_matches(name, self._all(), 1)
            raise UnsupportedError(
                f"no operation is called {name!r}" + (f"; did you mean {close[0]!r}?" if close else "")
                + f" (packages add theirs through the plugin hook `operations`){self._lacking}"
            )  # fmt: skip
        made = found(**attributes)
        if not attributes:
            self._plain[name] = made
        return made

    def get(self, name: str) -> type[Operation] | None:
        """Returns the op's class, or None.  Errors: PluginError for a contested name."""
        found = self._all(name).get(name)
        if name in self._contested:
            raise PluginError(self._contested[name])
        return found

    def contesting(self, name: str, why: str) -> OpSet:
        """Returns the set without the op of a name, for which the result raises PluginError(why)."""
        out = OpSet(op for op in self if op.name != name)
        out._contested = {**self._contested, name: why}
        out._lacking = self._lacking
        return out

    def followed_by(self, more: Callable[[], OpSet]) -> OpSet:
        """Returns the union with another set, which is created when a name that this one lacks, or all ops, are requested."""
        with self._lock:
            return OpSet(self._by_name.values(), [*self._later, more])

    def lacking(self, why: str) -> OpSet:
        """Returns the same set, whose errors on unknown names end with the reason why ops are missing."""
        out = self | OpSet()
        out._lacking = why
        return out

    def __or__(self, other: OpSet) -> OpSet:
        contested = {**self._contested, **other._contested}
        out = OpSet(op for side in (self, other) for op in side if op.name not in contested)
        out._contested = contested
        out._lacking = self._lacking or other._lacking
        return out

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._all(name)

    def __iter__(self) -> Iterator[type[Operation]]:
        return iter(self._all().values())

    def __len__(self) -> int:
        return len(self._all())

    def names(self) -> list[str]:
        return sorted(self._all())


def declared_in(module: Any) -> Iterator[type[Operation]]:
    """Yields the ops declared in a Python module."""
    for value in vars(module).values():
        own = isinstance(value, type) and issubclass(value, Operation) and value.__module__ == module.__name__
        if own and value.name:
            yield value
