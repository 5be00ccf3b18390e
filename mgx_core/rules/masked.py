"""Replaces scatters at the nonzero elements of a mask, as exporters write ``x[mask] = v``, by selections of known extents."""

from __future__ import annotations

from typing import Final

from ..errors import No
from ..ir.instruction import Instruction
from ..ops.broadcast import BroadcastWithDims, Multibroadcast
from ..ops.index import Gathernd
from ..ops.movement import Transpose
from ..ops.pointwise import Where
from ..ops.reshape import Reshape, Squeeze, Unsqueeze
from ..types import dtype as dt
from ..types.dim import compare
from .engine import Builder, Rules
from .matching import op_as

__all__ = ["MASKED"]

MASKED: Final = Rules("select-by-masks")


@MASKED.on(trait="replaces", reads=(Transpose, Reshape))
def scatter_at_mask(i: Instruction, b: Builder) -> Instruction | No | None:
    """x with v at the nonzero elements of a mask -> where(mask, v, x); v: one value, or another tensor at the same elements."""
    x, indices, updates = i.inputs
    mask = _masked(indices)
    if mask is None or not (x.shape.ranked and updates.shape.ranked):
        return None
    lead = mask.shape.rank
    if mask.shape.dtype is not dt.bool_ or mask.shape.dims != x.shape.dims[:lead]:
        return No("the mask is not boolean, or has other extents than the tensor")
    value = _value(b, updates, mask, x)
    if value is None:
        return No("the new elements are neither one value nor elements of a tensor at the same mask")
    dims = x.shape.dims
    if lead < len(dims):
        mask = b.add(Unsqueeze(axes=tuple(range(lead, len(dims)))), mask)
    return b.add(
        Where(), *(v if v.shape.dims == dims else b.add(Multibroadcast(out_lens=dims), v) for v in (mask, value)), x
    )


def _masked(indices: Instruction) -> Instruction | None:
    """Returns the mask, with at least one axis, whose nonzero elements these indices [n, axes] are."""
    from ..ops.select import Nonzero  # most models assign to no slices

    if not indices.inputs or not isinstance(indices.inputs[0].op, Nonzero):
        return None
    found = indices.inputs[0]
    (mask,) = found.inputs
    match indices.op:
        case Transpose(permutation=(1, 0)):
            transposed = True
        case Reshape():  # what the transpose of a single row is rewritten to
            transposed = found.shape.dims[0] == 1 and indices.shape.dims == found.shape.dims[::-1]
        case _:
            transposed = False
    if not transposed or not mask.shape.ranked or mask.shape.rank == 0:  # a scalar counts as a vector of one
        return None
    return mask


def _value(b: Builder, updates: Instruction, mask: Instruction, x: Instruction) -> Instruction | None:
    """Returns the tensor from which the updates [n, ..] at a mask are selected, in a form that broadcasts to x."""
    source = updates.inputs[0] if updates.inputs else None
    if source is None or not source.shape.ranked:
        return None
    if isinstance(updates.op, Gathernd):
        same = _masked(updates.inputs[1]) is mask and op_as(updates, Gathernd).batch_dims == 0
        return source if same and source.shape.dims == x.shape.dims else None
    if not isinstance(updates.op, (BroadcastWithDims, Multibroadcast)):
        return None
    if source.shape.rank < updates.shape.rank:
        return source
    return b.add(Squeeze(axes=(0,)), source) if compare(source.shape.dims[0], "==", 1) else None
