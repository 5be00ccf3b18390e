"""Memory planning: computes live ranges, decides which values share memory, and assigns each an offset in one arena."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from functools import cached_property
from typing import Final, Protocol

import numpy as np

from ..errors import DeviceError
from ..ir.instruction import Instruction
from ..ir.module import Module, nested
from ..ir.ordering import reads
from ..named_tuples import NamedTuple
from ..records import dataclass
from ..types.memory_limit import machine_memory, static_bytes, value_limit
from ..types.shape import Shape
from ..types.traced_int import int_or_traced
from .kernel import op_of

__all__ = ["Buffer", "MemoryPlan", "Placed", "fits_in_memory", "overlap", "place", "plan_memory"]

FEW: Final = 512  # up to this number of buffers, a scalar search is faster


@dataclass
class Buffer:
    """Memory of one value and of all values that are views of it.

    first, last: live range in the module's order, inclusive; offset: bytes from the arena's start.
    """

    owner: Instruction
    bytes: int
    first: int
    last: int
    offset: int = 0
    members: list[Instruction] = field(default_factory=list)


class MemoryPlan:
    """Offsets of a module's values in the arena (parameters, literals and results of the module have their own memory).

    Computed lazily, since a target may place the values itself.
    reuse: values with disjoint live ranges share memory.
    """

    def __init__(self, module: Module, reuse: bool = True) -> None:
        self._module = module
        self._reuse = reuse

    @property
    def buffers(self) -> list[Buffer]:
        return self._planned.buffers

    @property
    def peak(self) -> int:
        """Bytes of the arena."""
        return self._planned.peak

    @property
    def lower_bound(self) -> int:
        """The maximum of live bytes over all positions."""
        return self._planned.lower_bound

    @property
    def dynamic(self) -> list[Instruction]:
        """Values of data-dependent size, which are allocated at run time."""
        return self._planned.dynamic

    @property
    def of(self) -> dict[Instruction, Buffer]:
        """Buffers by value."""
        return self._planned.of

    @cached_property
    def _planned(self) -> _Planned:
        return _planned(self._module, self._reuse)


class _Planned(NamedTuple):
    buffers: list[Buffer]
    peak: int
    lower_bound: int
    dynamic: list[Instruction]
    of: dict[Instruction, Buffer]


def plan_memory(module: Module, reuse: bool = True) -> MemoryPlan:
    """Returns the plan for the intermediate values of one module."""
    return MemoryPlan(module, reuse)


def _planned(module: Module, reuse: bool) -> _Planned:
    steps = list(module)
    roots: dict[Instruction, Instruction] = {}
    for ins in steps:
        roots[ins] = roots.get(ins.inputs[0]) or root(ins) if _is_view(ins) else ins
    outside = {roots.get(o) or root(o) for o in module.outputs}
    of: dict[Instruction, Buffer] = {}
    buffers: list[Buffer] = []
    dynamic: list[Instruction] = []
    for n, ins in enumerate(steps):
        for read in reads(ins):
            if read in of:
                of[read].last = max(of[read].last, n)
        if ins.is_param or ins.is_literal or ins.is_return or ins.is_absent:
            continue
        owner = roots[ins]
        if owner in of:
            of[ins] = of[owner]
            of[owner].members.append(ins)
            continue
        size = static_bytes(ins.result)
        if size is None:
            dynamic.append(ins)
        elif owner is ins and ins not in outside:
            buffer = Buffer(ins, size, n, n, members=[ins])
            of[ins] = buffer
            buffers.append(buffer)
    peak, lower_bound = place(buffers, len(steps), reuse)
    return _Planned(buffers, peak, lower_bound, dynamic, of)


def root(ins: Instruction) -> Instruction:
    """Returns the instruction that owns the memory of a chain of views."""
    while _is_view(ins):
        ins = ins.inputs[0]
    return ins


def _is_view(ins: Instruction) -> bool:
    """Returns True if a value is its first input's memory under another shape."""
    view = op_of(ins).view
    if view is None or not ins.inputs or not isinstance(ins.result, Shape) or ins.result.dynamic():
        return False
    shapes = [i.result for i in ins.inputs]
    return all(isinstance(s, Shape) and not s.dynamic() for s in shapes) and view(*shapes) is not None


def fits_in_memory(plan: MemoryPlan, module: Module) -> None:
    """Checks a plan before allocation.  Errors: DeviceError if it exceeds this machine's memory."""
    sizes: dict[int, int] = {}  # by shape: many instructions share one
    allowed = value_limit()
    for inner in nested(module):
        for ins in inner:  # including views, since a read covers all their elements
            if id(ins.result) in sizes or ins.is_return:
                continue
            size = sizes[id(ins.result)] = int_or_traced(static_bytes(ins.result) or 0)
            if size > allowed:
                raise DeviceError(
                    f"{ins!r} would take {size} bytes; {allowed} are allowed (compile option limit_bytes)"
                )
    there = machine_memory()
    if sum(sizes[id(i.result)] for i in module if not i.is_return) <= there:
        return  # even without sharing memory
    results = sum(static_bytes(o.result) or 0 for o in module.outputs)
    largest = max((b.bytes for b in plan.buffers), default=0)
    needed = max(plan.lower_bound, largest) + results
    if needed > there:
        raise DeviceError(f"the program needs {needed} bytes for simultaneously live values; this machine has {there}")


