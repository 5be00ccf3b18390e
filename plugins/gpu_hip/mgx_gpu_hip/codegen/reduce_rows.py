"""Reductions of rows, contiguous or not: each row is read by a part of a wave, a wave, or a block.

Short rows stay in registers between dependent reductions; long ones are read again.  If there are few long rows, they are split
over blocks: one launch per pass, partial results in scratch buffers.  Rows of short pieces that alternate in memory (groups of
channels, with channels last) share a block, whose adjacent threads read adjacent pieces.
"""

from __future__ import annotations

from mgx_core.types.traced_int import TracedInt, larger, usual

from .bodies import Source
from .expressions import store_value
from .extents import varies
from .geometry import ceil_div, power_of_two, preferred_width, vector_width
from .pointwise import braced, kernel, threads_of
from .reductions import Plan, Reduction
from .row_passes import RowPass, RowShape, RowWriter
from .source import NAME, Buffer, DeviceTraits, KernelLaunch, KernelSource, Number, compute_type, finish

__all__ = ["MAX_KEPT", "MAX_REGISTERS", "pass_lines", "rows_kernel"]

MAX_KEPT = 32  # elements of a row per thread, for each value kept in registers
TINY = 4  # elements of a row that one thread reads, if there are many rows
MAX_REGISTERS = 80  # registers for all kept values
LONG = 8192  # minimum length of rows to split over blocks
# several passes over longer rows are split: 32 rows of 16,384 take 5.0 us in one launch instead of 6.3, but of 32,768 11.3
# instead of 9.2 (float16, H200)
WHOLE = 1 << 14
SHORT_PIECE = 32  # bytes; memory delivers as many, which shorter pieces of a row waste
BESIDE = 128  # bytes that the rows of a block should have beside each other
MANY = 1 << 22  # bytes from which the caches do not hide short pieces
THREADS = 512  # of a block whose rows alternate


def rows_kernel(plan: Plan, traits: DeviceTraits) -> KernelSource:
    if plan.rows == 0 or all(o.elements == 0 for o in plan.outputs):
        return finish(plan.word, "", [], plan.inputs, plan.outputs)
    shape = _shape(plan, traits)
    plan.require_counted(ceil_div(plan.length, shape.width))
    splits = _splits(plan, shape, traits)
    if splits > 1:
        part = shape if shape.beside > 1 else RowShape(shape.width, min(256, traits.max_threads), 0, False)
        return plan.one_launch_per_pass(
            splits, lambda at, name: _split_pass(RowWriter(plan, traits, part, False), at, splits, name)
        )
    keep = shape.turns * shape.width <= MAX_KEPT
    writer = RowWriter(plan, traits, shape, keep)
    if keep and len(writer.kept) * shape.turns * shape.width > MAX_REGISTERS:
        writer = RowWriter(plan, traits, shape, False)
    text, launch = _whole(writer)
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


