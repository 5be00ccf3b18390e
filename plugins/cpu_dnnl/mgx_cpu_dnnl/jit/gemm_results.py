"""Epilogue code of products with packed weights: reads sums from scratch memory, stores results."""

from __future__ import annotations

from typing import Final

from mgx_core import dtype as dt

from .code import Code, V, i64
from .element import MEMORY, from_memory, to_memory
from .gemm_epilogue import Epilogue
from .graph import Node
from .parameters import parameter_value
from .scope import Scope

__all__ = ["Results"]

# instructions that narrow to bytes with saturation, by primitive: with AVX-512, and on half a vector with AVX2
NARROWING: Final = {
    "rounded_uint8": ("llvm.x86.avx512.packuswb.512", "llvm.x86.sse2.packuswb.128"),
    "rounded_int8": ("llvm.x86.avx512.packsswb.512", "llvm.x86.sse2.packsswb.128"),
}


class Results:
    """Emits the epilogue for rows of sums.

    args: the kernel's arguments by name; extra, outs: addresses of the epilogue's other operands and of the results;
    filled: the columns are a multiple of the vector, so that no mask is needed.
    """

    def __init__(
        self, c: Code, epilogue: Epilogue, args: dict[str, V], extra: list[V], outs: list[V], filled: bool = False
    ) -> None:
        self.c, self.epilogue, self.args, self.extra, self.outs = c, epilogue, args, extra, outs
        self.filled = filled
        self.numbers = [
            c.splat(parameter_value(c, node, args[f"k{j}"]), c.lanes) for j, node in enumerate(epilogue.numbers)
        ]

    def at_row(self, line: V) -> list[V]:
        """Returns the address of a row in each result."""
        return [
            self.c.gep(out, self.c.op("mul", line, self.args[f"o{j}"]), MEMORY[dtype])
            for j, (out, dtype) in enumerate(zip(self.outs, self.epilogue.outs, strict=True))
        ]

    def rows(self, sums: V, pitch: V, row0: V, count: V, column0: V, columns: V | int, ragged: bool) -> None:
        """Stores the results at (row0, column0) for `count` rows of sums, `pitch` apart.

        columns: a constant number of lanes, or a value; ragged: the last vector may be partial.
        """
        c, n = self.c, self.c.lanes
        zero, elem = i64(0), MEMORY[self.epilogue.sums]
        fixed = [c.first(c.op("sub", self.args["n"], self._at(column0, v)), n) for v in range(columns // n)] \
            if isinstance(columns, int) and ragged and not self.filled else []  # fmt: skip

        def row(r: V, _: list[V]) -> list[V]:
            line = c.op("add", row0, r)
            source = c.gep(sums, c.op("mul", r, pitch), elem)
            targets = [
                c.gep(at, column0, MEMORY[dtype])
                for at, dtype in zip(self.at_row(line), self.epilogue.outs, strict=True)
            ]
            bases = self._bases(line, column0)

            def vector(at: V, mask: V | None) -> None:
                values = self._pointwise(c.load(c.gep(source, at, elem), elem, n), bases, at, mask)
                for value, target, dtype in zip(values, targets, self.epilogue.outs, strict=True):
                    c.store(c.gep(target, at, MEMORY[dtype]), to_memory(c, value, dtype), mask)

            def pair(j: V, _: list[V]) -> list[V]:
                vector(j, None)
                vector(c.op("add", j, i64(n)), None)
                return []

            def one(j: V, _: list[V]) -> list[V]:
                vector(j, None if self.filled else c.first(c.op("sub", columns, j), n))  # type: ignore[arg-type]
                return []

            together = 4 if c.wide else 2  # vectors per iteration

            def block(at: V, _: list[V]) -> list[V]:
                places = [c.op("add", at, i64(v * n)) for v in range(together)]
                parts = [self._scope(c.load(c.gep(source, p, elem), elem, n), bases, p, None) for p in places]
                for j, (target, dtype) in enumerate(zip(targets, self.epilogue.outs, strict=True)):
                    made = self._bytes(j, parts) if c.wide else self._half_bytes(j, parts)
                    c.store(c.gep(target, at, MEMORY[dtype]), made)
                return []

            if self.saturated and columns == together * n and not fixed:
                block(zero, [])
            elif isinstance(columns, int):
                for v in range(columns // n):
                    vector(i64(v * n), fixed[v] if fixed else None)
            else:
                at = zero
                if self.saturated:
                    at = c.loop(at, columns, together * n, block, ahead=together * n - 1)[0]
                at = c.loop(at, columns, 2 * n, pair, ahead=2 * n - 1)[0]
                if ragged:
                    c.loop(at, columns, n, one)
            return []

        c.loop(zero, count, 1, row)

    def _at(self, column: V, vector: int) -> V:
        return self.c.op("add", column, i64(vector * self.c.lanes)) if vector else column

    def _bases(self, line: V, column0: V) -> list[V]:
        """Returns the address of the row in each other operand."""
        c = self.c
        bases = []
        for j, (node, by_row, by_column) in enumerate(self.epilogue.loads):
            at, elem = self.extra[node.parameter - (node.parameter > self.epilogue.at)], MEMORY[node.dtype]
            if by_row:
                at = c.gep(at, c.op("mul", line, self.args[f"r{j}"]), elem)
            if by_column:
                at = c.gep(at, c.op("mul", column0, self.args[f"c{j}"]), elem)
            bases.append(at)
        return bases

    @property
    def saturated(self) -> bool:
        """Returns True if all results are bytes stored with saturating narrowing: four vectors of AVX-512, two of AVX2."""
        graph = self.epilogue.graph
        return graph is not None and all(o.word in NARROWING for o in graph.outputs)

    def _narrowed(self, j: int, parts: list[Scope]) -> tuple[Node, Node, V]:
        """Returns result j, the value that is narrowed to it, and the zero point to add."""
        assert self.epilogue.graph is not None
        out = self.epilogue.graph.outputs[j]
        x, zero = out.args
        return out, x, self.c.cast("fptosi", parts[0].value(zero), "i32")

    def _bytes(self, j: int, parts: list[Scope]) -> V:
        """Stores result j of four vectors as one of bytes; the narrowing instructions saturate."""
        c, n = self.c, self.c.lanes
        out, x, point = self._narrowed(j, parts)
        unknown = c.splat(c.op("sub", c.const(0, point), point), n) if out.dtype is dt.int8 else None
        whole = [self._rounded(scope.value(x), unknown) for scope in parts]
        halves = [c.call("llvm.x86.avx512.packssdw.512", "i16", 2 * n, *whole[i : i + 2]) for i in (0, 2)]
        spread = c.splat(c.cast("trunc", point, "i16"), 2 * n)
        halves = [c.intrinsic("sadd.sat", half, spread) for half in halves]
        mixed = c.call(NARROWING[out.word][0], "i8", 4 * n, *halves)
        fours = c.make(f"bitcast {mixed.type} {mixed.ref} to <{n} x i32>", "i32", n)
        ordered = c.shuffle(fours, fours, [4 * lane + v for v in range(4) for lane in range(4)])
        return c.make(f"bitcast {ordered.type} {ordered.ref} to {mixed.type}", "i8", 4 * n)

    def _half_bytes(self, j: int, parts: list[Scope]) -> V:
        """Stores result j of two AVX2 vectors as half a vector of bytes."""
        c, n = self.c, self.c.lanes
        out, x, point = self._narrowed(j, parts)
        top = c.const(2.0**30, V("", "float", n))
        whole = []
        for scope in parts:
            value = scope.value(x)
            low = c.select(c.compare("olt", top, value), top, value)
            made = c.call("llvm.x86.avx.cvt.ps2dq.256", "i32", n, low)  # converts NaN to the lowest number
            if out.dtype is dt.int8:
                unknown = c.splat(c.op("sub", c.const(0, point), point), n)
                made = c.select(c.compare("ord", value, value), made, unknown)
            whole.append(made)
        mixed = c.call("llvm.x86.avx2.packssdw", "i16", 2 * n, *whole)
        moved = c.intrinsic("sadd.sat", mixed, c.splat(c.cast("trunc", point, "i16"), 2 * n))
        halves = [c.shuffle(moved, moved, [4 * v + i for v in (part, part + 2) for i in range(4)]) for part in (0, 1)]
        # packing interleaves 128-bit halves: lanes 0 to 3 and 8 to 11 are of the first vector, the others of the second
        return c.call(NARROWING[out.word][1], "i8", 2 * n, *halves)

    def _rounded(self, x: V, unknown: V | None) -> V:
        """Converts floats to int32, rounded to nearest even; too large values become a large number, NaN becomes `unknown`
        or the lowest number."""
        c, n = self.c, self.c.lanes
        top = c.const(2.0**30, x)
        low = c.select(c.compare("olt", top, x), top, x)
        lanes, usual = V("-1", "i16", 0), V("4", "i32", 0)
        if unknown is None:
            unknown = c.const(0, V("", "i32", n))
        else:
            known = c.compare("ord", x, x)
            lanes = c.make(f"bitcast {known.type} {known.ref} to i{n}", f"i{n}", 0)
        return c.call("llvm.x86.avx512.mask.cvtps2dq.512", "i32", n, low, unknown, lanes, usual)

    def _pointwise(self, value: V, bases: list[V], j: V, mask: V | None) -> list[V]:
        graph = self.epilogue.graph
        if graph is None:
            return [value]
        scope = self._scope(value, bases, j, mask)
        return [scope.value(o) for o in graph.outputs]

    def _scope(self, value: V, bases: list[V], j: V, mask: V | None) -> Scope:
        """Returns the scope of the epilogue's values for a vector of sums in column j of the tile."""
        c, epilogue, n = self.c, self.epilogue, self.c.lanes
        number = {x.ident: i for i, (x, _, _) in enumerate(epilogue.loads)}

        def load(node: Node) -> V:
            if node.parameter == epilogue.at:
                return value
            k = number[node.ident]
            elem = MEMORY[node.dtype]
            by_column = epilogue.loads[k][2]
            if not by_column:
                return c.splat(from_memory(c, c.load(bases[k], elem, 0), node.dtype), n)
            if by_column == 1:
                return from_memory(c, c.load(c.gep(bases[k], j, elem), elem, n, mask), node.dtype)
            step = self.args[f"c{k}"]
            raw = c.gather(c.gep(bases[k], c.op("mul", j, step), elem), c.offsets(step, n), elem, mask)
            return from_memory(c, raw, node.dtype)

        scope = Scope(c, n, load)
        for node, spread in zip(epilogue.numbers, self.numbers, strict=True):
            scope.set(node, spread)
        return scope
