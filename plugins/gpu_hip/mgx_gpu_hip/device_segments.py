"""Decides which segments between ops run on the host are worth running on the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mgx_core import Instruction
from mgx_core.targets.cut import Item
from mgx_core.targets.kernel import Launch
from mgx_core.targets.segment import Keeping, Segment
from mgx_core.targets.static_part import fixed, given
from mgx_core.targets.view_steps import VIEWS

__all__ = ["KEEPING", "on_device", "worth_launches"]

MIN_LAUNCHES: Final = 4  # replaying a graph and copying its values takes about 100 us, a launch on the host about 30
KEEPING: Final = Keeping(16, 0)  # each runner has an arena of its own, and building one takes longer than running numpy
MIN_WEIGHTS: Final = 4096  # minimum size of a constant operand


def worth_launches(members: Sequence[Instruction]) -> bool:
    """Returns True if a segment has enough work for the device: weights, or more than a few launches.

    Extents are ignored: most are known only during a run, and reports must name the place of execution before.
    """
    if not all(isinstance(i.op, Launch) and i.op.place != "host" for i in members):
        return False
    launches = [i for i in members if not isinstance(i.op.of, VIEWS)]  # type: ignore[attr-defined]
    constants = (i for ins in launches for i in ins.inputs if i.is_literal)
    return len(launches) >= MIN_LAUNCHES or any(i.shape.elements() >= MIN_WEIGHTS for i in constants)


def on_device(items: Sequence[Item]) -> set[Instruction]:
    """Returns the instructions of a cut module that run on the device, including those inside control flow."""
    found: set[Instruction] = set()
    for item in items:
        if isinstance(item.what, Segment):
            found.update(item.what.members if worth_launches(item.what.members) else ())
        else:
            for body in _bodies(item.what):
                found.update(body)
    return found


def _bodies(ins: Instruction) -> Iterator[Sequence[Instruction]]:
    """Yields the instructions inside control flow that run on the device, body by body."""
    for module in ins.modules if ins.op.control else ():
        members = [i for i in module if not given(i)]
        whole = all(map(fixed, members)) and not any(o.is_absent for o in module.outputs)
        if whole and worth_launches(members):
            yield members
        else:
            for inner in members:
                yield from _bodies(inner)
