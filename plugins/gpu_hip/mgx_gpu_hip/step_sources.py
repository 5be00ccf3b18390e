"""Kernel steps as inputs of the compiler."""

from __future__ import annotations

from collections.abc import Iterable

from mgx_core.targets.schedule import Step

from .steps import KernelStep

__all__ = ["StepSource", "kernel_steps"]


class StepSource:
    """A kernel step's source with the kernel's name and the nodes that the step comes from."""

    def __init__(self, step: KernelStep) -> None:
        self.name = step.source.name
        self.text = step.source.text
        self.nodes = step.sources
        self.origin = step.source.origin


def kernel_steps(steps: Iterable[Step]) -> list[KernelStep]:
    """Returns the steps that launch generated kernels."""
    return [s for s in steps if isinstance(s, KernelStep) and s.source.launches]
