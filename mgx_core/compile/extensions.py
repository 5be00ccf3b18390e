"""What a target offers together with what plugins add for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..options import CompileOptions
from ..plugins.manager import manager
from ..targets.kernel import Kernels
from ..targets.target import Target
from .pipeline import Pass

__all__ = ["kernels_of", "passes_of"]


def passes_of(target: Target, stage: str, context: Any, options: CompileOptions) -> Sequence[Pass]:
    """The passes that a target adds to a stage, and then those that plugins add for it."""
    give = getattr(target, "passes", None)
    own = () if give is None else give(stage, context, options)
    return [*own, *manager().passes(target.name, stage)]


def kernels_of(target: Target, context: Any) -> Kernels:
    """A target's plans; those that plugins add for it are asked first."""
    return manager().kernels(target.name) + target.kernels(context)
