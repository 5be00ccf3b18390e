"""The current work item of an attention kernel: its arguments, scratch addresses and chunk of query rows."""

from __future__ import annotations

from mgx_core.types.dtype import DType

from .attention_plan import Plan
from .code import Code, V, i64
from .element import MEMORY
from .parameters import parameter_value

__all__ = ["Item"]


class Item:
    """A chunk of query rows of one head.

    given: constants of the score that are parameters; tile: keys of a register tile; half: number of remaining keys from which a
    partial tile is faster than single vectors; depth: elements or pairs of the head; part: addresses of
    the scratch areas; here: addresses of the item's queries, keys, values and results (q, k, v, o); extra: addresses of the
    score's other operands; sink: of the score without a key, if there is one; first, count: the item's rows; valid: number of
    valid keys of its sample.
    """

    def __init__(self, c: Code, plan: Plan) -> None:
        self.c = c
        self.plan = plan
        self.tile = c.lanes * plan.abreast
        self.half = self.tile // 2
        self.zero, self.one = i64(0), i64(1)
        self.rank = plan.q.rank
        self.elem = {w: MEMORY[s.dtype] for w, s in (("q", plan.q), ("k", plan.k), ("v", plan.v), ("o", plan.out))}
        self.bases, scratch = c.buffers(range(3 + len(plan.extra) + 1)), V("%scratch", "ptr", 0)
        self.refs = plan.args.load(c)
        self.m, self.n, self.d, self.e = (self.arg(w) for w in "mnde")
        self.wide, self.chunk = self.arg("wide"), self.arg("chunk")
        self.depth = c.op("lshr", self.d, self.one) if plan.paired else self.d
        self.given = [(node, parameter_value(c, node, self.arg(f"number{i}"))) for i, node in enumerate(plan.given)]
        names = ("keys", "values", "weights", "lanes", "tops", "sums", "safe", "shrink", "result")
        self.part = {name: c.gep(scratch, self.arg(name), "float") for name in names}

    def arg(self, name: str) -> V:
        return self.refs[self.plan.args.places[name]]

    def extents(self) -> list[V]:
        """Returns the extents of the space of work items: batch axes, then chunks of rows."""
        c = self.c
        chunks = c.op("udiv", c.op("add", self.m, c.op("sub", self.chunk, self.one)), self.chunk)
        return [*(self.arg(f"b{i}") for i in range(self.rank - 2)), chunks]

    def _length(self, address: V, dtype: DType) -> V:
        found = self.c.load(address, MEMORY[dtype], 0)
        if dtype.size == 8:
            return found
        return self.c.cast("sext" if dtype.lowest else "zext", found, "i64")

    def enter(self, index: list[V]) -> None:
        """Makes the item at an index of that space the current one."""
        c, plan = self.c, self.plan
        batch, block = index[:-1], index[-1]
        self.here = {}
        for i, word in enumerate("qkvo"):
            base = self.bases[i if word != "o" else -1]
            for axis, x in enumerate(batch):
                base = c.gep(base, c.op("mul", x, self.arg(f"{word}{axis}")), self.elem[word])
            self.here[word] = base
        self.extra = []
        for j, node in enumerate(plan.loads):
            base = self.bases[3 + node.parameter - 1]
            for axis, x in enumerate(batch):
                base = c.gep(base, c.op("mul", x, self.arg(f"x{j}.{axis}")), MEMORY[node.dtype])
            self.extra.append(base)
        self.sink: V | None = None
        if plan.sink:
            self.sink = self.bases[3 + plan.sink - 1]
            for axis, x in enumerate(batch):
                self.sink = c.gep(self.sink, c.op("mul", x, self.arg(f"sink{axis}")), "float")
        self.valid = self.n
        for node, base in zip(plan.loads, self.extra, strict=True):
            if node.parameter == plan.lengths:
                self.valid = c.intrinsic("smin", self.n, c.intrinsic("smax", self._length(base, node.dtype), self.zero))
        self.first = c.op("mul", block, self.chunk)
        self.count = c.intrinsic("smin", self.chunk, c.op("sub", self.m, self.first))
