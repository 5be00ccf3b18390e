"""Creates instances: restores a runner from a program file, or assembles one from a schedule, for one set of input shapes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import MgxError, PluginError
from ..log import debugging, log
from ..options import CompileOptions
from ..targets.calls import called
from ..targets.runner import Runner
from ..targets.saved import SavedInstance
from ..targets.target import Target
from ..types.shape import AnyShape, Shape
from ..types.traced_int import TracedInt
from .instance import Instance

if TYPE_CHECKING:
    from ..targets.lowered import Lowered

__all__ = ["instance_shapes", "instantiated"]


def instantiated(
    given: Mapping[str, AnyShape],
    lowered: Lowered,
    saved: SavedInstance | None,
    target: Target,
    context: Any,
    options: CompileOptions,
    note: Callable[[str], None],
    note_lost: Callable[[], None],
) -> Instance:
    """Returns the instance for the shapes `given`, restored from a file or created from the lowered module.

    note: called if the file's kernels cannot be used; note_lost: called before the target creates a runner.
    Errors: PluginError if the target fails or does not return a runner.
    """
    if saved is not None:
        try:
            runner = target.restored(saved, lowered, context, options)
            return Instance(given, runner, lowered, None, saved.placements)
        except (MgxError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            note(f"the file's kernels could not be used and were recompiled: {error}")
    from ..compile.pipeline import PassRecord
    from ..targets.schedule import Schedule

    module, records = lowered.module, lowered.records
    note_lost()
    count, start = records[-1].after, time.perf_counter()
    plan = lowered.plan
    planned = time.perf_counter()
    records.append(PassRecord("plan", "plan-memory", planned - start, True, count, count))
    if isinstance(plan, Schedule):
        runner = called(target, "assemble", lambda: target.assemble(plan, lowered.emitter, context, options))
        _check_runner(runner, f"assemble(...) of {target!r}")
    else:
        runner = called(target, "runner", lambda: target.runner(module, plan, context, options))
        _check_runner(runner, f"runner(...) of {target!r}")
    records.append(PassRecord("plan", "make-runner", time.perf_counter() - planned, True, count, count))
    if debugging():
        seconds = time.perf_counter() - start + sum(r.seconds for r in records[:-2])
        log.debug(
            "instance for %s: %d kernels, %.1f ms", given or "fixed shapes", len(lowered.placements), seconds * 1e3
        )
    return Instance(given, runner, lowered, module)


def _check_runner(given: object, call: str) -> None:
    """Checks that a target returned a runner that defines `run`.  Errors: PluginError."""
    if not isinstance(given, Runner):
        raise PluginError(f"{call} must return an instance of mgx_core.Runner, got {given!r}")
    if type(given).run is Runner.run:
        raise PluginError(
            f"{call} returned a {type(given).__qualname__}, which derives from Runner and must define run(args)"
        )


def instance_shapes(
    target: Target, declared: Mapping[str, AnyShape], given: Mapping[str, AnyShape]
) -> Mapping[str, AnyShape]:
    """Returns the shapes of an instance's parameters that a target specializes for; `given` if extents are traced."""
    if any(type(d) is TracedInt for s in given.values() if isinstance(s, Shape) for d in s.dims):
        return given
    return {name: _instance_shape(target, declared[name], shape) for name, shape in given.items()}


def _instance_shape(target: Target, declared: AnyShape, given: AnyShape) -> AnyShape:
    """Returns the shape that a target specializes for.  Errors: PluginError if it does not return a shape of this kind."""
    shape: object = called(target, "instance_shape", lambda: target.instance_shape(declared, given))
    if type(shape) is not type(given):
        raise PluginError(
            f"instance_shape of {target!r} must return a {type(given).__name__} for {declared}, got {shape!r}"
        )
    return shape
