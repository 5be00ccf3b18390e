"""Restored runners for programs with run-time decisions: the static part is restored, the rest is compiled here."""

from __future__ import annotations

from typing import Any

from mgx_core import Module, StoreError
from mgx_core.targets.saved import Keep, SavedInstance

from .emitter import CpuEmitter
from .runner import NativeRunner
from .saved_runner import owners_of, resaved, restored_run

__all__ = ["RestoredSegments"]


class RestoredSegments(NativeRunner):
    """A restored native program for the static part, and segments compiled in this process between run-time decisions."""

    def __init__(self, saved: SavedInstance, module: Module, emitter: CpuEmitter) -> None:
        parts = emitter.parts(module)
        instructions = list(module)
        numbers = {ins: n for n, ins in enumerate(instructions)}
        counted = {instructions[n]: axis for n, axis in saved.code["counted"]}
        if counted:
            parts = parts.counting(module, counted)
        if [numbers[ins] for ins in parts.wanted] != saved.code["wanted"]:
            raise StoreError("the lowered program differs from the one that its kernels were saved for")
        self._saved = saved
        program = restored_run(saved)
        super().__init__(module, parts, program, emitter, saved.code["figures"], lambda: owners_of(saved, module))

    def saved(self, keep: Keep) -> Any:
        return resaved(self._saved, keep)
