"""Sets of ops by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..errors import ParameterError, PluginError, UnsupportedError
from .operation import Operation, undeclared

__all__ = ["OpSet"]


class OpSet:
    """Ops by name; a value, joined with ``|``.  Two different ops of one name are an error that names both."""

    __slots__ = ("_by_name", "_contested", "_lacking", "_plain")

    def __init__(self, ops: Iterable[type[Operation]] = ()) -> None:
        self._lacking = ""
        self._contested: dict[str, str] = {}
        self._by_name: dict[str, type[Operation]] = {}
        self._plain: dict[str, Operation] = {}  # ops made without attributes: values, shared by all who ask
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

    @classmethod
    def of(cls, *ops: type[Operation]) -> OpSet:
        return cls(ops)

    @classmethod
    def in_module(cls, *modules: Any) -> OpSet:
        """Returns all ops declared in some Python modules."""
        return cls(
            value
            for module in modules
            for value in vars(module).values()
            if isinstance(value, type)
            and issubclass(value, Operation)
            and value.name
            and value.__module__ == module.__name__
        )

    def make(self, name: str, /, **attributes: Any) -> Operation:
        """Returns an op by name.

        Errors: UnsupportedError for unknown names, PluginError for contested ones, ParameterError for bad attributes.
        """
        if not attributes and name in self._plain:
            return self._plain[name]
        found = self.get(name)
        if found is None:
            import difflib

            close = difflib.get_close_matches(name, self._by_name, 1)
            raise UnsupportedError(
                f"no operation is called {name!r}" + (f"; did you mean {close[0]!r}?" if close else "")
                + f"; a package adds its own through the plugin hook `operations`{self._lacking}"
            )  # fmt: skip
        made = found(**attributes)
        if not attributes:
            self._plain[name] = made
        return made

    def get(self, name: str) -> type[Operation] | None:
        """Returns the op's class, or None.  Errors: PluginError for a contested name."""
        if name in self._contested:
            raise PluginError(self._contested[name])
        return self._by_name.get(name)

    def contesting(self, name: str, why: str) -> OpSet:
        """Returns the set without the op of a name, for which it raises PluginError(why) from now on."""
        out = OpSet(op for op in self if op.name != name)
        out._contested = {**self._contested, name: why}
        out._lacking = self._lacking
        return out

    def lacking(self, why: str) -> OpSet:
        """Returns the same set; messages on unknown names end with why others are lacking."""
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
        return name in self._by_name

    def __iter__(self) -> Iterator[type[Operation]]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def names(self) -> list[str]:
        return sorted(self._by_name)
