"""Runners from program files: a native program made again from what was saved of it, without plans and compilers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from mgx_core import Instruction, Module, Runner, StoreError

from .native_program import NativeRun
from .program_codec import replayed

if TYPE_CHECKING:
    from mgx_core.targets.saved import Keep, SavedInstance

__all__ = ["FORMAT", "RestoredRunner", "figures_of", "kept_again", "owners_of", "restored_run"]

FORMAT: Final = 1  # of what is saved, and of the native module that runs it


def restored_run(saved: SavedInstance) -> NativeRun:
    """The native program of a saved instance.  Errors: StoreError if it is of another format or does not come out alike."""
    code = saved.code
    if code["format"] != FORMAT:
        raise StoreError(f"the kernels are of format {code['format']}, this is {FORMAT}")
    return NativeRun(replayed(code["program"], saved.fetch), code["taken"])


class RestoredRunner(Runner):
    """One native program and nothing beside it.

    lowered: gives the module that the program was made from, for those who want to look at it.
    """

    def __init__(self, saved: SavedInstance, lowered: Callable[[], Module]) -> None:
        self.program = restored_run(saved)
        self.rest: list[Instruction] = []
        self.outputs: list[Any] = saved.code["outputs"]
        self.whole: bool = self.outputs == [["result", n] for n in range(len(self.outputs))]
        self._saved = saved
        self._lowered = lowered
        self.fresh = self.whole

    @property
    def module(self) -> Module:
        return self._lowered()

    @property
    def owners(self) -> list[Instruction | None]:
        """The instruction that each native step was made for."""
        return owners_of(self._saved, self.module)

    @property
    def figures(self) -> list[tuple[int, int]]:
        """Of each native step: its arithmetic, and the bytes that it moves."""
        return figures_of(self._saved)

    def run(self, args: Sequence[Any], observe: Any = None) -> list[Any]:
        results = self.program.run(args)
        if self.whole:
            return results
        return [results[n] if kind == "result" else args[n] for kind, n in self.outputs]

    def saved(self, keep: Keep) -> Any:
        """What the file had, for another."""
        return kept_again(self._saved, keep)

    def time(self, args: Sequence[Any], runs: int, warmup: int) -> Any:
        """Times of each native step."""
        from .timing import timings

        return timings(self, args, runs, warmup)


def owners_of(saved: SavedInstance, module: Module) -> list[Instruction | None]:
    """The instruction of the lowered module that each native step was made for."""
    instructions = list(module)
    return [None if n < 0 else instructions[n] for n in saved.code["owners"]]


def figures_of(saved: SavedInstance) -> list[tuple[int, int]]:
    """The arithmetic and the bytes moved of each native step."""
    return [(flops, moved) for flops, moved in saved.code["figures"]]


def kept_again(saved: SavedInstance, keep: Keep) -> Any:
    """What a saved instance has, for another file."""
    program = saved.code["program"]
    return {**saved.code, "program": {**program, "arrays": [keep(saved.fetch(n)) for n in program["arrays"]]}}
