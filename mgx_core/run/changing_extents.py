"""Programs whose extents keep changing: compiled once for all values of these extents, or split into pieces."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ..cache import Recent
from ..errors import MgxError
from ..ir.symbols import learn_all
from ..options import CompileOptions
from ..targets.target import Target
from ..types.memory_limit import limited
from ..types.shape import AnyShape
from ..types.traced_int import SMALLEST
from .instance import Instance

if TYPE_CHECKING:
    from ..ir.module import Module
    from ..targets.lowered import Lowered
    from ..targets.open_program import OpenProgram
    from .argument_cache import ArgumentKey
    from .device_pieces import DeviceMemory
    from .open_instance import OpenInstance
    from .open_pieces import OpenPart
    from .pieces import Pieces

__all__ = ["ATTEMPTS", "WHOLE", "ChangingExtents"]

WHOLE: Final = 3  # instances of the whole program before it is opened or split
SPLITS: Final = 4  # sets of changing extents for which the pieces of a program are kept
OPEN: Final = 8  # most programs that take changing extents as arguments
ATTEMPTS: Final = 3  # failed ones to make such a program


class ChangingExtents:
    """Decides how an executable runs for new shapes once its extents keep changing.

    Only the latest sets of shapes count: the length of a prompt differs from that of the steps after it, which stays the same.
    parameters: the declared types; lower: lowers the module for types of the parameters; part: compiles a piece of the module,
    which takes the extents of these symbols as arguments; opens: of such a piece, these symbols, None for a whole program.
    """

    def __init__(
        self,
        module: Callable[[], Module],
        parameters: Mapping[str, AnyShape],
        target: Target,
        context: Any,
        options: CompileOptions,
        lower: Callable[[Mapping[str, AnyShape]], Lowered],
        part: Callable[[Module, frozenset[str]], OpenPart],
        opens: frozenset[str] | None,
    ) -> None:
        self._module = module
        self._parameters = parameters
        self._target = target
        self._context = context
        self._options = options
        self._lower = lower
        self._part = part
        self._opens = opens
        self._count = 0  # sets of shapes that occurred
        self._latest: deque[dict[str, Any]] = deque(maxlen=WHOLE + 1)  # their extents by symbol
        self._pieces_of: Recent[tuple[Pieces | None]] = Recent(SPLITS)  # by the changing extents; None: not split
        self._open: list[OpenInstance] = []
        self._not_opened: dict[frozenset[str], int] = {}  # times that the target had no program, by the extents
        self._lock = threading.RLock()

    @property
    def opened(self) -> bool:
        """True if there is a program that takes changing extents as arguments."""
        return bool(self._open)

    @property
    def closed(self) -> bool:
        """True if there was once no program that takes the changing extents as arguments."""
        return bool(self._not_opened)

    def note(self, given: Mapping[str, AnyShape]) -> dict[str, Any]:
        """Records a set of types of the parameters; returns its extents by symbol."""
        known: dict[str, Any] = {}
        learn_all([self._parameters[n] for n in given], given.values(), known)
        with self._lock:
            self._latest.append(known)
            self._count += 1
        return known

    def open_for(self, key: ArgumentKey) -> Instance | None:
        """Returns the instance that takes the extents of arguments as its own arguments, if they are valid."""
        return next((opened.instance for opened in self._open if opened.takes(key)), None)

    def instance(self, given: Mapping[str, AnyShape], lowered: Lowered, whole: Callable[[], Instance]) -> Instance:
        """Returns an instance for types of the parameters that have not occurred.

        lowered: for these types; whole: compiles the program for them alone.
        """
        known = self.note(given)
        if any(opened.repeats(known) for opened in self._open):
            return whole()
        changing = self._opens or self._changing(known)
        if not self._opens and self._count <= WHOLE:
            return whole()
        opened = self._opened(given, known, changing, lowered)
        if opened is not None:
            return opened
        pieces = self._in_pieces(changing)
        if pieces is None:
            return whole()
        from .pieces import LoweredPieces, PiecesRunner

        runner = PiecesRunner(pieces, whole)
        return Instance(given, runner, LoweredPieces(lowered, lambda: runner.ran), self._module(), transient=True)

    def _changing(self, known: Mapping[str, Any]) -> frozenset[str]:
        """Returns the symbols that have had several values in the latest sets."""
        with self._lock:
            return frozenset(name for name, n in known.items() if any(k.get(name, n) != n for k in self._latest))

    @property
    def _waits(self) -> bool:
        """True if the program is optimized once more when its shapes are known."""
        return self._selects or self._needs_ranks

    @property
    def _selects(self) -> bool:
        """True if shapes select modules of the program."""
        from ..compile.shape_specialization import selects_modules

        return bool(self._module().derive(selects_modules.__name__, selects_modules))

    @property
    def _needs_ranks(self) -> bool:
        """True if extents decide ranks, or branches."""
        from ..compile.shape_specialization import needs_shapes

        return bool(self._module().derive(needs_shapes.__name__, needs_shapes))

    @property
    def _ends_in_branch(self) -> bool:
        """True if the program has results of the rank that a branch decides."""
        from .branch_pieces import deciding_rank

        return deciding_rank(self._module()) is not None

    # programs for all values of the changing extents

    def _opened(
        self, given: Mapping[str, AnyShape], known: Mapping[str, Any], changing: frozenset[str], lowered: Lowered
    ) -> Instance | None:
        """Returns the instance that takes the changing extents as arguments, if the target has one for these shapes.

        known: their extents by symbol; lowered: for these shapes, for reports.
        """
        with self._lock:
            for opened in self._open:
                if opened.program.fits(known):
                    return opened.instance
            if not self._target.opens_programs or self._options.exhaustive_tune or self._selects:
                return None
            changing = frozenset(name for name in changing if known.get(name, 0) >= SMALLEST)
            if not changing or len(self._open) >= OPEN or self._not_opened.get(changing, 0) >= ATTEMPTS:
                return None
            made = None
            with suppress(MgxError), limited(self._options.limit_bytes):  # the program is compiled for these extents
                if self._needs_ranks or self._ends_in_branch:
                    made = self._open_ranks(known, changing)
                else:
                    made = self._target.open_program(self._parameters, known, changing, self._lower)
            if not self._needs_ranks:
                made = made or self._open_pieces(known, changing)
            if made is None:
                self._not_opened[changing] = self._not_opened.get(changing, 0) + 1
                return None
            from .open_instance import OpenInstance
            from .pieces import LoweredPieces

            placed = LoweredPieces(lowered, lambda: [made])
            instance = Instance(given, made.runner, placed, self._module(), transient=True)
            self._open.append(OpenInstance(made, instance, self._parameters))
            return instance

    def _open_pieces(self, known: Mapping[str, int], changing: frozenset[str]) -> OpenProgram | None:
        """Returns the program split where values decide extents, of which all pieces take them as arguments."""
        if self._opens is not None:
            return None
        from .open_pieces import OpenPieces

        failed = self._failing(changing)
        return OpenPieces.program(self._module(), known, changing, self._part, failed, self._memory())

    def _open_ranks(self, known: Mapping[str, int], changing: frozenset[str]) -> OpenProgram | None:
        """Returns the program with the ranks that extents from two on decide."""
        if self._opens is not None:
            return None
        from .open_ranks import open_ranks

        on = self._target, self._context, self._options
        return open_ranks(self._module(), known, changing, *on, self._part, self._failing(changing), self._memory())

    def _failing(self, changing: frozenset[str]) -> Callable[[], None]:
        """Returns what to call once a program for these extents was compiled for single ones."""

        def failed() -> None:
            self._not_opened[changing] = ATTEMPTS

        return failed

    def _memory(self) -> DeviceMemory | None:
        """Returns what keeps the values of pieces on a target with its own memory; None for other targets."""
        if not self._target.own_memory:
            return None
        from .device_pieces import DeviceMemory

        return DeviceMemory(self._context, self._options.offload_copy)

    # programs in pieces

    def _piece(self, body: Module) -> OpenPart:
        """Compiles a part of the module for values of any shapes."""
        return self._part(body, frozenset())

    def _in_pieces(self, changing: frozenset[str]) -> Pieces | None:
        """Returns the program in pieces if only a small part depends on the changing extents."""
        if self._opens is not None or (self._target.own_memory and not self._target.runs_pieces):
            return None
        from .pieces import Pieces

        with self._lock:
            found = self._pieces_of.get(changing)
            if found is None:
                pieces = None if self._waits else Pieces.of(self._module(), changing, self._piece, self._memory())
                found = self._pieces_of.put(changing, (pieces,))
            return found[0]
