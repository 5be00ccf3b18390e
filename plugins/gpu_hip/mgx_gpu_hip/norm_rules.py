"""Rewrite rules around normalizations: group norms without copies, and more of the neighboring ops in their loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mgx_core import Instruction, No
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.norm import GroupNorm, Parts
from mgx_core.ops.pointwise import Add, Mul, Sub
from mgx_core.ops.reduce import Reduce
from mgx_core.ops.reshape import Reshape
from mgx_core.ops.slice import Slice
from mgx_core.rules.constants import is_constant
from mgx_core.rules.engine import Builder, Rules
from mgx_core.rules.matching import op_as
from mgx_core.rules.outline import through_views
from mgx_core.types.dim import Dim

__all__ = ["GROUP_NORMS", "NORM_ENDS"]

GROUP_NORMS: Final = Rules("group-norms")  # before the decomposition of norms
NORM_ENDS: Final = Rules("norm-ends")  # after it
DEEPEST: Final = 8  # the longest chain of ops between a norm's reductions and its result


@GROUP_NORMS.on(GroupNorm)
def group_norm_in_place(i: Instruction, b: Builder) -> Instruction | No | None:
    """groupnorm(x) -> reductions and pointwise ops on x with its channels split into groups and members.

    The decomposition for other targets merges the axes of a group, which copies an image with channels last.
    """
    x, *factors = i.inputs
    dims, groups = x.shape.dims, op_as(i, GroupNorm).num_groups
    if groups == 1:
        return None
    each = dims[1] // groups
    split = b.add(Reshape(dims=(dims[0], groups, each, *dims[2:])), x)
    parts = Parts(b, split)
    out = parts.normalized(parts.wide(split), tuple(range(2, len(dims) + 1)), op_as(i, GroupNorm).epsilon, True)
    members = (groups, each, *(1,) * (len(dims) - 2))
    scale, bias = (None if f is None or f.is_absent else parts.reshape(f, members) for f in [*factors, None, None][:2])
    made = parts.reshape(parts.finish(out, scale, bias), dims)
    assert isinstance(made, Instruction)
    return made


@NORM_ENDS.on(Pointwise, reads=Reshape)
def pointwise_in_groups(i: Instruction, b: Builder) -> Instruction | No | None:
    """f(reshape(norm), y) -> reshape(f(norm, reshape(y))) for a norm whose channels are split into groups."""
    dims = i.shape.dims
    reshapes = (x for x in i.inputs if isinstance(x.op, Reshape) and len(x.inputs) == 1)
    merged = next((x for x in reshapes if _splits_channels(dims, x.inputs[0].shape.dims)), None)
    if merged is None:
        return None
    norm = merged.inputs[0]
    if merged.users != (i,) or norm.users != (merged,):
        return No("the norm has other users")
    if not isinstance(norm.op, Pointwise) or not _reduces(norm, DEEPEST):
        return No("no operations would become fusible")
    operands = [norm if x is merged else _split(x, norm.shape.dims, b) for x in i.inputs]
    return b.add(Reshape(dims=dims), b.add(i.op, *operands))


@NORM_ENDS.on(Reshape, reads=Add)
def channel_sum_in_groups(i: Instruction, b: Builder) -> Instruction | No | None:
    """reshape(x + multibroadcast(y)) -> reshape(x) + multibroadcast(split y) where the channels are split into groups.

    Denoisers add their embedding of time to each image and channel, which no library does behind a convolution.
    """
    total = i.inputs[0]
    if len(i.inputs) > 1 or not isinstance(total.op, Add) or not _splits_channels(total.shape.dims, i.shape.dims):
        return None
    if not any(isinstance(x.op, Multibroadcast) and not is_constant(x) for x in total.inputs):
        return No("a convolution can compute the sum")
    if total.users != (i,):
        return No("the sum has other users")
    return b.add(total.op, *(_split(x, i.shape.dims, b) for x in total.inputs))


def _splits_channels(dims: Sequence[Dim], split: Sequence[Dim]) -> bool:
    if not (len(split) == len(dims) + 1 > 2 and (*split[:1], *split[3:]) == (*dims[:1], *dims[2:])):
        return False
    return split[1] * split[2] == dims[1]  # tensors without elements can be reshaped to other channels


def _reduces(x: Instruction, deep: int) -> bool:
    """Returns True if x is pointwise work on reductions."""
    source = through_views(x)
    if isinstance(source.op, Reduce):
        return True
    return bool(deep) and isinstance(source.op, Pointwise) and any(_reduces(y, deep - 1) for y in source.inputs)


def _split(x: Instruction, dims: Sequence[Dim], b: Builder) -> Instruction:
    """Returns x [n, c, ..] with its channels split; broadcast operands are split before they are broadcast."""
    if not isinstance(x.op, Multibroadcast) or len(x.inputs) > 1:
        return b.add(Reshape(dims=tuple(dims)), x)
    source = x.inputs[0]
    own = (*(1,) * (x.shape.rank - source.shape.rank), *source.shape.dims)
    parts = (1, 1) if own[1] == 1 else dims[1:3]
    small = b.add(Reshape(dims=(own[0], *parts, *own[2:])), source) if source.shape.rank else source
    return b.add(Multibroadcast(out_lens=tuple(dims)), small)


@NORM_ENDS.on(Multibroadcast, reads=(Add, Mul, Sub))
def broadcast_before_pointwise(i: Instruction, b: Builder) -> Instruction | No | None:
    """multibroadcast(f(slice(x), constant)) -> f(multibroadcast(slice(x)), constant): the loops that read it compute f.

    Adaptive norms scale by 1 + slice(x), which cannot join the computation of x.  A launch of its own takes longer than
    computing it for every element.
    """
    f = i.inputs[0]
    if not isinstance(f.op, (Add, Mul, Sub)) or len(i.inputs) > 1:
        return None
    computed = [x for x in f.inputs if not is_constant(x)]
    if len(computed) != 1:
        return None
    source = computed[0]
    while (source.op.reshapes or source.op.aligns) and len(source.inputs) == 1:
        source = source.inputs[0]
    if not isinstance(source.op, Slice):
        return No("f runs with the op that computes its operand")
    if not all(isinstance(u.op, Multibroadcast) and all(isinstance(v.op, Pointwise) for v in u.users) for u in f.users):
        return No("f has other users")
    return b.add(f.op, *(b.add(i.op, x) for x in f.inputs))
