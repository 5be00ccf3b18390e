"""Rewrite rules for products of computed values: scales out of attention scores, grouped heads (GQA), narrow operands."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from mgx_core import Instruction, No
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.convert import Convert
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.linear import Dot
from mgx_core.ops.movement import Transpose
from mgx_core.ops.pointwise import Mul
from mgx_core.ops.quantized_product import QuantDot
from mgx_core.ops.reshape import Reshape, Squeeze, Unsqueeze
from mgx_core.ops.softmax import Softmax
from mgx_core.rules.constants import scalar_of
from mgx_core.rules.engine import ROUNDING, Builder, Rules
from mgx_core.types.dtype import bfloat16, float16, float32

from .codegen.attention import LARGEST_HEAD
from .softmax_products import before_softmax, beside_softmax

__all__ = ["HEADS", "LARGE_HEADS", "SCORES", "WIDE_SUMS"]

HEADS: Final = Rules("heads")
VIEWS: Final = (Multibroadcast, Transpose, Reshape, Squeeze, Unsqueeze)
MAX_MEMBERS: Final = 12  # instructions allowed between the two products


@HEADS.on(Dot)
def heads_in_groups(i: Instruction, b: Builder) -> Instruction | No | None:
    """softmax(q repeat(k)) repeat(v) with heads [b, g r] -> the same with heads [b, g, r]; k and v have stride 0 along r."""
    weights, values = i.inputs
    shared = _repeated(values)
    if shared is None or i.shape.rank != 4:
        return None
    _, groups, share, _ = shared
    inside: dict[Instruction, bool] = {}
    if not _leads_to_scores(weights, (groups, share), inside):
        return No("the weights are not computed from scores whose keys are repeated in the same way")
    members = {m for m, depends in inside.items() if depends}
    if any(u not in members and u is not i for m in members for u in m.users):
        return No("the scores or weights have other uses")
    if len(members) > MAX_MEMBERS:
        return No(f"more than {MAX_MEMBERS} instructions are between the products")
    went: dict[Instruction, Instruction] = {}

    def split(x: Instruction) -> Instruction:
        dims = x.shape.dims
        return b.add(Reshape(dims=(dims[0], groups, share, *dims[2:])), x)

    def made(m: Instruction) -> Instruction:
        if m in went:
            return went[m]
        if isinstance(m.op, Dot):
            keys = _repeated(m.inputs[1])
            assert keys is not None
            went[m] = b.add(Dot(), split(m.inputs[0]), _broadcast(keys, m.inputs[1], b))
        elif inside.get(m):
            first = next(made(x) for x in m.inputs if inside.get(x))
            given = [made(x) if inside.get(x) else _side(x, first, groups, share, b) for x in m.inputs]
            went[m] = b.add(m.op.replace(axis=4) if isinstance(m.op, Softmax) else m.op, *given)
        return went[m]

    product = b.add(Dot(), made(weights), _broadcast(shared, values, b))
    return b.add(Reshape(dims=i.shape.dims), product)


class _Repeated(NamedTuple):
    """[b, g r, x, y], or with x and y exchanged, broadcast from [.., g, 1, x, y]."""

    source: Instruction
    groups: int
    share: int
    turned: bool


def _repeated(ins: Instruction) -> _Repeated | None:
    if isinstance(ins.op, Transpose) and ins.op.order(ins.shape.rank) == (0, 1, 3, 2):
        found = _repeated(ins.inputs[0])
        return None if found is None else found._replace(turned=not found.turned)
    wide = ins.inputs[0] if ins.op.reshapes and len(ins.inputs) == 1 else None
    if wide is None or not isinstance(wide.op, Multibroadcast) or len(wide.inputs) != 1 or ins.shape.rank != 4:
        return None
    source, dims = wide.inputs[0], wide.shape.dims
    if wide.shape.rank < 4 or source.shape.rank < 4:
        return None
    groups, share, heads = dims[-4], dims[-3], ins.shape.dims[1]
    if not (isinstance(groups, int) and isinstance(share, int)) or share < 2 or groups * share != heads:
        return None
    whole = source.shape.dims[-4] == groups and source.shape.dims[-3] == 1 and source.shape.dims[-2:] == dims[-2:]
    lead = dims[:-4] in ((), ins.shape.dims[:1]) and source.shape.dims[:-4] == dims[:-4]
    alone = bool(dims[:-4]) or ins.shape.dims[0] == 1
    if not (whole and lead and alone and dims[-2:] == ins.shape.dims[-2:]):
        return None
    return _Repeated(source, groups, share, False)


def _leads_to_scores(ins: Instruction, shared: tuple[int, int], seen: dict[Instruction, bool]) -> bool:
    """Returns True if an instruction is pointwise work on, or a softmax of, a product with shared keys."""
    if ins in seen:
        return seen[ins]
    if len(seen) > 2 * MAX_MEMBERS:
        return False
    seen[ins] = False
    if isinstance(ins.op, Dot):
        keys = _repeated(ins.inputs[1])
        seen[ins] = keys is not None and (keys.groups, keys.share) == shared
    elif isinstance(ins.op, Softmax):
        last = ins.op.reduced_axes(ins.shape.rank) == (ins.shape.rank - 1,)
        seen[ins] = last and _leads_to_scores(ins.inputs[0], shared, seen)
    elif isinstance(ins.op, Pointwise):
        found = [_leads_to_scores(x, shared, seen) for x in ins.inputs]  # no short circuit: `seen` collects all members
        seen[ins] = any(found)
    return seen[ins]


def _broadcast(of: _Repeated, like: Instruction, b: Builder) -> Instruction:
    """Returns [b, g, r, x, y] with stride 0 along r."""
    source = of.source
    if of.turned:
        rank = source.shape.rank
        source = b.add(Transpose(permutation=(*range(rank - 2), rank - 1, rank - 2)), source)
    if source.shape.rank == 4:
        source = b.add(Unsqueeze(axes=(0,)), source)
    dims = (like.shape.dims[0], of.groups, of.share, *like.shape.dims[2:])
    return b.add(Multibroadcast(out_lens=dims), source)


def _side(x: Instruction, like: Instruction, groups: int, share: int, b: Builder) -> Instruction:
    """Returns an operand of the pointwise work on the scores, with its heads axis split in two."""
    at, dims = x, like.shape.dims
    while isinstance(at.op, Multibroadcast) and len(at.inputs) == 1:
        at = at.inputs[0]
    if at.shape.rank <= 2:
        return b.add(Multibroadcast(out_lens=dims), at)
    if at.shape.dims[-3] == 1:
        return b.add(Multibroadcast(out_lens=dims), b.add(Unsqueeze(axes=(at.shape.rank - 2,)), at))
    return b.add(Reshape(dims=(x.shape.dims[0], groups, share, *x.shape.dims[2:])), x)


LARGE_HEADS: Final = Rules("large-heads")


@LARGE_HEADS.on("mgx_core.ops.attention:Attention", changes=ROUNDING)
def attention_of_large_heads(i: Instruction, b: Builder) -> Instruction | No | None:
    """attention of heads that are too large for the kernels -> products, a softmax and pointwise work, which are fused."""
    q, _, v, *_ = i.inputs
    sizes = [n for n in (q.shape.dims[3], v.shape.dims[3]) if isinstance(n, int)]
    if max(sizes, default=0) <= LARGEST_HEAD:
        return None
    assert i.op.decompose is not None
    made = i.op.decompose(b, *(None if x.is_absent else x for x in i.inputs))
    return made if isinstance(made, Instruction) else No("it does not decompose for these operands")


SCORES: Final = Rules("scores")


@SCORES.on(Dot, changes=ROUNDING)
def scale_out_of_scores(i: Instruction, b: Builder) -> Instruction | No | None:
    """dot(a * s, b * t) -> dot(a, b) * (s * t) where a softmax follows."""
    if not i.shape.dtype.is_float or not before_softmax(i):
        return None
    scale, operands, found = 1.0, [], False
    for x in i.inputs:
        taken = _scaled(x)
        if taken is not None and len(x.users) == 1:
            scale, found = scale * taken[0], True
            operands.append(taken[1])
        else:
            operands.append(x)
    if not found:
        return None
    product = b.add(Dot(), *operands)
    factor = b.literal(np.asarray(scale, i.shape.dtype.numpy))
    return b.add(Mul(), product, b.add(Multibroadcast(out_lens=product.shape.dims), factor))


def _scaled(ins: Instruction) -> tuple[float, Instruction] | None:
    if isinstance(ins.op, Mul):
        for at in (0, 1):
            scale = scalar_of(ins.inputs[at])
            if scale is not None:
                return scale, ins.inputs[1 - at]
    return None


WIDE_SUMS: Final = Rules("wide-sums")


@WIDE_SUMS.on(Dot, changes=ROUNDING)
def narrow_operands_of_wide_sums(i: Instruction, b: Builder) -> Instruction | No | None:
    """dot(wide(a), wide(b)) -> quant_dot(a, b) in float32 for 16-bit floats, whose products are exact there.

    `quantize_fp16` leaves products that may exceed float16 in float32, with operands that were rounded to float16.
    """
    x, y = (_widened(v) for v in i.inputs)
    if i.shape.dtype is not float32 or x is None or y is None or x.shape.dtype is not y.shape.dtype:
        return None
    if beside_softmax(i, (x, y)):
        return No("attention has kernels of its own")
    return b.add(QuantDot(), *(_with_views(v, source, b) for v, source in zip(i.inputs, (x, y), strict=True)))


def _widened(x: Instruction) -> Instruction | None:
    """Returns the 16-bit float that x is a conversion of, or a chain of views of one."""
    while isinstance(x.op, VIEWS) and len(x.inputs) == 1 and len(x.users) == 1:
        x = x.inputs[0]
    source = x.inputs[0] if isinstance(x.op, Convert) else None
    narrow = source is not None and source.shape.dtype in (float16, bfloat16) and not source.is_literal
    return source if narrow else None


def _with_views(x: Instruction, source: Instruction, b: Builder) -> Instruction:
    """Returns the views of x applied to what x was converted from."""
    return source if isinstance(x.op, Convert) else b.add(x.op, _with_views(x.inputs[0], source, b))
