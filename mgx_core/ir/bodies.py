"""Bodies of groups that copies of a module have in common, where the extents in them are the same."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Final

from ..cache import Recent
from ..types.dim import Dim
from .module import Module, nested
from .ordering import captures
from .symbols import mentioned

__all__ = ["SETS", "KeptBodies"]

SETS: Final = 4  # of extents, for which what instances may have in common is kept


class KeptBodies:
    """Copies of the bodies of a module's groups by the values of the symbols in them; the least recently used go first.

    A copy that was edited since it was made is not given again.
    """

    def __init__(self, module: Module) -> None:
        self._symbols: dict[Module, tuple[str, ...] | None] = {}  # None: of bodies that are not kept
        self._copies: Recent[tuple[Module, int]] = Recent(SETS * sum(1 for _ in nested(module)))

    def key(self, body: Module, values: Mapping[str, Dim]) -> Hashable | None:
        """Returns what the copy of a body depends on; None if a symbol has no number, or for bodies that are not kept."""
        if body not in self._symbols:
            self._symbols[body] = tuple(sorted(mentioned(body))) if _is_closed(body) else None
        names = self._symbols[body]
        if names is None:
            return None
        found = tuple([values.get(name) for name in names])
        return None if any(type(n) is not int for n in found) else (body, found)

    def get(self, key: Hashable) -> Module | None:
        """Returns the copy that was kept by a key, if there is one."""
        copy, version = self._copies.get(key) or (None, 0)
        return None if copy is None or copy.version != version else copy

    def put(self, key: Hashable, copy: Module) -> None:
        """Keeps a copy by its key."""
        copy.runners += 1  # it stays as it is where the last instruction that runs it is taken out
        self._copies.put(key, (copy, copy.version))


def _is_closed(body: Module) -> bool:
    """Returns True if a body and those in it read nothing around them, and have no control flow."""
    return not any(captures(m) for m in nested(body)) and not any(i.op.control for m in nested(body) for i in m)
