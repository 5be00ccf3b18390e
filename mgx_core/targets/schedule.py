"""Schedules: the steps emitted for a lowered module, with an arena offset for every buffer.

A schedule is exactly what runs: its steps are the launches in execution order, `peak` is the size of the arena that a runner
allocates, and placements are derived from the steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field

from ..ir.instruction import Instruction
from ..ir.module import Module
from ..named_tuples import NamedTuple
from ..ops.operation import Operation
from ..records import dataclass
from .kernel import Launch
from .memory import place
from .placement import Placement
from .static_part import Split, with_bodies
from .values import Buffer, Value

__all__ = ["Call", "Schedule", "SegmentSchedule", "Step", "placed"]


@dataclass(eq=False)
class Call:
    """One kernel in a schedule, referenced by its steps.

    refused: the refusals of the plans tried before it; host: why it runs on the host, else empty; instruction: of the lowered
    module.
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


@dataclass(eq=False)
class Step:
    """One action of a runner; targets derive from it.

    reads, writes: the buffers that must be alive (scratch memory counts as written); call: the kernel that the step belongs to,
    set by the emitter; flops, bytes: operations and bytes moved per run, 0 if not counted.
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
        """The instruction of the lowered module."""
        return self.call.instruction if self.call is not None else None

    @property
    def kernel(self) -> str:
        """The name of its kernel."""
        return self.call.kernel if self.call is not None else ""

    @property
    def host(self) -> str:
        """Why it runs on the host; empty if it does not."""
        return self.call.host if self.call is not None else ""


class SegmentSchedule(NamedTuple):
    """A segment of a schedule's rest that was emitted in advance: its instructions, and its schedule."""

    members: Sequence[Instruction]
    schedule: Schedule


@dataclass(eq=False)
class Schedule:
    """Steps in order, and the location of every value.

    inputs: values on input buffers by parameter index, None if no step reads one; outputs: results in their own row-major
    memory, those of ``split.wanted`` first; split: the module's static part, which the steps implement, and the rest, which runs
    one by one afterwards; rest_placements: placements of the rest; segments: parts of the rest with their own schedule; choices:
    autotuning results by problem; buffers: in the arena; peak: bytes of the arena; lower_bound: maximum bytes alive at one step.
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
        """Values with run-time sizes, which are allocated at run time."""
        return [*self.split.counted, *(i for i in self.split.rest if i.result.dynamic())]

    @property
    def whole(self) -> bool:
        """True if every output of the module is a result of the steps, once each."""
        return not self.split.rest and self.split.wanted == list(self.module.outputs)

    @property
    def literals(self) -> list[Buffer]:
        """The constants that steps read, without duplicates."""
        return list(dict.fromkeys(b for s in self.steps for b in s.reads if b.kind == "literal"))

    def calls(self) -> Iterable[Call]:
        """Returns the kernels of the steps, without duplicates, in order."""
        return dict.fromkeys(s.call for s in self.steps if s.call is not None)

    @property
    def placements(self) -> list[Placement]:
        """Returns the placement of each launch: the kernels that its steps call; none for a view."""
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
    """Assigns arena offsets to a schedule's buffers: live ranges from its steps, sizes rounded up to the alignment.

    reuse: lets buffers with disjoint live ranges share memory.
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
