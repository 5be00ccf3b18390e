"""Reductions along strided axes: adjacent rows are read together; threads of a block sum parts and combine them.

If that leaves multiprocessors idle, the reduced axes are split over blocks: one launch per pass, partial results in scratch
buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mgx_core.types.traced_int import usual

from .bodies import Access, Source
from .evaluate import Evaluator
from .expressions import Lines, Value, store_value
from .extents import varies
from .geometry import Reader, ceil_div, decompose, distance, offset_code, preferred_width, store_code, vector_width
from .pointwise import braced, kernel
from .reductions import Plan, Reduction, element_value
from .source import NAME, Buffer, DeviceTraits, KernelLaunch, KernelSource, compute_type, finish, storage_type

__all__ = ["columns_kernel"]

SHORT: Final = 16  # reduced elements that one thread sums alone
UNROLLED: Final = 64  # elements that a thread loads before it uses the first
SECTOR: Final = 32  # bytes that memory delivers together
LONG: Final = 512  # reduced elements from which several passes take longer than a launch


@dataclass(frozen=True)
class _Shape:
    """`width` columns per thread, `across` threads along the columns and `down` along the reduced axes, `splits` blocks."""

    width: int
    across: int
    down: int
    splits: int


def columns_kernel(plan: Plan, traits: DeviceTraits) -> KernelSource:
    plan.require_counted(plan.length)
    shape = _shape(plan, traits)
    if shape.splits == 1:
        text, launch = _kernel(plan, shape, range(plan.last + 1), NAME)
        return finish(plan.word, text, [launch], plan.inputs, plan.outputs, flops=plan.flops)
    return plan.one_launch_per_pass(shape.splits, lambda at, name: _kernel(plan, shape, range(at, at + 1), name))


def _shape(plan: Plan, traits: DeviceTraits) -> _Shape:
    full = [(n, a) for n, a in enumerate(plan.accesses) if not plan.body.is_row(a)]
    wish = min(4, preferred_width([plan.inputs[a.index] for _, a in full]))
    candidates = [
        (plan.inputs[a.index], (*plan.reduced_strides(n), *plan.kept_strides(n)), a.offset)
        for n, a in full
        if plan.kept_strides(n)[-1] == 1
    ]
    rows, length = usual(plan.rows), usual(plan.length)
    while wish > 1 and rows // wish < traits.wave * traits.sm_count:
        wish //= 2
    width = vector_width(plan.kept.dims[-1], candidates, wish)
    if length <= SHORT:
        across = 256
        while across > 32 and rows // width < across * traits.sm_count:
            across //= 2
        return _Shape(width, across, 1, 1)
    across = 32
    while across > 8 and rows // width < across:
        across //= 2
    down = 8
    while down < 256 // across or (down * across < 512 and length > 16 * down):
        down *= 2
    blocks = ceil_div(rows // width, across)
    if plan.last and blocks < 2 * traits.sm_count and length >= LONG:
        # several passes wait for memory in turn: more blocks, each with one sector of each row
        size = min(plan.inputs[a.index].dtype.size for _, a in full)
        across, down = max(8, min(across, SECTOR // (width * size))), 32
        blocks = ceil_div(rows // width, across)
    splits = 1
    if blocks < traits.sm_count and length > 32 * down:
        splits = max(1, min(ceil_div(length, 8 * down), ceil_div(2 * traits.sm_count, blocks), 64))
    return _Shape(width, across, down, splits)


def _kernel(plan: Plan, shape: _Shape, passes: range, name: str) -> tuple[str, KernelLaunch]:
    writer = _Writer(plan, shape)
    body = _earlier(plan, shape, passes[0]) if writer.split else []
    for at in passes:
        body += writer.one_pass(at)
    final = passes[-1] == plan.last
    if final and plan.row_outputs:
        body += writer.row_outputs()
    lines = [*writer.head(), *writer.operands(), *body]
    parameters = list(plan.pointers)
    args: list[Buffer] = list(plan.buffers)
    if writer.split:
        parameters += [f"{r.ctype}* part{r.number}" for r in plan.reductions]
        args += [Buffer("scratch", r.number) for r in plan.reductions]
    only_rows = final and all(n in plan.row_outputs for n in range(len(plan.outputs)))
    grid = (ceil_div(writer.groups, shape.across), 1 if only_rows else shape.splits, 1)
    text = kernel(name, parameters, lines, shape.across * shape.down)
    return text, KernelLaunch(name, grid, (shape.across, shape.down, 1), tuple(args))


class _Writer:
    """Writes the statements of one launch, and collects the operands that they read.

    groups: of columns, one per thread along the columns; names: a group's place along the axes that are kept.
    """

    def __init__(self, plan: Plan, shape: _Shape) -> None:
        self.plan, self.shape, self.split = plan, shape, shape.splits > 1
        self.groups = plan.rows // shape.width
        self.setup, self.names = decompose("g", [*plan.kept.dims[:-1], plan.kept.dims[-1] // shape.width], "c")
        self._read: set[int] = set()
        self._row_reads: list[int] = []

    def head(self) -> list[str]:
        """Returns statements that locate the thread's columns and, of a split launch, the block's part of the reduced axes."""
        shape, length = self.shape, self.plan.length
        lines = [
            f"const u32 g0 = blockIdx.x * {shape.across}u + threadIdx.x;  "
            f"// {shape.width} column{'s' * (shape.width > 1)} each",
            f"const bool live = g0 < {self.groups}u;",
            "const u32 g = live ? g0 : 0u;",
            *self.setup,
        ]
        if self.split:
            share = ceil_div(length, shape.splits)
            lines.append(
                f"const u32 low = blockIdx.y * {share}u, high = low + {share}u < {length}u ? low + {share}u : {length}u;"
            )
        return lines

    def one_pass(self, at: int) -> list[str]:
        """Returns statements that compute the reductions of a pass and store the outputs that depend on no later ones."""
        plan, shape, reads = self.plan, self.shape, list[int]()
        values = self._evaluator(reads)
        taken = {r: values.value(plan.body.operands[r.ins][0]).code for r in plan.in_pass(at)}
        stores = {n: self._stored(values, n) for n in plan.full_outputs(at)}
        if not taken and not stores:
            return []
        self._read |= set(reads)
        lines: list[str] = []
        for r in taken:
            lines += [
                f"{r.ctype} acc{r.number}[{shape.width}];",
                f"UNROLL for (int k = 0; k < {shape.width}; ++k) acc{r.number}[k] = {r.identity};",
            ]
        lines += _loop(plan, shape, reads, values.lines.lines, taken, stores, self.split)
        for r in taken:
            lines += _down(plan, shape, r.number, self.split)
        return lines

    def row_outputs(self) -> list[str]:
        """Returns statements that store the outputs without reduced axes."""
        values = self._evaluator([])
        codes = [self._stored(values, n) for n in self.plan.row_outputs]
        return _stored_rows(self.plan, self.shape, self.names, values.lines.lines, codes)

    def operands(self) -> list[str]:
        """Returns statements that locate the operands read so far and the outputs, and load values of whole columns."""
        plan, width = self.plan, self.shape.width
        lines: list[str] = []
        for n in sorted(self._read):
            access = plan.accesses[n]
            kind, code = storage_type(plan.inputs[access.index].dtype), self._place(n)
            lines.append(f"const {kind}* const x{n} = p{access.index} + ({code});")
        for n, y in enumerate(plan.outputs):
            if n not in plan.row_outputs:
                code = offset_code(self.names, plan.kept_strides(plan.output(n)), 0, plan.index, width)
                lines.append(f"{storage_type(y.dtype)}* const y{n} = q{n} + ({code});")
        for n in self._row_reads:
            lines += _reader(plan, n, width).lines(f"r{n}", f"p{plan.accesses[n].index}", self._place(n))
        return lines

    def _place(self, n: int) -> str:
        """Returns the offset of the thread's first column in an operand."""
        plan = self.plan
        return offset_code(self.names, plan.kept_strides(n), plan.accesses[n].offset, plan.index, self.shape.width)

    def _stored(self, values: Evaluator, n: int) -> str:
        return store_value(values.value(self.plan.body.outputs[n]), self.plan.outputs[n].dtype)

    def _evaluator(self, reads: list[int]) -> Evaluator:
        """Returns an evaluator of the body at one element, which adds the operands that it reads to `reads`."""
        plan, width, lines = self.plan, self.shape.width, Lines()

        def leaf(source: Source) -> Value | None:
            if isinstance(source, Access):
                n, whole = plan.accesses.index(source), plan.body.is_row(source)
                mine = self._row_reads if whole else reads
                if n not in mine:
                    mine.append(n)
                element = _reader(plan, n, width).element(f"{'r' if whole else 'a'}{n}")
                return element_value(source, plan.inputs, element, lines)
            for r in plan.reductions:
                if source is r.ins:
                    return Value(f"{r.name}[k]" if width > 1 else f"{r.name}[0]", r.kind)
            return None

        return Evaluator(plan.body, lines, leaf)


