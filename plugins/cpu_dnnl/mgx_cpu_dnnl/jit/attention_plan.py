"""Plans of attention kernels: tile sizes and the properties that code is specialized for; extents and strides are arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from mgx_core import dtype as dt
from mgx_core.records import dataclass
from mgx_core.types.shape import Shape
from mgx_core.types.traced_int import usual

from .engine import Engine
from .graph import Graph, Node, text_of, walk
from .parameters import constant_text, enter_parameters
from .space import Args

__all__ = [
    "KEYS", "Plan", "add_args", "can_pair", "chunk_of", "key_of", "lay_out_scratch", "tile_rows", "vectors_abreast",
    "vectors_across", "with_batch_axes",
]  # fmt: skip

KEYS = 128  # maximum keys of a block: its packed keys and values stay in the L2 cache
TILE = 64  # the keys of every block but the last are a multiple of this: full register tiles
TALL, LOW = 8, 6  # maximum rows of a register tile, with AVX-512 and without
BATCH_AXES = 3  # minimum batch axes, so that operands of fewer share code
CHUNK = 240  # query rows of an item, which amortize packing keys and values


@dataclass
class Plan:
    """A plan; `key` determines the code, extents and strides are arguments."""

    q: Shape
    k: Shape
    v: Shape
    out: Shape
    extra: Sequence[Shape]
    graph: Graph | None
    loads: list[Node]
    given: list[Node]  # constants of the score that are parameters
    rows: int
    causal: bool
    turned: bool  # keys are stored as [.., d, n]
    packed: bool  # keys and values are packed block by block
    paired: bool  # .. as pairs of bfloat16, whose products one instruction sums
    abreast: int  # vectors of keys in a register tile of scores
    across: int  # vectors of the head in a register tile of results
    even: bool  # the head extent is a multiple of the tile
    guarded: bool
    closes: bool
    lengths: int  # 1-based index of the extra operand with each sample's number of keys; 0: all have n
    sink: int  # 1-based index of the extra operand with a score by head that has no key; 0: none
    args: Args = field(default_factory=Args)
    key: str = ""


def with_batch_axes(shape: Shape) -> Shape:
    """Returns a shape with leading axes of 1, up to `BATCH_AXES` batch axes."""
    more = max(0, BATCH_AXES + 2 - shape.rank)
    return Shape(shape.dtype, [1] * more + shape.lens(), [0] * more + shape.strides())


def tile_rows(m: int, engine: Engine) -> int:
    """Returns the rows of a register tile: many, to hide the latency of the maxima, but with little padding at the end."""
    most, m = TALL if engine.wide else LOW, usual(m)
    return -(-m // -(-m // most)) if m else 1


def can_pair(q: Shape, k: Shape, v: Shape, turned: bool, engine: Engine) -> bool:
    """Returns True if products of pairs of bfloat16 are supported: by the processor, the types, and the layouts."""
    narrow = all(s.dtype is dt.bfloat16 for s in (q, k, v))
    adjacent = q.strides()[-1] == 1 and (turned or k.strides()[-1] == 1)
    return engine.bfloat16 and narrow and adjacent and q.lens()[-1] % 2 == 0


def vectors_abreast(rows: int, engine: Engine) -> int:
    """Returns the width of a register tile of scores, in vectors."""
    return 4 if engine.wide and rows <= LOW else 2


def vectors_across(e: int, rows: int, engine: Engine) -> int:
    """Returns the width of a register tile of results, in vectors, balancing multiplications and loads."""

    def price(vectors: int) -> float:
        return -(-e // (engine.lanes * vectors)) * max(rows * vectors, rows + vectors + 2)

    return min(range(vectors_abreast(rows, engine), 0, -1), key=price)


def chunk_of(plan: Plan, m: int, heads: int) -> int:
    m = usual(m)
    most = CHUNK if usual(heads) >= 2 else -(-m // 2)
    pieces = -(-m // max(1, min(CHUNK, most)))
    each = -(-m // max(pieces, 1))
    return max(plan.rows, -(-each // plan.rows) * plan.rows)


def lay_out_scratch(plan: Plan, chunk: int, lanes: int, tile: int, d: int, e: int) -> int:
    """Assigns offsets to the scratch areas, in floats; returns their total bytes.

    keys [KEYS / tile, d, tile], values [KEYS, e], weights [rows, KEYS], one vector per row, maxima and sums of the chunk's rows,
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
        plan.args.enter({name: at})
        at += -(-size // 16) * 16
    plan.args.enter({"wide": wide})
    return 4 * at


def add_args(plan: Plan, extents: Sequence[int], offset: int, chunk: int) -> None:
    args, rank = plan.args, plan.q.rank
    args.enter(dict(zip(("m", "n", "d", "e", "offset", "chunk"), (*extents, offset, chunk), strict=True)))
    blocks = -(-extents[1] // KEYS)
    args.enter({"block": -(-extents[1] // (blocks * TILE)) * TILE})
    args.enter({f"b{i}": extent for i, extent in enumerate(plan.q.lens()[:-2])})
    for word, shape in (("q", plan.q), ("k", plan.k), ("v", plan.v), ("o", plan.out)):
        args.enter({f"{word}{i}": step for i, step in enumerate(shape.strides())})
    for j, node in enumerate(plan.loads):
        steps = node.strides
        args.enter({f"x{j}.{i}": step for i, step in enumerate([*[0] * (rank - len(steps)), *steps])})
    if plan.sink:
        sinks = plan.extra[plan.sink - 1].strides()[:-2]
        args.enter({f"sink{i}": step for i, step in enumerate([*[0] * (rank - 2 - len(sinks)), *sinks])})
    enter_parameters(args, plan.given)


def key_of(plan: Plan) -> str:
    key_parts = [
        f"attention rank={plan.q.rank} rows={plan.rows} causal={plan.causal} turned={plan.turned} even={plan.even}",
        f"guarded={plan.guarded} closes={plan.closes} packed={plan.packed} abreast={plan.abreast} across={plan.across}",
        *(["paired"] if plan.paired else []),
        f"operands={len(plan.extra)} lengths={plan.lengths}",  # also those that the score does not read: the result is the last
        *([f"sink={plan.sink}"] if plan.sink else []),
    ]
    key_parts.append(" ".join(str(s.dtype) for s in (plan.q, plan.k, plan.v, plan.out)))
    key_parts.append(str((plan.k.strides()[-1] == 1, plan.q.strides()[-1] == 1, KEYS)))
    if plan.graph is not None:
        nodes = list(walk(plan.graph.outputs))
        text, _ = text_of(
            nodes, lambda x: (x.parameter, [min(s, 2) for s in x.strides[-2:]]), constant_text(plan.given)
        )
        key_parts.append(text)
    return "\n".join(key_parts)
