"""Schedules: the steps emitted for a lowered module, with an arena offset for every buffer.

A schedule is exactly what runs: its steps are the launches in execution order, `peak` is the size of the arena that a runner
allocates, and placements are derived from the steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ops.operation import Operation
from .kernel import Launch
from .memory import place
from .placement import Placement
from .static_part import Split, with_bodies
from .values import Buffer, Value

__all__ = ["Call", "Schedule", "SegmentSchedule", "Step", "placed"]


@dataclass(eq=False, slots=True)
class Call:
    """One kernel put into a schedule; its steps refer to it.

    refused: the refusals of the plans that were asked before it; host: why it runs on the host, empty if it does not;
    instruction: of the lowered module, that it was emitted for.
    """

    op: Operation
    kernel: str
    sources: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    host: str = ""
    instruction: Instruction | None = None

    def placement(self) -> Placement:
        if self.host:
            return Placement(repr(self.op), self.sources, "host", self.kernel, self.refused or (self.host,))
        return Placement(repr(self.op), self.sources, "target", self.kernel, self.refused)


@dataclass(eq=False, slots=True)
class Step:
    """One thing that a runner does: targets derive from it and add how.

    reads, writes: the buffers that must be alive; scratch memory counts as written; call: the kernel that the step belongs to
    (the emitter sets it); flops, bytes: the arithmetic of one run and the memory that it moves, 0 where not counted.
    """

    name: str
    reads: Sequence[Buffer]
    writes: Sequence[Buffer]
    call: Call | None = field(default=None, kw_only=True)
    flops: int = field(default=0, kw_only=True)
    bytes: int = field(default=0, kw_only=True)

    @property
    def sources(self) -> tuple[str, ...]:
        return self.call.sources if self.call is not None else ()

    @property
    def instruction(self) -> Instruction | None:
        """The instruction of the lowered module that it was emitted for."""
        return self.call.instruction if self.call is not None else None

    @property
    def kernel(self) -> str:
        """The name of the kernel that it is a part of."""
        return self.call.kernel if self.call is not None else ""

    @property
    def host(self) -> str:
        """Why it runs on the host; empty if it does not."""
        return self.call.host if self.call is not None else ""


class SegmentSchedule(NamedTuple):
    """A stretch of a schedule's rest that was emitted ahead: its instructions, and the schedule of a module made of them."""

    members: Sequence[Instruction]
    schedule: Schedule


@dataclass(eq=False)
class Schedule:
    """Steps in order, and where every value lies.

    inputs: the values on input buffers, by the parameter's position, None for those that no step reads; outputs: the results
    that a run leaves in memory of their own, row-major, those of ``split.wanted`` first; split: the module's static part, for
    which the steps are, and the rest, which runs one by one after them; rest_placements: where; segments: what of the rest has
    a schedule of its own; choices: what tuning answered, by problem; buffers: those in the arena; peak: bytes of the
    arena; lower_bound: the most bytes alive at one step.
    """

    module: Module
    steps: list[Step]
    inputs: list[Value | None]
    outputs: list[Value]
    split: Split = field(default_factory=Split)
    rest_placements: dict[Instruction, Placement] = field(default_factory=dict)
    segments: list[SegmentSchedule] = field(default_factory=list)
    choices: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    peak: int = 0
    lower_bound: int = 0

    @property
    def dynamic(self) -> list[Instruction]:
        """Values whose sizes are decided at run time, which get memory of their own then."""
        return [*self.split.counted, *(i for i in self.split.rest if i.result.dynamic())]

    @property
    def whole(self) -> bool:
        """True if every output of the module is a result of the steps, once each."""
        return not self.split.rest and self.split.wanted == list(self.module.outputs)

    @property
    def literals(self) -> list[Buffer]:
        """The constants that steps read, each once."""
        return list(dict.fromkeys(b for s in self.steps for b in s.reads if b.kind == "literal"))

    def calls(self) -> Iterable[Call]:
        """Returns the kernels that the steps belong to, each once, in order."""
        return dict.fromkeys(s.call for s in self.steps if s.call is not None)

    @property
    def placements(self) -> list[Placement]:
        """Placement of each launch of the module: what its steps call; a launch without steps calls nothing (a view)."""
        called: dict[Instruction | None, list[Call]] = {}
        for call in self.calls():
            called.setdefault(call.instruction, []).append(call)
        rest = set(self.split.rest)
        found = [call.placement() for call in called.pop(None, ())]
        planned = (inner for ins in self.module if ins not in rest for inner in (ins, *with_bodies(ins)))
        for ins in planned:
            if not isinstance(ins.op, Launch):
                continue
            calls = called.get(ins)
            if calls is None:
                op = ins.op
                found.append(Placement(op.text, ins.sources, op.place, op.kernel.name, op.refused))
            else:
                found += [call.placement() for call in calls]
        inside = {ins for segment in self.segments for ins in segment.members}
        found += [p for ins, p in self.rest_placements.items() if ins not in inside]
        return found + [p for segment in self.segments for p in segment.schedule.placements]


def placed(schedule: Schedule, alignment: int, reuse: bool = True) -> Schedule:
    """Place the arena buffers of a schedule: lifetimes from its steps, sizes rounded up to the alignment.

    reuse: let buffers that are not alive together share memory.
    """
    found: dict[Buffer, None] = {}
    for n, step in enumerate(schedule.steps):
        for buffers in (step.reads, step.writes):
            for buffer in buffers:
                if buffer.first < 0:
                    buffer.first = n
                    if buffer.kind == "arena":
                        found[buffer] = None
                buffer.last = n
    for buffer in found:
        buffer.bytes = -(-buffer.bytes // alignment) * alignment
    schedule.buffers = list(found)
    schedule.peak, schedule.lower_bound = place(schedule.buffers, len(schedule.steps) + 1, reuse)
    return schedule
