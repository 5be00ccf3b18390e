"""Values passed between pieces in device memory: a value whose shape is unchanged keeps its address.

A target may capture the work that a piece enqueues and replay it at little cost.  A capture is bound to addresses, so a piece's
inputs and outputs should stay at the same addresses in every run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..types.argument import Value, shape_of
from ..types.shape import Shape
from .piece_values import PieceValues

__all__ = ["DeviceMemory", "on_host"]


class DeviceMemory:
    """Device memory that a program in pieces keeps between runs; runs are serialized, since they share it.

    context: of the target; to_host: results are returned in host memory.
    """

    def __init__(self, context: Any, to_host: bool) -> None:
        self.context = context
        self.to_host = to_host
        self.fixed: frozenset[int] = frozenset()
        self.kept: dict[int, Value] = {}
        self._lock = threading.Lock()

    def keep(self, fixed: Iterable[int]) -> None:
        """Sets the indices of the values whose extents never change."""
        self.fixed = frozenset(fixed)

    def of_part(self) -> DeviceMemory:
        """Returns memory for the pieces of one part of the program, whose results stay on the device."""
        return DeviceMemory(self.context, to_host=False)

    @contextmanager
    def values(self, args: Sequence[Value], count: int) -> Iterator[PieceValues]:
        """Context manager: provides the values of one run, and waits for the device at its end."""
        with self._lock:
            try:
                yield _DeviceValues(self, args, count)
            finally:
                self.context.finish()


class _DeviceValues(PieceValues):
    """Values of one run on a target with its own memory.

    Values in host memory or with non-standard strides are copied once, on first use.
    """

    def __init__(self, memory: DeviceMemory, args: Sequence[Value], count: int) -> None:
        super().__init__(args, count)
        self._memory = memory
        self._arguments = len(args)
        self._copies: dict[int, Value] = {}  # device copies, by index

    def on_host(self, numbers: Iterable[int], reads: Iterable[bool]) -> list[Value]:
        return [on_host(v, read) for v, read in zip(self.get(numbers), reads, strict=True)]

    def on_target(self, numbers: Iterable[int]) -> list[Value]:
        return [self._on_target(n) for n in numbers]

    def _on_target(self, n: int) -> Value:
        value: Any = self._values[n]
        on_host = isinstance(value, np.ndarray)
        if not on_host and value.device_shape.standard():
            return value
        copy = self._copies.get(n)
        if copy is None:  # a value whose rows were counted on the device may have another axis order
            copy = self._copies[n] = self._uploaded(n, value) if on_host else self._copied(value)
        return copy

    def _uploaded(self, n: int, value: Value) -> Value:
        kept, context = self._memory.kept.get(n), self._memory.context
        if kept is not None and shape_of(kept) == shape_of(value):
            context.copy(value, kept)
            return kept
        made = context.upload(value)
        self._keep(n, made)
        return made

    def _keep(self, n: int, value: Value) -> None:
        if n in self._memory.fixed:
            self._memory.kept[n] = value

    def places(self, numbers: Sequence[int]) -> Mapping[int, Value]:
        kept = self._memory.kept
        return {at: kept[n] for at, n in enumerate(numbers) if n in kept}

    def store(self, numbers: Iterable[int], values: Iterable[Value]) -> None:
        for n, value in zip(numbers, values, strict=True):
            self._values[n] = value
            if not isinstance(value, np.ndarray):
                self._keep(n, value)

    def results(self, numbers: Iterable[int]) -> list[Value]:
        """Returns results that no later run overwrites: on the host, or in device memory that they own."""
        given: set[int] = set()
        found = []
        for n in numbers:
            value = self._values[n]
            if self._memory.to_host:
                found.append(on_host(value))
            else:
                shared = n < self._arguments or n in given or n in self._memory.kept
                found.append(self._copied(value) if shared or isinstance(value, np.ndarray) else value)
            given.add(n)
        return found

    def _copied(self, value: Value) -> Value:
        context = self._memory.context
        if isinstance(value, np.ndarray):
            return context.upload(value)
        place = context.allocate(shape_of(value))
        context.copy(value, place)
        return place


def on_host(value: Any, read: bool = True) -> Value:
    """Returns a value in host memory; elements of a value that is not read are arbitrary."""
    if isinstance(value, np.ndarray):
        return value
    if read:
        return value.to_host()
    shape: Shape = value.device_shape
    return np.broadcast_to(np.zeros((), shape.dtype.numpy), shape.lens())
