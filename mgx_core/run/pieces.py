"""Splits programs whose shapes keep changing into pieces, so that only pieces that depend on a changed extent are recompiled.

A decoder that generates text reads a longer cache at each step, and compiling the whole program for each length would take
longer than running it.  The module is split where values start and stop depending on the extents that were observed to change:
pieces that do not depend on them are compiled once, and equal pieces (the attention of each layer) once for all layers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, Final, Protocol

from ..errors import MgxError
from ..ir.equality import Classes
from ..ir.extract import extract
from ..ir.instruction import Instruction
from ..ir.interpreter import Interpreter
from ..ir.module import Module, within
from ..ir.ordering import reads
from ..ir.symbols import introduced, mentioned
from ..named_tuples import NamedTuple
from ..ops.control import FusedReduce, GetTupleElem, PointwiseGroup
from ..ops.elementwise import Pointwise
from ..ops.fill import DimensionsOf, DynamicRange
from ..ops.reduce import Reduce
from ..targets.lowered import Lowered
from ..targets.placement import Placement
from ..targets.runner import Runner, Timing
from ..targets.static_part import given
from ..types.argument import Argument, Value
from ..types.shape import AnyShape, Shape, symbols_in
from ..types.symbol_binding import bind_all
from .binding import owned
from .counting import counting
from .device_pieces import DeviceMemory
from .instance import Instance
from .partition import in_parts
from .piece_extents import take_extents
from .piece_values import PieceValues

__all__ = ["LoweredPieces", "PieceRunner", "Pieces", "PiecesRunner"]

RUNS: Final = 8  # runs in pieces with equal shapes before the whole program is compiled for them
LESS: Final = 3  # at most one instruction in this many may be in pieces that are recompiled for new shapes

FEW: Final = 1 << 14  # most elements of a piece that numpy computes faster than it could be compiled


class PieceRunner(Protocol):
    """The runner of a piece, for reports."""

    @property
    def placements(self) -> Sequence[Placement]: ...


class Part(Protocol):
    """Runs a piece."""

    def ready(self, known: Mapping[str, int]) -> None:
        """Compiles the piece for the values of symbols, unless an extent remains unknown."""
        ...

    def run(self, values: Sequence[Value], places: Mapping[int, Value]) -> tuple[list[Value], PieceRunner]:
        """Returns results and the runner.  places: optional memory for results, by index; may be ignored."""
        ...


class _ByDefinition:
    """Interprets a piece that computes extents, positions or masks with few elements, instead of compiling it."""

    def __init__(self, body: Module) -> None:
        self._body = body
        self._parameters = [p.result for p in body.parameters.values()]
        self._computed = [i for i in body if not given(i)]
        self._interpreter = Interpreter()
        self._count = counting(body)
        self._sized = [i for i in self._computed if not introduced(i)]  # the others define extents by values
        self._fits = self.fits_extents({}) if not any(i.result.dynamic() for i in self._sized) else None
        # of the other parameters, only the extents are read
        self.reads = [not all(isinstance(u.op, DimensionsOf) for u in p.users) for p in body.parameters.values()]

    def fits(self, values: Sequence[Value]) -> bool:
        """Returns False if there are too many elements."""
        if self._fits is not None:
            return self._fits
        known: dict[str, int] = {}
        bind_all(self._parameters, values, known)
        return self.fits_extents(known)

    def fits_extents(self, known: Mapping[str, int]) -> bool:
        """Like `fits`, for the values of symbols."""
        left = FEW
        for ins in self._sized:
            found = ins.result.substitute(known)
            left -= found.elements() if isinstance(found, Shape) and found.ranked and not found.dynamic() else FEW + 1
            if left < 0:
                return False
        return True

    def run(self, values: Sequence[Value]) -> list[Value]:
        results = None if self._count is None else self._count(values)
        return self._interpreter.run(self._body, values) if results is None else results

    @property
    def placements(self) -> list[Placement]:
        why = ("few elements, with extents that change",)
        return [Placement(repr(i.op), i.sources, "host", f"reference {i.op.name}", why) for i in self._computed]


class _Piece(NamedTuple):
    """A part of the module with its runner.

    small: interprets it if it has few elements; takes, gives: indices of its inputs and results; done: of values whose last
    reader it is.
    """

    part: Part
    small: _ByDefinition | None
    takes: list[int]
    gives: list[int]
    done: list[int]

    def ready(self, known: Mapping[str, int]) -> None:
        """Compiles it for the values of symbols, unless it is interpreted."""
        if self.small is None or not self.small.fits_extents(known):
            self.part.ready(known)

    def run(self, values: PieceValues) -> PieceRunner:
        """Computes results from `values` and adds them; returns the runner."""
        by: PieceRunner
        if self.small is not None and self.small.fits(values.get(self.takes)):
            results, by = self.small.run(values.on_host(self.takes, self.small.reads)), self.small
        else:
            results, by = self.part.run(values.on_target(self.takes), values.places(self.gives))
        values.store(self.gives, results)
        values.drop(self.done)
        return by


class Pieces:
    """The pieces of a module in execution order.

    parameters: types of the module's parameters, whose values have the first indices; outputs: indices of its results; count:
    number of all values; memory: device memory kept between runs, on targets with their own memory.
    """

    def __init__(
        self,
        pieces: Sequence[_Piece],
        parameters: Sequence[AnyShape],
        outputs: Sequence[int],
        count: int,
        memory: DeviceMemory | None,
    ) -> None:
        self._pieces = list(pieces)
        self._parameters = list(parameters)
        self._outputs = list(outputs)
        self._count = count
        self._memory = memory

    def __len__(self) -> int:
        return len(self._pieces)

    @property
    def fresh(self) -> bool:
        """True if results are those of compiled pieces, once each, which own their memory."""
        compiled = {n for piece in self._pieces if piece.small is None for n in piece.gives}
        return len(set(self._outputs)) == len(self._outputs) and compiled.issuperset(self._outputs)

    @property
    def on_device(self) -> bool:
        """True if values are passed between pieces in device memory."""
        return self._memory is not None

    def ready(self, args: Sequence[Value]) -> None:
        """Compiles the pieces for the shapes of arguments, except those with data-dependent extents."""
        known: dict[str, int] = {}
        bind_all(self._parameters, args, known)
        for piece in self._pieces:
            piece.ready(known)

    def run(self, args: Sequence[Value]) -> tuple[list[Value], list[PieceRunner]]:
        """Returns the module's results and the runners of the pieces."""
        if self._memory is None:
            return self._run(PieceValues(args, self._count))
        with self._memory.values(args, self._count) as values:
            return self._run(values)

    def _run(self, values: PieceValues) -> tuple[list[Value], list[PieceRunner]]:
        ran = [piece.run(values) for piece in self._pieces]
        return values.results(self._outputs), ran

    @classmethod
    def of(
        cls,
        module: Module,
        changing: frozenset[str],
        make: Callable[[Module], Part],
        memory: DeviceMemory | None = None,
        open: bool = False,
    ) -> Pieces | None:
        """Splits an optimized module; returns None if too much of it would be recompiled for each set of shapes.

        make: compiles a piece; memory: keeps values of fixed extents at fixed addresses; open: the piece after the instructions
        that decide extents takes these as arguments and is not recompiled.
        """
        divided = _divided(module, changing, open)
        if divided is None or (memory is not None and not all(isinstance(o.result, Shape) for o in module.outputs)):
            return None
        numbers = {p: n for n, p in enumerate(module.parameters.values())}
        made: dict[_Key, tuple[Part, _ByDefinition | None]] = {}
        pieces = []
        for key, piece in divided:
            if not piece.gives:  # only its extents were used, which other pieces get from symbols
                continue
            if key not in made:
                small = _ByDefinition(piece.body) if key.kind is _Kind.COUNTED else None
                made[key] = make(piece.body), small
            gives = [numbers.setdefault(r, len(numbers)) for r in piece.gives]
            pieces.append(_Piece(*made[key], [numbers[t] for t in piece.takes], gives, []))
        outputs = [numbers[o] for o in module.outputs]
        last = {n: one for one in pieces for n in (*one.takes, *one.gives)}
        for n, one in last.items():
            if n not in outputs and n >= len(module.parameters):
                one.done.append(n)
        if memory is not None:
            memory.keep({n for ins, n in numbers.items() if changing.isdisjoint(symbols_in(ins.result))})
        return cls(pieces, [p.result for p in module.parameters.values()], outputs, len(numbers), memory)


