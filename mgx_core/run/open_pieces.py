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
from .branch_pieces import RunPieces, in_branches
from .device_pieces import DeviceMemory
from .pieces import Part, PieceRunner, Pieces

__all__ = ["OpenPart", "OpenPieces"]


class OpenPart(Part, Protocol):
    """Runs a piece that takes changing extents as arguments."""

    @property
    def closed(self) -> bool:
        """True if it was compiled for single extents."""
        ...


class _Parts:
    """Compiles parts of a module for changing extents; arguments as of `OpenPieces.program`.

    memory: of the whole module, on targets with their own.
    open: the parts that take such extents as arguments; fresh: whether results own their memory.
    """

    def __init__(
        self,
        module: Module,
        changing: frozenset[str],
        make: Callable[[Module, frozenset[str]], OpenPart],
        memory: DeviceMemory | None = None,
    ) -> None:
        self._own = frozenset[str]().union(*(symbols_in(p.result) for p in module.parameters.values()))
        self._changing = changing
        self._make = make
        self._memory = memory
        self.open: list[OpenPart] = []
        self.fresh = True

    def compiled(self, body: Module) -> OpenPart:
        """Returns a part."""
        symbols = frozenset(name for name in _lone(body) if name in self._changing or name not in self._own)
        made = self._make(body, symbols)
        if symbols:
            self.open.append(made)
        return made

    def run(self, body: Module) -> RunPieces:
        """Returns what runs a module as one part, or split where values decide extents."""
        at = {p: n for n, p in enumerate(body.parameters.values())}
        if at.keys() >= set(body.outputs):  # a branch that passes values on
            self.fresh = False
            order = [at[o] for o in body.outputs]
            return lambda args: ([args[n] for n in order], [])
        if any(introduced(ins) for ins in body if not given(ins)):
            memory = None if self._memory is None else self._memory.of_part()
            pieces = Pieces.of(body, self._changing | _lone(body), self.compiled, memory, open=True)
            if pieces is not None:
                self.fresh &= pieces.fresh
                return pieces.run
        part = self.compiled(body)

        def run(args: Sequence[Value]) -> tuple[list[Value], Sequence[PieceRunner]]:
            results, by = part.run(args, {})
            return results, [by]

        return run


def _lone(body: Module) -> frozenset[str]:
    return frozenset[str]().union(*(lone_symbols(p.result) for p in body.parameters.values()))


def _on_device(run: RunPieces, count: int, memory: DeviceMemory) -> RunPieces:
    """Returns what runs a module with `count` results on values in device memory, and returns results that own their memory."""

    def run_there(args: Sequence[Value]) -> tuple[list[Value], Sequence[PieceRunner]]:
        with memory.values(args, len(args) + count) as values:
            taken = values.on_target(range(len(args)))
            results, ran = run(taken)
            at: dict[int, int] = {}
            for n, value in enumerate([*taken, *results]):
                at.setdefault(id(value), n)  # a result may be an argument, or another result
            values.store(range(len(args), len(args) + count), results)
            return values.results([at[id(v)] for v in results]), ran

    return run_there


class OpenPieces(Runner):
    """Runs pieces for any values of the changing extents.

    run: returns results, and what ran; parts: the pieces with such extents; failed: called once a piece was compiled for single
    extents; fresh: as of `Runner`.
    """

    def __init__(
        self,
        run: RunPieces,
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
        parts = _Parts(module, changing, make)
        pieces = Pieces.of(module, changing, parts.compiled, memory, open=True)
        if pieces is None:
            return None
        return cls(pieces.run, parts.open, failed, pieces.fresh).opened(known, changing)

    @classmethod
    def whole(
        cls,
        module: Module,
        changing: frozenset[str],
        make: Callable[[Module, frozenset[str]], OpenPart],
        failed: Callable[[], None],
        memory: DeviceMemory | None = None,
    ) -> OpenPieces:
        """Returns the runner of a module that is one piece, except that branches of different ranks are pieces.

        make, memory: as of `program`; failed: as in the constructor.
        """
        parts = _Parts(module, changing, make, memory)
        run = in_branches(module, parts.run)
        if run is None:
            return cls(parts.run(module), parts.open, failed, fresh=True)
        if memory is not None:
            return cls(_on_device(run, len(module.outputs), memory), parts.open, failed, fresh=True)
        outputs = set(module.outputs)
        own = len(outputs) == len(module.outputs) and outputs.isdisjoint(module.parameters.values())
        return cls(run, parts.open, failed, own and parts.fresh)

    def opened(self, known: Mapping[str, int], changing: frozenset[str], replaced: bool = False) -> OpenProgram:
        """Returns the program for all values of the changing extents; the others are those of `known`.

        replaced: as of `OpenProgram`.
        """
        fixed = {name: n for name, n in known.items() if name not in changing}
        return OpenProgram(self, partial(self._fits, fixed), self.placements, replaced)

    def _fits(self, fixed: Mapping[str, int], given: Mapping[str, int]) -> bool:
        return not self._fails and all(given.get(name) == n for name, n in fixed.items())
