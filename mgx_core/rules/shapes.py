"""Evaluates shape arithmetic at compile time, and turns constant run-time operands into attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np

from ..errors import MgxError, No
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ops.broadcast import BroadcastForDot, BroadcastWithDims, Multibroadcast, Tile, common_dims
from ..ops.compare import Equal, Greater, GreaterOrEqual, Less, LessOrEqual
from ..ops.concat import Concat
from ..ops.control import GetTupleElem, If
from ..ops.fill import DimensionsOf, Fill
from ..ops.index import Gather, Onehot
from ..ops.operation import Operation
from ..ops.pad import Pad
from ..ops.pointwise import Add, Mul, Sub
from ..ops.reduce import Reduce
from ..ops.reshape import Reshape, Squeeze, Unsqueeze
from ..ops.resize import Resize
from ..ops.slice import Slice, Split
from ..ops.topk import Topk
from ..types import dtype as dt
from ..types.dim import Dim, bounds, compare, may_equal
from ..types.traced_int import TracedInt
from .constants import aligned
from .engine import Builder, Rules
from .known_extents import extents, given, ints
from .matching import op_as

__all__ = ["SHAPES"]

SHAPES: Final = Rules("simplify-shapes")

RELATIONS: Final[Mapping[type[Operation], str]] = {
    Equal: "==", Less: "<", LessOrEqual: "<=", Greater: ">", GreaterOrEqual: ">=",
}  # fmt: skip
NO_AXES: Final = "the axes are outside the rank, or one appears twice"


@SHAPES.on(DimensionsOf, Gather, Slice, Concat, Squeeze, Unsqueeze, Reshape, Add, Sub, Mul)
def literal_from_extents(i: Instruction, b: Builder) -> Instruction | No | None:
    """dimensions_of(x), and values computed from extents -> a literal if the extents are static."""
    if i.shape.dtype not in (dt.int64, dt.int32):
        return None
    found = extents(i)
    if found is None:
        return None
    fixed = [d for d in found if isinstance(d, int)]
    if len(fixed) < len(found):
        return No("an extent is known only at run time")
    if any(not i.shape.dtype.lowest <= d <= i.shape.dtype.highest for d in fixed):
        return No(f"{i.shape.dtype} does not hold the number")
    value = np.array(fixed, i.shape.dtype.numpy)
    if not i.shape.ranked or (i.shape.rank > 1 and i.shape.dynamic()):
        return No("the result's own extents are known only at run time")
    return b.literal(value if i.shape.dynamic() else value.reshape(i.shape.lens()))


@SHAPES.on(*RELATIONS)
def literal_from_compared_extents(i: Instruction, b: Builder) -> Instruction | No | None:
    """A comparison of values computed from extents -> a literal if the bounds of the extents decide it."""
    found = given(i, 0, 1)
    if found is None or found[0] is None or found[1] is None or len(found[0]) != len(found[1]) or i.shape.dynamic():
        return None
    pairs = list(zip(*found, strict=True))
    if any(type(d) is TracedInt for pair in pairs for d in pair):
        return None  # the answer would be a condition
    holds = [compare(one, RELATIONS[type(i.op)], other) for one, other in pairs]
    if None in holds:
        return No("the extents are known only at run time")
    return b.literal(np.array(holds, np.bool_).reshape(i.shape.lens()))


def static_form(b: Builder, op: Operation, *operands: Instruction) -> Instruction | No | None:
    """Returns the static form, or a refusal if its shape inference fails, so that the error is raised at run time."""
    try:
        return b.add(op, *operands)
    except MgxError as error:
        return No(f"the static form is refused: {error.message}")


@SHAPES.on(Reshape)
def static_reshape(i: Instruction, b: Builder) -> Instruction | No | None:
    """reshape(x, dims) with constant dims -> reshape[dims](x)."""
    if len(i.inputs) < 2:
        return None
    found = given(i, 1)
    if found is None or found[0] is None:
        return No("dims are known only at run time")
    made = static_form(b, i.op.replace(dims=found[0]), i.inputs[0])
    if (
        isinstance(made, Instruction)
        and made.shape.ranked
        and any(isinstance(d, int) and d < 0 for d in made.shape.dims)
    ):
        return No("dims are known only at run time")
    return made


@SHAPES.on(Squeeze, Unsqueeze, Reduce)
def static_axes(i: Instruction, b: Builder) -> Instruction | No | None:
    """squeeze(x, axes), unsqueeze(x, axes), reductions(x, axes) with constant axes -> the axes as attribute."""
    if len(i.inputs) < 2 or i.inputs[1].is_absent:
        return None
    found = given(i, 1)
    axes = ints(found[0]) if found else None
    if axes is None:
        return No("axes are known only at run time")
    if isinstance(i.op, Unsqueeze):
        rank = (i.inputs[0].shape.rank if i.inputs[0].shape.ranked else 0) + len(axes)
    else:
        rank = i.inputs[0].shape.rank if i.inputs[0].shape.ranked else 0
    if not rank or not i.inputs[0].shape.ranked:
        return No("the rank is known only at run time")
    if not _distinct(axes, rank):
        return No(NO_AXES)
    counted = tuple(a % rank for a in axes)
    if isinstance(i.op, Reduce) and not counted:
        return i.inputs[0] if i.op.noop_with_empty_axes else b.add(i.op.replace(axes=()), i.inputs[0])
    return static_form(b, i.op.replace(axes=counted), i.inputs[0])


def _distinct(axes: Sequence[int], rank: int) -> bool:
    """Returns True if all axes are within the rank and distinct."""
    return all(-rank <= a < rank for a in axes) and len({a % rank for a in axes}) == len(axes)


@SHAPES.on(Multibroadcast, BroadcastWithDims, BroadcastForDot)
def static_broadcast(i: Instruction, b: Builder) -> Instruction | No | None:
    """multibroadcast(x, y), broadcast_with_dims(x, dims), broadcast_for_dot(x, y) with constant extents -> multibroadcast(x)."""
    if len(i.inputs) < 2:
        return None
    x = i.inputs[0]
    if isinstance(i.op, BroadcastWithDims):
        found = given(i, 1)
        if found is None or found[0] is None or not x.shape.ranked:
            return No("dims are known only at run time")
        dims = common_dims(x.shape.dims, found[0])
    else:
        dims = i.shape.dims if i.shape.ranked else ()
    if not i.shape.ranked or any("?" in str(d) for d in dims):
        return No("the extents depend on data")
    return x if x.shape.dims == dims else static_form(b, Multibroadcast(out_lens=dims), x)


@SHAPES.on(Slice)
def static_slice(i: Instruction, b: Builder) -> Instruction | No | None:
    """slice(x, starts, ends, axes, steps) with known operands -> the same as attributes."""
    if len(i.inputs) < 2:
        return None
    found = given(i, 1, 2, 3, 4)
    if found is None or not i.inputs[0].shape.ranked:
        return No("a bound is known only at run time")
    op = op_as(i, Slice)
    starts, ends, axes, steps = found
    whole = [ints(axes) if axes is not None else op.axes, ints(steps) if steps is not None else op.steps]
    if None in whole:
        return No("an axis or step is known only at run time")
    op = op.replace(
        starts=op.starts if starts is None else starts,
        ends=op.ends if ends is None else ends,
        axes=whole[0],
        steps=whole[1],
    )
    try:
        op = op.normal(i.inputs[0].shape)
    except MgxError as error:
        return No(f"the static form is refused: {error.message}")
    return static_form(b, op, i.inputs[0])


@SHAPES.on(Tile)
def static_tile(i: Instruction, b: Builder) -> Instruction | No | None:
    """tile(x, repeats) with known repeats -> tile[repeats](x)."""
    if len(i.inputs) < 2:
        return None
    found = given(i, 1)
    if found is None or found[0] is None:
        return No("repeats are known only at run time")
    return static_form(b, i.op.replace(repeats=found[0]), i.inputs[0])


@SHAPES.on(Tile)
def drop_single_tile(i: Instruction, b: Builder) -> Instruction | No | None:
    """tile(x) with all repeats 1 -> x; of axes of extent 1 only -> multibroadcast(x)."""
    if len(i.inputs) > 1:
        return None
    repeats = op_as(i, Tile).repeats
    x = i.inputs[0]
    if all(r == 1 for r in repeats):
        return x
    units = all(d == 1 or r == 1 for d, r in zip(x.shape.dims, repeats, strict=True))
    return b.add(Multibroadcast(out_lens=i.shape.dims), x) if units else None


@SHAPES.on(Pad)
def static_pad(i: Instruction, b: Builder) -> Instruction | No | None:
    """pad(x, pads, value, axes) with known operands -> pad[pads, value](x)."""
    if len(i.inputs) < 2 or not i.inputs[0].shape.ranked:
        return None
    op = op_as(i, Pad)
    found = given(i, 1, 3)
    number = aligned(i.inputs[2]) if len(i.inputs) > 2 and not i.inputs[2].is_absent else None
    known = len(i.inputs) < 3 or i.inputs[2].is_absent or (number is not None and number.dtype.kind in "biuf")
    if found is None or not known:
        return No("widths or value are known only at run time")
    rank = i.inputs[0].shape.rank
    widths, axes = found
    pads: tuple[Dim, ...] = op.pads if widths is None else widths
    if axes is not None:
        at = ints(axes)
        if at is None or len(pads) != 2 * len(at):
            return No("an axis is known only at run time")
        if not _distinct(at, rank):
            return No(NO_AXES)
        full: list[Dim] = [0] * (2 * rank)
        for n, a in enumerate(at):
            full[a % rank], full[a % rank + rank] = pads[n], pads[n + len(at)]
        pads = tuple(full)
    value = op.value if number is None else float(number.reshape(-1)[0])
    if number is not None and number.dtype.kind in "iu" and int(value) != int(number.reshape(-1)[0]):
        return No("the value is not an exact float")
    return static_form(b, op.replace(pads=pads, value=value), i.inputs[0])


@SHAPES.on(Resize)
def static_resize(i: Instruction, b: Builder) -> Instruction | No | None:
    """resize(x, scales or sizes) with known operands -> the same as attributes."""
    if len(i.inputs) < 2 or any(not x.is_absent for x in i.inputs[3:]):
        return None
    op = op_as(i, Resize)
    if len(i.inputs) > 2 and not i.inputs[2].is_absent:
        found = extents(i.inputs[2])
        if found is None:
            return No("sizes are known only at run time")
        return static_form(b, op.replace(sizes=found), i.inputs[0])
    if i.inputs[1].literal is None:
        return No("scales are known only at run time")
    values = tuple(float(v) for v in np.asarray(i.inputs[1].literal.value).reshape(-1))
    try:
        known = op.replace(scales=values)
    except MgxError as error:
        return No(f"the static form is refused: {error.message}")
    return static_form(b, known, i.inputs[0])


@SHAPES.on(Resize)
def drop_resize(i: Instruction, b: Builder) -> Instruction | No | None:
    """resize(x) to its own extents, with factors of 1 -> x."""
    op, x = op_as(i, Resize), i.inputs[0]
    if len(i.inputs) > 1 or not x.shape.ranked or i.shape.dims != x.shape.dims:
        return None
    if op.coordinate_transformation_mode == "tf_crop_and_resize" or any(s != 1 for s in op.scales):
        return No("a region is cropped, or the sampled positions are not those of x")
    if not op.scales and op.keep_aspect_ratio_policy != "stretch":
        return No("the factor follows from the extents")
    return x


@SHAPES.on(Topk)
def static_topk(i: Instruction, b: Builder) -> Instruction | No | None:
    """topk(x, k) with a constant k, or one computed from extents -> topk[k](x)."""
    if len(i.inputs) < 2:
        return None
    found = extents(i.inputs[1])
    if found is None or len(found) != 1:
        return No("k is known only at run time")
    return static_form(b, op_as(i, Topk).replace(k=found[0]), i.inputs[0])


@SHAPES.on(GetTupleElem)
def slice_from_split(i: Instruction, b: Builder) -> Instruction | No | None:
    """an item of split(x, sizes) with constant sizes -> a slice of x."""
    split = i.inputs[0]
    if not isinstance(split.op, Split):
        return None
    sizes = extents(split.inputs[1])
    x = split.inputs[0]
    if sizes is None or not x.shape.ranked:
        return No("the sizes are known only at run time")
    axis = split.op.axis % x.shape.rank
    if not may_equal(sum(sizes), x.shape.dims[axis]) or any(bounds(s)[1] < 0 for s in sizes):
        return No("the sizes do not add up to the extent")
    start: Dim = 0
    for size in sizes[: op_as(i, GetTupleElem).index]:
        start = start + size
    return static_form(b, Slice(axes=(axis,), starts=(start,), ends=(start + sizes[op_as(i, GetTupleElem).index],)), x)


@SHAPES.on(Fill)
def broadcast_from_fill(i: Instruction, b: Builder) -> Instruction | No | None:
    """fill(value, like) -> multibroadcast(value) where the extents are static or symbolic."""
    value = i.inputs[0]
    if not i.shape.ranked or any(d != 1 for d in value.shape.dims):
        return No("the rank, or the value's extents, are known only at run time")
    if value.shape.rank > i.shape.rank:
        value = b.add(Reshape(dims=()), value)
    return value if value.shape.dims == i.shape.dims else b.add(Multibroadcast(out_lens=i.shape.dims), value)


@SHAPES.on(Onehot)
def static_onehot(i: Instruction, b: Builder) -> Instruction | No | None:
    """onehot(indices, depth, values) with a known depth -> the depth as attribute."""
    op = op_as(i, Onehot)
    if op.depth is not None or i.inputs[1].is_absent:
        return None
    found = extents(i.inputs[1])
    if found is None or len(found) != 1:
        return No("the depth is known only at run time")
    return static_form(b, op.replace(depth=found[0]), i.inputs[0], b.absent(), i.inputs[2])


@SHAPES.on("mgx_core.ops.scan:PrefixScan")
def branch_on_scanned_axis(i: Instruction, b: Builder) -> Instruction | None:
    """prefix_scan(x, axis) -> if(axis == 0){prefix_scan[axis=0](x)}{if(axis == 1){..}} for an axis computed at run time.

    Each scan then has a kernel, and the extents of x may change.
    """
    if len(i.inputs) != 2 or not i.shape.ranked or i.inputs[1].shape.dynamic():
        return None
    x, along = i.inputs
    rank = i.shape.rank
    known = aligned(along)
    if known is not None:
        axis = int(known.reshape(-1)[0])
        return b.add(i.op.replace(axis=axis), x) if -rank <= axis < rank else None
    if rank < 2:
        return None
    # counts negative axes from the end, and raises an error for those outside the rank
    along = b.add(Gather(axis=0), b.literal(np.arange(rank)), along)
    number = along.shape.lens()
    conditions = [b.add(Equal(), along, b.literal(np.full(number, axis))) for axis in range(rank - 1)]

    def scan(axis: int, add: Callable[..., Instruction]) -> Instruction:
        """Adds the scan along the given axis or a later one."""
        if axis == rank - 1:
            return add(i.op.replace(axis=axis), x)
        this, later = Module(f"{i.op.name}:{axis}"), Module(f"{i.op.name}:after_{axis}")
        this.add_return([this.add(i.op.replace(axis=axis), x, sources=i.sources)])
        later.add_return([scan(axis + 1, partial(later.add, sources=i.sources))])
        return add(GetTupleElem(index=0), add(If(), conditions[axis], modules=[this, later]))

    return scan(0, b.add)
