"""Plans of loops over taps: axes, and tables of offsets and weights, which are kernel arguments."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from mgx_core.named_tuples import NamedTuple
from mgx_core.records import dataclass
from mgx_core.types.shape import Shape

from .space import Args

__all__ = ["Axis", "Plan", "Taps", "double_bits", "planned"]


class Taps(NamedTuple):
    """Input indices and weights by output index along one axis."""

    indices: list[list[int]]
    weights: list[list[float]] | None = None


class Axis(NamedTuple):
    extent: int
    out_step: int
    x_step: int  # 0 if offsets come from a table
    table: int  # index of the table in the arguments (-1: none): counts, offsets, weights, each by output index
    most: int  # maximum taps of an output index
    weighted: bool


@dataclass
class Plan:
    axes: list[Axis]
    args: Args
    how: str
    x: Shape
    out: Shape
    extents: list[int]
    out_steps: list[int]
    x_steps: list[int]
    tables: list[int]  # arguments with the start of each axis' table
    most: list[int]  # arguments with each axis' largest number of taps
    filler_at: int  # the argument with the fill value's bits
    key: str = ""


def planned(x: Shape, out: Shape, taps: Mapping[int, Taps], how: str, filler: int) -> Plan:
    """Returns the plan of a loop from x to out; how: "copy" or "sum"; filler: bits of the fill value."""
    args = Args()
    rows: list[tuple[Axis, Taps | None]] = []
    for number, (n, step, x_step) in enumerate(zip(out.lens(), out.strides(), x.strides(), strict=True)):
        found = taps.get(number)
        if found is None:
            if n != 1:
                rows.append((Axis(n, step, x_step, -1, 1, False), None))
        else:
            longest = max((len(i) for i in found.indices), default=0)
            scaled = Taps([[i * x_step for i in row] for row in found.indices], found.weights)
            rows.append((Axis(n, step, 0, 0, longest, found.weights is not None), scaled))
    rows.sort(key=lambda r: -r[0].out_step)
    merged = _merged(rows)
    if not merged:
        merged = [(Axis(1, 1, 1, -1, 1, False), None)]
    extents = [args.add(a.extent) for a, _ in merged]
    out_steps = [args.add(a.out_step) for a, _ in merged]
    x_steps = [args.add(a.x_step) for a, _ in merged]
    starts = [args.add(0) for _ in merged]
    most = [args.add(a.most) for a, _ in merged]
    filler_at = args.add(filler - (1 << 64) if filler >> 63 else filler)
    axes = []
    values = args.values
    for (axis, found), start in zip(merged, starts, strict=True):
        if found is not None:
            axis = axis._replace(table=start)
            values[start] = len(values)
            values.extend(_table(found, axis))
        axes.append(axis)
    plan = Plan(axes, args, how, x, out, extents, out_steps, x_steps, starts, most, filler_at)
    plan.key = _key(plan)
    return plan


def _merged(rows: list[tuple[Axis, Taps | None]]) -> list[tuple[Axis, Taps | None]]:
    """Merges adjacent axes without taps that are contiguous with each other for both operands."""
    merged: list[tuple[Axis, Taps | None]] = []
    for axis, found in rows:
        last = merged[-1] if merged else None
        if (
            last is not None
            and found is None
            and last[1] is None
            and last[0].out_step == axis.out_step * axis.extent
            and last[0].x_step == axis.x_step * axis.extent
        ):
            merged[-1] = (axis._replace(extent=axis.extent * last[0].extent), None)
        else:
            merged.append((axis, found))
    return merged


def _key(plan: Plan) -> str:
    """Returns the key: the properties that determine the code."""
    key_parts = [f"taps {plan.how} {plan.x.dtype} {plan.out.dtype}"]
    for a in plan.axes:
        direct = a.table < 0
        key_parts.append(f"{direct} {a.out_step == 1} {a.x_step if a.x_step < 2 else 2} {a.weighted}")
    return "\n".join(key_parts)


def _table(taps: Taps, axis: Axis) -> list[int]:
    """Encodes a table: counts, then for each tap the offsets of all indices, then the weights as bits of float64."""
    rows = taps.indices
    out = [len(r) for r in rows]
    for t in range(axis.most):
        out += [r[t] if t < len(r) else 0 for r in rows]
    if taps.weights is not None:
        for t in range(axis.most):
            out += [double_bits(w[t]) if t < len(w) else 0 for w in taps.weights]
    return out


def double_bits(value: float) -> int:
    """Returns the bits of a float64 as an integer."""
    return int(struct.unpack("<q", struct.pack("<d", value))[0])
