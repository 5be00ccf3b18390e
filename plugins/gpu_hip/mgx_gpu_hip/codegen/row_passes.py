"""Passes over the rows of a reduction: the statements that read, compute and store the elements of a row."""

from __future__ import annotations

from dataclasses import dataclass, field

from mgx_core import Instruction

from .bodies import Access, Source
from .evaluate import Evaluator
from .expressions import Lines, Value, store_value
from .geometry import Reader, ceil_div, decompose, distance, offset_code, store_code
from .pointwise import braced
from .reductions import Plan, Reduction, element_value
from .source import DeviceTraits, Tensor, compute_type, storage_type, to_compute

__all__ = ["RowPass", "RowShape", "RowWriter"]


@dataclass
class RowShape:
    """Distribution of a row over threads: `width` adjacent elements per thread, `threads` threads per row, `turns` iterations.

    beside: rows of a block whose pieces alternate in memory, as do their threads; piece: threads that read one piece.
    """

    width: int
    threads: int
    turns: int
    exact: bool
    beside: int = 1
    piece: int = 1

    @property
    def block(self) -> int:
        """Threads of all rows beside each other."""
        return self.threads * self.beside


@dataclass
class RowPass:
    """The statements of one pass over the elements of a row, and those for the row before it."""

    row: list[str]
    element: list[str]
    values: dict[Reduction, str]
    stores: dict[int, str]
    reads: list[int]