class _Extracted(NamedTuple):
    """A piece as a module, the values that are its parameters, and those that it returns."""

    body: Module
    takes: list[Instruction]
    gives: list[Instruction]


def _touches(ins: Instruction, changing: frozenset[str]) -> bool:
    """Returns True if an instruction's result, operands or attributes have a changing extent."""
    shapes = (ins.result, *(i.result for i in ins.inputs))
    own = ins.op.symbols().union(*map(symbols_in, shapes))
    return not changing.isdisjoint(own | mentioned(within(ins)))


class _Kind(Enum):
    """Kinds of pieces: independent of changing extents; computed from extents and integers only; all others."""

    FIXED = 0
    COUNTED = 1
    CHANGING = 2


def _kind(ins: Instruction, changing: frozenset[str], kinds: Mapping[Instruction, _Kind]) -> _Kind:
    if not _touches(ins, changing):
        return _Kind.FIXED
    return _Kind.COUNTED if _counts(ins, lambda i: kinds.get(i) is _Kind.COUNTED) else _Kind.CHANGING


def _counts(ins: Instruction, counted: Callable[[Instruction], bool]) -> bool:
    """Returns True for simple ops on extents, integers, and operands that are counted."""
    simple = ins.op.exact or isinstance(ins.op, (PointwiseGroup, Pointwise, DynamicRange))
    if isinstance(ins.op, (FusedReduce, Reduce)):  # sums of masks
        simple = isinstance(ins.result, Shape) and ins.result.dtype.is_integer
    return (
        simple
        and not ins.op.control
        and all(
            i.is_absent
            or counted(i)
            or isinstance(ins.op, DimensionsOf)
            or (isinstance(i.result, Shape) and i.shape.dtype.kind in "iub")
            for i in ins.inputs
        )
    )


