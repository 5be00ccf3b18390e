"""Runs the rest of a module that is one segment: its operands are found by position, without a table of values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..ir.instruction import Instruction
from ..types.shape import Shape
from ..types.symbol_binding import symbol_places
from .cut import Item
from .segment import Make, Segment

__all__ = ["OnlySegment", "only_segment"]


class OnlySegment:
    """One segment with the positions of what it reads among the values that are there.

    reads: positions of its operands; counts: names of its symbols with the position and axis that have their extents; results:
    the module's results as positions among the values there (`there`) or, after them, among the segment's own.
    """

    def __init__(
        self,
        segment: Segment,
        reads: Sequence[int],
        counts: Sequence[tuple[str, int, int]],
        results: Sequence[int],
        there: int,
    ) -> None:
        self._segment, self._reads, self._counts, self._there = segment, list(reads), list(counts), there
        self._results = None if list(results) == list(range(there, there + len(segment.results))) else list(results)

    def run(self, values: Sequence[Any], make: Make) -> list[Any] | None:
        """Returns the module's results, none of which is another reference to memory; None if there is no runner for them.

        values: those that are there; make: creates a runner.
        """
        args = [values[n] for n in self._reads]
        known = {name: values[n].shape[axis] for name, n, axis in self._counts}
        runner = self._segment.runner(args, known, make)
        if runner is None or not runner.fresh:
            return None
        found = runner.run(args)
        if self._results is None:
            return found
        return [values[n] if n < self._there else found[n - self._there] for n in self._results]


def only_segment(
    items: Sequence[Item],
    there: Sequence[Instruction | None],
    own: Iterable[Instruction],
    outputs: Sequence[Instruction],
) -> OnlySegment | None:
    """Returns what runs the rest; None if it is more than one segment, or returns what others refer to, too.

    items: of `cut`; there: values that exist before, None for others; own: those of them that a run may return as they are.
    """
    if len(items) != 1 or not isinstance(items[0].what, Segment) or len(set(outputs)) != len(outputs):
        return None
    segment, place, mine = items[0].what, {ins: n for n, ins in enumerate(there) if ins is not None}, set(own)
    made = {ins: len(there) + n for n, ins in enumerate(segment.results)}
    counts = {
        name: (name, n, axis)
        for n, ins in enumerate(there)
        if ins is not None and isinstance(ins.result, Shape)
        for axis, name in symbol_places(ins.result)
    }
    ends = [made.get(o, place[o] if o in mine else None) for o in outputs]
    if (
        any(n is None for n in ends)
        or not all(n in place for n in segment.needs)
        or not counts.keys() >= set(segment.symbols)
    ):
        return None
    reads = [place[n] for n in segment.needs]
    return OnlySegment(
        segment, reads, [counts[s] for s in segment.symbols], [n for n in ends if n is not None], len(there)
    )