class Placed(Protocol):
    """A buffer to place: size and live range; `place` sets its offset."""

    bytes: int
    first: int
    last: int
    offset: int


def place(buffers: Sequence[Placed], steps: int, reuse: bool = True) -> tuple[int, int]:
    """Assigns each buffer the lowest offset that does not overlap buffers with intersecting live ranges.

    Places the largest buffers first; if that exceeds the lower bound, also tries other orders (longest live range first, peak
    position first) and keeps the best.  steps: number of positions; returns the bytes of the arena and the lower bound (the
    maximum of live bytes).
    """
    lower_bound, fullest = _most_alive(buffers, steps)
    if not reuse:
        peak = 0
        for buffer in buffers:
            buffer.offset = peak
            peak += buffer.bytes
        return peak, lower_bound
    best: tuple[int, list[int]] | None = None
    for order in _orders(fullest):
        peak, offsets = _placed(buffers, order)
        if best is None or peak < best[0]:
            best = peak, offsets
        if best[0] == lower_bound or len(buffers) > FEW:
            break
    peak, offsets = best or (0, [])
    for buffer, offset in zip(buffers, offsets, strict=True):
        buffer.offset = offset
    return peak, lower_bound


def overlap(buffers: Iterable[Placed]) -> str | None:
    """Checks that buffers with intersecting live ranges do not overlap; returns a description of the first that do, or None."""
    alive: list[Placed] = []
    for one in sorted((b for b in buffers if b.bytes), key=lambda b: b.first):
        alive = [b for b in alive if b.last >= one.first]
        for other in alive:
            if one.offset < other.offset + other.bytes and other.offset < one.offset + one.bytes:
                return (
                    f"bytes {one.offset} to {one.offset + one.bytes} (steps {one.first} to {one.last}) and "
                    f"{other.offset} to {other.offset + other.bytes} (steps {other.first} to {other.last}) overlap"
                )
        alive.append(one)
    return None


def _orders(fullest: int) -> list[Callable[[Placed], tuple[int, ...]]]:
    """Yields sort keys: orders in which to place the buffers."""
    return [
        lambda b: (-b.bytes, b.first),
        lambda b: (not b.first <= fullest <= b.last, -b.bytes, b.first),
        lambda b: (not b.first <= fullest <= b.last, b.first - b.last, -b.bytes),
        lambda b: (b.first - b.last, -b.bytes),
        lambda b: ((b.first - b.last - 1) * b.bytes,),
        lambda b: (b.first, -b.bytes),
    ]


def _placed(buffers: Sequence[Placed], order: Callable[[Placed], tuple[int, ...]]) -> tuple[int, list[int]]:
    arena = _Arena() if len(buffers) <= FEW else _LargeArena(len(buffers))
    offsets = [0] * len(buffers)
    peak = 0
    for n in sorted(range(len(buffers)), key=lambda n: order(buffers[n])):
        buffer = buffers[n]
        buffer.offset = offsets[n] = arena.put(buffer)
        peak = max(peak, buffer.offset + buffer.bytes)
    return peak, offsets


class _Arena:
    """The buffers placed so far."""

    def __init__(self) -> None:
        self.placed: list[Placed] = []

    def put(self, buffer: Placed) -> int:
        """Returns the lowest offset at which a buffer fits."""
        at = 0
        near = [p for p in self.placed if p.first <= buffer.last and buffer.first <= p.last]
        for other in sorted(near, key=lambda p: p.offset):
            if at + buffer.bytes <= other.offset:
                break
            at = max(at, other.offset + other.bytes)
        self.placed.append(buffer)
        return at


class _LargeArena(_Arena):
    """Like `_Arena`, vectorized over arrays sorted by offset, for thousands of simultaneously live values."""

    def __init__(self, count: int) -> None:
        self.columns = np.zeros((4, count), np.int64)  # first, last, begin, end
        self.count = 0

    def put(self, buffer: Placed) -> int:
        n = self.count
        first, last, begin, end = self.columns[:, :n]
        near = np.flatnonzero((first <= buffer.last) & (last >= buffer.first))
        at = 0
        if near.size and begin[near[0]] < buffer.bytes:
            ends = np.maximum.accumulate(end[near])
            gaps = np.flatnonzero(begin[near[1:]] - ends[:-1] >= buffer.bytes)
            at = int(ends[gaps[0] if gaps.size else -1])
        where = int(np.searchsorted(begin, at, "right"))
        self.columns[:, where + 1 : n + 1] = self.columns[:, where:n].copy()
        self.columns[:, where] = buffer.first, buffer.last, at, at + buffer.bytes
        self.count = n + 1
        return at


def _most_alive(buffers: Sequence[Placed], steps: int) -> tuple[int, int]:
    """Returns the maximum of live bytes and its position."""
    change = [0] * (steps + 1)
    for b in buffers:
        change[b.first] += b.bytes
        change[b.last + 1] -= b.bytes
    alive = most = where = 0
    for position, c in enumerate(change):
        alive += c
        if alive > most:
            most, where = alive, position
    return most, where
