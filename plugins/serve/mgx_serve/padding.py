"""Requests that are padded to extents that others have, too, and answers that are cut back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Cut", "Padding", "padded", "unpadded"]

Array = np.ndarray[Any, Any]
Dims = tuple[int, ...]
Cut = tuple[
    Dims, Dims, int, bytes
]  # extents of a row in a request and in a run, bytes of an element, and one that pads


@dataclass(frozen=True, slots=True)
class Padding:
    """What requests of some extents are padded with, and what they get of the results.

    inputs: of each its name, the extents of a row in a request and in a run, and the element that pads it, in the order of the
    model; outputs: of each the extents of a row that a request gets.
    """

    inputs: tuple[tuple[str, Dims, Dims, bytes], ...]
    outputs: tuple[Dims, ...]

    @property
    def rows(self) -> dict[str, Dims]:
        """The extents of a row of each input in a run."""
        return {name: dims for name, _, dims, _ in self.inputs}

    def fill(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Returns the inputs of a run."""
        made = {}
        for name, own, dims, element in self.inputs:
            given = feeds[name]
            if own != dims:
                place = np.empty((len(given), *dims), given.dtype)
                place[...] = np.frombuffer(element, given.dtype)[0]
                place[_within(own)] = given
                given = place
            made[name] = given
        return made

    def cut(self, wanted: Sequence[int], results: Sequence[Array]) -> list[Array]:
        """Returns a request's part of what a run gave, for the outputs of these positions."""
        return [made[_within(self.outputs[n])] for n, made in zip(wanted, results, strict=True)]


def _within(dims: Sequence[int]) -> tuple[slice, ...]:
    return (slice(None), *map(slice, dims))


def padded(place: memoryview, rows: int, given: Any, cut: Cut) -> None:
    """Writes rows of a request to their place in a run.  given: their bytes."""
    own, dims, size, element = cut
    if not len(place):
        return
    whole = np.frombuffer(place, f"V{size}").reshape(rows, *dims)
    whole[...] = np.frombuffer(element, f"V{size}")[0]
    if len(given):
        whole[_within(own)] = np.frombuffer(given, f"V{size}").reshape(rows, *own)


def unpadded(place: memoryview, rows: int, cut: Cut) -> bytes:
    """Returns the bytes of a request's part of rows of a run."""
    own, dims, size, _ = cut
    if not len(place):
        return b""
    return np.frombuffer(place, f"V{size}").reshape(rows, *dims)[_within(own)].tobytes()
