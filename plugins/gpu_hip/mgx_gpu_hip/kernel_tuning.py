"""Times alternative kernels as device programs: by default those of low-precision products, with ``exhaustive_tune`` all."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import chain
from pathlib import Path
from typing import Any, Final

from mgx_core import CompileOptions, Kernel, Module, Operation
from mgx_core.ops.control import Group
from mgx_core.ops.quantized_product import QuantConvolution, QuantDot
from mgx_core.targets.schedule import Schedule, Step
from mgx_core.targets.tuning import BLOCK, KernelTuning, random_operand
from mgx_core.types.dtype import DType

from .compile.build import Code, build
from .context import GpuContext
from .emitter import GpuEmitter
from .runner import GpuRunner
from .runtime import DeviceArray
from .step_sources import StepSource, kernel_steps
from .tuning import DRY_RUNS

__all__ = ["Candidates", "GpuTuning"]

ROUND_SECONDS: Final = 0.002  # seconds per round of one kernel
MAX_LAUNCHES: Final = 20  # launches per round
# no cost model covers these: library plans and generated kernels of several tile sizes
ANCHORS: Final = (QuantDot, QuantConvolution)
ROUNDS: Final = 3


class GpuTuning(KernelTuning):
    """Caches the fastest kernel of each problem on one device."""

    def __init__(self, context: GpuContext, folder: Path | None = None) -> None:
        device = context.device
        super().__init__(f"kernels on {device.properties.name} {device.arch}", folder)
        self.context = context
        self.device = device
        # kernels of one dry run do not wait for those of the one before
        self._pool = ThreadPoolExecutor(DRY_RUNS, "mgx-candidates")
        self._building: list[Future[list[Code]]] = []
        self._ahead: set[str] = set()  # texts of kernels that were started to compile
        self.collected: dict[str, list[Step]] = {}  # by problem, of all its candidates

    def concerns(self, e: GpuEmitter, op: Operation, modules: Sequence[Module]) -> bool:
        """True for every op with ``exhaustive_tune``, otherwise for low-precision products while library plans are timed."""
        if e.exhaustive:
            return True
        tuner = e.context.tuner
        if tuner is None or not tuner.budget:
            return False
        return isinstance(op, ANCHORS) or (isinstance(op, Group) and any(isinstance(i.op, ANCHORS) for i in modules[0]))

    def times_members(self, e: GpuEmitter) -> bool:
        """True with ``exhaustive_tune``: an epilogue in a launch of its own reads and writes all sums again."""
        return e.exhaustive

    def settings(self, e: GpuEmitter) -> str:
        return f"tf32 {e.tf32}" if e.exhaustive else "by the plans that are tried by default"

    def operand(self, dtype: DType, count: int) -> DeviceArray:
        """Returns random numbers in device memory, in blocks that repeat."""
        memory = self.device.allocate(count * dtype.size)
        self.device.default_stream.repeat(memory.address, random_operand(dtype, min(count, BLOCK)), memory.size)
        return DeviceArray(memory, dtype, (count,))

    def seconds(self, trial: Any, schedule: Schedule, arrays: Sequence[Any]) -> float:
        """Returns the minimum over several rounds, each a graph of consecutive launches."""
        wait(self._building)  # otherwise its kernels would be compiled twice
        runner = GpuRunner(schedule, trial, CompileOptions(offload_copy=False))
        return runner.least_seconds(arrays, ROUNDS, ROUND_SECONDS, MAX_LAUNCHES)

    def dry_run(self) -> Candidates:
        return Candidates(self)

    def compile_ahead(self, steps: Sequence[Step]) -> None:
        """Starts to compile; an error is ignored here, since it is raised again where the kernel is used."""
        given = [StepSource(s) for s in kernel_steps([*steps, *chain(*self.collected.values())])]
        sources = [s for s in given if s.text not in self._ahead]
        if sources:
            self._ahead |= {s.text for s in sources}
            self._building.append(self._pool.submit(build, sources, self.device.arch, loaded=self.context.codes))

    def save(self) -> None:
        super().save()
        wait(self._building)  # the program uses some of the kernels
        self._building.clear()
        self._ahead.clear()
        self.collected.clear()

    def _measured(
        self, e: GpuEmitter, kernels: Sequence[Kernel], op: Operation, modules: Sequence[Module], args: Sequence[Any]
    ) -> str:
        if e.context.tuner is not None:
            e.context.tuner.prepare()
        return super()._measured(e, kernels, op, modules, args)


class Candidates:
    """Stands in for tuning in a dry run: collects the steps of all kernels that would be timed."""

    def __init__(self, tuning: GpuTuning) -> None:
        self.tuning = tuning

    def concerns(self, e: GpuEmitter, op: Operation, modules: Sequence[Module]) -> bool:
        return self.tuning.concerns(e, op, modules)

    def choice(
        self, e: GpuEmitter, kernels: Sequence[Kernel], op: Operation, modules: Sequence[Module], args: Sequence[Any]
    ) -> str | None:
        """Returns the known choice; None, so that the first kernel is emitted, for a problem that is not known."""
        problem = self.tuning.problem(e, kernels, op, modules, args)
        if problem is None:
            return None
        known = self.tuning.known(e, problem, kernels, op)
        if known is None and problem not in self.tuning.collected:
            trials = self.tuning.trials(e, kernels, op, modules, args)
            self.tuning.collected[problem] = [step for trial in trials for step in trial.schedule.steps]
        return known

    def save(self) -> None:
        """Does nothing: nothing was measured."""
