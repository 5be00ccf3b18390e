"""Pads requests to bucket extents and crops their outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Cut", "Padding", "padded", "unpadded"]

Array = np.ndarray[Any, Any]
Dims = tuple[int, ...]
Cut = tuple[Dims, Dims, int, bytes]  # row extents in the request and in the run, element size, padding element


@dataclass(frozen=True, slots=True)
class Padding:
    """The padding of requests with certain extents, and the cropping of their outputs.

    inputs: name, row extents in the request and in the run, and padding element of each input, in model order;
    outputs: row extents of each output in the response.
    """

    inputs: tuple[tuple[str, Dims, Dims, bytes], ...]
    outputs: tuple[Dims, ...]

    @property
    def rows(self) -> dict[str, Dims]:
        """Row extents of each input in the run."""
        return {name: dims for name, _, dims, _ in self.inputs}

    def fill(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Returns the padded inputs."""
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
        """Crops the outputs at these positions to a request's extents."""
        return [made[_within(self.outputs[n])] for n, made in zip(wanted, results, strict=True)]


def _within(dims: Sequence[int]) -> tuple[slice, ...]:
    return (slice(None), *map(slice, dims))


def padded(place: memoryview, rows: int, given: Any, cut: Cut) -> None:
    """Copies rows of a request into a padded batch.  given: their bytes."""
    own, dims, size, element = cut
    if not len(place):
        return
    whole = np.frombuffer(place, f"V{size}").reshape(rows, *dims)
    whole[...] = np.frombuffer(element, f"V{size}")[0]
    if len(given):
        whole[_within(own)] = np.frombuffer(given, f"V{size}").reshape(rows, *own)


def unpadded(place: memoryview, rows: int, cut: Cut) -> bytes:
    """Returns the bytes of a request's crop of rows of a run."""
    own, dims, size, _ = cut
    if not len(place):
        return b""
    return np.frombuffer(place, f"V{size}").reshape(rows, *dims)[_within(own)].tobytes()
