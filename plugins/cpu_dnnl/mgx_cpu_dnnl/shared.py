"""Everything that the programs of a process share: compiled loops, constants, and weights in other layouts."""

from __future__ import annotations

from functools import cache, cached_property

from mgx_core.cache import Held

from .jit.engine import Engine
from .kernel_cache import KernelCache
from .packing import Weights

__all__ = ["Shared", "shared"]


class Shared:
    """The owner of the target's caches; contexts report what it holds."""

    def __init__(self) -> None:
        self.weights = Weights()
        self.kernels = KernelCache()

    @cached_property
    def engine(self) -> Engine:
        """The loop compiler for this machine."""
        return Engine()

    def held(self) -> dict[str, Held]:
        """Returns what each cache holds in memory."""
        return {"compiled loops": self.engine.held(), "loop kernels": self.kernels.held(), **self.weights.held()}


@cache
def shared() -> Shared:
    """Returns the process's one owner of caches."""
    return Shared()
