"""Reductions whose rows are contiguous, or lie anywhere: a row is read by a part of a wave, a wave, or a block.

Short rows stay in registers between dependent reductions; long ones are read again.  Few long rows are split over blocks:
one launch for each pass, partial results in scratch memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mgx_core import Instruction

from .bodies import Access, Source
from .evaluate import Evaluator
from .expressions import Lines, Value, store_value
from .extents import SymbolicInt
from .geometry import Reader, ceil_div, decompose, offset_code, power_of_two, preferred_width, store_code, vector_width
from .pointwise import kernel, threads_of
from .reductions import Plan, Reduction, element_value
from .source import NAME, Buffer, DeviceTraits, KernelLaunch, KernelSource, Number, Tensor, computed, finish, stored

__all__ = ["rows_kernel"]

MOST_KEPT = 32  # elements of a row that one thread keeps, of each value
MOST_REGISTERS = 80  # registers for all kept values
LONG = 8192  # least length of rows to split over blocks


@dataclass
class _Shape:
    """Distribution of a row over threads: `width` neighbours a thread, `threads` threads a row, `turns` groups a thread."""

    width: int
    threads: int
    turns: int
    exact: bool


def rows_kernel(plan: Plan, traits: DeviceTraits) -> KernelSource:
    if plan.rows == 0 or all(o.elements == 0 for o in plan.outputs):
        return finish(plan.word, "", [], plan.inputs, plan.outputs)
    shape = _shape(plan, traits)
    splits = _splits(plan, traits)
    if splits > 1:
        return _split(plan, traits, splits)
    keep = shape.turns * shape.width <= MOST_KEPT
    writer = _Writer(plan, traits, shape, keep)
    if keep and len(writer.kept) * shape.turns * shape.width > MOST_REGISTERS:
        writer = _Writer(plan, traits, shape, False)
    text, launch = writer.whole()
    return finish(plan.word, text, [launch], plan.inputs, plan.outputs, flops=plan.flops)


def _width(plan: Plan) -> int:
    dims = plan.reduced.dims
    if not dims:
        return 1
    full = [a for a in plan.accesses if not plan.body.is_row(a)]
    width = preferred_width([plan.inputs[a.index] for a in full] or plan.inputs[:1])
    candidates = [
        (plan.inputs[a.index], (*plan.kept_strides(n), *plan.reduced_strides(n)), a.offset)
        for n, a in enumerate(plan.accesses)
        if plan.reduced_strides(n) and plan.reduced_strides(n)[-1] == 1
    ]
    return vector_width(dims[-1], candidates, width) if candidates else 1


def _shape(plan: Plan, traits: DeviceTraits) -> _Shape:
    width = _width(plan)
    groups = max(plan.length // width, 1)
    turns_kept = max(1, MOST_KEPT // width)
    threads = max(min(power_of_two(groups), 8), power_of_two(ceil_div(groups, turns_kept)))
    wanted = traits.sm_count * 512
    while threads * plan.rows < wanted and threads < groups:
        threads *= 2
    if threads > traits.wave:
        turns = ceil_div(groups, min(threads, traits.max_threads))
        threads = ceil_div(ceil_div(groups, turns), traits.wave) * traits.wave
        threads = min(threads, traits.max_threads)
    if ceil_div(groups, threads) * width > MOST_KEPT:
        threads = min(traits.max_threads, 512)
    if isinstance(plan.length, SymbolicInt):  # few different texts for all lengths
        threads = min(power_of_two(threads), traits.max_threads)
        return _Shape(width, threads, power_of_two(ceil_div(groups, threads)), False)
    turns = int(ceil_div(groups, threads))
    return _Shape(width, int(threads), turns, turns * threads * width == plan.length)


def _splits(plan: Plan, traits: DeviceTraits) -> int:
    if plan.length < LONG or plan.rows * 2 > traits.sm_count:
        return 1
    return max(1, min(ceil_div(plan.length, LONG // 2), ceil_div(2 * traits.sm_count, plan.rows), 64))


@dataclass
class _Pass:
    """The statements of one pass over the elements of a row, and the row's before it."""

    row: list[str]
    element: list[str]
    values: dict[Reduction, str]
    stores: dict[int, str]
    reads: list[int]


