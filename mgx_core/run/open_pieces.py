"""Runs a program whose extents are decided by values in pieces that take the changing extents as arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from ..ir.module import Module
from ..ir.symbols import introduced, lone_symbols
from ..targets.open_program import OpenProgram
from ..targets.placement import Placement
from ..targets.runner import Runner
from ..targets.static_part import given
from ..types.argument import Value
from ..types.shape import symbols_in
from .device_pieces import DeviceMemory
from .pieces import Part, PieceRunner, Pieces

__all__ = ["OpenPart", "OpenPieces"]


class OpenPart(Part, Protocol):
    """Runs a piece that takes changing extents as arguments."""

    @property
    def closed(self) -> bool:
        """True if it was compiled for single extents."""
        ...


class OpenPieces(Runner):
    """Runs pieces for any values of the changing extents.

    run: returns results, and what ran; parts: the pieces with such extents; failed: called once a piece was compiled for single
    extents; fresh: as of `Runner`.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Value]], tuple[list[Value], Sequence[PieceRunner]]],
        parts: Sequence[OpenPart],
        failed: Callable[[], None],
        fresh: bool,
    ) -> None:
        self._run = run
        self._parts = parts
        self._failed = failed
        self._fails = False
        self._ran: Sequence[PieceRunner] = ()
        self.fresh = fresh

    def run(self, args: Sequence[Value]) -> list[Value]:
        results, self._ran = self._run(args)
        if not self._fails and any(part.closed for part in self._parts):
            self._fails = True
            self._failed()
        return results

    def placements(self) -> list[Placement]:
        """Returns the placements of the pieces of the last run."""
        return [placement for by in self._ran for placement in by.placements]

    @classmethod
    def program(
        cls,
        module: Module,
        known: Mapping[str, int],
        changing: frozenset[str],
        make: Callable[[Module, frozenset[str]], OpenPart],
        failed: Callable[[], None],
        memory: DeviceMemory | None = None,
    ) -> OpenProgram | None:
        """Returns the program of a module for all values of the changing extents; None if values decide none.

        known: extents of a run; make: compiles a piece for changing extents; failed: as in the constructor; memory: as of
        `Pieces`.
        """
        if not any(introduced(ins) for ins in module if not given(ins)):
            return None
        own = frozenset[str]().union(*(symbols_in(p.result) for p in module.parameters.values()))
        parts: list[OpenPart] = []

        def piece(body: Module) -> OpenPart:
            lone = frozenset[str]().union(*(lone_symbols(p.result) for p in body.parameters.values()))
            symbols = frozenset(name for name in lone if name in changing or name not in own)
            made = make(body, symbols)
            if symbols:
                parts.append(made)
            return made

        pieces = Pieces.of(module, changing, piece, memory, open=True)
        if pieces is None:
            return None
        return cls(pieces.run, parts, failed, pieces.fresh).opened(known, changing)

    @classmethod
    def whole(cls, part: OpenPart, failed: Callable[[], None]) -> OpenPieces:
        """Returns the runner of one part that is the whole module."""

        def run(args: Sequence[Value]) -> tuple[list[Value], Sequence[PieceRunner]]:
            results, by = part.run(args, {})
            return results, [by]

        return cls(run, [part], failed, fresh=True)

    def opened(self, known: Mapping[str, int], changing: frozenset[str], replaced: bool = False) -> OpenProgram:
        """Returns the program for all values of the changing extents; the others are those of `known`.

        replaced: as of `OpenProgram`.
        """
        fixed = {name: n for name, n in known.items() if name not in changing}
        return OpenProgram(self, partial(self._fits, fixed), self.placements, replaced)

    def _fits(self, fixed: Mapping[str, int], given: Mapping[str, int]) -> bool:
        return not self._fails and all(given.get(name) == n for name, n in fixed.items())
