"""Executables: optimized programs on a target, which run for any shapes of their parameters."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..cache import Recent
from ..errors import DeviceError, MgxError, ParameterError, PluginError, counted
from ..garbage import rarer_collections
from ..log import listen, log, timed, traced
from ..options import CompileOptions
from ..plugins.manager import manager
from ..targets.calls import failure
from ..targets.saved import SavedInstance
from ..targets.target import Target
from ..types.argument import Argument, Value
from ..types.memory_limit import limited
from ..types.shape import AnyShape
from ..types.symbol_binding import bind_all
from .argument_cache import ArgumentKey, argument_key
from .arguments import Arguments
from .binding import owned, tensor_type
from .instance import Instance
from .instances import Instances
from .instantiation import instance_shapes, instantiated

if TYPE_CHECKING:
    from ..compile.pipeline import PassRecord
    from ..ir.module import Module
    from ..targets.lowered import Lowered
    from ..targets.reuse import Reuse
    from ..targets.runner import Runner, Timing
    from .changing_extents import ChangingExtents
    from .open_pieces import OpenPart
    from .pieces import PieceRunner
    from .tracing import Traced, Tracer

NOTHING: Final[Mapping[str, Argument]] = {}
UNTOUCHED: Final[Mapping[str, int]] = {}
REPEATS: Final = 16  # cached prepared calls
# times that a program is compiled for numbers that runs have found, before it takes these as arguments
SPECIALIZED: Final = 3
INSTANCES: Final = 64  # cached instances of any program
# limits of small programs: cached instances, and their instructions in total (some kilobytes each)
MOST_INSTANCES: Final = 256
INSTRUCTIONS: Final = 30_000

__all__ = ["UNTOUCHED", "Executable"]


class Executable:
    """Result of `Program.compile`: the optimized module, its target, and an instance per set of input shapes.

    Instances are kept in a bounded LRU cache (option ``instances``).  Thread-safe.
    module: may be a function that loads it on first use; `parameters` is then required.
    """

    def __init__(
        self,
        module: Module | Callable[[], Module],
        target: Target,
        context: Any,
        options: CompileOptions,
        output_names: Sequence[str] = (),
        records: Sequence[PassRecord] | Callable[[], Sequence[PassRecord]] = (),
        saved: Sequence[SavedInstance] = (),
        parameters: Mapping[str, AnyShape] | None = None,
        overwritten: Mapping[str, int] = UNTOUCHED,
    ) -> None:
        self._module = module
        self._reuse: Reuse | None = None  # shared by the instances
        self.target = target
        self.context = context
        self.options = options
        self.output_names = list(output_names)
        self._records = records
        self.parameters: dict[str, AnyShape] = (
            {n: i.result for n, i in self.module.parameters.items()} if parameters is None else dict(parameters)
        )
        self.overwritten = dict(overwritten)
        self.notes: list[str] = []  # parts of a file or plugin that could not be used, and why
        # called after a run has compiled a new instance
        self.on_instance: Callable[[Executable], None] | None = None
        self._saved = {tuple(i.shapes.items()): i for i in saved}
        self._arguments = Arguments(
            self.parameters, target, context, None if options.offload_copy else lambda: self.module.output_shapes()
        )
        self._lock = threading.RLock()
        self._times_runs, self._shows_values = timed(), traced("run")
        self._watched = self._times_runs or self._shows_values
        if self._watched:
            listen()
        self._tracing: Recent[Traced] = Recent(options.instances or INSTANCES)
        self._repeats: dict[Any, Callable[[Mapping[str, Any], int], list[Argument]]] = {}
        self._changing: ChangingExtents | None = None  # created with the first instance of a dynamic program
        # of a piece of another program: the symbols of the extents that it takes as arguments
        self._opens: frozenset[str] | None = None
        # runs the program in pieces that take extents that values decide as arguments, once these have changed often
        self._selected: Runner | None = None
        self._selects = (  # until such pieces have been tried
            target.own_memory and target.opens_programs and not any(s.dynamic() for s in self.parameters.values())
        )
        self._instances = Instances(self.parameters, self._may_keep, self._instantiate, self._forget_repeats)

    @property
    def module(self) -> Module:
        """The optimized module."""
        if callable(self._module):
            with self._lock:
                if callable(self._module):
                    self._module = self._module()
        return self._module

    @module.setter
    def module(self, module: Module) -> None:
        self._module, self._reuse = module, None

    @property
    def records(self) -> list[PassRecord]:
        """The passes that produced the module."""
        return list(self._records() if callable(self._records) else self._records)

    @property
    def restored(self) -> bool:
        """True if every instance so far was restored from a file."""
        return bool(self._saved) and all(i.literals is None for i in self.instances())

    @property
    def output_places(self) -> dict[str, AnyShape]:
        """Shapes of the results by the names of the optional parameters that provide their memory.

        Empty if the program was compiled with ``offload_copy``: its results are new arrays in host memory.
        """
        return self._arguments.places

    @property
    def watches(self) -> bool:
        """True if parameters were compiled to constants whose memory the caller owns (see `Program.compile`)."""
        return False

    @property
    def outdated(self) -> bool:
        """True once a run has found that memory of constants was written to; always False if nothing is watched."""
        return False

    # running

    def run(
        self,
        parameters: Mapping[str, Any],
        held: Mapping[str, Argument] = NOTHING,
        wanted: Sequence[int] | None = None,
    ) -> list[Argument]:
        """Returns results in the model's order for values of all parameters by name.

        held: results of an earlier run, used for parameters that are missing in `parameters`; wanted: indices of the results
        to return, in this order, without duplicates; None: all.
        Errors: ParameterError for a missing or unknown name, a wrong dtype or a wrong shape.
        """
        known = None if self._watched else argument_key(parameters, self.parameters, held, self._taking())
        if known is not None:
            instance = self._instances.validated(known[0]) or self._open_for(known[0])
            if instance is not None:
                return [Argument.from_value(v) for v in self.run_values(known[1], instance, wanted)]
        if held and isinstance(parameters, Mapping):
            parameters = {**held, **parameters}
        values = self.bind(parameters)
        if self._watched:
            self._show(values)
        if len(parameters) > len(self.parameters):
            results = self._arguments.deliver(self.run_bound(values), self._arguments.places_in(parameters))
            return results if wanted is None else [results[n] for n in wanted]
        results = self.run_bound(values) if wanted is None else self.run_bound(values, wanted)
        if known is not None:
            self._instances.keep(*known, values)
        return results

    def _show(self, values: Sequence[Value]) -> None:
        """Logs every instruction's value and the duration of a run, as the environment variables request."""
        if self._shows_values:
            self._traced(values).run(values, lambda ins, value: log.debug("%r = %r", ins, value))
        if self._times_runs:
            start = time.perf_counter()
            self.run_bound(values)
            log.debug("run on %s in %.3f ms", self.target.name, (time.perf_counter() - start) * 1e3)

    def run_bound(self, values: Sequence[Value], wanted: Sequence[int] | None = None) -> list[Argument]:
        """Like `run`, for values returned by `bind`."""
        return [Argument.from_value(v) for v in self.run_values(values, None, wanted)]

    def run_values(
        self, values: Sequence[Value], instance: Instance | None = None, wanted: Sequence[int] | None = None
    ) -> list[Value]:
        """Like `run_bound`, without wrapping results in `Argument`; instance: that of the values' shapes, if known."""
        try:
            with limited(self.options.limit_bytes):
                instance = instance or self.instance(values)
                if wanted is not None and instance.checked and self._selected is None:
                    return self._some(values, instance, wanted)
                selected = self._selected
                results = (selected or instance.runner).run(values)
            if self._selects and instance.runner.specialized > SPECIALIZED:
                self._select()
            if selected is not None or not instance.fresh:
                instance.check(results, self.target, lambda: self.module.output_shapes())
                results = owned(results, values, instance.literals)
            return results if wanted is None else [results[n] for n in wanted]
        except MgxError:
            raise
        except Exception as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> MgxError:
        """Returns the error for an unexpected exception of the runner."""
        if isinstance(error, MemoryError):
            return DeviceError(f"out of memory at run time: {error}; try smaller shapes or fewer runs at once")
        return failure(self.target, "the runner", error)

    def addressed(self) -> Callable[[Sequence[int], Sequence[int]], None] | None:
        """Returns a function that runs on host memory, given the addresses of all parameters and all results, in order.

        For latency-critical callers: it checks nothing, so the memory must be contiguous and of the declared types.  Call `run`
        before, which checks the first results.  None if an extent is symbolic, memory is limited, or the runner has none.
        """
        if self.options.limit_bytes or any(s.dynamic() for s in self.parameters.values()):
            return None
        instance = self.instance([])
        call = instance.runner.addressed() if instance.fresh else None
        if call is None:
            return None

        def run(arguments: Sequence[int], results: Sequence[int]) -> None:
            try:
                call(arguments, results)
            except MgxError:
                raise
            except Exception as error:
                raise self._failure(error) from error

        return run

    def _some(self, values: Sequence[Value], instance: Instance, wanted: Sequence[int]) -> list[Value]:
        """Returns some results of an instance whose results need no more checks."""
        results: object = instance.runner.run_some(values, wanted)
        if not isinstance(results, (list, tuple)) or len(results) != len(wanted):
            raise PluginError(
                f"run_some of the runner of {self.target!r} must return {counted(len(wanted), 'value')}, got {results!r}"
            )
        return list(results) if instance.fresh else owned(results, values, instance.literals)

    def dry_run(self, parameters: Mapping[str, Any]) -> list[AnyShape]:
        """Binds arguments and compiles the instance without running it; returns the shapes of the results.  Errors: as `run`."""
        values = self.bind(parameters)
        self.instance(values)
        known: dict[str, int] = {}
        bind_all(self.parameters.values(), values, known)
        return [s.substitute(known) for s in self.module.output_shapes()]

    def run_trace(self, parameters: Mapping[str, Any], callback: Tracer) -> list[Argument]:
        """Like `run`, after calling ``callback(instruction, value)`` with each instruction of the optimized module in order.

        The values are copies in host memory.  For debugging: the first call compiles the program again, and every intermediate
        value has its own memory.
        """
        results, values = self.run(parameters), self.bind(parameters)
        self._traced(values).run(values, callback)
        return results

    def _traced(self, values: Sequence[Value]) -> Traced:
        """Returns the module that also outputs every instruction's value, with modules selected for the values' shapes."""
        from ..compile.shape_specialization import select_modules, selects_modules
        from .tracing import Traced

        selects = self.module.derive("selects modules", selects_modules)
        key = tuple(tensor_type(v) for v in values) if selects else ()
        found = self._tracing.get(key)
        if found is None:
            options = dataclasses.replace(self.options, offload_copy=True)
            shapes = dict(zip(self.parameters, key, strict=True)) if selects else {}
            module = select_modules(self.module.clone(parameters=shapes)) if selects else self.module
            found = Traced(module, lambda copy: Executable(copy, self.target, self.context, options).run_bound)
            self._tracing.put(key, found)
        return found

    def run_async(self, parameters: Mapping[str, Any], stream: int, stream_type: str) -> list[Argument]:
        """Like `run`, but enqueues on the caller's stream if the target's runner supports it; otherwise synchronous.

        Arguments with a `Target.descriptor` for which the runner prepares a call (`Runner.repeated`) are checked once.
        """
        key: Any = None
        if isinstance(parameters, Mapping):
            describe = self.target.descriptor
            key = tuple([(n, describe(v)) for n, v in parameters.items()])
            again = self._repeats.get(key)
            if again is not None:
                return again(parameters, stream)
        known = argument_key(parameters, self.parameters, NOTHING, self._taking()) if self._opened else None
        opened = None if known is None else self._open_for(known[0])
        if known is not None and opened is not None:
            values, runner = known[1], opened.runner
        else:
            values = self.bind(parameters)
            runner = self.instance(values).runner
        places = self._arguments.places_in(parameters) if len(parameters) > len(self.parameters) else {}
        enqueued = None if self._selected is not None else runner.run_async(values, stream, places)
        if enqueued is None:
            if self.target.own_memory:
                self.context.finish()  # the arguments may still be being written
            return self._arguments.deliver(self.run_bound(values), places)
        results = self._arguments.deliver([Argument.from_value(v) for v in enqueued], places)
        if key is not None and all(described is not None for _, described in key):
            again = runner.repeated(values, places)
            if again is not None:
                with self._lock:
                    while len(self._repeats) >= REPEATS:
                        self._repeats.pop(next(iter(self._repeats)), None)
                    self._repeats[key] = again
        return results

    def queued(self, parameters: Mapping[str, Any]) -> Callable[[int], None] | None:
        """Returns a function that enqueues `run_async` of these parameters on a stream; None if the target's runner has none.

        For latency-critical callers: parameters are checked only here, so their memory must stay valid for every call.  Results
        are written to the memory passed under the names of `output_places`.  Call `run_async` with these parameters first.
        Errors: as `run`.
        """
        values = self.bind(parameters)
        return self.instance(values).runner.queued(values, self._arguments.places_in(parameters))

    def _may_keep(self, count: int) -> bool:
        """Returns True if `count` instances may be cached."""
        if self.options.instances or count <= INSTANCES:
            return count <= (self.options.instances or INSTANCES)
        return not self.target.own_memory and count <= MOST_INSTANCES and count * len(self.module) <= INSTRUCTIONS

    def _forget_repeats(self) -> None:
        with self._lock:
            self._repeats.clear()  # prepared calls refer to instances

    def bind(self, parameters: Mapping[str, Any]) -> list[Value]:
        """Returns checked values in the order of the parameters.  Errors: as `run`."""
        return self._arguments.bind(parameters)

    def instance(self, values: Sequence[Value]) -> Instance:
        """Returns the instance for the shapes of these values; compiles it if it is new."""
        return self._noted(*self._instances.of(values))

    def instance_of(self, types: Sequence[AnyShape]) -> Instance:
        """Returns the instance for values of these types; compiles it if it is new."""
        return self._noted(*self._instances.of_types(tuple(types)))

    def _noted(self, found: Instance, made: bool) -> Instance:
        if made and self.on_instance is not None and found.literals is not None and not found.transient:
            self.on_instance(self)
        return found

    def restore_saved(self) -> bool:
        """Restores all instances of the program file; restores none and returns False if that would evict others."""
        return self._instances.restore([dict(k) for k in self._saved], self.parameters)

    @rarer_collections()
    def _instantiate(self, shapes: Mapping[str, AnyShape]) -> Instance:
        given = {n: s for n, s in shapes.items() if self.parameters[n].dynamic()}
        saved = self._saved.get(tuple(given.items()))
        lowered = self._lowered(given)

        def whole() -> Instance:
            return instantiated(
                given, lowered, saved, self.target, self.context, self.options, self.note, self.note_lost
            )

        if saved is not None or not given or self.overwritten or self.watches or self.options.validate:
            return whole()
        return self._changes().instance(given, lowered, whole)

    @property
    def _opened(self) -> bool:
        """True if a program takes changing extents as arguments."""
        return self._changing is not None and self._changing.opened

    def _taking(self) -> Callable[[Any], Value | None] | None:
        """Returns what takes tensors in the target's memory for the short way through a run; None for targets without any.

        Tensors of other libraries, which have to be imported, go this way only where it saves more than an import.
        """
        if not self.target.own_memory:
            return None
        return self._taken if self._opened else self._own

    def _taken(self, given: Any) -> Value | None:
        return self.target.accept(given, self.context)

    def _own(self, given: Any) -> Value | None:
        return self._taken(given) if hasattr(given, "device_shape") else None

    def _open_for(self, key: ArgumentKey) -> Instance | None:
        return None if self._changing is None else self._changing.open_for(key)

    def open_instance(self, values: Sequence[Value]) -> Instance | None:
        """Returns the instance that takes the extents of values as its own arguments."""
        if self._changing is None or not all(isinstance(v, np.ndarray) for v in values):
            return None
        return self._open_for(tuple([(v.dtype, v.shape) for v in values]))

    def _changes(self) -> ChangingExtents:
        """Returns what decides how new shapes run; the instances so far are those of a program file."""
        with self._lock:
            if self._changing is None:
                from .changing_extents import ChangingExtents

                self._changing = ChangingExtents(
                    lambda: self.module,
                    self.parameters,
                    self.target,
                    self.context,
                    self.options,
                    self._lowered,
                    self._part,
                    self._opens,
                )
                for restored in self.instances():
                    self._changing.note(restored.shapes)
            return self._changing

    def _part(self, body: Module, opens: frozenset[str]) -> OpenPart:
        """Compiles a part of the optimized module for values of any shapes, which takes extents of these symbols as arguments."""
        options = dataclasses.replace(self.options, offload_copy=False) if self.target.own_memory else self.options
        part = Executable(body, self.target, self.context, options)
        part._opens = opens
        return _ExecutablePiece(part)

    def _lowered(self, shapes: Mapping[str, AnyShape]) -> Lowered:
        from ..compile.plan import lower_module
        from ..targets.reuse import Reuse

        reuse = self._reuse = self._reuse or Reuse()
        shapes = instance_shapes(self.target, self.parameters, shapes)
        return lower_module(
            lambda: self.module, shapes, self.target, self.context, self.options, self.overwritten, reuse
        )

    def _select(self) -> None:
        """Cuts the program into pieces that take numbers found in a run as arguments, if the target has such programs."""
        from .device_pieces import DeviceMemory
        from .open_pieces import OpenPieces

        def failed() -> None:
            self._selected = None

        with self._lock:
            if not self._selects:
                return
            self._selects = False
            if self.overwritten or self.watches or self.options.validate or self.options.exhaustive_tune:
                return
            memory = DeviceMemory(self.context, self.options.offload_copy)
            with suppress(MgxError, MemoryError):  # continue to compile parts
                made = OpenPieces.program(self.module, {}, frozenset(), self._part, failed, memory)
                self._selected = None if made is None else made.runner

    def note_lost(self) -> None:
        """Notes extensions of plugins to targets and frontends that could not be loaded; logs each once per process."""
        plugins = manager()
        for text in plugins.lost("kernels", "passes", "rules", "converters"):
            if plugins.first_report(text):
                self.note(text)
            elif text not in self.notes:
                self.notes.append(text)

    def note(self, text: str) -> None:
        """Records and logs a warning for the user."""
        if text not in self.notes:
            self.notes.append(text)
            log.warning("%s", text)

    # inspecting

    def instances(self) -> list[Instance]:
        """Returns the cached instances, least recently used first."""
        return self._instances.all()

    def mark(self, parameters: Mapping[str, Any]) -> int:
        """Runs once with each instruction in a named range for the vendor's profiler; returns the number of ranges.

        Errors: UnsupportedError if the target's device has no profiler; DeviceError if its library is not installed.
        """
        begin, end = self.context.profiler_ranges()
        values = self.bind(parameters)
        return self.instance(values).runner.mark(values, begin, end)

    def time(self, parameters: Mapping[str, Any], runs: int = 10, warmup: int = 2) -> list[Timing]:
        """Returns each instruction's time over some runs.

        Errors: ParameterError if the target's runner does not time instructions.
        """
        values = self.bind(parameters)
        timings = self.instance(values).runner.time(values, runs, warmup)
        if timings is None:
            raise ParameterError(f"target {self.target.name!r} does not time instructions")
        return timings


class _ExecutablePiece:
    """Adapts an executable to the interface of a piece."""

    def __init__(self, part: Executable) -> None:
        self._part = part

    @property
    def closed(self) -> bool:
        return self._part._changing is not None and self._part._changing.closed

    def ready(self, known: Mapping[str, int]) -> None:
        types = [shape.substitute(known) for shape in self._part.parameters.values()]
        if not any(shape.dynamic() for shape in types):
            self._part.instance_of(types)

    def run(self, values: Sequence[Value], places: Mapping[int, Value]) -> tuple[list[Value], PieceRunner]:
        part = self._part
        instance = part.open_instance(values) or part.instance(values)
        results = instance.runner.enqueued(values, places) if part.target.own_memory else None
        if results is None:
            return part.run_values(values, instance), instance
        instance.check(results, part.target, part.module.output_shapes)
        return results, instance