@dataclass
class RowWriter:
    plan: Plan
    traits: DeviceTraits
    shape: RowShape
    keep: bool
    held: int | None = None  # the output that stays in registers, in `row`; requires `keep`
    stores_held: bool = True  # it is stored, too
    kept: dict[Source, str] = field(default_factory=dict)
    types: dict[Source, str] = field(default_factory=dict)
    row_lines: Lines = field(init=False)
    row_reads: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.keep:
            self.restart()
            seen: dict[Source, int] = {}
            for at in range(self.plan.last + 1):
                self.element_pass(at, seen)

    def restart(self) -> None:
        self.row_lines = Lines("w")
        self.row_reads = []
        self.flushed = 0
        self.rows = Evaluator(self.plan.body, self.row_lines, self._row_leaf)

    def _row_leaf(self, source: Source) -> Value | None:
        plan = self.plan
        if isinstance(source, Access):
            n = plan.accesses.index(source)
            if n not in self.row_reads:
                self.row_reads.append(n)
            return element_value(source, plan.inputs, f"r{n}", self.row_lines)
        for r in plan.reductions:
            if source is r.ins:
                return Value(r.name, r.kind)
        return None

    # one pass

    def element_pass(self, at: int, seen: dict[Source, int]) -> RowPass:
        plan, body = self.plan, self.plan.body
        lines = Lines()
        reads: list[int] = []
        used: dict[Source, Value] = {}

        def leaf(source: Source) -> Value | None:
            if body.is_row(source):
                return self.rows.value(source)
            if self.keep and seen.get(source, at) < at:
                if source not in self.kept:
                    self.kept[source] = f"g{len(self.kept)}"
                    self.types[source] = _ctype(source, plan.inputs)
                return Value(f"{self.kept[source]}[e]", self.types[source])
            if isinstance(source, Access):
                n = plan.accesses.index(source)
                if n not in reads:
                    reads.append(n)
                seen.setdefault(source, at)
                made = element_value(source, plan.inputs, self.reader(n).element(f"a{n}"), lines)
                used[source] = made
                return made
            return None

        evaluator = Evaluator(body, lines, leaf)
        values = {r: evaluator.value(body.operands[r.ins][0]) for r in plan.in_pass(at)}
        stores = {n: evaluator.value(body.outputs[n]) for n in plan.full_outputs(at)}
        for ins, value in evaluator.known.items():
            seen.setdefault(ins, at)
            used[ins] = value
        text = list(lines.lines)
        for source, array in self.kept.items():
            if seen.get(source) == at and source in used:
                text.append(f"{array}[e] = {used[source].code};")
        row = self.row_lines.lines[self.flushed :]
        self.flushed = len(self.row_lines.lines)
        return RowPass(
            row,
            text,
            {r: v.code for r, v in values.items()},
            {n: store_value(v, plan.outputs[n].dtype) for n, v in stores.items()},
            reads,
        )

    def reader(self, n: int) -> Reader:
        access = self.plan.accesses[n]
        strides = (*self.plan.kept_strides(n), *self.plan.reduced_strides(n))
        return Reader(self.plan.inputs[access.index], strides, access.offset, self.shape.width)

    def loop(self, done: RowPass, bounds: tuple[str, str] | None = None, guard: str = "") -> list[str]:
        """Returns the pass's loop over a row's elements; bounds: first and last group, if the row is split."""
        plan, shape = self.plan, self.shape
        width = shape.width
        dims = list(plan.reduced.dims)
        if dims:
            dims[-1] //= width
        setup, names = decompose("at", dims, "d")
        inner: list[str] = list(setup)
        for n in done.reads:
            reader = self.reader(n)
            code = offset_code(names, plan.reduced_strides(n), 0, plan.index, width)
            inner += reader.lines(f"a{n}", f"x{n}", code)
        stores = {n: c for n, c in done.stores.items() if n != self.held or self.stores_held}
        for n in stores:
            if width > 1:
                inner.append(f"vec<{storage_type(plan.outputs[n].dtype)}, {width}> b{n};")
        body = list(done.element)
        if self.keep:
            body.insert(0, f"const int e = turn * {width} + k;" if width > 1 else "const int e = turn;")
        for r, code in done.values.items():
            body.append(r.combine(f"acc{r.number}", code))
        places = {n: offset_code(names, plan.reduced_strides(plan.output(n)), 0, plan.index, width) for n in stores}
        if self.held in done.stores:
            body.append(f"row[e] = {to_compute(done.stores[self.held], plan.outputs[self.held].dtype)};")
        for n, code in stores.items():
            body.append(f"b{n}.v[k] = {code};" if width > 1 else f"{guard}y{n}[{places[n]}] = {code};")
        if width > 1:
            inner += braced(f"UNROLL for (int k = 0; k < {width}; ++k)", body)
        else:
            inner += body
        for n, place in places.items():
            if width > 1:
                inner.append(self._store(n, place, guard))
        groups = ceil_div(plan.length, width)
        if self.keep:
            head = f"UNROLL for (int turn = 0; turn < {shape.turns}; ++turn)"
            index = [f"const u32 at = turn * {shape.threads}u + lane;"]
            if not shape.exact:
                inner = braced(f"if (at < {groups}u)", inner)
            inner = index + inner
        else:
            low, high = bounds or ("0u", f"{groups}u")
            start = "lane" if low == "0u" else f"{low} + lane"
            head = f"for (u32 at = {start}; at < {high}; at += {shape.threads}u)"
        return braced(head, inner)

    def _store(self, n: int, place: str, guard: str) -> str:
        y, width = self.plan.outputs[n], self.shape.width
        at = self.plan.output(n)
        strides = (*self.plan.kept_strides(at), *self.plan.reduced_strides(at))
        reader = Reader(y, strides, 0, width)
        if reader.how == "vector":
            return f"{guard}{store_code(y, width)}(y{n} + ({place}), b{n});"
        step = distance(strides[-1], width)
        return f"{guard}UNROLL for (int k = 0; k < {width}; ++k) y{n}[{place} + k * {step}] = b{n}.v[k];"

    def row_setup(self, passes: list[RowPass], rows: str, outputs: list[int]) -> list[str]:
        """Returns statements for the offsets of the row in its tensors, and for its per-row values."""
        plan = self.plan
        setup, names = decompose(rows, plan.kept.dims, "c")
        lines = list(setup)
        reads = sorted({n for p in passes for n in p.reads})
        for n in reads:
            access = plan.accesses[n]
            code = offset_code(names, plan.kept_strides(n), access.offset, plan.index)
            lines.append(
                f"const {storage_type(plan.inputs[access.index].dtype)}* const x{n} = p{access.index} + ({code});"
            )
        for n in outputs:
            code = offset_code(names, plan.kept_strides(plan.output(n)), 0, plan.index)
            lines.append(f"{storage_type(plan.outputs[n].dtype)}* const y{n} = q{n} + ({code});")
        for n in self.row_reads:
            access = plan.accesses[n]
            code = offset_code(names, plan.kept_strides(n), access.offset, plan.index)
            lines.append(f"const {storage_type(plan.inputs[access.index].dtype)} r{n} = p{access.index}[{code}];")
        return lines


def _ctype(source: Source, inputs: list[Tensor]) -> str:
    if isinstance(source, Access):
        return compute_type(inputs[source.index].dtype)
    assert isinstance(source, Instruction)
    return compute_type(source.shape.dtype)
