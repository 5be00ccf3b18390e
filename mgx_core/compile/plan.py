"""From an optimised module to one that a target can run for one set of input shapes: lowered and planned."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..ir.equality import equal_bodies
from ..ir.module import Module
from ..options import CompileOptions
from ..passes.settle_extents import SettleExtents
from ..targets.memory import MemoryPlan, fits_in_memory, plan_memory
from ..targets.placement import Placement
from ..targets.target import Target
from ..types.memory_limit import limited
from ..types.shape import AnyShape
from .extensions import kernels_of, passes_of
from .lower import SETTLED, Lower
from .order_for_memory import OrderForMemory
from .pipeline import PassRecord, Pipeline, Stage

__all__ = ["Lowered", "lower_module", "lowered"]


@dataclass
class Lowered:
    """The optimised module for one set of input shapes, lowered and planned."""

    module: Module
    plan: MemoryPlan
    placements: list[Placement]
    records: list[PassRecord]


def lower_module(
    given: Module, shapes: Mapping[str, AnyShape], target: Target, context: Any, options: CompileOptions
) -> Lowered:
    """A copy of an optimised module for concrete shapes of its parameters, through the stages lower and plan."""
    settled = {n: s for n, s in shapes.items() if not s.dynamic()}
    module = given.clone(parameters=settled, shared=given.derive("equal bodies", equal_bodies))
    lower = Lower(kernels_of(target, context), context, validate=options.validate)
    ordering = (OrderForMemory(),) if options.aggressive_memory else ()
    stages = (
        Stage("lower", (SettleExtents(), lower, *passes_of(target, "lower", context, options)), lowered),
        Stage("plan", (*ordering, *passes_of(target, "plan", context, options))),
    )
    pipeline = Pipeline(stages, options.validate, frozenset(options.disable_passes))
    pipeline.run(module)
    records, count = pipeline.records, pipeline.count
    start = time.perf_counter()
    plan = plan_memory(module, options.memory_reuse)
    with limited(options.limit_bytes):
        fits_in_memory(plan, module)
    records.append(PassRecord("plan", "plan-memory", time.perf_counter() - start, True, count, count))
    return Lowered(module, plan, lower.placements, records)


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
