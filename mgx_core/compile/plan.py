"""From an optimised module to one that a target can run for one set of input shapes: lowered and planned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir.equality import equal_bodies
from ..ir.module import Module
from ..options import CompileOptions
from ..passes.settle_extents import SettleExtents
from ..targets.emission import Emitter
from ..targets.lowered import Lowered
from ..targets.memory import fits_in_memory, plan_memory
from ..targets.target import Target
from ..types.memory_limit import limited
from ..types.shape import AnyShape
from .extensions import kernels_of, passes_of
from .lower import SETTLED, Lower
from .order_for_memory import OrderForMemory
from .pipeline import PassRecord, Pipeline, Stage

__all__ = ["lower_module", "lowered"]


def lower_module(
    given: Module, shapes: Mapping[str, AnyShape], target: Target, context: Any, options: CompileOptions
) -> Lowered:
    """An optimised module for concrete shapes of its parameters, through the stages lower and plan when it is asked for."""

    def lower() -> tuple[Module, list[PassRecord]]:
        settled = {n: s for n, s in shapes.items() if not s.dynamic()}
        module = given.clone(parameters=settled, shared=given.derive("equal bodies", equal_bodies))
        ordering = (OrderForMemory(),) if options.aggressive_memory else ()
        kernels = kernels_of(target, context, options)
        stages = (
            Stage(
                "lower",
                (
                    SettleExtents(),
                    Lower(kernels, context, options.validate),
                    *passes_of(target, "lower", context, options),
                ),
                lowered,
            ),
            Stage("plan", (*ordering, *passes_of(target, "plan", context, options))),
        )
        pipeline = Pipeline(stages, options.validate, frozenset(options.disable_passes))
        pipeline.run(module)
        with limited(options.limit_bytes):
            fits_in_memory(plan_memory(module, options.memory_reuse), module)
        return module, pipeline.records

    def emitter() -> Emitter | None:
        return target.emitter(kernels_of(target, context, options), context, options)

    return Lowered(lower, emitter, options.memory_reuse)


def lowered(module: Module) -> str | None:
    """The invariant after lowering: parameters, literals, launches and control flow, nothing else."""
    for ins in module:
        if isinstance(ins.op, SETTLED):
            continue
        if ins.op.control:
            for inner in ins.modules:
                wrong = lowered(inner)
                if wrong is not None:
                    return wrong
            continue
        return f"{ins!r} is left"
    return None
