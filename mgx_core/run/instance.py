"""An instance: an executable specialized for one set of input shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from ..errors import PluginError
from ..ir.module import Module
from ..targets.placement import Placement
from ..targets.results import misfit
from ..targets.runner import Runner
from ..targets.target import Target
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
    is looked at.  passing: nothing of it is worth keeping for later processes.
    """

    def __init__(
        self,
        shapes: Mapping[str, AnyShape],
        runner: Runner,
        lowered: Lowered,
        literals: Module | None,
        saved: Sequence[Placement] | None = None,
        passing: bool = False,
    ) -> None:
        self.shapes = dict(shapes)
        self.key: tuple[AnyShape, ...] = ()  # by which the executable finds it
        self.runner = runner
        # of one out of a file nothing is checked: the types are in the graph, which loading leaves undecoded
        self._checked = saved is not None
        self.fresh = self._checked and runner.fresh  # until the first results are checked
        self.literals = literals  # the module whose constants the runner reads (None: only from a file)
        self._lowered = lowered
        self._saved = saved
        self.passing = passing

    def replaced(self, shapes: Mapping[str, AnyShape], runner: Runner) -> Instance:
        """Returns the same lowered module with another runner, for arguments of other shapes."""
        return Instance(shapes, runner, self._lowered, self.literals, self._saved)

    @property
    def checked(self) -> bool:
        """True once results are no longer checked."""
        return self._checked

    def check(self, results: object, target: Target, shapes: Callable[[], Sequence[AnyShape]]) -> None:
        """Holds the first results against the types that a program states, which `shapes` gives.

        Errors: PluginError, which names the target and the result.
        """
        if self._checked:
            return
        wanted, who = shapes(), f"the runner of {target!r}"
        if not isinstance(results, (list, tuple)):
            raise PluginError(f"{who} must return a list of {len(wanted)} values, got {results!r}")
        if len(results) != len(wanted):
            raise PluginError(f"{who} must return {len(wanted)} values, got {len(results)}")
        for n, (shape, value) in enumerate(zip(wanted, results, strict=True)):
            wrong = misfit(shape, value)
            if wrong:
                raise PluginError(f"{who} must return {shape} as result {n}, got {wrong}")
        self._checked, self.fresh = True, self.runner.fresh

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
