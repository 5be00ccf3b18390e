"""The context of the cpu target: threads, and properties of the machine."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from mgx_core import Context
from mgx_core.cache import Held

if TYPE_CHECKING:
    from mgx_core.targets.op_programs import OpPrograms

    from .c_compiler import CLibraries
    from .tuning import Tuning

__all__ = ["CpuContext"]


class CpuContext(Context):
    """The host machine.

    threads: 0 for all available ones.
    """

    def __init__(self, target: Any, threads: int = 0) -> None:
        self.target = target
        self.threads = threads

    @cached_property
    def programs(self) -> OpPrograms:
        """Cached programs of single ops with run-time extents."""
        from mgx_core.targets.op_programs import OpPrograms

        from .native_program import build

        return OpPrograms(lambda schedule: build(schedule).run)

    @cached_property
    def tuning(self) -> Tuning:
        """Autotuning results of this machine."""
        from .tuning import Tuning

        return Tuning(self.target.machine(self))

    @cached_property
    def c_libraries(self) -> CLibraries:
        """Loaded libraries of third-party C kernels."""
        from .c_compiler import CLibraries

        return CLibraries()

    def __repr__(self) -> str:
        return f"context of target 'cpu' ({self.threads or 'all'} threads)"

    def memory(self) -> dict[str, Held]:
        """Reports the memory that programs share: compiled loops, constants, packed weights, third-party kernels."""
        from .shared import shared

        found = shared().held()
        if "c_libraries" in vars(self):
            found["C kernels of packages"] = self.c_libraries.held()
        if "programs" in vars(self):
            found["programs of single ops"] = Held(len(self.programs), 0)
        return found