@dataclass
class _Writer:
    plan: Plan
    traits: DeviceTraits
    shape: _Shape
    keep: bool
    from_partials: bool = False
    kept: dict[Source, str] = field(default_factory=dict)
    types: dict[Source, str] = field(default_factory=dict)
    row_lines: Lines = field(init=False)
    row_reads: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.keep:
            self._restart()
            seen: dict[Source, int] = {}
            for at in range(self.plan.last + 1):
                self._pass(at, seen)

    def _restart(self) -> None:
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

    def _pass(self, at: int, seen: dict[Source, int]) -> _Pass:
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
        return _Pass(
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

    def loop(self, done: _Pass, bounds: tuple[str, str] | None = None, guard: str = "") -> list[str]:
        """The pass's loop over a row's elements; bounds: groups from and to, if the row is split."""
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
        for n in done.stores:
            if width > 1:
                inner.append(f"vec<{stored(plan.outputs[n].dtype)}, {width}> b{n};")
        body = list(done.element)
        if self.keep:
            body.insert(0, f"const int e = turn * {width} + k;" if width > 1 else "const int e = turn;")
        for r, code in done.values.items():
            body.append(r.combine(f"acc{r.number}", code))
        places = {
            n: offset_code(names, plan.reduced_strides(plan.output(n)), 0, plan.index, width) for n in done.stores
        }
        for n, code in done.stores.items():
            body.append(f"b{n}.v[k] = {code};" if width > 1 else f"{guard}y{n}[{places[n]}] = {code};")
        if width > 1:
            inner += [f"UNROLL for (int k = 0; k < {width}; ++k) {{", *(f"  {line}" for line in body), "}"]
        else:
            inner += body
        for n, place in places.items():
            if width > 1:
                inner.append(self._store(n, place, guard))
        groups = ceil_div(plan.length, width)
        if self.keep:
            head = f"UNROLL for (int turn = 0; turn < {shape.turns}; ++turn) {{"
            index = [f"const u32 at = turn * {shape.threads}u + lane;"]
            if not shape.exact:
                inner = [f"if (at < {groups}u) {{", *(f"  {line}" for line in inner), "}"]
            inner = index + inner
        else:
            low, high = bounds or ("0u", f"{groups}u")
            start = "lane" if low == "0u" else f"{low} + lane"
            head = f"for (u32 at = {start}; at < {high}; at += {shape.threads}u) {{"
        return [head, *(f"  {line}" for line in inner), "}"]

    def _store(self, n: int, place: str, guard: str) -> str:
        y, width = self.plan.outputs[n], self.shape.width
        at = self.plan.output(n)
        strides = (*self.plan.kept_strides(at), *self.plan.reduced_strides(at))
        reader = Reader(y, strides, 0, width)
        if reader.how == "vector":
            return f"{guard}{store_code(y, width)}(y{n} + ({place}), b{n});"
        return f"{guard}UNROLL for (int k = 0; k < {width}; ++k) y{n}[{place} + k * {strides[-1]}] = b{n}.v[k];"

    # kernels

    def row_setup(self, passes: list[_Pass], rows: str, outputs: list[int]) -> list[str]:
        """Statements for the offsets of the row in its tensors, and for its own values."""
        plan = self.plan
        setup, names = decompose(rows, plan.kept.dims, "c")
        lines = list(setup)
        reads = sorted({n for p in passes for n in p.reads})
        for n in reads:
            access = plan.accesses[n]
            code = offset_code(names, plan.kept_strides(n), access.offset, plan.index)
            lines.append(f"const {stored(plan.inputs[access.index].dtype)}* const x{n} = p{access.index} + ({code});")
        for n in outputs:
            code = offset_code(names, plan.kept_strides(plan.output(n)), 0, plan.index)
            lines.append(f"{stored(plan.outputs[n].dtype)}* const y{n} = q{n} + ({code});")
        for n in self.row_reads:
            access = plan.accesses[n]
            code = offset_code(names, plan.kept_strides(n), access.offset, plan.index)
            lines.append(f"const {stored(plan.inputs[access.index].dtype)} r{n} = p{access.index}[{code}];")
        return lines

    def whole(self) -> tuple[str, KernelLaunch]:
        """One kernel for all passes."""
        plan, shape = self.plan, self.shape
        self._restart()
        seen: dict[Source, int] = {}
        passes = [self._pass(at, seen) for at in range(plan.last + 1)]
        row_stores = {
            n: store_value(self.rows.value(plan.body.outputs[n]), plan.outputs[n].dtype) for n in plan.row_outputs
        }
        tail = self.row_lines.lines[self.flushed :]
        block = shape.threads > self.traits.wave
        if block:
            threads, grid = shape.threads, plan.rows
            lines = ["const u32 row = blockIdx.x, lane = threadIdx.x;  // a block for each row"]
            guard = first = ""
        else:
            threads = threads_of(plan.rows * shape.threads, self.traits)
            each = threads // shape.threads
            grid = ceil_div(plan.rows, each)
            lines = [
                f"const u32 lane = threadIdx.x % {shape.threads}u, turn_row = blockIdx.x * {each}u + threadIdx.x / "
                f"{shape.threads}u;  // {shape.threads} threads for each row",
                "const bool live = turn_row < rows;",
                "const u32 row = live ? turn_row : 0u;",
            ]
            guard = "if (live) "
            first = "live && "
        lines += self.row_setup(passes, "row", list(range(len(plan.outputs))))
        for source, array in self.kept.items():
            lines.append(f"{self.types[source]} {array}[{shape.turns * shape.width}];")
        for done in passes:
            lines += done.row
            if not (done.values or done.stores):
                continue
            lines += [f"{r.ctype} acc{r.number} = {r.identity};" for r in done.values]
            lines += self.loop(done, guard=guard)
            for r in done.values:
                lines += self._across(r, block)
        lines += tail
        if row_stores:
            lines.append(f"if ({first}lane == 0) {{")
            lines += [f"  y{n}[0] = {code};" for n, code in row_stores.items()]
            lines.append("}")
        parameters = [*plan.pointers, *([] if block else ["u32 rows"])]
        numbers = [] if block else [Number("u32", plan.rows)]
        text = kernel(NAME, parameters, lines, threads)
        return text, KernelLaunch(NAME, (grid, 1, 1), (threads, 1, 1), (*plan.buffers, *numbers))

    def _across(self, r: Reduction, block: bool) -> list[str]:
        acc = f"acc{r.number}"
        if block:
            lines = [
                f"SHARED({r.ctype}, lds{r.number}, [32]);",
                f"{acc} = block_reduce<{r.op}>({acc}, lds{r.number});",
            ]
        elif self.shape.threads > 1:
            lines = [f"{acc} = wave_reduce<{r.op}, {self.shape.threads}>({acc});"]
        else:
            lines = []
        kind = computed(r.ins.shape.dtype)
        return [*lines, f"const {kind} {r.name} = {r.result(acc, self.plan.length)};"]

    def split(self, at: int, splits: int, name: str) -> tuple[str, KernelLaunch]:
        """The kernel of one pass whose rows are split over blocks; the pass after the last writes the remaining outputs."""
        plan, shape = self.plan, self.shape
        self._restart()
        for r in plan.reductions:
            if r.at < at:
                self.rows.value(r.ins)
        done = self._pass(at, {})
        final = at == plan.last
        row_stores = {}
        if final:
            row_stores = {
                n: store_value(self.rows.value(plan.body.outputs[n]), plan.outputs[n].dtype) for n in plan.row_outputs
            }
        tail = self.row_lines.lines[self.flushed :]
        groups = ceil_div(plan.length, shape.width)
        share = ceil_div(groups, splits)
        only_rows = final and not done.stores
        if only_rows:
            threads, grid = 64, (ceil_div(plan.rows, 64), 1, 1)
            lines = [
                "const u32 row = blockIdx.x * 64u + threadIdx.x, lane = 0, part = 0;",
                f"if (row >= {plan.rows}u) return;",
            ]
        else:
            threads, grid = shape.threads, (plan.rows, splits, 1)
            lines = [
                "const u32 row = blockIdx.x, lane = threadIdx.x, part = blockIdx.y;  // a block for each part of a row"
            ]
        lines += self.row_setup([done], "row", [*done.stores, *row_stores])
        lines += earlier_results(plan, at, splits, "row", [""])
        lines += done.row
        if not only_rows and (done.values or done.stores):
            lines += [f"{r.ctype} acc{r.number} = {r.identity};" for r in done.values]
            lines.append(
                f"const u32 low = part * {share}u, high = low + {share}u < {groups}u ? low + {share}u : {groups}u;"
            )
            lines += self.loop(done, ("low", "high"))
        for r in done.values:
            lines += [
                f"SHARED({r.ctype}, lds{r.number}, [32]);",
                f"acc{r.number} = block_reduce<{r.op}>(acc{r.number}, lds{r.number});",
                f"if (lane == 0) part{r.number}[part * {plan.rows}u + row] = acc{r.number};",
            ]
        lines += tail
        if row_stores:
            lines.append("if (lane == 0 && part == 0) {")
            lines += [f"  y{n}[0] = {code};" for n, code in row_stores.items()]
            lines.append("}")
        parameters = [*plan.pointers, *(f"{r.ctype}* part{r.number}" for r in plan.reductions)]
        scratch = [Buffer("scratch", r.number) for r in plan.reductions]
        text = kernel(name, parameters, lines, threads)
        return text, KernelLaunch(name, grid, (threads, 1, 1), (*plan.buffers, *scratch))


def earlier_results(plan: Plan, at: int, splits: int, row: str, suffixes: list[str]) -> list[str]:
    """The results of earlier passes from their parts."""
    lines: list[str] = []
    for r in plan.reductions:
        if r.at >= at:
            continue
        kind = computed(r.ins.shape.dtype)
        for suffix in suffixes:
            acc = f"sum{r.number}{suffix}"
            lines += [
                f"{r.ctype} {acc} = {r.identity};",
                f"for (u32 i = 0; i < {splits}u; ++i) {r.combine(acc, f'part{r.number}[i * {plan.rows}u + {row}]')}",
                f"const {kind} {r.name}{suffix} = {r.result(acc, plan.length)};",
            ]
    return lines


def _split(plan: Plan, traits: DeviceTraits, splits: int) -> KernelSource:
    shape = _Shape(_width(plan), min(256, traits.max_threads), 0, False)
    texts, launches = [], []
    for at in range(plan.last + 1):
        name = f"{NAME}_{at}" if at < plan.last else NAME
        text, launch = _Writer(plan, traits, shape, False).split(at, splits, name)
        texts.append(text)
        launches.append(launch)
    sizes = [8 * splits * plan.rows for _ in plan.reductions]
    return finish(plan.word, "".join(texts), launches, plan.inputs, plan.outputs, scratch=sizes, flops=plan.flops)


def _ctype(source: Source, inputs: list[Tensor]) -> str:
    if isinstance(source, Access):
        return computed(inputs[source.index].dtype)
    assert isinstance(source, Instruction)
    return computed(source.shape.dtype)
