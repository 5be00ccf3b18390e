"""Lowered modules: the result of lowering an optimized module for one set of input shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..errors import PassError
from .placement import Placement

if TYPE_CHECKING:
    from ..ir.module import Module
    from .emission import Emitter
    from .memory import MemoryPlan
    from .schedule import Schedule

__all__ = ["Lowered", "launch_placements"]


class Lowered:
    """An optimized module for one set of input shapes; lowered, emitted and planned lazily.

    lower: returns the lowered module and the records of its passes; emitter: returns the target's, or None; reuse: values with
    disjoint live ranges share memory; validate: check that no others do.
    """

    def __init__(
        self,
        lower: Callable[[], tuple[Module, list[Any]]],
        emitter: Callable[[], Emitter | None],
        reuse: bool,
        validate: bool = False,
    ) -> None:
        self._lower = lower
        self._emitter = emitter
        self._reuse = reuse
        self._validate = validate

    @cached_property
    def _made(self) -> tuple[Module, list[Any]]:
        return self._lower()

    @property
    def module(self) -> Module:
        return self._made[0]

    @property
    def records(self) -> list[Any]:
        """The passes of the stages lower and plan."""
        return self._made[1]

    @cached_property
    def emitter(self) -> Emitter | None:
        """The target's emitter, which creates the plan; None for targets whose kernels are called from Python."""
        return self._emitter()

    @cached_property
    def plan(self) -> Schedule | MemoryPlan:
        """The schedule of emitted steps; for targets without an emitter, the live ranges and offsets of values."""
        from .memory import overlap, plan_memory

        emitter = self.emitter
        made = plan_memory(self.module, self._reuse) if emitter is None else emitter.schedule(self.module)
        wrong = overlap(made.buffers) if self._validate else None
        if wrong is not None:
            raise PassError(f"after stage 'plan': {wrong}")
        return made

    @cached_property
    def placements(self) -> Sequence[Placement]:
        """Placement of each launch."""
        from .schedule import Schedule

        plan = self.plan
        return plan.placements if isinstance(plan, Schedule) else launch_placements(self.module)


def launch_placements(module: Module) -> list[Placement]:
    """Returns the placements of the launches of a module and its control flow."""
    from ..ir.module import nested
    from .kernel import Launch

    return [
        Placement(i.op.text, i.sources, i.op.place, i.op.kernel.name, i.op.refused)
        for inner in nested(module)
        for i in inner
        if isinstance(i.op, Launch)
    ]