def _earlier(plan: Plan, shape: _Shape, first: int) -> list[str]:
    """Returns statements that combine the partial results of the passes before `first`."""
    lines = []
    for r in plan.reductions:
        if r.at < first:
            part = f"part{r.number}[i * {plan.rows}u + g * {shape.width}u + k]"
            lines += [
                f"{compute_type(r.ins.shape.dtype)} {r.name}[{shape.width}];",
                f"UNROLL for (int k = 0; k < {shape.width}; ++k) {{",
                f"  {r.ctype} sum = {r.identity};",
                f"  for (u32 i = 0; i < {shape.splits}u; ++i) {r.combine('sum', part)}",
                f"  {r.name}[k] = {r.result('sum', plan.length)};",
                "}",
            ]
    return lines


def _stored_rows(
    plan: Plan, shape: _Shape, names: Sequence[str], element: Sequence[str], codes: Sequence[str]
) -> list[str]:
    """Returns statements that store the outputs without reduced axes; element: statements that compute `codes` for one column."""
    width = shape.width
    vectors: list[str] = []
    each: list[str] = []
    late: list[str] = []
    for n, code in zip(plan.row_outputs, codes, strict=True):
        y, strides = plan.outputs[n], plan.kept_strides(plan.output(n))
        at = offset_code(names, strides, 0, plan.index, width)
        if Reader(y, strides, 0, width).how == "vector":
            vectors.append(f"  vec<{storage_type(y.dtype)}, {width}> b{n};")
            each.append(f"    b{n}.v[k] = {code};")
            late.append(f"  {store_code(y, width)}(q{n} + ({at}), b{n});")
        else:
            each.append(f"    q{n}[{at} + k * {distance(strides[-1], width)}] = {code};")
    first = "threadIdx.y == 0 && live" + (" && blockIdx.y == 0" if shape.splits > 1 else "")
    lines = [f"if ({first}) {{", *vectors, f"  UNROLL for (int k = 0; k < {width}; ++k) {{"]
    return [*lines, *(f"    {x}" for x in element), *each, "  }", *late, "}"]


