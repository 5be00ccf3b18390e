"""Attention in blocks: scores of a few rows against a block of keys, online softmax, times the values.

This module has the plan of a kernel; `attention_loops` writes its code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from mgx_core import dtype as dt
from mgx_core.errors import No, Refused
from mgx_core.ir.module import Module
from mgx_core.types.shape import Shape

from .body import read
from .engine import Engine
from .graph import Graph, Node, walk
from .kernel import JitKernel
from .space import Args

__all__ = ["KEYS", "Plan", "compile_attention"]

KEYS = 128  # keys of a block at most: its copies of keys and values stay in the second-level cache
TILE = 16  # keys of a block are a multiple of this, those of the last block excepted
CHUNK = 240  # query rows of an item: copying keys and values is paid for by as many rows
FLOATS = (dt.float32, dt.float16, dt.bfloat16)


@dataclass
class Plan:
    """`key` holds everything that the code depends on; extents and steps are args."""

    q: Shape
    k: Shape
    v: Shape
    out: Shape
    extra: Sequence[Shape]
    graph: Graph | None
    loads: list[Node]
    rows: int
    causal: bool
    turned: bool  # keys lie as [.., d, n] in memory
    packed: bool  # keys and values are copied, a block at a time
    across: int  # vectors of the head in a register tile of results
    even: bool  # the head extent is a whole number of tiles
    guarded: bool
    args: Args = field(default_factory=Args)
    slots: dict[str, int] = field(default_factory=dict)
    key: str = ""


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
) -> JitKernel | No:
    """softmax(score(q k^T)) v.

    q [b.., m, d], k [b.., n, d], v [b.., n, e], out [b.., m, e], any strides, but v and out contiguous in e; batch axes are
    equal (repeat heads by a stride of 0).  score: a module of pointwise ops and views whose first parameter is the scores
    [b.., m, n], the others `extra` (kernel inputs after q, k, v).  causal: row i sees keys up to i + offset (default n - m).
    guarded: rows whose weights are NaN (all keys masked) count as weights of 0.
    """
    from .attention_loops import write

    shapes = (q, k, v, out)
    if any(s.dtype not in FLOATS for s in shapes) or len({s.rank for s in shapes}) != 1 or q.rank < 2:
        return No(f"attention of {', '.join(map(str, shapes))}")
    batch, (m, d) = q.lens()[:-2], q.lens()[-2:]
    n, e = v.lens()[-2:]
    if k.lens() != [*batch, n, d] or v.lens() != [*batch, n, e] or out.lens() != [*batch, m, e]:
        return No(f"extents that do not fit: {', '.join(map(str, shapes))}")
    if (v.strides()[-1] != 1 and e > 1) or (out.strides()[-1] != 1 and e > 1):
        return No(f"values or results that are not contiguous along the head: {v}, {out}")
    if 0 in (d, n):
        return No("no keys, or heads without elements")
    graph = None
    loads: list[Node] = []
    if score is not None:
        try:
            graph = read(score, [Shape(dt.float32, [*batch, m, n]), *extra], [*batch, m, n])
        except Refused as error:
            return error.no
        nodes = list(walk(graph.outputs))
        loads = [node for node in nodes if node.kind == "load" and node.extra[0] != 0]
        if len(graph.outputs) != 1 or not graph.outputs[0].dtype.is_float:
            return No("scores of another type")
    across = _across(e, engine)
    tile = engine.lanes * across
    plan = Plan(
        q, k, v, out, extra, graph, loads,
        rows=_rows(m), causal=causal, turned=k.strides()[-2] == 1 and n > 1 and k.strides()[-1] != 1,
        packed=m > 1 or k.strides()[-1] != 1, across=across, even=e % tile == 0, guarded=guarded,
    )  # fmt: skip
    chunk = _chunk(plan, m, math.prod(batch))
    _number(plan, batch, (m, n, d, e), n - m if offset is None else offset, chunk)
    scratch = _scratch(plan, chunk, engine.lanes, tile, d, e)
    plan.key = _key(plan)
    heads = math.prod(batch) if m and e else 0
    return JitKernel(
        name=name,
        code=engine.function(plan.key, lambda c: write(c, plan)),
        work=heads * -(-m // chunk),
        grain=1 if n * d * min(chunk, m) > 8192 else max(1, 16384 // max(1, n * d * min(chunk, m))),
        args=tuple(plan.args.values),
        scratch_bytes=scratch,
        inputs=3 + len(extra),
        outputs=1,
        flops=2 * heads * m * n * (d + e),
        bytes=sum(s.element_space() * s.dtype.size for s in (*shapes, *extra)),
    )


def _rows(m: int) -> int:
    """Rows of a register tile."""
    return max(1, min(m, 6))


def _across(e: int, engine: Engine) -> int:
    """Vectors of a register tile of results: a tile takes multiplications, or loads if they are more."""
    rows = 6

    def price(vectors: int) -> float:
        return -(-e // (engine.lanes * vectors)) * max(rows * vectors, rows + vectors + 2)

    return min(range(4 if engine.wide else 2, 0, -1), key=price)


def _chunk(plan: Plan, m: int, heads: int) -> int:
    most = CHUNK if heads >= 2 else -(-m // 2)
    pieces = -(-m // max(1, min(CHUNK, most)))
    each = -(-m // max(pieces, 1))
    return max(plan.rows, -(-each // plan.rows) * plan.rows)


def _scratch(plan: Plan, chunk: int, lanes: int, tile: int, d: int, e: int) -> int:
    """Numbers where the parts of scratch start, in floats; returns the bytes of all.

    keys [KEYS / tile, d, tile], values [KEYS, e], weights [rows, KEYS], one vector a row, maxima and sums of the chunk's rows,
    two vectors, results [chunk + rows, e]; e rounded up to tiles.
    """
    wide = -(-e // tile) * tile
    sizes = {
        "keys": -(-d // lanes) * lanes * KEYS,
        "values": KEYS * wide if plan.packed else 0,
        "weights": plan.rows * KEYS,
        "lanes": 8 * lanes,
        "tops": chunk + 16,
        "sums": chunk + 16,
        "safe": 16,
        "shrink": 16,
        "result": (chunk + plan.rows) * wide,
    }
    at = 0
    for name, size in sizes.items():
        plan.slots[name] = plan.args.add(at)
        at += -(-size // 16) * 16
    plan.slots["wide"] = plan.args.add(wide)
    return 4 * at


def _number(plan: Plan, batch: Sequence[int], extents: Sequence[int], offset: int, chunk: int) -> None:
    def slot(name: str, value: int) -> None:
        plan.slots[name] = plan.args.add(value)

    for name, value in zip(("m", "n", "d", "e", "offset", "chunk"), (*extents, offset, chunk), strict=True):
        slot(name, value)
    blocks = -(-extents[1] // KEYS)
    slot("block", -(-extents[1] // (blocks * TILE)) * TILE)
    for i, extent in enumerate(batch):
        slot(f"b{i}", extent)
    for word, shape in (("q", plan.q), ("k", plan.k), ("v", plan.v), ("o", plan.out)):
        for i, step in enumerate(shape.strides()):
            slot(f"{word}{i}", step)
    for j, node in enumerate(plan.loads):
        for i, step in enumerate(node.extra[1]):
            slot(f"x{j}.{i}", step)


def _key(plan: Plan) -> str:
    words = [
        f"attention rank={plan.q.rank} rows={plan.rows} causal={plan.causal} turned={plan.turned} even={plan.even}",
        f"guarded={plan.guarded} packed={plan.packed} across={plan.across}",
    ]
    words.append(" ".join(str(s.dtype) for s in (plan.q, plan.k, plan.v, plan.out)))
    words.append(str((plan.k.strides()[-1] == 1, plan.q.strides()[-1] == 1, KEYS)))
    if plan.graph is not None:
        nodes = list(walk(plan.graph.outputs))
        number = {x.ident: i for i, x in enumerate(nodes)}
        for i, x in enumerate(nodes):
            extra = (x.extra[0], [min(s, 2) for s in x.extra[1]]) if x.kind == "load" else x.extra
            words.append(f"{i} {x.kind} {x.dtype} {extra} {[number[a.ident] for a in x.args]}")
    return "\n".join(words)