def _decided_first(
    computed: Sequence[Instruction],
    makers: Mapping[str, Instruction],
    needs: Callable[[Instruction], Iterable[Instruction]],
) -> list[list[Instruction]]:
    """Returns the instructions that decide extents, those that the extents decided by these decide, and so on; all others last.

    makers: the instructions that define extents; needs: as of `in_parts`.
    """
    level: dict[Instruction, int] = {}  # the number of decisions in a row before an instruction
    deciding = set(makers.values())
    for ins in computed:
        level[ins] = max((level[i] + (i in deciding) for i in needs(ins) if i in level), default=0)
    parts: list[list[Instruction]] = []
    left = set(computed)
    for depth in sorted({level[ins] for ins in deciding}):
        waiting, found = [ins for ins in deciding if level[ins] == depth], set[Instruction]()
        while waiting:
            ins = waiting.pop()
            if ins in left:
                left.remove(ins)
                found.add(ins)
                waiting += (*needs(ins), *(user for user in ins.users if isinstance(user.op, GetTupleElem)))
        parts.append([ins for ins in computed if ins in found])
    parts.append([ins for ins in computed if ins in left])
    return parts if all(parts) else []


class _Key(NamedTuple):
    """The key that equal pieces share, which are compiled once."""

    body: Hashable
    kind: _Kind


def _divided(module: Module, changing: frozenset[str], open: bool) -> list[tuple[_Key, _Extracted]] | None:
    """Returns the pieces of a module in execution order; None if it cannot be split, or too much of it would be recompiled.

    open: as in `Pieces.of`.
    """
    computed = [i for i in module if not given(i)]
    if any(i.op.effect and not i.is_return for ins in computed for i in (ins, *within(ins))):
        return None
    if not set(module.outputs) <= {*module.parameters.values(), *computed}:
        return None
    kinds: dict[Instruction, _Kind] = {}
    makers = {name: ins for ins in computed for name in introduced(ins)}  # of data-dependent extents
    changing = changing.union(makers)

    def kind(ins: Instruction) -> _Kind:
        kinds[ins] = found = _kind(ins, changing, kinds)
        return found

    def needs(ins: Instruction) -> list[Instruction]:
        extents = ins.op.symbols() | mentioned(within(ins))
        return [*reads(ins), *(makers[name] for name in extents if name in makers)]

    if open:
        parts = _decided_first(computed, makers, needs)
        for part in parts:
            inside = frozenset(part)
            counts = part is not parts[-1] and all(_counts(ins, inside.__contains__) for ins in part)
            kinds |= dict.fromkeys(part, _Kind.COUNTED if counts else _Kind.CHANGING)
    else:
        parts = in_parts(module, kind, needs)
    if len(parts) < 2:
        return None
    number = {ins: n for n, part in enumerate(parts) for ins in part}
    passed = {r for ins in computed for r in needs(ins) if number.get(r) != number[ins]} | set(module.outputs)
    sources = [*module.parameters.values(), *(i for i in dict.fromkeys(makers.values()) if i in passed)]
    cut = [_extracted(module, sources, part, passed, n) for n, part in enumerate(parts)]
    pieces = [piece for piece in cut if piece is not None]
    if len(pieces) < len(parts):
        return None
    classes = Classes()
    keys = [_Key(classes.key(p.body) or id(p.body), kinds[part[0]]) for p, part in zip(pieces, parts, strict=True)]
    if open:
        return list(zip(keys, pieces, strict=True))
    again = {key: len(part) for key, part in zip(keys, parts, strict=True) if key.kind is _Kind.CHANGING}
    if sum(again.values()) * LESS > sum(map(len, parts)):
        return None
    return list(zip(keys, pieces, strict=True))


