"""An instance: an executable specialized for one set of input shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from ..errors import PluginError, counted
from ..targets.placement import Placement
from ..targets.results import misfit
from ..targets.runner import Runner
from ..targets.target import Target
from ..types.shape import AnyShape

if TYPE_CHECKING:
    from ..compile.pipeline import PassRecord
    from ..ir.module import Module
    from ..targets.lowered import Lowered
    from ..targets.memory import MemoryPlan
    from ..targets.schedule import Schedule

__all__ = ["Instance"]


class Instance:
    """An executable specialized for one set of input shapes.

    saved: placements of an instance restored from a program file, which is lowered and planned only if its module or plan is
    requested; transient: not worth saving for later processes.
    """

    def __init__(
        self,
        shapes: Mapping[str, AnyShape],
        runner: Runner,
        lowered: Lowered,
        literals: Module | None,
        saved: Sequence[Placement] | None = None,
        transient: bool = False,
    ) -> None:
        self.shapes = dict(shapes)
        self.key: tuple[AnyShape, ...] = ()  # in `Instances`
        self.runner = runner
        # results of a restored instance are not checked: their types are in the module, which is not decoded
        self._checked = saved is not None
        self.fresh = self._checked and runner.fresh  # until the first results are checked
        self.literals = literals  # the module whose constants the runner reads (None: only from a file)
        self._lowered = lowered
        self._saved = saved
        self.transient = transient

    def replaced(self, shapes: Mapping[str, AnyShape], runner: Runner) -> Instance:
        """Returns an instance of the same lowered module with another runner and other arguments."""
        return Instance(shapes, runner, self._lowered, self.literals, self._saved)

    @property
    def checked(self) -> bool:
        """True if results are not checked any more."""
        return self._checked

    def check(self, results: object, target: Target, shapes: Callable[[], Sequence[AnyShape]]) -> None:
        """Checks the first results against the types returned by `shapes`.

        Errors: PluginError that names the target and the result.
        """
        if self._checked:
            return
        wanted, who = shapes(), f"the runner of {target!r}"
        if not isinstance(results, (list, tuple)):
            raise PluginError(f"{who} must return a list of {counted(len(wanted), 'value')}, got {results!r}")
        if len(results) != len(wanted):
            raise PluginError(f"{who} must return {counted(len(wanted), 'value')}, got {len(results)}")
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
        """The runner's schedule; for targets whose kernels are called from Python, the live ranges of the values."""
        return self._lowered.plan

    @cached_property
    def placements(self) -> list[Placement]:
        """The placement of each launch."""
        if self._saved is not None:
            return list(self._saved)
        return list(self._lowered.placements)

    @property
    def records(self) -> list[PassRecord]:
        return self._lowered.records
