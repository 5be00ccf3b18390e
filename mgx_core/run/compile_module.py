"""Compiles a module to an executable for a target."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..compile.shape_specialization import needs_shapes
from ..compile.stages import optimize_module
from ..errors import ParameterError
from ..ir.module import Module
from ..ir.verify import misplaced
from ..log import debugging, listen, log
from ..options import CompileOptions
from ..targets.calls import target_and_context
from ..targets.groups import inline_groups
from ..targets.target import Context, Target
from .executable import UNTOUCHED, Executable

if TYPE_CHECKING:
    from ..compile.pipeline import PassRecord

__all__ = ["compile_module", "optimized"]


def compile_module(
    module: Module,
    on: Target | Context,
    options: CompileOptions,
    output_names: list[str] | None = None,
    overwritten: Mapping[str, int] = UNTOUCHED,
) -> Executable:
    """Returns an executable for a copy of `module` on a target or on one of its contexts; `module` itself is unchanged.

    overwritten: as in `Program.compile`.
    Errors: ParameterError if `on` is neither, if the target does not support an option, or if an instruction reads a later
    one; any error that a pass or the target raises.
    """
    start = time.perf_counter()
    listen()
    target, context = target_and_context(on)
    copy, records = optimized(module, target, context, options)
    made = Executable(copy, target, context, options, output_names or (), records, overwritten=overwritten)
    made.note_lost()
    if debugging():
        log.debug("compiled for %s in %.1f ms: %s", target.name, (time.perf_counter() - start) * 1e3, options)
    return made


def optimized(module: Module, target: Target, context: Any, options: CompileOptions) -> tuple[Module, list[PassRecord]]:
    """Returns the optimized copy of a module, and the passes that ran.  Errors: as `compile_module`."""
    if options.use_nhwc and not target.channels_last:
        raise ParameterError(
            f"use_nhwc requires channels-last convolutions, which target {target.name!r} does not have: "
            "leave the option out"
        )
    if options.target and not target.architectures:
        raise ParameterError(
            f"the option 'target' names an architecture to compile for, and target {target.name!r} compiles for the machine that "
            f"it runs on: leave {options.target!r} out"
        )
    wrong = misplaced(module)
    if wrong is not None:
        raise ParameterError(wrong)
    copy = module.clone()
    if options.optimize:
        inline_groups(copy)  # of a program that was optimized without this target's passes
    # a module that needs run-time shapes is simplified and fused per instance, like a static one
    pipeline = optimize_module(copy, options, target, context, before="simplify" if needs_shapes(copy) else "lower")
    return copy, pipeline.records
