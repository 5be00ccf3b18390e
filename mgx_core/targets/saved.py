"""Saves a target's compiled instances in a program file, and restores them in later processes.

A target takes part with `Target.machine` and `Target.restored`, its runner with `Runner.saved`.  Code is restored only where the
machine's text is the same, and only if it was written by the same user or is trusted by name.
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
    """Takes an array into the file's literal section and gives its number there.

    brief: the file is one of the cache, which lies beside the model's own: what can be made again quickly from constants is
    better left out.
    """

    @property
    def brief(self) -> bool: ...

    def __call__(self, array: Array, /) -> int: ...


@dataclass(frozen=True)
class SavedInstance:
    """One instance of an executable as it was saved.

    shapes: of the parameters that were symbolic, by name; code: what the runner's ``saved`` gave; fetch: a kept array by its
    number, mapped read-only; placements: what ran where; made: what was made again of constants, for all instances of a file.
    """

    shapes: Mapping[str, AnyShape]
    code: Any
    fetch: Callable[[int], Array]
    placements: tuple[Placement, ...] = ()
    made: dict[Any, Any] = field(default_factory=dict)
