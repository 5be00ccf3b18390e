"""Table rows of an instance's launches: op, kernel, placement, refusals and source nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..ir.instruction import Instruction
from ..ir.module import Module, nested
from ..ops.control import GetTupleElem
from ..records import dataclass
from ..targets.kernel import Launch
from ..targets.memory import root
from ..targets.placement import Placement
from .formatting import group_text, kind, title

__all__ = ["LaunchRow", "launch_rows"]

MEMBERS: Final = "those of its members"  # in the kernel column of a group that ran member by member


@dataclass(frozen=True)
class LaunchRow:
    """One launch; view: its result aliases another value, and nothing runs."""

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
    """Returns rows in execution order, nested modules after their instruction; tuple element accesses are omitted."""
    placed: dict[tuple[str, tuple[str, ...]], list[Placement]] = {}
    for p in placements:
        placed.setdefault((p.op, p.sources), []).append(p)
    rows: list[LaunchRow] = []
    for inner in nested(module):
        for ins in inner:
            if not isinstance(ins.op, Launch):
                continue
            found = placed.get((ins.op.text, ins.sources))
            placement = found.pop(0) if found else None
            if not isinstance(ins.op.of, GetTupleElem):
                rows.append(_row(ins, ins.op, placement, target, apart=bool(placements)))
    left = [p for found in placed.values() for p in found]  # members of expanded groups
    return rows + [
        LaunchRow(
            p.op.split("[")[0],
            "",
            p.kernel,
            "",
            p.place if p.place == "host" else target,
            "",
            p.sources,
            p.refused,
            "plain",
        )
        for p in left
    ]


def _row(ins: Instruction, op: Launch, placement: Placement | None, target: str, apart: bool) -> LaunchRow:
    """Returns the row of a launch; apart: if it has no placement, it is a group whose members have their own kernels."""
    kernel = placement.kernel if placement is not None else MEMBERS if apart else op.kernel.name
    hosted = op.place == "host" if placement is None else placement.place == "host"
    why = op.refused if placement is None else placement.refused
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
