"""Shares the bodies of groups between copies of a module in which they have the same extents."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final

from ..cache import Recent
from ..types.dim import Dim
from .module import Module, nested
from .ordering import captures
from .symbols import mentioned

__all__ = ["SETS", "BodyCache"]

SETS: Final = 4  # the most sets of extents for which copies are cached


class BodyCache:
    """An LRU cache of copies of a module's group bodies, by the values of the symbols in them.

    A copy that was edited after it was cached is not returned.
    """

    def __init__(self, module: Module) -> None:
        self._symbols: dict[Module, tuple[str, ...] | None] = {}  # None: not cacheable
        self._copies: Recent[tuple[Module, int]] = Recent(SETS * sum(1 for _ in nested(module)))

    def key(self, body: Module, values: Mapping[str, Dim]) -> Hashable | None:
        """Returns the cache key of a body; None if a symbol has no static value, or if the body is not cacheable."""
        if body not in self._symbols:
            self._symbols[body] = tuple(sorted(mentioned(body))) if _is_closed(body) else None
        names = self._symbols[body]
        if names is None:
            return None
        found = tuple([values.get(name) for name in names])
        return None if any(type(n) is not int for n in found) else (body, found)

    def get(self, key: Hashable) -> Module | None:
        """Returns the cached copy for a key, or None."""
        copy, version = self._copies.get(key) or (None, 0)
        return None if copy is None or copy.version != version else copy

    def put(self, key: Hashable, copy: Module) -> None:
        """Caches a copy by its key."""
        copy.runners += 1  # keeps the copy intact when the last instruction that runs it is removed
        self._copies.put(key, (copy, copy.version))


def _is_closed(body: Module) -> bool:
    """Returns True if a body, including nested modules, captures no outer values and has no control flow."""
    return not any(captures(m) for m in nested(body)) and not any(i.op.control for m in nested(body) for i in m)