def _shape(plan: Plan, traits: DeviceTraits) -> RowShape:
    width = _width(plan)
    groups = larger(plan.length // width, 1)
    about, rows = usual(groups), usual(plan.rows)
    alternating = _alternating_rows(plan, width, traits)
    if alternating is not None:
        return alternating
    turns_kept = max(1, MAX_KEPT // width)
    threads = max(min(power_of_two(about), 8), power_of_two(ceil_div(about, turns_kept)))
    wanted = traits.sm_count * 512
    tiny = not varies(plan.length) and 0 < plan.length <= TINY
    if width == 1 and tiny and plan.rows >= 2 * wanted:
        return RowShape(1, 1, plan.length, True)
    while threads * rows < wanted and threads < about:
        threads *= 2
    if threads > traits.wave:
        turns = ceil_div(about, min(threads, traits.max_threads))
        threads = ceil_div(ceil_div(about, turns), traits.wave) * traits.wave
        threads = min(threads, traits.max_threads)
    if ceil_div(about, threads) * width > MAX_KEPT:
        threads = min(traits.max_threads, 512)
    if varies(plan.length):  # limits the number of source variants
        threads = min(power_of_two(threads), traits.max_threads)
        # no number of elements per thread suffices for all lengths
        turns = MAX_KEPT + 1 if type(groups) is TracedInt else power_of_two(ceil_div(groups, threads))
        return RowShape(width, threads, turns, False)
    turns = int(ceil_div(groups, threads))
    return RowShape(width, int(threads), turns, turns * threads * width == plan.length)


def _alternating_rows(plan: Plan, width: int, traits: DeviceTraits) -> RowShape | None:
    """Returns the shape of rows that share a block, if adjacent rows alternate in short pieces; None for others.

    width: elements that a thread reads at once.
    """
    main = plan.main
    if main is None or len(plan.reduced.dims) < 2 or not plan.kept.dims:
        return None
    if any(varies(d) for d in (*plan.kept.dims, *plan.reduced.dims)):
        return None
    n, of = plan.accesses.index(main), plan.inputs[main.index]
    length, rows = plan.reduced.dims[-1], plan.kept.dims[-1]
    alternate = plan.reduced_strides(n)[-1] == 1 and plan.kept_strides(n)[-1] == length
    size = length * of.dtype.size
    if not alternate or size >= SHORT_PIECE or plan.rows * plan.length * of.dtype.size < MANY:
        return None
    beside = min((r for r in range(1, rows + 1) if rows % r == 0 and r * size >= BESIDE), default=rows)
    piece, groups = length // width, plan.length // width
    threads = piece << max(THREADS // (beside * piece), 1).bit_length() - 1
    turns = ceil_div(groups, threads)
    shape = RowShape(width, threads, turns, turns * threads == groups, beside, piece)
    # the divisors of a prime are far apart; sums, of which each thread stores one per reduction, have at most 8 bytes
    fits = shape.block <= traits.max_threads and shape.block * len(plan.reductions) * 8 <= traits.shared_bytes
    return shape if beside > 1 and fits else None


def _splits(plan: Plan, shape: RowShape, traits: DeviceTraits) -> int:
    blocks, length = usual(plan.rows // shape.beside), usual(plan.length * shape.beside)
    if shape.beside == 1 and plan.last > 1 and length <= WHOLE:
        return 1
    if length < LONG or blocks * 2 > traits.sm_count:
        return 1
    return max(1, min(ceil_div(length, LONG // 2), ceil_div(2 * traits.sm_count, blocks), 64))


def _alternating(shape: RowShape) -> list[str]:
    """Returns the statements that find a thread's row, and its place among the row's threads."""
    return [
        f"const u32 row = blockIdx.x * {shape.beside}u + threadIdx.x / {shape.piece}u % {shape.beside}u;  // pieces alternate",
        f"const u32 lane = threadIdx.x / {shape.beside * shape.piece}u * {shape.piece}u + threadIdx.x % {shape.piece}u;",
    ]


def _whole(w: RowWriter) -> tuple[str, KernelLaunch]:
    """Returns one kernel for all passes."""
    plan, shape = w.plan, w.shape
    w.restart()
    seen: dict[Source, int] = {}
    passes = [w.element_pass(at, seen) for at in range(plan.last + 1)]
    row_stores = {n: store_value(w.rows.value(plan.body.outputs[n]), plan.outputs[n].dtype) for n in plan.row_outputs}
    tail = w.row_lines.lines[w.flushed :]
    block = shape.beside > 1 or shape.threads > w.traits.wave
    if shape.beside > 1:
        threads, grid = shape.block, plan.rows // shape.beside
        lines = _alternating(shape)
        guard = first = ""
    elif block:
        threads, grid = shape.threads, plan.rows
        lines = ["const u32 row = blockIdx.x, lane = threadIdx.x;  // a block for each row"]
        guard = first = ""
    else:
        threads = threads_of(plan.rows * shape.threads, w.traits)
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
    lines += pass_lines(w, passes, "row", list(range(len(plan.outputs))), block, guard)
    lines += tail
    if row_stores:
        lines += braced(f"if ({first}lane == 0)", [f"y{n}[0] = {code};" for n, code in row_stores.items()])
    parameters = [*plan.pointers, *([] if block else ["u32 rows"])]
    numbers = [] if block else [Number("u32", plan.rows)]
    text = kernel(NAME, parameters, lines, threads)
    return text, KernelLaunch(NAME, (grid, 1, 1), (threads, 1, 1), (*plan.buffers, *numbers))


def pass_lines(
    w: RowWriter, passes: list[RowPass], row: str, outputs: list[int], block: bool, guard: str = ""
) -> list[str]:
    """Returns the statements of all passes over a row; block: the whole block shares it."""
    lines = w.row_setup(passes, row, outputs)
    for source, array in w.kept.items():
        lines.append(f"{w.types[source]} {array}[{w.shape.turns * w.shape.width}];")
    for done in passes:
        lines += done.row
        if not (done.values or done.stores):
            continue
        lines += [f"{r.ctype} acc{r.number} = {r.identity};" for r in done.values]
        lines += w.loop(done, guard=guard)
        for r in done.values:
            lines += _across(w, r, block)
    return lines


def _across(w: RowWriter, r: Reduction, block: bool) -> list[str]:
    acc = f"acc{r.number}"
    if block:
        lines = _block_sum(w, r)
    elif w.shape.threads > 1:
        lines = [f"{acc} = wave_reduce<{r.op}, {w.shape.threads}>({acc});"]
    else:
        lines = []
    kind = compute_type(r.ins.shape.dtype)
    return [*lines, f"const {kind} {r.name} = {r.result(acc, w.plan.length)};"]


def _block_sum(w: RowWriter, r: Reduction) -> list[str]:
    """Returns the statements that combine the results of a row's threads in a block."""
    shape, acc, lds = w.shape, f"acc{r.number}", f"lds{r.number}"
    if shape.beside == 1:
        return [f"SHARED({r.ctype}, {lds}, [32]);", f"{acc} = block_reduce<{r.op}>({acc}, {lds});"]
    all_rows = shape.beside * shape.piece
    lines = [f"SHARED({r.ctype}, {lds}, [{shape.block}]);", f"{lds}[threadIdx.x] = {acc};", "__syncthreads();"]
    half = [
        f"if (threadIdx.x < k * {all_rows}u) {r.combine(f'{lds}[threadIdx.x]', f'{lds}[threadIdx.x + k * {all_rows}u]')}"
    ]
    lines += braced(f"for (u32 k = {shape.block // all_rows // 2}u; k; k /= 2)", [*half, "__syncthreads();"])
    first = f"threadIdx.x / {shape.piece}u % {shape.beside}u * {shape.piece}u"
    lines.append(f"{acc} = {lds}[{first}];")
    if shape.piece > 1:
        lines.append(f"for (u32 k = 1; k < {shape.piece}u; ++k) {r.combine(acc, f'{lds}[{first} + k]')}")
    return lines


def _split_pass(w: RowWriter, at: int, splits: int, name: str) -> tuple[str, KernelLaunch]:
    """Returns the kernel of one pass with rows split over blocks; the pass after the last stores the remaining outputs."""
    plan, shape = w.plan, w.shape
    w.restart()
    for r in plan.reductions:
        if r.at < at:
            w.rows.value(r.ins)
    done = w.element_pass(at, {})
    final = at == plan.last
    row_stores = {}
    if final:
        row_stores = {
            n: store_value(w.rows.value(plan.body.outputs[n]), plan.outputs[n].dtype) for n in plan.row_outputs
        }
    tail = w.row_lines.lines[w.flushed :]
    groups = ceil_div(plan.length, shape.width)
    share = ceil_div(groups, splits)
    only_rows = final and not done.stores
    if only_rows:
        threads, grid = 64, (ceil_div(plan.rows, 64), 1, 1)
        lines = [
            "const u32 row = blockIdx.x * 64u + threadIdx.x, lane = 0, part = 0;",
            f"if (row >= {plan.rows}u) return;",
        ]
    elif shape.beside > 1:
        threads, grid = shape.block, (plan.rows // shape.beside, splits, 1)
        lines = [*_alternating(shape), "const u32 part = blockIdx.y;"]
    else:
        threads, grid = shape.threads, (plan.rows, splits, 1)
        lines = [
            "const u32 row = blockIdx.x, lane = threadIdx.x, part = blockIdx.y;  // a block for each part of a row"
        ]
    lines += w.row_setup([done], "row", [*done.stores, *row_stores])
    lines += _earlier(plan, at, splits)
    lines += done.row
    if not only_rows and (done.values or done.stores):
        lines += [f"{r.ctype} acc{r.number} = {r.identity};" for r in done.values]
        lines.append(
            f"const u32 low = part * {share}u, high = low + {share}u < {groups}u ? low + {share}u : {groups}u;"
        )
        lines += w.loop(done, ("low", "high"))
    for r in done.values:
        lines += _block_sum(w, r)
        lines.append(f"if (lane == 0) part{r.number}[part * {plan.rows}u + row] = acc{r.number};")
    lines += tail
    if row_stores:
        lines += braced("if (lane == 0 && part == 0)", [f"y{n}[0] = {code};" for n, code in row_stores.items()])
    parameters = [*plan.pointers, *(f"{r.ctype}* part{r.number}" for r in plan.reductions)]
    scratch = [Buffer("scratch", r.number) for r in plan.reductions]
    text = kernel(name, parameters, lines, threads)
    return text, KernelLaunch(name, grid, (threads, 1, 1), (*plan.buffers, *scratch))


def _earlier(plan: Plan, at: int, splits: int) -> list[str]:
    """Returns statements that combine the partial results of a row's earlier passes."""
    lines: list[str] = []
    for r in plan.reductions:
        if r.at < at:
            acc = f"sum{r.number}"
            lines += [
                f"{r.ctype} {acc} = {r.identity};",
                f"for (u32 i = 0; i < {splits}u; ++i) {r.combine(acc, f'part{r.number}[i * {plan.rows}u + row]')}",
                f"const {compute_type(r.ins.shape.dtype)} {r.name} = {r.result(acc, plan.length)};",
            ]
    return lines
