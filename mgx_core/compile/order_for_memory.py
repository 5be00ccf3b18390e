"""Reorders instructions to reduce the peak of live memory."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import No
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ir.ordering import reads
from ..ir.symbols import introduced, mentioned
from ..passes.interface import CountingPass
from ..records import dataclass
from ..targets.memory import Buffer, plan_memory

__all__ = ["OrderForMemory"]


@dataclass(frozen=True)
class OrderForMemory(CountingPass):
    """List-schedules instructions by net memory (allocated minus freed bytes), if that reduces the peak.

    May cost time: values are read later after they were computed, and parallel branches become sequential.
    most: longer modules are not reordered.
    """

    most: int = 5000
    name: str = "order-for-memory"

    def apply(self, module: Module) -> bool:
        steps = [i for i in module if not (i.is_param or i.is_literal or i.is_absent or i.is_return)]
        end = module.returned
        if end is None or len(steps) > self.most:
            return False
        before = plan_memory(module)
        for ins in self._order(steps, before.of):
            module.move(ins, end)
        after = plan_memory(module).lower_bound
        more = No(f"{after} bytes would be alive instead of {before.lower_bound}")
        if self.counted(end, None if after < before.lower_bound else more):
            return True
        for ins in steps:
            module.move(ins, end)
        return False

    def _order(self, steps: list[Instruction], of: dict[Instruction, Buffer]) -> list[Instruction]:
        inside = set(steps)
        needs = {ins: {r for r in reads(ins) if r in inside} for ins in steps}
        for ins, makers in _extents(steps).items():
            needs[ins] |= makers
        last: Instruction | None = None
        for ins in steps:  # side effects keep their order
            if ins.op.effect:
                if last is not None:
                    needs[ins].add(last)
                last = ins
        readers: dict[Instruction, list[Instruction]] = {}
        left: dict[int, int] = {}  # remaining readers of a buffer
        for ins, wanted in needs.items():
            for read in wanted:
                readers.setdefault(read, []).append(ins)
            for buffer in _buffers(ins, of):
                left[id(buffer)] = left.get(id(buffer), 0) + 1
        position = {ins: n for n, ins in enumerate(steps)}
        waiting = {ins: len(wanted) for ins, wanted in needs.items()}
        ready = [ins for ins in steps if not waiting[ins]]
        order: list[Instruction] = []

        def cost(ins: Instruction) -> tuple[int, int]:
            own = of.get(ins)
            taken = own.bytes if own is not None and own.owner is ins else 0
            freed = sum(b.bytes for b in _buffers(ins, of) if left[id(b)] == 1)
            return taken - freed, position[ins]

        while ready:
            ins = min(ready, key=cost)
            ready.remove(ins)
            order.append(ins)
            for buffer in _buffers(ins, of):
                left[id(buffer)] -= 1
            for reader in readers.get(ins, ()):
                waiting[reader] -= 1
                if not waiting[reader]:
                    ready.append(reader)
        return order


def _extents(steps: Sequence[Instruction]) -> dict[Instruction, set[Instruction]]:
    """Returns, for each instruction, the definitions of the symbols that it uses."""
    makers: dict[str, Instruction] = {}
    found: dict[Instruction, set[Instruction]] = {}
    for ins in steps:
        if makers:
            found[ins] = {makers[name] for name in mentioned([ins]) if name in makers}
        if ins.result.dynamic() and not ins.is_param:
            makers |= dict.fromkeys(introduced(ins), ins)
    return found


def _buffers(ins: Instruction, of: dict[Instruction, Buffer]) -> list[Buffer]:
    """Returns the buffers that an instruction reads, without duplicates."""
    return list({id(of[r]): of[r] for r in reads(ins) if r in of}.values())
