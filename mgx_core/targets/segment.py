"""Segments: parts of a module whose extents are all known when they start, with one runner for each set of shapes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from threading import Lock
from typing import Any, Final, TypeAlias

import numpy as np

from ..cache import Recent
from ..ir.equality import equal_bodies
from ..ir.extract import extract
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ir.symbols import mentioned
from ..named_tuples import NamedTuple
from ..types.shape import Shape
from .runner import Runner
from .static_part import fixed_tensor

__all__ = ["KEEPING", "Keeping", "Make", "Segment"]


class Keeping(NamedTuple):
    """Limits on the runners of a segment, of which there is one for each set of shapes."""

    runners: int = 128  # maximum cached runners
    runs: int = 8  # cache hits per evicted runner, below which a full cache creates no new ones


KEEPING: Final = Keeping()

Make: TypeAlias = Callable[[Module], Runner]  # the runner of a lowered module with static extents


class Segment:
    """A part of a module as a separate module, with a runner for each set of shapes.

    results: its outputs as instructions of the original module; needs: its inputs.
    """

    def __init__(
        self, members: Sequence[Instruction], results: Sequence[Instruction], name: str, keeping: Keeping = KEEPING
    ) -> None:
        self.members = list(members)
        self.results = list(results)
        self.module, self.needs = extract(members, results, name)
        self._labels = list(self.module.parameters)
        self._open = sorted(mentioned(self.module))
        self._made: Recent[Runner] = Recent(keeping.runners)
        self._keeping = keeping
        self._last: tuple[Any, Runner] | None = None
        self._found = 0  # cache hits
        self._lock = Lock()

    @property
    def symbols(self) -> Sequence[str]:
        """The symbols whose values its shapes depend on."""
        return self._open

    def prepare(self, make: Make) -> Runner | None:
        """Creates and returns the runner in advance, if the shapes are known."""
        if self._open or not all(map(fixed_tensor, self.needs)):
            return None
        return self._made_for([(n.shape.dtype.numpy, tuple(n.shape.lens())) for n in self.needs], {}, make)

    def runner(self, args: Sequence[Any], known: Mapping[str, int], make: Make) -> Runner | None:
        """Returns the runner for the values of `needs`, and of symbols; None if a value is not an array of numbers.

        Also None if shapes repeat too rarely for runners to pay off, e.g. for a state that grows in every trip of a long loop.
        """
        key: list[Any] = []
        for a in args:
            if type(a) is not np.ndarray:
                return None
            key.append((a.dtype, a.shape))
        if self._open:
            key += [known.get(name) for name in self._open]
        last = self._last
        if last is not None and last[0] == key:
            return last[1]
        if any(a.dtype.kind not in "biufV" for a in args):
            return None
        found = self._made_for(key, known, make)
        if found is not None:
            self._last = key, found
        return found

    def _made_for(self, wanted: list[Any], known: Mapping[str, int], make: Make) -> Runner | None:
        key: tuple[Hashable, ...] = tuple(wanted)
        with self._lock:
            found = self._made.get(key)
            if found is not None:
                self._found += 1
                return found
            full = len(self._made) >= self._keeping.runners
            if full and self._found < self._keeping.runs * (self._made.dropped + 1):
                return None
            shapes = {label: Shape(dtype, lens) for label, (dtype, lens) in zip(self._labels, wanted, strict=False)}
            equal = self.module.derive("equal bodies", equal_bodies)
            return self._made.put(key, make(self.module.clone(dict(known), None, None, shapes, equal)))
