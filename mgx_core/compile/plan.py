"""From an optimised module to one that a target can run for one set of input shapes: lowered and planned."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from ..ir.equality import equal_bodies
from ..ir.module import Module
from ..options import CompileOptions
from ..targets.emission import Emitter
from ..targets.lowered import Lowered
from ..targets.memory import fits_in_memory, plan_memory
from ..targets.target import Target
from ..types.memory_limit import limited
from ..types.shape import AnyShape
from .extensions import kernels_of, plugged_kernels
from .lower import Lower
from .pipeline import PassRecord, Pipeline
from .stages import lowering

__all__ = ["lower_module"]


def lower_module(
    given: Module, shapes: Mapping[str, AnyShape], target: Target, context: Any, options: CompileOptions
) -> Lowered:
    """An optimised module for concrete shapes of its parameters, through the stages lower and plan when it is asked for."""
    kernels = functools.cache(lambda: kernels_of(target, context, options))

    def lower() -> tuple[Module, list[PassRecord]]:
        static = {n: s for n, s in shapes.items() if not s.dynamic()}
        module = given.clone(parameters=static, shared=given.derive("equal bodies", equal_bodies))
        plugged = plugged_kernels(target)
        brought = None if plugged.empty else plugged.for_options(options)
        lower = Lower(kernels(), context, options.validate, brought)
        stages = lowering(lower, target, context, options)
        pipeline = Pipeline(stages, options.validate, frozenset(options.disable_passes))
        pipeline.run(module)
        with limited(options.limit_bytes):
            fits_in_memory(plan_memory(module, options.memory_reuse), module)
        return module, pipeline.records

    def emitter() -> Emitter | None:
        return target.emitter(kernels(), context, options)

    return Lowered(lower, emitter, options.memory_reuse, options.validate)
