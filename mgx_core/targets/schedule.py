"""Schedules: the steps that an emitter made for a lowered module, with every buffer placed.

What a schedule says is what runs: its steps are the launches in order, `peak` is the size of the arena that a runner allocates,
and the placements are read from the steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ops.operation import Operation
from .kernel import Launch
from .memory import place
from .placement import Placement
from .values import Buffer, Value

__all__ = ["Call", "Schedule", "Step", "placed"]


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
    (the emitter sets it); flops, bytes: the arithmetic of one run and the memory that it moves, 0 where nobody counts.
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


@dataclass(eq=False)
class Schedule:
    """Steps in order, and where every value lies.

    inputs: the values on input buffers, by the parameter's position, None for those that no step reads; results: the
    instructions whose values a run leaves on `outputs`, in memory of their own, row-major; rest: instructions that run one by
    one after the steps, because an extent or a branch is decided at run time, and `rest_placements` where; buffers: those in
    the arena; peak: bytes of the arena; lower_bound: the most bytes alive at one step.
    """

    module: Module
    steps: list[Step]
    inputs: list[Value | None]
    results: list[Instruction]
    outputs: list[Value]
    rest: list[Instruction] = field(default_factory=list)
    rest_placements: list[Placement] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    peak: int = 0
    lower_bound: int = 0

    @property
    def dynamic(self) -> list[Instruction]:
        """Values whose sizes are decided at run time, which get memory of their own then."""
        return [i for i in self.rest if i.result.dynamic()]

    @property
    def whole(self) -> bool:
        """True if every output of the module is a result of the steps, once each."""
        return not self.rest and self.results == list(self.module.outputs)

    def calls(self) -> Iterable[Call]:
        """The kernels that the steps belong to, each once, in order."""
        return dict.fromkeys(s.call for s in self.steps if s.call is not None)

    @property
    def placements(self) -> list[Placement]:
        """Where each launch of the module went: what its steps call; a launch without steps calls nothing (a view)."""
        called: dict[Instruction | None, list[Call]] = {}
        for call in self.calls():
            called.setdefault(call.instruction, []).append(call)
        rest = set(self.rest)
        found = [call.placement() for call in called.pop(None, ())]
        for ins in self.module:
            if ins in rest or not isinstance(ins.op, Launch):
                continue
            calls = called.get(ins)
            if calls is None:
                op = ins.op
                found.append(Placement(op.text, ins.sources, op.place, op.kernel.name, op.refused))
            else:
                found += [call.placement() for call in calls]
        return found + self.rest_placements


def placed(schedule: Schedule, alignment: int, reuse: bool = True) -> Schedule:
    """Place the arena buffers of a schedule: lifetimes from its steps, sizes rounded up to the alignment.

    reuse: let buffers that are not alive together share memory.
    """
    found: dict[Buffer, None] = {}
    for n, step in enumerate(schedule.steps):
        for buffer in _touched(step):
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


def _touched(step: Step) -> Iterator[Buffer]:
    yield from step.reads
    yield from step.writes
