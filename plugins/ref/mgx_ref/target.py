"""The reference target: launches that are the ops' own definitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Kernel, Kernels, No, Operation, Reference, Target

__all__ = ["RefTarget"]

plans = Kernels("ref")


@plans.plan()
def definition(op: Operation, inputs: Sequence[Any], context: Any, modules: Sequence[Any] = ()) -> Kernel | No:
    if op.compute is None:
        return No(f"{op.name} has no reference compute")
    return Reference(op)


class RefTarget(Target):
    """Runs every op by its reference compute, fused groups instruction by instruction; the oracle of the other targets."""

    name = "ref"

    def kernels(self, context: Any) -> Kernels:
        return plans