def _reader(plan: Plan, n: int, width: int) -> Reader:
    access = plan.accesses[n]
    strides = (*plan.reduced_strides(n), *plan.kept_strides(n))
    return Reader(plan.inputs[access.index], strides, access.offset, width)


def _loop(
    plan: Plan,
    shape: _Shape,
    reads: list[int],
    element: list[str],
    taken: dict[Reduction, str],
    stores: dict[int, str],
    split: bool,
) -> list[str]:
    width = shape.width
    setup, names = decompose("at", plan.reduced.dims, "d")
    inner = list(setup)
    for n in reads:
        code = offset_code(names, plan.reduced_strides(n), 0, plan.index)
        inner += _reader(plan, n, width).lines(f"a{n}", f"x{n}", code)
    body = list(element)
    body += [r.combine(f"acc{r.number}[k]", code) for r, code in taken.items()]
    places = {n: offset_code(names, plan.reduced_strides(plan.output(n)), 0, plan.index) for n in stores}
    late: list[str] = []
    for n, code in stores.items():
        y, at = plan.outputs[n], plan.output(n)
        strides = (*plan.reduced_strides(at), *plan.kept_strides(at))
        if width > 1 and Reader(y, strides, 0, width).how == "vector":
            inner.append(f"vec<{storage_type(y.dtype)}, {width}> b{n};")
            body.append(f"b{n}.v[k] = {code};")
            late.append(f"if (live) {store_code(y, width)}(y{n} + ({places[n]}), b{n});")
        else:
            body.append(f"if (live) y{n}[{places[n]} + k * {distance(strides[-1], width)}] = {code};")
    inner += [*braced(f"UNROLL for (int k = 0; k < {width}; ++k)", body), *late]
    turns = ceil_div(plan.length, shape.down)
    if not split and not varies(plan.length) and turns * width * len(reads) <= UNROLLED:
        place = f"turn * {shape.down}u + threadIdx.y" if shape.down > 1 else "turn"
        guard = [f"if (at >= {plan.length}u) continue;"] if plan.length % shape.down else []
        inner = [f"const u32 at = {place};", *guard, *inner]
        return braced(f"UNROLL for (u32 turn = 0; turn < {turns}u; ++turn)", inner)
    low, high = ("low + threadIdx.y", "high") if split else ("threadIdx.y", f"{plan.length}u")
    return braced(f"for (u32 at = {low}; at < {high}; at += {shape.down}u)", inner)


def _down(plan: Plan, shape: _Shape, number: int, split: bool) -> list[str]:
    """Returns statements that combine the partial sums of a block's threads for the same columns."""
    r = plan.reductions[number]
    width = shape.width
    if shape.down == 1:
        value = r.result(f"acc{number}[k]", plan.length)
        return [
            f"{compute_type(r.ins.shape.dtype)} {r.name}[{width}];",
            f"UNROLL for (int k = 0; k < {width}; ++k) {r.name}[k] = {value};",
        ]
    lds, kind = f"lds{number}", compute_type(r.ins.shape.dtype)
    lines = [
        f"SHARED({r.ctype}, {lds}, [{shape.down}][{shape.across * width}]);",
        f"UNROLL for (int k = 0; k < {width}; ++k) {lds}[threadIdx.y][threadIdx.x * {width} + k] = acc{number}[k];",
        "__syncthreads();",
        f"{kind} {r.name}[{width}];" if not split else "",
        f"UNROLL for (int k = 0; k < {width}; ++k) {{",
        f"  {r.ctype} sum = {lds}[0][threadIdx.x * {width} + k];",
        f"  UNROLL for (int i = 1; i < {shape.down}; ++i) {r.combine('sum', f'{lds}[i][threadIdx.x * {width} + k]')}",
    ]
    if split:
        lines.append(
            f"  if (threadIdx.y == 0 && live) part{number}[blockIdx.y * {plan.rows}u + g * {width}u + k] = sum;"
        )
    else:
        lines.append(f"  {r.name}[k] = {r.result('sum', plan.length)};")
    return [line for line in lines if line] + ["}"]
