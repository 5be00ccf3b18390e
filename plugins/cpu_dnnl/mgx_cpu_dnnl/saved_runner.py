"""Runners restored from program files, without plans and compilers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mgx_core import StoreError
from mgx_core.targets.runner import Runner, Timing
from mgx_core.targets.saved import Keep, SavedInstance

from .native_run import NativeRun
from .program_codec import FORMAT, rebuild, recompute

if TYPE_CHECKING:
    from mgx_core import Instruction, Module

__all__ = ["RestoredRunner", "resaved", "owners_of", "restored_run"]


def restored_run(saved: SavedInstance) -> NativeRun | None:
    """Restores the native program of a saved instance; None if it computes nothing.

    Errors: StoreError if its format differs or it cannot be reproduced.
    """
    code = saved.code
    if code["format"] != FORMAT:
        raise StoreError(f"the kernels are of format {code['format']}, this is {FORMAT}")
    if code["program"] is None:
        return None
    return NativeRun(rebuild(code["program"], saved), code["taken"])


class RestoredRunner(Runner):
    """A restored native program, without IR.

    lowered: returns the lowered module, decoded on demand.
    """

    def __init__(self, saved: SavedInstance, lowered: Callable[[], Module]) -> None:
        self.program = restored_run(saved)
        self.outputs: list[Any] = saved.code["outputs"]
        self.fresh = self.outputs == [["result", n] for n in range(len(self.outputs))]
        self._saved = saved
        self._lowered = lowered

    def run(self, args: Sequence[Any], observe: Any = None) -> list[Any]:
        results = [] if self.program is None else self.program.run(args)
        if self.fresh:
            return results
        return [results[n] if kind == "result" else args[n] for kind, n in self.outputs]

    def saved(self, keep: Keep) -> Any:
        return resaved(self._saved, keep)

    def time(self, args: Sequence[Any], runs: int, warmup: int) -> list[Timing]:
        from .timing import step_timings

        if self.program is None:
            return []
        owners = owners_of(self._saved, self._lowered())
        return list(step_timings(self.program, owners, self._saved.code["figures"], args, runs, warmup).values())


def owners_of(saved: SavedInstance, module: Module) -> list[Instruction | None]:
    """Returns the instruction of each native step."""
    from mgx_core.targets.static_part import numbered

    instructions = numbered(module)
    return [None if n < 0 else instructions[n] for n in saved.code["owners"]]


def resaved(saved: SavedInstance, keep: Keep) -> Any:
    """Returns the data of a saved instance for another file."""
    program = saved.code["program"]
    if program is None:
        return saved.code
    arrays = [keep(saved.fetch(n)) for n in program["arrays"]]
    values = list(program["values"])
    for at, (kind, *entry) in enumerate(values):
        if kind == "made" and not keep.brief:  # a standalone file stores packed weights
            arrays.append(keep(recompute(saved, program["arrays"][entry[0]], entry[2:])))
            values[at] = ["literal", len(arrays) - 1, entry[1]]
    return {**saved.code, "program": {**program, "arrays": arrays, "values": values}}
