"""Runs a lowered module on a device: allocates memory, binds launches, and replays a graph per set of addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from threading import RLock
from typing import Any, TypeVar

from mgx_core import Argument, CompileOptions, Module, Runner
from mgx_core.errors import DeviceError
from mgx_core.run.arguments import OUTPUT
from mgx_core.targets.marking import mark_extents, static_extents
from mgx_core.targets.runner import Timing
from mgx_core.targets.schedule import Schedule, SegmentSchedule
from mgx_core.targets.segment_interpreter import SegmentInterpreter
from mgx_core.types.memory_limit import ALIGNMENT

from .bound_steps import BoundStep, loaded_functions, required_alignment
from .compile.build import build
from .continuation_run import ContinuationRun
from .device_segments import KEEPING, worth_launches
from .emitter import GpuEmitter
from .graph_cache import GRAPHS, GraphCache, enqueue
from .runtime import DeviceArray
from .saved_code import Kept, keep_code
from .staging import Staging, device_arrays, overlapping
from .step_sources import StepSource, kernel_steps
from .steps import CalledStep
from .timing import enqueue_marked, least_seconds, repeated_seconds, timings
from .watch import DeviceWatch
from .watched_graphs import WatchedGraphs, fallback_inputs

__all__ = ["GpuRunner"]

T = TypeVar("T")


class GpuRunner(Runner):
    """Executable form of a lowered module.  It owns the arena, so only one run is in flight at a time (`lock`)."""

    def __init__(
        self,
        schedule: Schedule,
        emitter: GpuEmitter,
        options: CompileOptions,
        kept: Kept | None = None,
        *,
        inner: bool = False,
    ) -> None:
        """emitter: the one that built the schedule; kept: compiled kernels from a file; inner: a part behind a border, whose
        results stay in memory that its next run overwrites and which compiles nothing ahead of time."""
        self.schedule = schedule
        self.module = module = schedule.module
        self.context = emitter.context
        self.emitter = emitter
        self.kept = kept
        self.inner = inner
        self.device = self.context.device
        self.offload_copy = options.offload_copy and not inner
        self.overlap = self.device.properties.dependent_launches
        self.parameters = list(module.parameters.values())
        self.lock = RLock()
        self.options = options
        self.wanted, self.outputs = schedule.split.wanted, schedule.outputs
        self.continuation = emitter.continuation
        self.rest = [] if self.continuation is not None else schedule.split.rest
        self._segments = SegmentInterpreter(self._segment, worth=worth_launches, keeping=KEEPING)
        self.inputs = [v for v in schedule.inputs if v is not None and v.buffer.first >= 0]
        self.continuation_run = None if self.continuation is None else ContinuationRun(self, self.continuation)
        self.whole = schedule.whole and self.continuation is None
        self.hosted = [s for s in schedule.steps if isinstance(s, CalledStep)]
        self._allocate()
        self._load(kept)
        held = [v.buffer for v in (*self.inputs, *self.outputs)]
        self.graphs = GraphCache(schedule.steps, self.device, self.functions, self.addresses, held, self.overlap)
        self.fallback: GpuRunner | None = None  # keeps the memory of the fallback steps alive
        self._prepare()

    # construction

    def continued(self, module: Module) -> GpuRunner:
        """Returns the runner of a continuation module."""
        emitter = self.emitter.fresh()
        return GpuRunner(emitter.schedule(module), emitter, self.options, self.kept, inner=True)

    def continued_whole(self, module: Module) -> GpuRunner | None:
        """Returns the same; None if it needs the host."""
        runner = self.continued(module)
        return runner if runner.whole and not runner.hosted else None

    def _prepare(self) -> None:
        """Compiles the continuation ahead of time, for the largest extents.

        Only for whole programs: parts behind a border get a runner per set of extents during a run.
        """
        if self.continuation is None or not self.continuation.outputs:
            return
        ahead = self.continuation.whole(self.continued_whole)
        if ahead is None:
            if self.inner:
                return
            from .offline import OfflineRunner

            after = self.continuation.largest()
            if after is None:
                return
            emitter = self.emitter.fresh()
            ahead = OfflineRunner(emitter.schedule(after), emitter, self.options, self.kept)
        self.step_sources += ahead.step_sources
        self.codes += ahead.codes
        self.schedule.segments.append(SegmentSchedule(self.schedule.split.rest, ahead.schedule))

    def _allocate(self) -> None:
        self.device.activate()
        self.arena = self.device.allocate(max(self.schedule.peak, ALIGNMENT))
        self.addresses: dict[int, int] = {id(b): self.arena.address + b.offset for b in self.schedule.buffers}
        constants = {id(b): b.array for b in self.schedule.literals if b.array is not None}
        self.weights = self.context.constants.uploaded(list(constants.values()), self.device)
        self.addresses.update((n, part.address) for n, part in zip(constants, self.weights, strict=True))
        self.staging = Staging(self.device, self.inputs, self.outputs, required_alignment(self.schedule.steps))
        self.addresses.update(self.staging.addresses)

    def saved(self, keep: Any) -> dict[str, Any]:
        """Returns the runner's part of a program file."""
        return keep_code(self.step_sources, self.codes, self.context, self.schedule.choices)

    def _load(self, kept: Kept | None) -> None:
        kernels = kernel_steps(self.schedule.steps)
        self.step_sources = [StepSource(s) for s in kernels]
        self.codes = build(self.step_sources, self.device.arch, kept=kept, loaded=self.context.codes)
        self.functions = loaded_functions(self.device, kernels, self.codes)

    def watching(self, watch: Any, spare: Any, given: Sequence[Any]) -> GpuRunner | None:
        """Returns itself, with conditional graphs; None if either program needs the host or has unsuitable memory."""
        both = (self, spare) if isinstance(spare, GpuRunner) else ()
        if not isinstance(watch, DeviceWatch) or not both or not all(r.whole and not r.hosted for r in both):
            return None
        read = fallback_inputs(spare.staging, self.staging, given)
        if read is None:
            return None
        self.graphs = WatchedGraphs(self.graphs, self.staging, watch, spare.graphs, read)
        self.fallback = spare
        return self

    # running

    @property
    def specialized(self) -> int:
        return 0 if self.continuation is None else self.continuation.specialized

    def run(self, args: Sequence[Any]) -> list[Any]:
        if self.continuation_run is not None:
            return self.continuation_run.run(args)
        if not self.whole:
            return self._run_mixed(args)
        if self.inner:
            with self.lock:
                self._kept = self.start(args)
                return [self.staging.staged(n) for n in range(len(self.outputs))]
        return self._run_device(args, self.offload_copy, range(len(self.outputs)))

    def run_some(self, args: Sequence[Any], wanted: Sequence[int]) -> list[Any]:
        """Returns some results; the others are not copied, if the whole program runs on the device."""
        if self.continuation_run is not None or not self.whole:
            return super().run_some(args, wanted)
        return self._run_device(args, self.offload_copy, wanted)

    def time(self, args: Sequence[Any], runs: int, warmup: int) -> list[Timing] | None:
        """Returns the device time of each instruction; None for programs that involve the host."""
        if not self.whole or self.hosted:
            return None
        return self._timed(args, lambda steps: timings(steps, self.device, runs, warmup))

    def seconds(self, args: Sequence[Any], runs: int) -> float:
        """Returns device seconds per run, over consecutive runs in one graph; wall time if the host is involved."""
        if not self.whole or self.hosted:
            return super().seconds(args, runs)
        return self._timed(args, lambda steps: repeated_seconds(steps, self.device, runs))

    def least_seconds(self, args: Sequence[Any], rounds: int, seconds: float, most: int) -> float:
        """Returns the minimum of device seconds per run over several rounds; see `timing.least_seconds`."""
        if not self.whole or self.hosted:
            return min(super(GpuRunner, self).seconds(args, 1) for _ in range(rounds))
        return self._timed(args, lambda steps: least_seconds(steps, self.device, rounds, seconds, most))

    def _timed(self, args: Sequence[Any], measure: Callable[[Sequence[BoundStep]], T]) -> T:
        """Returns what `measure` returns for the bound steps of a run on these arguments."""
        with self.lock:
            kept = self.start(args)
            self.device.default_stream.wait()
            given, _ = self.staging.stage(args, self.device.default_stream)
            made = measure(self.graphs.lookup(given, {}).steps)
            del kept
            return made

    def mark(self, args: Sequence[Any], begin: Callable[[str], None], end: Callable[[], None]) -> int:
        """Marks the launches of each instruction with profiler ranges; programs that involve the host get one range."""
        if not self.whole or self.hosted:
            return super().mark(args, begin, end)
        with self.lock:
            stream = self.device.default_stream
            kept = self.start(args)
            given, _ = self.staging.stage(args, stream)
            count = enqueue_marked(self.graphs.lookup(given, {}).steps, stream, begin, end)
            stream.wait()
            del kept
            return count

    def _run_device(self, args: Sequence[Any], offload_copy: bool, wanted: Sequence[int]) -> list[Any]:
        with self.lock:
            kept = self.start(args)
            results = [self.staging.result(n, offload_copy) for n in wanted]
            try:
                self.device.default_stream.wait()
            except DeviceError as error:
                raise error.located(f"a run of {len(self.schedule.steps)} kernels") from None
            del kept
            return results

    def start(self, args: Sequence[Any]) -> list[Any]:
        """Enqueues a run; returns the objects that must stay alive until it has finished."""
        self.device.activate()
        stream = self.device.default_stream
        given, kept = self.staging.stage(args, stream)
        self.graphs.execute(given, {}, stream)
        return kept

    def run_async(self, args: Sequence[Any], stream: int, places: Mapping[int, Any]) -> list[Any]:
        """Enqueues on the caller's stream; results are in the caller's memory, or in memory that the next run overwrites."""
        caller = self.device.stream(stream) if stream else self.device.default_stream
        if not self.whole or self.hosted:
            caller.wait()  # the arguments may still be being written
            return self.run(args)
        places = self.staging.typed(places)
        with self.lock:
            self.device.activate()
            given, kept = self.staging.stage(args, caller)
            self._kept = kept
            overlaps = overlapping(device_arrays(args))
            direct = {n: p.address for n, p in places.items() if self.staging.fits(n, p) and not overlaps(p)}
            if self.graphs.is_varying(given, direct):
                self.staging.copy(given, caller)
                given, direct = {}, {}
            self.graphs.execute(given, direct, caller)
            for n, place in places.items():
                if n not in direct:
                    held = self.staging.memory["output", n]
                    caller.copy(place.address, held.address, self.outputs[n].buffer.bytes)
            return self.staging.results(places, stream)

    def enqueued(self, args: Sequence[Any], places: Mapping[int, Any]) -> list[Any] | None:
        """Enqueues on the default stream; a graph is captured when a set of addresses occurs for the second time."""
        if self.continuation_run is not None or not self.whole or self.hosted:
            return None
        with self.lock:
            self.device.activate()
            given, self._kept = self.staging.stage(args, self.device.default_stream)
            results = [self.staging.destination(n, places.get(n)) for n in range(len(self.outputs))]
            direct = {n: result.address for n, result in enumerate(results)}
            self.graphs.execute_lazily(given, direct, self.device.default_stream)
            return results

    def repeated(
        self, values: Sequence[Any], places: Mapping[int, Any]
    ) -> Callable[[Mapping[str, Any], int], list[Argument]] | None:
        """Returns `run_async` for arguments at these addresses: one launch of the cached graph; None if there is none."""
        enqueued = self.queued(values, places)
        if enqueued is None:
            return None
        lock = self.lock
        named = {f"{OUTPUT}{n}": n for n in places}
        outputs: dict[int, list[Argument]] = {}

        def again(parameters: Mapping[str, Any], stream: int) -> list[Argument]:
            results = outputs.get(stream)
            if results is None:
                if len(outputs) >= GRAPHS:
                    outputs.clear()
                results = outputs[stream] = [Argument.from_value(v) for v in self.staging.results({}, stream)]
            results = results.copy()
            for name, n in named.items():  # created per call: cached objects must not keep the caller's memory alive
                results[n] = self.staging.wrap(n, places[n], parameters[name])
            with lock:
                enqueued(stream)
                self._kept = list(parameters.values())
            return results

        places = {n: p.address for n, p in places.items()}
        return again

    def queued(self, values: Sequence[Any], places: Mapping[int, Any]) -> Callable[[int], None] | None:
        """Returns the launch of the graph cached for these addresses; None if there is none."""
        if not self.whole or self.hosted or len(self.staging.typed(places)) < len(places):
            return None
        if not all(self.staging.fits(n, p) for n, p in places.items()):
            return None
        if not all(
            isinstance(v, DeviceArray) and v.address % self.staging.input_align.get(n, 1) == 0
            for n, v in enumerate(values)
        ):
            return None
        used = {v.buffer.index: values[v.buffer.index].address for v in self.inputs}
        with self.lock:  # a concurrent run may evict this graph
            found = self.graphs.lookup(used, {n: p.address for n, p in places.items()})
        if found.graph is None:
            return None
        launch, activate, lock, device = found.graph.launch, self.device.activate, self.lock, self.device

        def enqueued(stream: int) -> None:
            with lock:
                activate()
                if stream and device.stream(stream).captured():
                    enqueue(found.eager, stream)
                else:
                    launch(stream)

        return enqueued

    def _run_mixed(self, args: Sequence[Any]) -> list[Any]:
        on_host = [a.to_host() if isinstance(a, DeviceArray) else a for a in args]
        values = self._run_device(args, True, range(len(self.outputs))) if self.outputs else []
        made = dict(zip(self.wanted, values, strict=True))
        return self._segments.finish(self.module, self.emitter.items, on_host, made)

    def _segment(self, module: Module) -> GpuRunner:
        """Returns the runner of a segment between host ops, whose arguments and results are in host memory."""
        mark_extents(module, static_extents(self.module), self.context.target.instance_shape)
        emitter = self.emitter.fresh()
        return GpuRunner(emitter.schedule(module), emitter, replace(self.options, offload_copy=True), self.kept)