def _extracted(
    module: Module,
    sources: Sequence[Instruction],
    part: Sequence[Instruction],
    passed: Container[Instruction],
    number: int,
) -> _Extracted | None:
    """Returns one piece as a module; None if an input or result is not a tensor or an extent cannot be determined.

    sources: values with the extents that pieces may mention; passed: values read by other pieces or returned by the module.
    """
    gives = [i for i in part if i in passed]
    body, takes = extract(part, gives, f"{module.name}:{number}")
    if not all(isinstance(i.result, Shape) for i in (*takes, *gives)):
        return None
    return _Extracted(body, takes, gives) if take_extents(body, takes, sources) else None


class LoweredPieces(Lowered):
    """The lowered form of a program in pieces: that of the whole program, with the placements of the pieces."""

    def __init__(self, whole: Lowered, ran: Callable[[], Sequence[PieceRunner]]) -> None:
        super().__init__(lambda: (whole.module, whole.records), lambda: whole.emitter, False)
        self._whole = whole
        self._ran = ran

    @property
    def plan(self) -> Any:
        return self._whole.plan

    @property
    def placements(self) -> Sequence[Placement]:
        return [p for by in self._ran() for p in by.placements] or self._whole.placements


class PiecesRunner(Runner):
    """Runs a program in pieces for one set of shapes, and compiles it whole after `RUNS` runs.

    whole: creates the instance of the whole program.
    """

    def __init__(self, pieces: Pieces, whole: Callable[[], Instance]) -> None:
        self._pieces = pieces
        self._make = whole
        self._whole: Instance | None = None
        self._ready = False
        self._runs = 0
        self._lock = threading.Lock()
        self.ran: list[PieceRunner] = []

    def run(self, args: Sequence[Value]) -> list[Value]:
        whole = self._whole
        if whole is not None:
            results = whole.runner.run(args)
            # the executable copies results that alias constants, but it does not know this instance's constants
            return results if whole.runner.fresh else owned(results, args, whole.literals)
        if self._pieces.on_device and not self._ready:  # before the lock that serializes runs is taken
            self._pieces.ready(args)
            self._ready = True
        results, self.ran = self._pieces.run(args)
        with self._lock:
            self._runs += 1
            often = self._runs == RUNS
        if often:
            with suppress(MgxError, MemoryError):  # continue in pieces
                self._compiled()
        return results

    # prepared, enqueued and timed runs use the whole program

    def run_async(self, args: Sequence[Value], stream: int, places: Mapping[int, Value]) -> list[Value] | None:
        return self._compiled().runner.run_async(args, stream, places) if self._pieces.on_device else None

    def repeated(
        self, args: Sequence[Value], places: Mapping[int, Value]
    ) -> Callable[[Mapping[str, Any], int], list[Argument]] | None:
        return self._compiled().runner.repeated(args, places)

    def queued(self, args: Sequence[Value], places: Mapping[int, Value]) -> Callable[[int], None] | None:
        return self._compiled().runner.queued(args, places) if self._pieces.on_device else None

    def time(self, args: Sequence[Value], runs: int, warmup: int) -> list[Timing] | None:
        return self._compiled().runner.time(args, runs, warmup)

    def seconds(self, args: Sequence[Value], runs: int) -> float:
        return self._compiled().runner.seconds(args, runs)

    def mark(self, args: Sequence[Value], begin: Callable[[str], None], end: Callable[[], None]) -> int:
        return self._compiled().runner.mark(args, begin, end)

    def _compiled(self) -> Instance:
        with self._lock:
            if self._whole is None:
                self._whole, self.ran = self._make(), []
            return self._whole
