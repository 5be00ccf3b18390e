"""bfloat16 attention on AMX: two tile products with a softmax loop between them.

Scores are float32.  Heads, or the rows of a head, are processed in blocks whose scores fit in the L2 cache.
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

__all__ = ["emit_tiled_attention"]

MIN_SIZE: Final = 32  # minimum of queries, keys and head size: below it, tiles are no faster than vector registers
MIN_HEAD: Final = 64  # minimum head size for which an additional pass over the scores pays off
MAX_BYTES: Final = 2 << 20  # maximum bytes of scores of a block
MAX_BLOCKS: Final = 16  # maximum number of blocks


def emit_tiled_attention(
    e: CpuEmitter, q: Value, k: Value, v: Value, out: Value, module: Module | None, extra: Sequence[Value]
) -> None:
    """Emits softmax(module(q k, *extra)) v into `out`; q [.., m, d], k [.., d, n], v [.., n, e].

    Errors: Refused if the fused loop over blocks of keys is faster or the processor has no AMX.
    """
    if any(x.shape.dtype is not dt.bfloat16 for x in (q, k, v, out)) or "amx_bf16" not in native().cpu_features():
        raise Refused("bfloat16 operands and AMX are required")
    *batch, m, _ = q.lens
    n, head = k.lens[-1], min(q.lens[-1], v.lens[-1])
    if min(m, n, head) < MIN_SIZE:
        raise Refused(f"head size {head}, {m} queries and {n} keys are too small for AMX tiles")
    blocks = _blocks([*batch, m], 4 * n)
    if len(blocks) > MAX_BLOCKS or blocks[0][-1][1] < MIN_SIZE:
        raise Refused(f"the scores of {prod(batch)} heads of {m} queries and {n} keys exceed {MAX_BLOCKS} blocks")
    chain = None if module is None else _post_ops(module, extra)
    if module is not None and chain is None and head < MIN_HEAD:
        raise Refused(f"a separate pass over the scores does not pay off for head size {head}")
    q, v = _row_major(e, q), _row_major(e, v)
    k = _transposed(_row_major(e, _transposed(k)))
    whole = out if out.shape.standard() else e.allocate(out.shape.dtype, out.lens)
    for block in blocks:
        heads = [*block[:-1], (0, k.lens[-2])]
        scores = e.allocate(dt.float32, [*(count for _, count in block), n])
        others = [_block(x, block) for x in extra]
        epilogue = None
        if chain is not None:
            links = [(link, None if at is None else others[at]) for link, at in chain]
            epilogue = Epilogue(dt.float32, scores.lens, links)
        product(e, _block(q, block), _block(k, heads), epilogue, scores)
        if module is not None and chain is None:
            scores = _apply_pointwise(e, module, scores, others)
        product(e, _softmax(e, scores), _block(v, [*block[:-1], (0, n)]), None, _block(whole, block))
    if whole is not out:
        e.copy_into(whole, out)


def _blocks(extents: Sequence[int], size: int) -> list[list[tuple[int, int]]]:
    """Splits an index space into contiguous blocks of at most MAX_BYTES; returns (start, count) per axis for each block.

    size: bytes per element of the index space.
    """
    axis = len(extents)
    while axis and size * extents[axis - 1] <= MAX_BYTES:
        axis -= 1
        size *= extents[axis]
    rest = [(0, n) for n in extents[axis:]]
    if not axis:
        return [rest]
    n, count = extents[axis - 1], -(-size * extents[axis - 1] // MAX_BYTES)
    cuts = [n * p // count for p in range(count + 1)]
    divided = [(first, end - first) for first, end in pairwise(cuts) if end > first]
    return [
        [*((i, 1) for i in index), piece, *rest]
        for index in product_of(*map(range, extents[: axis - 1]))
        for piece in divided
    ]


def _block(x: Value, block: Sequence[tuple[int, int]]) -> Value:
    """Returns a block of x [.., n] as a view; axes of extent 1 (broadcast over the scores) are not sliced."""
    offset = sum(first * s for (first, _), n, s in zip(block, x.lens, x.strides, strict=False) if n > 1)
    lens = [count if n > 1 else 1 for (_, count), n in zip(block, x.lens, strict=False)]
    return x.view_at(offset, Shape(x.shape.dtype, [*lens, x.lens[-1]], x.strides))


def _row_major(e: CpuEmitter, x: Value) -> Value:
    """Returns a value in row-major layout, which oneDNN's AMX kernels require."""
    return x if x.shape.standard() else e.row_major(x)


def _transposed(x: Value) -> Value:
    """Returns a view with the last two axes transposed."""
    (*lens, a, b), (*steps, s, t) = x.lens, x.strides
    return x.view_at(0, Shape(x.shape.dtype, [*lens, b, a], [*steps, t, s]))


def _post_ops(module: Module, extra: Sequence[Value]) -> list[tuple[Link, int | None]] | None:
    """Returns the pointwise module as post-ops of the product, each with the index of its operand in `extra`, or None.

    None if it contains other ops than linear functions, sums and products, or an operand is not contiguous along the keys.
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


def _apply_pointwise(e: CpuEmitter, module: Module, scores: Value, extra: Sequence[Value]) -> Value:
    """Emits the pointwise module on scores, in place if possible."""
    from ..jit.pointwise import compile_pointwise
    from .loops import allocate_results

    given = [scores, *extra]
    shapes = [x.shape for x in given]
    kernel = e.shared.kernels.kernel(
        module, "scores", [*shapes, scores.shape], lambda: compile_pointwise(module, shapes, [scores.shape], e.engine)
    )
    (made,) = allocate_results(e, kernel, given, [scores.shape])
    e.loop(kernel, given, [made], "scores")
    return made


def _softmax(e: CpuEmitter, scores: Value) -> Value:
    from ..jit.single_op import compile_op

    weights = e.allocate(dt.bfloat16, scores.lens)
    kernel = or_refused(compile_op(Softmax(axis=-1), [scores.shape], [weights.shape], e.engine))
    e.loop(kernel, [scores], [weights], "softmax")
    return weights
