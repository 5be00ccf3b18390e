"""Runs a lowered module: one native program for the static part, then segments between run-time decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mgx_core import Instruction, Module, No
from mgx_core.ops.control import GetTupleElem
from mgx_core.run.binding import owned
from mgx_core.targets.counted_results import cropped, items_of, open_axes
from mgx_core.targets.cut import cut
from mgx_core.targets.kernel import op_of
from mgx_core.targets.runner import Runner, Timing
from mgx_core.targets.saved import Keep
from mgx_core.targets.schedule import Schedule, SegmentSchedule
from mgx_core.targets.segment_interpreter import SegmentInterpreter
from mgx_core.targets.static_part import Split, numbered
from mgx_core.types.shape import Shape, TupleShape

from .emitter import CpuEmitter
from .native_program import build, install
from .native_run import NativeRun
from .program_codec import FORMAT, NotSaved, Recorder
from .timing import following_timings, step_timings

if TYPE_CHECKING:
    from mgx_core.targets.only_segment import OnlySegment

    from .open_run import OpenRun
    from .repeated_values import RepeatedValues

__all__ = ["CpuRunner", "NativeRunner", "run_of"]

NOTHING: Final[Mapping[int, int]] = {}


class NativeRunner(Runner):
    """Runs a lowered module.

    All instructions with static extents, branches included, form one native program.  Other control flow and ops with
    data-dependent extents run one by one afterwards; their bodies and the segments between them are native programs for the
    shapes that occur.

    taken: results in the memory of arguments, as pairs of result and argument index; program: of the static part; emitter: emits
    the others; figures: operations, bytes and kernel of each native step; owners: returns the instruction of each step.
    """

    def __init__(
        self,
        module: Module,
        parts: Split,
        program: NativeRun | OpenRun | None,
        emitter: CpuEmitter,
        figures: Sequence[Sequence[Any]],
        owners: Callable[[], list[Instruction | None]],
        taken: Mapping[int, int] = NOTHING,
    ) -> None:
        self.module = module
        self.program = program
        self.rest = parts.rest
        self.counted = parts.counted
        self._decides = bool(parts.rest or parts.counted)  # something at run time
        self.wanted = parts.wanted
        groups = _groups(parts)
        self._open = _items(groups)
        # whole tuples: their extents may be read although no item with them is
        self._tuples = {ins: at for ins, at in groups.items() if isinstance(ins.result, TupleShape)}
        self._has_rest = any(ins not in self._open for ins in parts.rest)
        self.figures = figures
        self.taken = taken
        self._owners = owners
        self.parameters = list(module.parameters.values())
        # of each counted instruction, its op and the axes along which its results are cropped
        self._crops = [(op_of(ins), open_axes(ins.result, axis)) for ins, axis in parts.counted.items()]
        self._sources = [] if self._has_rest else self._outputs()
        # arguments that a body of control flow returns unchanged are not copied in each trip
        self.fresh = not self._has_rest and all(
            isinstance(o.result, Shape) and not o.is_absent and not o.is_param for o in module.outputs
        )
        # results that are copied: constants, and each but the first of equal ones
        self._copied = [
            n
            for n, (kind, source) in enumerate(self._sources)
            if self.fresh and (kind == "constant" or ("result", source) in self._sources[:n])
        ]
        self._direct = not self._decides and parts.wanted == list(module.outputs)
        self._make = partial(run_of, emitter)
        self._segments = SegmentInterpreter(self._make, emitter.context.programs, emitter)
        self._items = cut(module, {**parts.static, **parts.counted, **self._open}) if self._has_rest else []
        self.value_programs: RepeatedValues | None = None
        self._only: OnlySegment | None = None
        if self._has_rest:  # most models decide nothing at run time
            from mgx_core.targets.only_segment import only_segment

            from .repeated_values import repeated_values

            self.value_programs = repeated_values(module, parts, emitter, self._make)
            self._only = None if taken else only_segment(self._items, self._there(), parts.wanted, module.outputs)
            self.fresh = self.value_programs is not None or self._only is not None
        self.prepared = self._segments.prepare(self._items)

    def _there(self) -> list[Instruction | None]:
        """Returns the parameters and the results before the rest, in order; None for results that nothing reads."""
        counted = {n: ins for ins, n in self._open.items()}
        last = max(counted, default=len(self.wanted) - 1)
        return [*self.parameters, *self.wanted, *(counted.get(n) for n in range(len(self.wanted), last + 1))]

    def _outputs(self) -> list[tuple[str, Any]]:
        """Returns the source of each output: a result, an argument or a constant."""
        sources: dict[Instruction, tuple[str, Any]] = {ins: ("parameter", n) for n, ins in enumerate(self.parameters)}
        sources |= {ins: ("result", n) for n, ins in enumerate(self.wanted)}
        sources |= {ins: ("result", n) for ins, n in self._open.items()}
        return [
            sources.get(o) or ("constant", None if o.literal is None else o.literal.value) for o in self.module.outputs
        ]

    @property
    def inner(self) -> list[Runner]:
        """Runners of segments prepared in advance."""
        return [runner for _, runner in self.prepared]

    @property
    def owners(self) -> list[Instruction | None]:
        """The instruction of each native step."""
        return self._owners()

    def run(self, args: Sequence[Any], watch: Any = None) -> list[Any]:
        """Runs with parameter values; watch: see `SegmentInterpreter.follow`."""
        if self.taken:
            args = self._writable(args)
        results = [] if self.program is None else self.program.run(args)
        if self.taken:
            own = iter(results)
            results = [args[self.taken[n]] if n in self.taken else next(own) for n in range(len(self.wanted))]
        if self._direct:
            return results
        if self._crops:
            results = self._cropped(results)
        if not self._has_rest:
            found = [
                results[n] if kind == "result" else args[n] if kind == "parameter" else n for kind, n in self._sources
            ]
            for n in self._copied:
                found[n] = found[n].copy(order="C")
            return found
        if self.value_programs is not None and watch is None:
            at_once = self.value_programs.run([*args, *results])
            if at_once is not None:
                return at_once
        if self._only is not None and watch is None:
            at_once = self._only.run([*args, *results], self._make)
            if at_once is not None:
                return at_once
        made = dict(zip(self.wanted, results, strict=False))
        made |= {ins: results[n] for ins, n in self._open.items()}
        made |= {ins: tuple(results[at]) for ins, at in self._tuples.items()}
        found = self._segments.finish(self.module, self._items, args, made, watch, self.counted)
        return owned(found, args, self.module) if self.fresh else found

    def addressed(self) -> Callable[[Sequence[int], Sequence[int]], None] | None:
        """Returns a call on addresses; None if Python code computes a part, or results are not all computed by the program."""
        if not isinstance(self.program, NativeRun) or not self._direct or self.taken or not self.fresh:
            return None
        return self.program.addressed(len(self.parameters))

    def _cropped(self, results: list[Any]) -> list[Any]:
        """Crops results with data-dependent extents from their maximum size to the actual count."""
        first = len(self.wanted)
        found = results[:first]
        for op, axes in self._crops:
            end = first + len(axes) + 1
            found += cropped(op, axes, results[first:end])
            first = end
        return found

    def _writable(self, args: Sequence[Any]) -> list[Any]:
        """Returns the arguments, with copies of donated ones that steps cannot write to in place."""
        own = set(self.taken.values())
        return [a.copy(order="C") if n in own and not a.flags.carray else a for n, a in enumerate(args)]

    def time(self, args: Sequence[Any], runs: int, warmup: int) -> list[Timing]:
        """Times each native step by instruction, and each run-time decided op as a whole."""
        found: dict[Instruction, Timing] = {}
        if self.program is not None:
            found = step_timings(self.program, self.owners, self.figures, args, runs, warmup)
        if self._decides:
            found |= following_timings(self.run, args, runs, warmup)
        return list(found.values())


class CpuRunner(NativeRunner):
    """Runs a schedule emitted in this process."""

    def __init__(self, schedule: Schedule, emitter: CpuEmitter) -> None:
        self.schedule = schedule
        self.notes = schedule.notes
        steps = schedule.steps
        super().__init__(
            schedule.module,
            schedule.split,
            build(schedule) if schedule.steps or schedule.outputs else None,
            emitter,
            [(s.flops, s.bytes, s.kernel) for s in steps],
            lambda: [s.instruction for s in steps],
            {n: v.buffer.index for n, v in enumerate(schedule.outputs) if v.buffer.kind == "given"},
        )
        schedule.segments += [
            SegmentSchedule(members, runner.schedule)
            for members, runner in self.prepared
            if isinstance(runner, CpuRunner)
        ]

    def saved(self, keep: Keep) -> Any:
        """Serializes the native program; returns No if it has steps that cannot be serialized."""
        from .shared import shared

        if self.taken:
            return No("results are stored in the memory of arguments")
        program = None
        if self.program is not None:
            recorder = Recorder(self.schedule.peak, keep, shared().engine.image)
            try:
                install(recorder, self.schedule)
            except NotSaved as why:
                self.notes.append(f"not saved: {why}")
                return No(str(why))
            program = recorder.plain()
        numbers = {ins: n for n, ins in enumerate(numbered(self.module))}
        plain = not self._decides and all(kind != "constant" for kind, _ in self._sources)
        return {
            "format": FORMAT,
            "tuning": self.schedule.choices,
            "program": program,
            "taken": [] if self.program is None else self.program.taken,
            "owners": [numbers.get(i, -1) if i is not None else -1 for i in self.owners],
            "figures": [list(f) for f in self.figures],
            "outputs": [list(place) for place in self._sources] if plain else None,
            "wanted": [numbers[i] for i in self.wanted],
            "counted": [[numbers[i], axis] for i, axis in self.counted.items()],
        }


def _groups(parts: Split) -> dict[Instruction, slice]:
    """Returns the counted instructions with the positions of their results among all results."""
    found: dict[Instruction, slice] = {}
    first = len(parts.wanted)
    for ins in parts.counted:
        found[ins] = slice(first, first + len(items_of(ins.result)))
        first = found[ins].stop
    return found


def _items(groups: Mapping[Instruction, slice]) -> dict[Instruction, int]:
    """Returns the counted instructions, or the items taken from their tuples, with their positions among all results."""
    found: dict[Instruction, int] = {}
    for ins, at in groups.items():
        if isinstance(ins.result, TupleShape):
            found |= {u: at.start + op.index for u in ins.users if isinstance(op := op_of(u), GetTupleElem)}
        else:
            found[ins] = at.start
    return found


def run_of(emitter: CpuEmitter, module: Module) -> CpuRunner:
    """Returns a runner for a lowered module, emitted with the settings of `emitter`."""
    return CpuRunner(emitter.fresh().schedule(module), emitter)
