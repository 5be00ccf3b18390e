"""bfloat16 attention on AMX: two tile products with a softmax loop between them.

Scores are float32.  Heads, or rows of one head, are partitioned so that the scores of a part stay in the L2 cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from itertools import product as product_of
from math import prod
from typing import Final

from mgx_core import Module, Shape
from mgx_core import dtype as dt
from mgx_core.errors import No, Refused, or_refused
from mgx_core.ops.softmax import Softmax
from mgx_core.targets.epilogue import Link, read_chain
from mgx_core.targets.values import Value

from ..emitter import CpuEmitter
from ..native_library import native
from .epilogues import Epilogue
from .products import product

__all__ = ["attend"]

LEAST: Final = (
    32  # queries, keys and elements of a head: products of less are no faster in tiles than in the loop's registers
)
EASY: Final = 64  # elements of a head for which a loop over the scores besides that of the softmax is worth its time
SCORES: Final = 2 << 20  # bytes of a part
PARTS: Final = 16  # at most


def attend(
    e: CpuEmitter, q: Value, k: Value, v: Value, out: Value, module: Module | None, extra: Sequence[Value]
) -> None:
    """softmax(module(q k, *extra)) v with q [.., m, d], k [.., d, n], v [.., n, e], to `out`.

    Errors: Refused where one loop over blocks of keys is faster.
    """
    if any(x.shape.dtype is not dt.bfloat16 for x in (q, k, v, out)) or "amx_bf16" not in native().cpu_features():
        raise Refused("products of bfloat16 by tiles")
    *batch, m, _ = q.lens
    n, head = k.lens[-1], min(q.lens[-1], v.lens[-1])
    if min(m, n, head) < LEAST:
        raise Refused(f"heads of {head} elements, {m} rows and {n} keys")
    parts = _parts([*batch, m], 4 * n)
    if len(parts) > PARTS or parts[0][-1][1] < LEAST:
        raise Refused(f"{prod(batch)} heads of {m} rows and {n} keys")
    chain = None if module is None else _chain(module, extra)
    if module is not None and chain is None and head < EASY:
        raise Refused(f"work on the scores of heads of {head} elements")
    q, v = _dense(e, q), _dense(e, v)
    k = _turned(_dense(e, _turned(k)))
    whole = out if out.shape.standard() else e.allocate(out.shape.dtype, out.lens)
    for part in parts:
        heads = [*part[:-1], (0, k.lens[-2])]
        scores = e.allocate(dt.float32, [*(count for _, count in part), n])
        others = [_part(x, part) for x in extra]
        epilogue = None
        if chain is not None:
            links = [(link, None if at is None else others[at]) for link, at in chain]
            epilogue = Epilogue(dt.float32, scores.lens, links)
        product(e, _part(q, part), _part(k, heads), epilogue, scores)
        if module is not None and chain is None:
            scores = _scored(e, module, scores, others)
        product(e, _weights(e, scores), _part(v, [*part[:-1], (0, n)]), None, _part(whole, part))
    if whole is not out:
        e.copy_into(whole, out)


def _parts(extents: Sequence[int], size: int) -> list[list[tuple[int, int]]]:
    """Divides axes into parts of at most SCORES bytes that follow each other in memory: for each, first and number by axis.

    size: bytes of one element of the last axis.
    """
    axis = len(extents)
    while axis and size * extents[axis - 1] <= SCORES:
        axis -= 1
        size *= extents[axis]
    rest = [(0, n) for n in extents[axis:]]
    if not axis:
        return [rest]
    n, pieces = extents[axis - 1], -(-size * extents[axis - 1] // SCORES)
    cuts = [n * p // pieces for p in range(pieces + 1)]
    divided = [(first, end - first) for first, end in pairwise(cuts) if end > first]
    return [
        [*((i, 1) for i in index), piece, *rest]
        for index in product_of(*map(range, extents[: axis - 1]))
        for piece in divided
    ]


def _part(x: Value, part: Sequence[tuple[int, int]]) -> Value:
    """Returns a part of x [.., n], whose axes are whole where they have one element."""
    offset = sum(first * s for (first, _), n, s in zip(part, x.lens, x.strides, strict=False) if n > 1)
    lens = [count if n > 1 else 1 for (_, count), n in zip(part, x.lens, strict=False)]
    return x.seen_as(offset, Shape(x.shape.dtype, [*lens, x.lens[-1]], x.strides))


def _dense(e: CpuEmitter, x: Value) -> Value:
    """Returns a value as oneDNN's tiles read it: row-major."""
    return x if x.shape.standard() else e.row_major(x)


def _turned(x: Value) -> Value:
    """Returns the same memory with the last two axes exchanged."""
    (*lens, a, b), (*steps, s, t) = x.lens, x.strides
    return x.seen_as(0, Shape(x.shape.dtype, [*lens, b, a], [*steps, t, s]))


def _chain(module: Module, extra: Sequence[Value]) -> list[tuple[Link, int | None]] | None:
    """The pointwise part as sums and multiples that a product takes along, with the numbers of the operands that they read.

    None if it is more than that, or an operand lies across the scores.
    """
    first, *others = module.parameters.values()
    chain = read_chain(module, first)
    if isinstance(chain, No) or any(link.algorithm not in ("linear", "add", "mul") for link in chain):
        return None
    if any(link.operand is not None and link.operand not in others for link in chain):
        return None
    found = [(link, None if link.operand is None else others.index(link.operand)) for link in chain]
    dense = all(at is None or extra[at].strides[-1] == 1 for _, at in found)
    return found if dense else None


def _scored(e: CpuEmitter, module: Module, scores: Value, extra: Sequence[Value]) -> Value:
    """Returns the pointwise part on scores, whose memory its results take if that is possible."""
    from ..jit.pointwise import compile_pointwise
    from .loops import results_of

    given = [scores, *extra]
    shapes = [x.shape for x in given]
    kernel = e.shared.kernels.kernel(
        module, "scores", [*shapes, scores.shape], lambda: compile_pointwise(module, shapes, [scores.shape], e.engine)
    )
    (made,) = results_of(e, kernel, given, [scores.shape])
    e.loop(kernel, given, [made], "scores")
    return made


def _weights(e: CpuEmitter, scores: Value) -> Value:
    from ..jit.norm import compile_op

    weights = e.allocate(dt.bfloat16, scores.lens)
    kernel = or_refused(compile_op(Softmax(axis=-1), [scores.shape], [weights.shape], e.engine))
    e.loop(kernel, [scores], [weights], "softmax")
    return weights
