"""Compiled instances between processes: what a target gives of its work to a program file, and how it gets it back.

A target takes part with `Target.machine` and `Target.restored`, its runner with `Runner.saved`.  Code is restored only where the
machine's text is the same, and only if it was written by the same user or is trusted by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..types.argument import Array
from ..types.shape import AnyShape
from .placement import Placement

__all__ = ["Keep", "SavedInstance"]

Keep: TypeAlias = Callable[[Array], int]  # takes an array into the file's literal section and gives its number there


@dataclass(frozen=True)
class SavedInstance:
    """One instance of an executable as it was saved.

    shapes: of the parameters that were symbolic, by name; code: what the runner's ``saved`` gave; fetch: a kept array by its
    number, mapped read-only; placements: what ran where.
    """

    shapes: Mapping[str, AnyShape]
    code: Any
    fetch: Callable[[int], Array]
    placements: tuple[Placement, ...] = ()
