"""Saves a target's compiled instances in a program file, and restores them in later processes.

Targets implement `Target.machine` and `Target.restored`, runners `Runner.saved`.  Code is restored only if the machine's
fingerprint is equal, and only if the same user wrote it or the caller trusts it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Protocol

from ..records import dataclass
from ..types.argument import Array
from ..types.shape import AnyShape
from .placement import Placement

__all__ = ["Keep", "SavedInstance"]


class Keep(Protocol):
    """Stores an array in the file's literal section and returns its index.

    brief: the file is a cache entry, so data that can be recomputed quickly from constants should be omitted.
    """

    @property
    def brief(self) -> bool: ...

    def __call__(self, array: Array, /) -> int: ...


@dataclass(frozen=True)
class SavedInstance:
    """A saved instance of an executable.

    shapes: of the symbolic parameters, by name; code: the result of the runner's ``saved``; fetch: returns a stored array by
    index, mapped read-only; placements: of its launches; made: cache of recomputed constants, shared by a file's instances.
    """

    shapes: Mapping[str, AnyShape]
    code: Any
    fetch: Callable[[int], Array]
    placements: tuple[Placement, ...] = ()
    made: dict[Any, Any] = field(default_factory=dict)
