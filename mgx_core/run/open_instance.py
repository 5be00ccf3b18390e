"""Instances that run for all values of extents that keep changing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..cache import Recent
from ..ir.symbols import lone_symbols
from ..targets.open_program import OpenProgram
from ..types.dim import Sym, Symbol, substitute
from ..types.shape import AnyShape, Shape
from .argument_cache import ArgumentKey
from .instance import Instance

__all__ = ["OpenInstance"]

REPEATS: Final = 8  # runs with equal extents before these have a program of their own
SETS: Final = 64  # sets of extents whose runs are counted


class OpenInstance:
    """An instance that a target has opened for changing extents.

    parameters: the declared types.
    """

    def __init__(self, program: OpenProgram, instance: Instance, parameters: Mapping[str, AnyShape]) -> None:
        self.program = program
        self.instance = instance
        self._runs: Recent[int] = Recent(SETS)  # by extents
        self._declared = [_declared(shape) for shape in parameters.values()]
        self._names = sorted(frozenset[str]().union(*map(lone_symbols, parameters.values())))

    def takes(self, key: ArgumentKey) -> bool:
        """Returns True if it runs for arguments of these element types and extents, and counts the run.

        False for invalid ones, and for extents that repeat so often that they are worth a program of their own.
        """
        if len(key) != len(self._declared):
            return False
        known: dict[str, int] = {}
        derived: list[tuple[int, Sym]] = []
        for (dtype, lens), declared in zip(key, self._declared, strict=True):
            if declared is None or dtype != declared[0] or len(lens) != len(declared[1]):
                return False
            for n, d in zip(lens, declared[1], strict=True):
                if isinstance(d, int):
                    if n != d:
                        return False
                elif isinstance(d, Sym):
                    derived.append((n, d))
                elif known.setdefault(d.name, n) != n or not d.lo <= n <= d.hi:
                    return False
        valid = all(substitute(d, known) == n for n, d in derived) and self.program.fits(known)
        return valid and not self._counted(known)

    def repeats(self, known: Mapping[str, int]) -> bool:
        """Returns True if these extents have occurred so often that they are worth a program of their own."""
        return self.program.replaced and (self._runs.get(self._extents(known)) or 0) >= REPEATS

    def _counted(self, known: Mapping[str, int]) -> bool:
        """Counts a run; returns whether the extents repeat."""
        if not self.program.replaced:
            return False
        extents = self._extents(known)
        return self._runs.put(extents, (self._runs.get(extents) or 0) + 1) >= REPEATS

    def _extents(self, known: Mapping[str, int]) -> tuple[int, ...]:
        return tuple([known[name] for name in self._names])


def _declared(shape: AnyShape) -> tuple[object, list[int | Symbol | Sym]] | None:
    """Returns the element type and extents of a tensor: numbers, symbols and expressions; None for other parameters."""
    if not isinstance(shape, Shape) or not shape.ranked:
        return None
    return shape.numpy_dtype, [d if isinstance(d, int) else d.symbol or d for d in shape.dims]
