"""The end of products with packed weights: sums in scratch go through the pointwise part to the results."""

from __future__ import annotations

from .code import Code, V
from .gemm_plan import GemmPlan
from .graph import Node
from .primitive import MEMORY, from_memory, to_memory
from .scope import Scope

__all__ = ["Results"]


class Results:
    """Finishes rows of sums.

    args: the kernel's run-time numbers by name; extra, outs: addresses of the pointwise part's other operands, of the results.
    """

    def __init__(self, c: Code, plan: GemmPlan, args: dict[str, V], extra: list[V], outs: list[V]) -> None:
        self.c, self.plan, self.args, self.extra, self.outs = c, plan, args, extra, outs

    def rows(self, sums: V, pitch: V, row0: V, count: V, column0: V, columns: V | int, ragged: bool) -> None:
        """`count` rows of sums, `pitch` apart, as the results from (row0, column0) on.

        columns: a number of lanes that is known, or a value; ragged: they may end within a vector.
        """
        c, n = self.c, self.c.lanes
        zero = V("0", "i64", 0)
        fixed = [c.first(c.op("sub", self.args["n"], self._at(column0, v)), n) for v in range(columns // n)] \
            if isinstance(columns, int) and ragged else []  # fmt: skip

        def row(r: V, _: list[V]) -> list[V]:
            line = c.op("add", row0, r)
            source = c.gep(sums, c.op("mul", r, pitch), "float")
            targets = []
            for j, (out, dtype) in enumerate(zip(self.outs, self.plan.outs, strict=True)):
                at_row = c.gep(out, c.op("mul", line, self.args[f"o{j}"]), MEMORY[dtype])
                targets.append(c.gep(at_row, column0, MEMORY[dtype]))
            bases = self._bases(line, column0)

            def vector(at: V, mask: V | None) -> None:
                values = self._pointwise(c.load(c.gep(source, at, "float"), "float", n), bases, at, mask)
                for value, target, dtype in zip(values, targets, self.plan.outs, strict=True):
                    c.store(c.gep(target, at, MEMORY[dtype]), to_memory(c, value, dtype), mask)

            def pair(j: V, _: list[V]) -> list[V]:
                vector(j, None)
                vector(c.op("add", j, V(str(n), "i64", 0)), None)
                return []

            def one(j: V, _: list[V]) -> list[V]:
                vector(j, c.first(c.op("sub", columns, j), n))  # type: ignore[arg-type]
                return []

            if isinstance(columns, int):
                for v in range(columns // n):
                    vector(V(str(v * n), "i64", 0), fixed[v] if fixed else None)
            else:
                at = c.loop(zero, columns, 2 * n, pair, ahead=2 * n - 1)[0]
                if ragged:
                    c.loop(at, columns, n, one)
            return []

        c.loop(zero, count, 1, row)

    def _at(self, column: V, vector: int) -> V:
        return self.c.op("add", column, V(str(vector * self.c.lanes), "i64", 0)) if vector else column

    def _bases(self, line: V, column0: V) -> list[V]:
        """Returns where the row's part of each other operand begins."""
        c = self.c
        bases = []
        for j, (node, by_row, by_column) in enumerate(self.plan.loads):
            at, elem = self.extra[node.extra[0] - (node.extra[0] > self.plan.at)], MEMORY[node.dtype]
            if by_row:
                at = c.gep(at, c.op("mul", line, self.args[f"r{j}"]), elem)
            if by_column:
                at = c.gep(at, c.op("mul", column0, self.args[f"c{j}"]), elem)
            bases.append(at)
        return bases

    def _pointwise(self, value: V, bases: list[V], j: V, mask: V | None) -> list[V]:
        c, plan, n = self.c, self.plan, self.c.lanes
        if plan.graph is None:
            return [value]
        number = {x.ident: i for i, (x, _, _) in enumerate(plan.loads)}

        def load(node: Node) -> V:
            if node.extra[0] == plan.at:
                return value
            k = number[node.ident]
            elem = MEMORY[node.dtype]
            by_column = plan.loads[k][2]
            if not by_column:
                return c.splat(from_memory(c, c.load(bases[k], elem, 0), node.dtype), n)
            if by_column == 1:
                return from_memory(c, c.load(c.gep(bases[k], j, elem), elem, n, mask), node.dtype)
            step = self.args[f"c{k}"]
            raw = c.gather(c.gep(bases[k], c.op("mul", j, step), elem), c.offsets(step, n), elem, mask)
            return from_memory(c, raw, node.dtype)

        scope = Scope(c, n, load)
        return [scope.value(o) for o in plan.graph.outputs]
