"""The cpu target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import CompileOptions, Kernels, Module, Pass
from mgx_core.memory import MemoryPlan
from mgx_core.passes.expand_composites import ExpandComposites

from .context import CpuContext
from .plans import PLANS

__all__ = ["CpuTarget"]

# what runs faster as loops fused with its neighbours than as an op of its own
EXPANDED = frozenset({"layernorm", "rmsnorm", "groupnorm", "instancenorm"})


class CpuTarget:
    """oneDNN primitives for convolutions, products and pooling, compiled loops for everything between, a native executor."""

    name = "cpu"

    def __init__(self, threads: int = 0) -> None:
        self.threads = threads

    def get_context(self) -> CpuContext:
        return CpuContext(self, self.threads)

    def kernels(self, context: Any) -> Kernels:
        return PLANS

    def passes(self, stage: str, context: Any, options: CompileOptions) -> Sequence[Pass]:
        return (ExpandComposites(EXPANDED),) if stage == "legalize" else ()

    def runner(self, module: Module, plan: MemoryPlan, context: Any, options: CompileOptions) -> Any:
        from .runner import CpuRunner

        return CpuRunner(module, options.threads or context.threads, options.fast_math)

    def __repr__(self) -> str:
        return "target 'cpu'"
