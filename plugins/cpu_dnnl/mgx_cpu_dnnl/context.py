"""The context of the cpu target: threads and what the machine can do."""

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
    """A host to compile for and run on.

    threads: 0 for all that the process may use.
    """

    def __init__(self, target: Any, threads: int = 0) -> None:
        self.target = target
        self.threads = threads

    @cached_property
    def programs(self) -> OpPrograms:
        """Programs of single ops whose extents are decided at run time."""
        from mgx_core.targets.op_programs import OpPrograms

        from .native_program import build

        return OpPrograms(lambda schedule: build(schedule).run)

    @cached_property
    def tuning(self) -> Tuning:
        """Choices among kernels that were timed on this machine."""
        from .tuning import Tuning

        return Tuning(self.target.machine(self))

    @cached_property
    def c_libraries(self) -> CLibraries:
        """C texts of other packages, compiled and loaded."""
        from .c_compiler import CLibraries

        return CLibraries()

    def __repr__(self) -> str:
        return f"context of target 'cpu' ({self.threads or 'all'} threads)"

    def memory(self) -> dict[str, Held]:
        """Returns the memory that programs share: compiled loops, constants, weights in other layouts, packages' C kernels."""
        from .shared import shared

        found = shared().held()
        if "c_libraries" in vars(self):
            found["C kernels of packages"] = self.c_libraries.held()
        if "programs" in vars(self):
            found["programs of single ops"] = Held(len(self.programs), 0)
        return found
