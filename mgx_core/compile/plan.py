"""Specializes an optimized module for one set of input shapes: lowers it and plans its memory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ..errors import PluginError
from ..options import CompileOptions
from ..targets.calls import called
from ..targets.lowered import Lowered
from ..targets.reuse import Reuse
from ..targets.target import Target
from ..types.shape import AnyShape, Shape

if TYPE_CHECKING:
    from ..ir.module import Module
    from ..targets.emission import Emitter
    from ..targets.kernel_table import Kernels
    from .pipeline import PassRecord

__all__ = ["lower_module"]

NOTHING: Final[Mapping[str, int]] = {}


def lower_module(
    given: Callable[[], Module],
    shapes: Mapping[str, AnyShape],
    target: Target,
    context: Any,
    options: CompileOptions,
    overwritten: Mapping[str, int] = NOTHING,
    reuse: Reuse | None = None,
) -> Lowered:
    """Returns the lazily lowered form of an optimized module for concrete shapes of its parameters.

    given: returns the module; a restored instance may never need it nor the stages, which are then not loaded.
    overwritten: results that may overwrite arguments, as in `Program.compile`.
    reuse: caches shared by instances of the same module, target, context and options.
    """
    if reuse is None or any(type(d) is not int for s in shapes.values() if isinstance(s, Shape) for d in s.dims):
        reuse = Reuse()  # cached launches do not distinguish extents that keep their symbols from numbers

    @functools.cache
    def kernels() -> Kernels:
        from .extensions import kernels_of

        return kernels_of(target, context, options)

    def lower() -> tuple[Module, list[PassRecord]]:
        from .stages import lower_for

        return lower_for(given(), shapes, kernels(), target, context, options, reuse)

    def emitter() -> Emitter | None:
        from ..targets.emission import Emitter

        made: object = called(target, "emitter", lambda: target.emitter(kernels(), context, options))
        if made is not None and not isinstance(made, Emitter):
            raise PluginError(
                f"emitter(...) of {target!r} must return an instance of mgx_core.targets.emission.Emitter or None, got {made!r}"
            )
        if made is not None:
            made.overwritten = overwritten
            made.earlier = reuse if made.tuning is None else None  # tuning reports every choice
        return made

    return Lowered(lower, emitter, options.memory_reuse, options.validate)
