"""Fused attention over blocks of keys with online softmax (Milakov and Gimelshein 2018; Dao et al. 2022, FlashAttention)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mgx_core import dtype as dt
from mgx_core.errors import No, Refused
from mgx_core.ir.module import Module
from mgx_core.types.shape import Shape
from mgx_core.types.traced_int import usual

from .attention_plan import (
    Plan,
    add_args,
    can_pair,
    chunk_of,
    key_of,
    lay_out_scratch,
    tile_rows,
    vectors_abreast,
    vectors_across,
    with_batch_axes,
)
from .body import read
from .code import Code
from .cost import grain_for
from .engine import Engine
from .graph import Graph, walk
from .kernel import JitKernel
from .parameters import parameter_constants

__all__ = ["compile_attention"]

FLOATS = (dt.float32, dt.float16, dt.bfloat16)


def compile_attention(
    q: Shape,
    k: Shape,
    v: Shape,
    out: Shape,
    engine: Engine,
    score: Module | None = None,
    extra: Sequence[Shape] = (),
    causal: bool = False,
    offset: int | None = None,
    name: str = "attention",
    guarded: bool = False,
    closes: bool = False,
    lengths: int = 0,
    sink: int = 0,
) -> JitKernel | No:
    """Returns a kernel for softmax(score(q k^T)) v, or `No`.

    q [b.., m, d], k [b.., n, d], v [b.., n, e], out [b.., m, e], any strides, but v and out contiguous in e; batch axes are
    equal (repeat heads with a stride of 0).  score: a module of pointwise ops and views whose first parameter is the scores
    [b.., m, n], the others `extra` (kernel inputs after q, k, v).  causal: row i sees keys up to i + offset (default: n - m).
    guarded: rows with NaN weights (all keys masked, or a NaN score) use weights of 0.
    closes: rows whose keys are all masked use weights of 0; a NaN score still makes its row NaN.
    lengths: 1-based index in `extra` of the number of valid keys by batch axes, which the score compares key indices with;
    later keys are not read and may hold anything.  0: none.
    sink: 1-based index in `extra` of a float32 score by batch axes that takes part in the softmax without a key.  0: none.
    """
    shapes = (q, k, v, out)
    refused = _check(*shapes)
    if refused is not None:
        return refused
    batch, (m, d) = q.lens()[:-2], q.lens()[-2:]
    n, e = v.lens()[-2:]
    graph = None if score is None else _scores(score, [*batch, m, n], extra)
    if isinstance(graph, No):
        return graph
    nodes = [] if graph is None else list(walk(graph.outputs))
    loads = [node for node in nodes if node.kind == "load" and node.parameter != 0]
    q, k, v, out = (with_batch_axes(shape) for shape in shapes)
    rows = tile_rows(m, engine)
    across = vectors_across(e, rows, engine)
    tile = engine.lanes * across
    packed = m > 1 or k.strides()[-1] != 1
    turned = k.strides()[-2] == 1 and n > 1 and k.strides()[-1] != 1
    plan = Plan(
        q, k, v, out, extra, graph, loads, parameter_constants(nodes),
        rows=rows, causal=causal, turned=turned, packed=packed, paired=packed and can_pair(q, k, v, turned, engine),
        abreast=vectors_abreast(rows, engine), across=across, even=e % tile == 0, guarded=guarded, closes=closes, lengths=lengths,
        sink=sink,
    )  # fmt: skip
    chunk = chunk_of(plan, m, math.prod(batch))
    add_args(plan, (m, n, d, e), n - m if offset is None else offset, chunk)
    scratch = lay_out_scratch(plan, chunk, engine.lanes, tile, d, e)
    plan.key = key_of(plan)
    heads = math.prod(batch) if m and e else 0
    return JitKernel(
        name=name,
        code=engine.function(plan.key, lambda c: _write(c, plan)),
        work=heads * -(-m // chunk),
        grain=grain_for(16384, n * d * min(chunk, usual(m))),
        args=tuple(plan.args.values),
        scratch_bytes=scratch,
        inputs=3 + len(extra),
        outputs=1,
        flops=2 * heads * m * n * (d + e),
        bytes=sum(s.element_space() * s.dtype.size for s in (*shapes, *extra)),
    )


def _check(q: Shape, k: Shape, v: Shape, out: Shape) -> No | None:
    """Returns a refusal if types, extents or layouts of operands and results are not supported."""
    shapes = (q, k, v, out)
    if any(s.dtype not in FLOATS for s in shapes) or len({s.rank for s in shapes}) != 1 or q.rank < 2:
        return No(
            f"operands of equal rank, of float32 or narrower floats, are required, got {', '.join(map(str, shapes))}"
        )
    batch, (m, d) = q.lens()[:-2], q.lens()[-2:]
    n, e = v.lens()[-2:]
    if k.lens() != [*batch, n, d] or v.lens() != [*batch, n, e] or out.lens() != [*batch, m, e]:
        return No(f"the extents do not match: {', '.join(map(str, shapes))}")
    if e > 1 and (v.strides()[-1], out.strides()[-1]) != (1, 1):
        return No(f"values and results must be contiguous along the head, got {v} and {out}")
    return No("an extent is 0") if 0 in (d, n) else None


def _scores(score: Module, dims: Sequence[int], extra: Sequence[Shape]) -> Graph | No:
    """Returns the graph of the pointwise ops on the scores."""
    try:
        graph = read(score, [Shape(dt.float32, dims), *extra], dims)
    except Refused as error:
        return error.no
    if len(graph.outputs) != 1 or not graph.outputs[0].dtype.is_float:
        return No("unsupported type of the scores")
    return graph


def _write(c: Code, plan: Plan) -> None:
    """Generates the code; imports the generator lazily, since most processes never need it."""
    from .attention_loops import write

    write(c, plan)
