"""The launches of an instance as rows: what, by which kernel, where, why there, from which nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.instruction import Instruction
from ..ir.module import Module, nested
from ..ops.control import GetTupleElem
from ..targets.kernel import Launch, op_of
from ..targets.memory import root
from ..targets.placement import Placement
from .words import group_text, kind, title

__all__ = ["LaunchRow", "launch_rows"]


@dataclass(frozen=True)
class LaunchRow:
    """One launch; `view` says that it only names another value's memory, so that nothing has to run."""

    name: str
    does: str
    kernel: str
    plan: str
    place: str
    result: str
    sources: tuple[str, ...]
    why: tuple[str, ...]
    kind: str
    view: bool = False

    @property
    def hosted(self) -> bool:
        return self.place == "host"


def launch_rows(module: Module, placements: Sequence[Placement], target: str) -> list[LaunchRow]:
    """Rows in order of execution, nested modules after what runs them; what only names an item of a tuple is none."""
    placed: dict[tuple[str, tuple[str, ...]], Placement] = {}
    for p in placements:
        key = (p.op, p.sources)
        if key not in placed or p.place == "host":
            placed[key] = p
    rows: list[LaunchRow] = []
    for inner in nested(module):
        for ins in inner:
            if not isinstance(ins.op, Launch) or isinstance(op_of(ins), GetTupleElem):
                continue
            found = placed.pop((repr(ins.op.of), ins.sources), None)
            rows.append(_row(ins, ins.op, found, target))
    left = [p for p in placed.values() if p.place == "host"]  # parts of groups
    rows += [LaunchRow(p.op.split("[")[0], "", p.kernel, "", "host", "", p.sources, p.refused, "plain") for p in left]
    return rows


def _row(ins: Instruction, op: Launch, placement: Placement | None, target: str) -> LaunchRow:
    hosted = op.place == "host" or (placement is not None and placement.place == "host")
    why = placement.refused if placement is not None else op.kernel.reasons
    kernel = placement.kernel if placement is not None and hosted else op.kernel.name
    return LaunchRow(
        title(ins),
        group_text(ins),
        kernel,
        op.plan,
        "host" if hosted else target,
        str(ins.result),
        ins.sources,
        why,
        kind(ins),
        root(ins) is not ins,
    )
