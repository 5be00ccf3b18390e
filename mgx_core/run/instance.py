"""An executable made concrete for one set of input shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from ..ir.module import Module
from ..targets.placement import Placement
from ..targets.runner import Runner
from ..types.shape import AnyShape

if TYPE_CHECKING:
    from ..compile.pipeline import PassRecord
    from ..targets.lowered import Lowered
    from ..targets.memory import MemoryPlan
    from ..targets.schedule import Schedule

__all__ = ["Instance"]


class Instance:
    """An executable made concrete for one set of input shapes.

    saved: the placements of one that came out of a program file, which is lowered and planned only if its module or its plan
    is looked at.
    """

    def __init__(
        self,
        shapes: Mapping[str, AnyShape],
        runner: Runner,
        lowered: Lowered,
        literals: Module | None,
        saved: Sequence[Placement] | None = None,
    ) -> None:
        self.shapes = dict(shapes)
        self.key: tuple[AnyShape, ...] = ()  # by which the executable finds it
        self.runner = runner
        self.fresh = runner.fresh
        self.literals = literals  # the module whose constants the runner reads (None: only from a file)
        self._lowered = lowered
        self._saved = saved

    @property
    def module(self) -> Module:
        return self._lowered.module

    @property
    def plan(self) -> Schedule | MemoryPlan:
        """The schedule that the runner runs; for targets whose kernels are called from Python the lifetimes of the values."""
        return self._lowered.plan

    @cached_property
    def placements(self) -> list[Placement]:
        """Placement of each launch: what the steps of the schedule call."""
        if self._saved is not None:
            return list(self._saved)
        return list(self._lowered.placements)

    @property
    def records(self) -> list[PassRecord]:
        return self._lowered.records
