"""Kernel steps as the compilers' driver wants sources."""

from __future__ import annotations

from mgx_core.targets.schedule import Schedule

from .steps import KernelStep

__all__ = ["Named", "kernel_steps"]


class Named:
    """A kernel step's text with the name of its entry and the nodes that it was made from."""

    def __init__(self, step: KernelStep) -> None:
        self.name = step.source.name
        self.text = step.source.text
        self.nodes = step.sources
        self.origin = step.source.origin


def kernel_steps(schedule: Schedule) -> list[KernelStep]:
    """Returns the steps that launch kernels of ours."""
    return [s for s in schedule.steps if isinstance(s, KernelStep) and s.source.launches]
