"""Concatenates what is written to constant places, as exporters translate assignments to slices and loops over time steps."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..errors import No
from ..ir.instruction import Instruction
from ..ops.axes import normalize
from ..ops.builtin import Literal
from ..ops.concat import Concat
from ..ops.movement import Transpose
from ..types.shape import Shape
from .constants import whole
from .engine import Builder, Rules
from .matching import one_user
from .slices import cut

__all__ = ["WRITTEN_SLICES"]

WRITTEN_SLICES: Final = Rules("join-written-slices")

MOST: Final = 256  # parts of a concatenation: kernels take each as an argument


@WRITTEN_SLICES.on(trait="replaces_along_axis", reads=Literal)
def concat_from_written_slices(i: Instruction, b: Builder) -> Instruction | No | None:
    """scatter_none(scatter_none(x, 0, u), 1, v) of whole slices at constant places -> concat(u, v, rest of x).

    One slice, too: no scatter is done in place, a concatenation reads no indices, and other rules and kernels join it.
    """
    written = _written(i)
    if written is None or (one_user(i) and i.users[0].inputs[0] is i and _same_axis(i.users[0], written[0])):
        return None  # the last one written joins all
    axis = written[0]
    length = i.shape.dims[axis]
    assert isinstance(length, int)
    parts: dict[int, Instruction] = {}
    base = i
    while _same_axis(base, axis) and (base is i or one_user(base)):
        found = _written(base)
        assert found is not None
        parts.setdefault(found[1], base.inputs[2])
        base = base.inputs[0]
    ends = [*sorted(parts), length]
    rest = [(begin, end) for begin, end in zip([0, *(n + 1 for n in ends)], ends, strict=False) if begin < end]
    if len(parts) + len(rest) > MOST:
        return No(f"the slices form {len(parts) + len(rest)} parts, at most {MOST} are concatenated")
    at = parts | {begin: cut(b, base, {axis: (begin, end, 1)}) for begin, end in rest}
    return b.add(Concat(axis=axis), *(at[n] for n in sorted(at)))


@WRITTEN_SLICES.on("mgx_core.ops.scatter:ScatterndNone", reads=Literal)
def concat_from_written_rows(i: Instruction, b: Builder) -> Instruction | No | None:
    """scatternd_none(x, consecutive constant rows, u) -> concat(x before, u, x after); the same with both transposed.

    torch exports an assignment to a range along an axis to ONNX so, with the axis moved to the front.
    """
    x, indices, u = i.inputs
    rows = indices.literal
    if rows is None or not all(isinstance(v.result, Shape) and v.shape.ranked for v in i.inputs):
        return None
    places = rows.to_numpy()
    length = x.shape.dims[0]
    if places.ndim != 2 or places.shape[1] != 1 or not places.size or not isinstance(length, int):
        return None
    begin = int(places[0, 0]) % max(length, 1)
    end = begin + len(places)
    outside = places.min() < -length or max(end, places.max() + 1) > length
    if outside or not np.array_equal(places[:, 0] % length, np.arange(begin, end)):
        return No("the rows are not consecutive, or outside")
    order = x.op.order(x.shape.rank) if isinstance(x.op, Transpose) else tuple(range(x.shape.rank))
    if isinstance(x.op, Transpose):
        x, u = x.inputs[0], b.add(Transpose(permutation=tuple(map(int, np.argsort(order)))), u)
    axis = order[0]
    around = [cut(b, x, {axis: span}) if span[0] < span[1] else None for span in ((0, begin, 1), (end, length, 1))]
    joined = b.add(Concat(axis=axis), *(part for part in (around[0], u, around[1]) if part is not None))
    return joined if order == tuple(range(len(order))) else b.add(Transpose(permutation=order), joined)


def _same_axis(ins: Instruction, axis: int) -> bool:
    found = _written(ins)
    return found is not None and found[0] == axis


def _written(ins: Instruction) -> tuple[int, int] | None:
    """Returns the axis and the constant place of a whole slice of length 1 that is written; None for other scatters."""
    if not ins.op.replaces_along_axis or not all(isinstance(x.result, Shape) for x in ins.inputs):
        return None
    data, indices, updates = ins.inputs
    if not data.shape.ranked or not updates.shape.ranked:
        return None
    axis = normalize(ins.op.attributes()["axis"], data.shape.rank)
    dims = data.shape.dims
    length = dims[axis]
    if updates.shape.dims != (*dims[:axis], 1, *dims[axis + 1 :]) or not isinstance(length, int):
        return None
    place = whole(indices)
    return None if place is None or not -length <= place < length else (axis, place % length)
