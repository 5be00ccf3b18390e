"""Joins slices that are written one by one, as loops over time steps are exported."""

from __future__ import annotations

from typing import Final

from ..errors import No
from ..ir.instruction import Instruction
from ..ops.axes import normalize
from ..ops.builtin import Literal
from ..ops.concat import Concat
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
    """scatter_none(scatter_none(x, 0, u), 1, v) of whole slices at constant places -> concat(u, v, rest of x)."""
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
    if len(parts) < 2:
        return None
    ends = [*sorted(parts), length]
    rest = [(begin, end) for begin, end in zip([0, *(n + 1 for n in ends)], ends, strict=False) if begin < end]
    if len(parts) + len(rest) > MOST:
        return No(f"the slices form {len(parts) + len(rest)} parts, at most {MOST} are concatenated")
    at = parts | {begin: cut(b, base, {axis: (begin, end, 1)}) for begin, end in rest}
    return b.add(Concat(axis=axis), *(at[n] for n in sorted(at)))


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
