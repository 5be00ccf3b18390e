"""Pads and nearest-neighbor resampling as lines of a few runs: elements forward, backward or repeated, and fill values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from mgx_core.named_tuples import NamedTuple
from mgx_core.types.shape import Shape

from .cost import grain_for
from .kernel import JitKernel
from .native_loop import NativeLoop
from .taps_plan import Taps

__all__ = ["compile_lines"]

GRAIN: Final = 32768  # minimum bytes per thread
MIN_BYTES: Final = 64  # minimum bytes of a line, and on average of a run, that are worth a call
FORWARD, BACKWARD, FILLER = range(3)  # as in `line_loops.cpp`


class _Run(NamedTuple):
    kind: int
    extent: int  # elements of the line
    first: int  # its first element in x
    times: int  # repetitions of each element


def compile_lines(x: Shape, out: Shape, taps: Mapping[int, Taps], filler: int, name: str) -> JitKernel | None:
    """Returns a kernel that copies integer elements with at most one tap per axis; None if lines are short or fragmented.

    filler: the bits stored where there is no tap.
    """
    if not out.elements():
        return None
    axes = sorted((a for a, n in enumerate(out.lens()) if n != 1 or a in taps), key=lambda a: -out.strides()[a])
    steps, x_steps, lens = out.strides(), x.strides(), out.lens()
    width, places = 1, [0]  # contiguous elements, and the source of each group of them in a line; -1: the filler
    while axes and steps[axes[-1]] == x_steps[axes[-1]] == width:
        axis = axes.pop()
        if axis in taps:
            places = [row[0] if row else -1 for row in taps[axis].indices]
            break
        width *= lens[axis]
    length = width * len(places)
    stretches = _greedy_runs(places) if width == 1 else _runs(places, width)
    size = x.dtype.size
    if length * size < MIN_BYTES * max(1, len(stretches) - 2):
        return None
    bits = 8 * size
    args = [filler - (1 << bits) if filler >> (bits - 1) else filler, length, len(stretches)]
    args += [n for s in stretches for n in s]
    args.append(len(axes))
    tables: list[int] = []
    begin = len(args) + 4 * len(axes)
    for a in axes:
        found = [row[0] * x_steps[a] if row else -1 for row in taps[a].indices] if a in taps else []
        args += [lens[a], steps[a], x_steps[a], begin + len(tables) if a in taps else 0]
        tables += found
    work = math.prod(lens[a] for a in axes)
    return JitKernel(
        name=name,
        code=NativeLoop(f"move_lines_{size}"),
        work=work,
        grain=grain_for(GRAIN, length * size),
        args=(*args, *tables),
        scratch_bytes=0,
        inputs=1,
        outputs=1,
        bytes=x.bytes() + out.bytes(),
    )


def _runs(places: Sequence[int], width: int) -> list[_Run]:
    """Returns the runs of a line, given the source index of each group of `width` contiguous elements."""
    found: list[_Run] = []
    at = 0
    while at < len(places):
        first, end = places[at], at + 1
        while end < len(places) and places[end] == (first if first < 0 else first + end - at):
            end += 1
        count = (end - at) * width
        found.append(_Run(FILLER, count, 0, 1) if first < 0 else _Run(FORWARD, count, first * width, 1))
        at = end
    return found


def _greedy_runs(line: Sequence[int]) -> list[_Run]:
    """Splits a line greedily into runs."""
    times = _repeats(line)
    if times > 1:
        return [_Run(FORWARD, len(line), line[0], times)]
    found: list[_Run] = []
    at = 0
    while at < len(line):
        first, end = line[at], at + 1
        step = line[end] - first if end < len(line) and first >= 0 else 0
        if abs(step) > 1 or (end < len(line) and line[end] < 0 <= first):
            step = 1  # a run of one element
        while end < len(line) and line[end] == (first + step * (end - at)) and (line[end] < 0) == (first < 0):
            end += 1
        count = end - at
        if first < 0:
            found.append(_Run(FILLER, count, 0, 1))
        else:
            found.append(_Run(BACKWARD if step < 0 else FORWARD, count, first, count if not step else 1))
        at = end
    return found


def _repeats(line: Sequence[int]) -> int:
    """Returns the repetitions of each element, if the line is one run with equally many of each; else 1."""
    first = line[0]
    times = next((i for i, n in enumerate(line) if n != first), len(line))
    if first < 0 or times == 1 or len(line) % times or times == len(line):
        return 1
    return times if all(n == first + i // times for i, n in enumerate(line)) else 1
