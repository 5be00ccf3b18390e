"""A stricter emulated device for tests: each value has an allocation of its own, accessible to the steps that declare it.

Each run executes twice, on memory filled with different patterns.  It fails if a step accesses memory outside a value or
memory that the schedule does not declare as read or written, or if uninitialized memory reaches a result.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, ClassVar, Final

import numpy as np

from mgx_core import CompileOptions, Kernels, Module, Runner
from mgx_core.errors import DeviceError
from mgx_core.targets.schedule import Schedule, Step
from mgx_core.targets.values import Buffer, Value

from .bound_steps import BoundStep, bound_steps, naming_errors
from .codegen.source import KernelSource
from .compile.source import max_threads
from .context import GpuContext
from .emitter import GpuEmitter
from .graph_cache import GraphCache
from .runner import GpuRunner
from .runtime import DeviceBuffer, Stream
from .steps import CalledStep, DeviceStep, HostStep, KernelStep
from .target import GpuTarget

__all__ = ["BackwardsTarget", "GuardedTarget"]

NOTHING, READ, WRITE = 0, 1, 2  # access that kernels have to an allocation
POISONS: Final = (0xFF, 0x35)  # NaN or -1, and a small number


class GuardedTarget(GpuTarget):
    """The emulated device `device_id` (0: waves of 64 lanes, 1: of 32) with guarded values and without library plans.

    before: the guard page precedes a value instead of following it; order: 0 threads and blocks in order, 1 in reverse order,
    2 and above threads shuffled with that seed.
    """

    opens_programs = False

    def __init__(self, device_id: int = 1, before: bool = False, order: int = 0) -> None:
        super().__init__("host", device_id)
        self.before = before
        self.order = order

    def emitter(self, kernels: Kernels, context: GpuContext, options: CompileOptions) -> GpuEmitter:
        return _Values.of(kernels, context, options)

    def assemble(self, schedule: Schedule, emitter: GpuEmitter, context: Any, options: CompileOptions) -> Runner:
        return _Runner(schedule, emitter, options)


class BackwardsTarget(GuardedTarget):
    """Waves of 64 lanes, guard pages in front of values, threads and blocks in reverse order."""

    def __init__(self) -> None:
        super().__init__(0, before=True, order=1)


class _Values(GpuEmitter):
    alignment: ClassVar[int] = 16  # keeps padding between a value's end and the guard page small

    @classmethod
    def of(cls, kernels: Kernels, context: GpuContext, options: CompileOptions, tuning: Any = None) -> GpuEmitter:
        return cls(kernels, context, options.memory_reuse)

    def fresh(self, tuning: bool = True) -> _Values:
        return _Values(self.kernels, self.context, self.reuse)

    def launch(self, source: KernelSource, inputs: Sequence[Value | None], outputs: Sequence[Value]) -> None:
        """Errors: DeviceError for more threads than a kernel was compiled for, which a real device may not report."""
        for launch in source.launches:
            asked, most = prod(launch.block), max_threads(source.text, launch.entry)
            if most is not None and asked > most:
                nodes = ", ".join(self.sources)
                what = (source.origin or f"kernel {launch.entry}") + (f", made from {nodes}," if nodes else "")
                raise DeviceError(f"{what} is launched with {asked} threads per block, but was compiled for {most}")
        super().launch(source, inputs, outputs)


class _Runner(GpuRunner):
    def continued(self, module: Module) -> GpuRunner:
        emitter = self.emitter.fresh()
        return _Runner(emitter.schedule(module), emitter, self.options, self.kept)

    def _allocate(self) -> None:
        target = self.context.target
        assert isinstance(target, GuardedTarget)
        library = self.device.driver.library
        library.hostSetGuard(POISONS[0], int(target.before))
        try:
            super()._allocate()
            self.own = {b: self.device.allocate(max(b.bytes, 1)) for b in self.schedule.buffers}
            self.own.update({b: self.device.upload(b.array) for b in self.schedule.literals if b.array is not None})
        finally:
            library.hostSetGuard(POISONS[0], 0)
        self.addresses.update({id(b): held.address for b, held in self.own.items()})
        self.own.update(
            {v.buffer: self.staging.memory[v.buffer.kind, v.buffer.index] for v in (*self.inputs, *self.outputs)}
        )

    def _prepare(self) -> None:
        assert isinstance(self.context.target, GuardedTarget)
        self.graphs = _Steps(self, self.graphs, self.context.target.order)
        super()._prepare()


class _Steps(GraphCache):
    """Runs steps one by one, each with access to its operands only, and all of them twice."""

    def __init__(self, runner: _Runner, plain: GraphCache, order: int) -> None:
        super().__init__(plain.steps, plain.device, plain.functions, plain.addresses, plain.io_buffers, overlap=False)
        self.own = runner.own
        self.counts = runner.continuation is not None
        self.order = order
        self.library = plain.device.driver.library

    def execute(self, inputs: Mapping[int, int], outputs: Mapping[int, int], stream: Stream) -> None:
        bound = self._bound(inputs, outputs)
        steps = bound_steps(self.steps, bound, self.functions, overlap=False)
        stream.wait()
        one, other = (self._run(steps, bound, stream, poison) for poison in POISONS)
        if self.counts or one == other:
            return  # counted rows: those beyond the count are undefined
        if self._run(steps, bound, stream, POISONS[1]) != other:
            return  # draws random numbers
        for step, results, others in zip(self.steps, one, other, strict=True):
            for n, (a, b) in enumerate(zip(results, others, strict=True)):
                if a != b:
                    with naming_errors(step):
                        raise DeviceError(f"result {n} depends on uninitialized memory")

    execute_lazily = execute

    def _run(
        self, steps: Sequence[BoundStep], bound: Mapping[int, int], stream: Stream, poison: int
    ) -> list[list[bytes]]:
        """Returns the bytes of the results of each step."""
        found = []
        access = dict.fromkeys(self.own, WRITE)
        for b, held in self.own.items():
            if b.kind in ("arena", "output"):
                stream.fill(held.address, poison, held.size)
        self.library.hostSetOrder(self.order)
        try:
            for step, calls in steps:
                self._protect(access, {**dict.fromkeys(step.reads, READ), **dict.fromkeys(step.writes, WRITE)})
                with naming_errors(step):
                    if isinstance(step, HostStep):
                        self._on_host(step, bound, stream)
                    elif isinstance(step, DeviceStep):
                        self._on_device(step, bound)
                    for call in calls:
                        call(stream.handle)
                    stream.wait()
                made = _results(step)
                self._protect(access, dict.fromkeys((v.buffer for v in made), READ))
                found.append([self._bytes(v, bound) for v in made])
        finally:
            self.library.hostSetOrder(0)
            self._protect(access, dict.fromkeys(access, WRITE))
        return found

    def _protect(self, access: dict[Buffer, int], wanted: Mapping[Buffer, int]) -> None:
        """Sets the access of kernels to each value, none for values that `wanted` omits."""
        for b, now in access.items():
            then = wanted.get(b, NOTHING)
            held: DeviceBuffer = self.own[b]
            if now != then and held.size:
                access[b] = then
                code = self.library.hostProtect(ctypes.c_size_t(held.address), then)
                if code:
                    raise self.device.driver.error("hostProtect", code)

    def _bytes(self, value: Value, bound: Mapping[int, int]) -> bytes:
        size = value.dtype.size
        flat = np.empty(value.shape.element_space() * size, np.uint8)
        if not flat.size:
            return b""
        self.device.download(flat, bound[id(value.buffer)] + value.byte_offset)
        strides = [*(s * size for s in value.strides), 1]
        return np.lib.stride_tricks.as_strided(flat, [*value.lens, size], strides).tobytes()


def _results(step: Step) -> Sequence[Value]:
    """Returns the values that a step writes completely; none for one that counts its rows."""
    if isinstance(step, KernelStep):
        return () if step.source.extents else step.outputs
    return step.outputs if isinstance(step, CalledStep) else ()
