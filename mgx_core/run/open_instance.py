"""Instances that run for all values of extents that keep changing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ..cache import Recent
from ..ir.symbols import lone_symbols
from ..targets.open_program import OpenProgram
from ..types.dim import Dim, Sym, arithmetic, substitute, symbol, symbols_of
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
        shapes = [s for s in parameters.values() if isinstance(s, Shape) and s.ranked]
        self._kinds = [(s.numpy_dtype, s.rank) for s in shapes] if len(shapes) == len(parameters) else None
        self._names = sorted(frozenset[str]().union(*map(lone_symbols, shapes)))
        dims = [d for s in shapes for d in s.dims]
        lone = [d.symbol.name if isinstance(d, Sym) and d.symbol is not None else None for d in dims]
        self._places = [lone.index(name) for name in self._names]
        self._alike, self._derived = _tests(dims, dict(zip(self._names, self._places, strict=True)))

    def takes(self, key: ArgumentKey) -> bool:
        """Returns True if it runs for arguments of these element types and extents, and counts the run.

        False for invalid ones, and for extents that repeat so often that they are worth a program of their own.
        """
        if [(dtype, len(lens)) for dtype, lens in key] != self._kinds:
            return False
        lens = [n for _, some in key for n in some]
        if not self._alike(*lens):
            return False
        extents = tuple([lens[at] for at in self._places])
        valid = self.program.fits(dict(zip(self._names, extents, strict=True))) and self._derived(*lens)
        return valid and not self._counted(extents)

    def repeats(self, known: Mapping[str, int]) -> bool:
        """Returns True if these extents have occurred so often that they are worth a program of their own."""
        extents = tuple([known[name] for name in self._names])
        return self.program.replaced and (self._runs.get(extents) or 0) >= REPEATS

    def _counted(self, extents: tuple[int, ...]) -> bool:
        """Counts a run; returns whether the extents repeat."""
        if not self.program.replaced:
            return False
        return self._runs.put(extents, (self._runs.get(extents) or 0) + 1) >= REPEATS


def _tests(dims: Sequence[Dim], places: Mapping[str, int]) -> tuple[Callable[..., bool], ...]:
    """Returns two tests of the extents of all arguments: of numbers and symbols, and of those computed from symbols.

    places: of the extents that are the symbols.
    """
    alike, derived = ["True"], ["True"]
    numbers = [f"n{at}" for at in range(len(dims))]
    own = {name: symbol(numbers[at]) for name, at in places.items()}  # names of symbols are any text
    for at, (number, d) in enumerate(zip(numbers, dims, strict=True)):
        if isinstance(d, Sym) and d.symbol is not None and places[d.symbol.name] == at:
            alike.append(f"{d.symbol.lo} <= {number} <= {d.symbol.hi}")
        elif isinstance(d, int) or d.symbol is not None:
            alike.append(f"{number} == {substitute(d, own)}")
        else:
            known = all(s.name in places for s in symbols_of(d))
            derived.append(f"{number} == {substitute(d, own)}" if known else "False")
    return tuple(arithmetic(numbers, " and ".join(tests)) for tests in (alike, derived))
