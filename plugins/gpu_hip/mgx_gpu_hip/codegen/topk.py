"""Top-k along one axis.

Short lines: each element counts the elements before it.  Many lines: a wave holds a line in registers and, for few results,
finds the k-th key bit by bit, otherwise sorts it.  Few elements of longer lines: each thread of a block finds its best key; the
k-th of these bounds the elements that are ranked; blocks share a line if there are few.  Other lines are cut into runs that a
block sorts in shared memory.  Sorted runs, and what blocks have selected, are merged, several at a time: each element finds its
rank by a binary search in every other run.  Only the first k elements of a run are kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from mgx_core.ops.axes import normalize
from mgx_core.types.traced_int import TracedInt

from .extents import SymbolicInt
from .geometry import ceil_div, decompose, offset_code
from .pointwise import each_item, kernel, one_launch
from .primitives import FLOATS
from .source import (
    NAME,
    Buffer,
    DeviceTraits,
    KernelLaunch,
    KernelSource,
    Tensor,
    compute_type,
    finish,
    storage_type,
    to_compute,
)

__all__ = ["exchanges", "topk"]

MAX_COUNTED: Final = 64  # maximum elements of a line whose ranks are counted
MAX_SELECTED: Final = 32  # maximum elements that a wave selects
MAX_HELD: Final = 64  # maximum elements of a line that a lane of a wave holds
MIN_SORTED: Final = 17  # minimum elements of a line that a wave sorts: shorter ones are counted
MAX_SORTED: Final = 256  # maximum bytes of elements that a lane sorts
RUN: Final = 2048  # maximum elements that a block sorts
MERGED: Final = 32  # runs merged at a time
MANY_ELEMENTS: Final = 1 << 17  # elements from which more launches cost less than longer searches
MERGED_OF_MANY: Final = 4
THREADS: Final = 256
SELECTING: Final = 128  # threads of a block whose waves select
MAX_RANKED: Final = 256  # maximum elements that a block selects
MAX_READ: Final = 1 << 18  # maximum elements that a block reads, twice
MIN_PIECE: Final = 4096  # minimum elements of one of the blocks that share a line
CANDIDATES: Final = 1024  # maximum elements that a block ranks
AHEAD: Final = 8  # elements that a thread of a block loads at a time
FEW_AHEAD: Final = 2  # the same in a loop that rarely runs; clang 22 fails for gfx90a when it vectorizes a loop of one


class _Lines(NamedTuple):
    """The lines of x along one axis, and of its two results.

    rows: lines; n, k: elements of a line and of its result; setup: statements that compute the coordinates of line `row`;
    bases: offsets of the line in x, values and places; steps: strides along it; read: whether values and places are read.
    """

    x: Tensor
    rows: int
    n: int
    k: int
    setup: Sequence[str]
    bases: Sequence[str]
    steps: Sequence[int]
    read: tuple[bool, bool]

    @property
    def source(self) -> list[str]:
        return [f"const {storage_type(self.x.dtype)}* const x = p0 + ({self.bases[0]});"]

    @property
    def targets(self) -> list[str]:
        lines = (
            f"{storage_type(self.x.dtype)}* const v = q0 + ({self.bases[1]});",
            f"i64* const w = q1 + ({self.bases[2]});",
        )
        return [line for line, read in zip(lines, self.read, strict=True) if read]

    def item(self, at: str) -> str:
        return f"{NAME}_item_of({to_compute(f'x[(u64){at} * {self.steps[0]}u]', self.x.dtype)}, {at})"

    def written(self, place: str, index: str) -> str:
        value = f"v[(u64){place} * {self.steps[1]}u] = x[(u64){index} * {self.steps[0]}u];"
        own = f"w[(u64){place} * {self.steps[2]}u] = {index};"
        return " ".join(code for code, read in zip((value, own), self.read, strict=True) if read)


def topk(
    op: Any, x: Tensor, values: Tensor, places: Tensor, traits: DeviceTraits, read: tuple[bool, bool] = (True, True)
) -> KernelSource:
    """values, places (int64): the first k of each line of x, largest or smallest first, NaN as largest.

    read: whether anything reads values and places; those that nothing reads are not written.
    """
    axis = normalize(op.axis, len(x.lens))
    others = [m for a, m in enumerate(x.lens) if a != axis]
    rows, n, k = math.prod(others), x.lens[axis], values.lens[axis]
    if not rows or not k:
        return finish("topk", "", [], [x], [values, places])
    setup, names = decompose("row", others, "c")
    bases = [
        offset_code(names, [s for a, s in enumerate(t.strides) if a != axis], 0, "u64") for t in (x, values, places)
    ]
    lines = _Lines(x, rows, n, k, setup, bases, [t.strides[axis] for t in (x, values, places)], read)
    order = _order(compute_type(x.dtype), op.largest)
    outputs = [values, places]
    if _sorts(lines, order, traits):
        body, grid = _sorted_by_waves(lines, traits.wave), ceil_div(rows, SELECTING // traits.wave)
        return one_launch("topk", body, [x], outputs, grid, SELECTING, before=order)
    if n <= MAX_COUNTED:
        return each_item("topk", _counted(lines), [x], outputs, rows * n, traits, order)
    if _selects(lines, order, traits):
        lanes = traits.wave
        body, grid = _selected(lines, lanes), ceil_div(rows, SELECTING // lanes)
        return one_launch("topk", body, [x], outputs, grid, SELECTING, before=order)
    piece = _piece(lines, traits)
    threads = _selecting_threads(lines, order, traits, piece)
    if threads and piece == n:
        body = _selected_by_blocks(lines, threads, traits.wave, piece)
        return one_launch("topk", body, [x], outputs, rows, threads, before=order)
    return _sorted(lines, order, outputs, traits, threads, piece)


def _order(kind: str, largest: bool) -> str:
    """Returns the type of an element's sort key with its index, and the ordering: ties by index."""
    wide = kind in ("double", "i64", "u64")
    bits = 64 if wide else 32
    word, top = f"u{bits}", f"((u{bits})1 << {bits - 1})"
    if kind in FLOATS:
        key = [
            f"{word} key = bits_as<{word}>(v == 0 ? ({kind})0 : v);",
            f"key = v != v ? ~({word})0 : key & {top} ? ~key : key | {top};",
        ]
    else:
        key = [f"{word} key = ({word})v{f' ^ {top}' if kind.startswith('i') else ''};"]
    key += ["key = ~key;"] if largest else []
    if wide:
        item = f"""struct {NAME}_item {{ u64 key; u32 at; }};
DEV bool {NAME}_before({NAME}_item a, {NAME}_item b) {{ return a.key < b.key || (a.key == b.key && a.at < b.at); }}
DEV u32 {NAME}_index({NAME}_item a) {{ return a.at; }}
"""
        made = [f"const {NAME}_item made = {{key, at}};", "return made;"]
        none = f"const {NAME}_item none = {{~0ull, ~0u}}; return none;"
    else:
        item = f"""typedef u64 {NAME}_item;
DEV bool {NAME}_before({NAME}_item a, {NAME}_item b) {{ return a < b; }}
DEV u32 {NAME}_index({NAME}_item a) {{ return (u32)a; }}
"""
        made, none = ["return (u64)key << 32 | at;"], "return ~0ull;"
    body = "".join(f"  {line}\n" for line in (*key, *made))
    return f"""{item}DEV {NAME}_item {NAME}_none() {{ {none} }}  // behind all others
DEV {NAME}_item {NAME}_item_of({kind} v, u32 at) {{
{body}}}
"""


def _counted(lines: _Lines) -> list[str]:
    return [
        f"const u32 row = i / {lines.n}u, own = i % {lines.n}u;",
        *lines.setup,
        *lines.source,
        *lines.targets,
        f"const {NAME}_item mine = {lines.item('own')};",
        "u32 rank = 0;",
        f"for (u32 j = 0; j < {lines.n}u; ++j) rank += {NAME}_before({lines.item('j')}, mine);",
        f"if (rank < {lines.k}u) {{ {lines.written('rank', 'own')} }}",
    ]


def _selects(lines: _Lines, order: str, traits: DeviceTraits) -> bool:
    """Returns True if each wave selects from a line of its own: there are lines for all multiprocessors, and keys of 32 bits."""
    n, k, rows = lines.n, lines.k, lines.rows
    if type(n) is not int or type(k) is not int or type(rows) is not int or "struct" in order:
        return False
    return k <= MAX_SELECTED and n <= MAX_HELD * traits.wave and rows >= 2 * traits.sm_count


def _selected(lines: _Lines, wave: int) -> list[str]:
    """Returns statements with which a wave finds the k-th key of a line bit by bit, and ranks the elements up to it."""
    held = ceil_div(lines.n, wave)
    return [
        f"SHARED({NAME}_item, parts, [{SELECTING // wave}][{lines.k}]);",
        f"const u32 row = blockIdx.x * {SELECTING // wave}u + wave_id(), lane = lane_id();",
        f"if (row >= {lines.rows}u) return;",
        *lines.setup,
        *lines.source,
        *lines.targets,
        f"u32 keys[{held}];",
        f"UNROLL for (u32 j = 0; j < {held}u; ++j) {{",
        "  const u32 at = j * WAVE + lane;",
        f"  keys[j] = at < {lines.n}u ? (u32)({lines.item('at')} >> 32) : ~0u;",
        "}",
        "u32 last = 0, before = 0;  // the k-th key, and how many keys are less",
        "for (u32 bit = 1u << 31; bit; bit >>= 1) {",
        "  u32 less = 0;",
        f"  UNROLL for (u32 j = 0; j < {held}u; ++j) less += keys[j] < (last | bit);",
        "  less = wave_reduce<Sum>(less);",
        f"  if (less > {lines.k - 1}u) continue;",
        "  last |= bit;",
        "  before = less;",
        "}",
        "const u64 lower = (1ull << lane) - 1;",
        f"u32 place = 0, ties = {lines.k}u - before;  // ties: equal to the k-th key that remain, first ones first",
        f"UNROLL for (u32 j = 0; j < {held}u; ++j) {{",
        "  const u64 equal = wave_ballot(keys[j] == last);",
        "  const bool tied = keys[j] == last && bit_count(equal & lower) < ties;",
        "  const u64 hits = wave_ballot(keys[j] < last || tied);",
        "  if (hits >> lane & 1) {",
        "    parts[wave_id()][place + bit_count(hits & lower)] = (u64)keys[j] << 32 | (j * WAVE + lane);",
        "  }",
        "  place += bit_count(hits);",
        "  ties -= m::min(ties, bit_count(equal));",
        "}",
        "wave_sync();",
        f"if (lane >= {lines.k}u) return;",
        f"const {NAME}_item mine = parts[wave_id()][lane];",
        "u32 rank = 0;",
        f"for (u32 j = 0; j < {lines.k}u; ++j) rank += {NAME}_before(parts[wave_id()][j], mine);",
        f"const u32 at = {NAME}_index(mine);",
        lines.written("rank", "at"),
    ]


def _piece(lines: _Lines, traits: DeviceTraits) -> int:
    """Returns how many elements of a line a block selects from: a part if lines leave most multiprocessors idle."""
    n, k, rows = lines.n, lines.k, lines.rows
    if type(n) is not int or type(k) is not int or type(rows) is not int:
        return n
    piece = max(MIN_PIECE, _power_of_two(ceil_div(n, MERGED)))
    shared = 2 * rows <= traits.sm_count and n >= 2 * piece and ceil_div(n, piece) * k * rows < MANY_ELEMENTS
    return piece if shared else n


def _selecting_threads(lines: _Lines, order: str, traits: DeviceTraits, piece: int) -> int:
    """Returns the threads of a block that selects from `piece` elements; 0 if lines are cut into runs that are sorted."""
    k = lines.k
    if isinstance(piece, SymbolicInt) or type(k) is not int or "struct" in order:
        return 0
    threads = THREADS if k <= THREADS // 4 and piece <= MAX_HELD * THREADS else traits.max_threads
    return threads if 2 * THREADS <= piece <= MAX_READ and 4 * k <= min(piece, threads) and k <= MAX_RANKED else 0


def _each(lines: _Lines, threads: int, body: Sequence[str], ahead: int = FEW_AHEAD) -> list[str]:
    """Returns a loop of a block over the elements `item` of a line, at `at` from `low` to `high`, `ahead` at a time."""
    return [
        f"for (u32 start = low + threadIdx.x; start < high; start += {ahead * threads}u) {{",
        f"  UNROLL for (u32 j = 0; j < {ahead}u; ++j) {{",
        f"    const u32 at = start + j * {threads}u;",
        "    if (at >= high) continue;",
        f"    const {NAME}_item item = {lines.item('at')};",
        *(f"    {line}" for line in body),
        "  }",
        "}",
    ]


def _selected_by_blocks(lines: _Lines, threads: int, wave: int, piece: int) -> list[str]:
    """Returns statements with which a block ranks the elements that are not behind the k-th of its threads' best keys.

    These are few more than k unless many are equal; then the k-th element is found bit by bit, its index, too.  The first k of
    a `piece` less than the line are written to `out`.
    """
    n, kept, own = lines.n, lines.k, threads // wave
    whole = piece == n
    runs = 1 if whole else ceil_div(n, piece)
    top = 32 if type(n) is TracedInt else int(n).bit_length()  # bits of an index
    to = f"out[(u64)blockIdx.x * {kept}u + {{}}]"
    collect = "parts[atomic_add(&state[0], 1u)] = item;"
    every = [
        f"{NAME}_item last = 0;  // the k-th element: its key, then its index",
        f"for (u64 bit = 1ull << 63; bit; bit = bit == 1ull << 32 ? {1 << top - 1}ull : bit >> 1) {{",
        "  u32 less = 0;",
        *(f"  {line}" for line in _each(lines, threads, ["less += item < (last | bit);"])),
        f"  if (block_reduce<Sum>(less, bests) < {kept}u) last |= bit;",
        "}",
        "if (threadIdx.x == 0) state[0] = 0u;",
        "__syncthreads();",
        *_each(lines, threads, [f"if (item <= last) {collect}"]),
        "__syncthreads();",
        f"found = {kept}u;",
    ]
    return [
        f"SHARED({NAME}_item, parts, [{CANDIDATES}]);",
        f"SHARED(u32, bests, [{threads}]);",
        "SHARED(u32, state, [2]);  // elements found, and the bound of their keys",
        f"const u32 row = blockIdx.x / {runs}u, low = blockIdx.x % {runs}u * {piece}u, high = m::min(low + {piece}u, {n}u);",
        *lines.setup,
        *lines.source,
        *(lines.targets if whole else []),
        "u32 best = ~0u;",
        *_each(lines, threads, ["best = m::min(best, (u32)(item >> 32));"], AHEAD),
        "bests[threadIdx.x] = best;",
        "if (threadIdx.x == 0) state[0] = 0u;",
        "__syncthreads();",
        "if (wave_id() == 0) {",
        f"  u32 keys[{own}], bound = 0;",
        f"  UNROLL for (u32 j = 0; j < {own}u; ++j) keys[j] = bests[j * WAVE + lane_id()];",
        "  for (u32 bit = 1u << 31; bit; bit >>= 1) {",
        "    u32 less = 0;",
        f"    UNROLL for (u32 j = 0; j < {own}u; ++j) less += bit_count(wave_ballot(keys[j] < (bound | bit)));",
        f"    if (less < {kept}u) bound |= bit;",
        "  }",
        "  if (lane_id() == 0) state[1] = bound;",
        "}",
        "__syncthreads();",
        "const u32 bound = state[1];",
        *_each(
            lines,
            threads,
            [
                "if ((u32)(item >> 32) > bound) continue;",
                "const u32 place = atomic_add(&state[0], 1u);",
                f"if (place < {CANDIDATES}u) parts[place] = item;",
            ],
            AHEAD,
        ),
        "__syncthreads();",
        "u32 found = state[0];",
        f"if (found > {CANDIDATES}u) {{",
        *(f"  {line}" for line in every),
        "}",
        f"for (u32 t = threadIdx.x; t < found; t += {threads}u) {{",
        f"  const {NAME}_item mine = parts[t];",
        "  u32 rank = 0;",
        f"  for (u32 j = 0; j < found; ++j) rank += {NAME}_before(parts[j], mine);",
        f"  if (rank >= {kept}u) continue;",
        *([f"  const u32 at = {NAME}_index(mine);", f"  {lines.written('rank', 'at')}"] if whole else []),
        *([] if whole else [f"  {to.format('rank')} = mine;"]),
        "}",
        *(
            []
            if whole
            else [
                f"for (u32 t = high - low + threadIdx.x; t < {kept}u; t += {threads}u) {to.format('t')} = {NAME}_none();"
            ]
        ),
    ]


def _sorts(lines: _Lines, order: str, traits: DeviceTraits) -> bool:
    """Returns True if each wave sorts a line of its own: there are lines for all multiprocessors, and many results of each."""
    n, k, rows = lines.n, lines.k, lines.rows
    if type(n) is not int or type(k) is not int or type(rows) is not int or n < MIN_SORTED:
        return False
    held, size = ceil_div(n, traits.wave), 16 if "struct" in order else 8
    few = n > MAX_COUNTED and k <= MAX_SELECTED and size == 8  # selected
    return rows >= 2 * traits.sm_count and _power_of_two(held) * size <= MAX_SORTED and not few


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def _sorted_by_waves(lines: _Lines, wave: int) -> list[str]:
    """Returns statements with which a wave sorts a line by a bitonic network; each lane holds adjacent places of it.

    The elements are read in another order than that of the places, and written through shared memory, both by adjacent lanes.
    """
    held, kept = _power_of_two(ceil_div(lines.n, wave)), lines.k
    places = [
        f"for (u32 size = 2; size <= {held * wave}u; size *= 2) {{",
        f"  for (u32 apart = size / 2; apart >= {held}u; apart /= 2) {{",
        f"    const bool first = ((lane & (apart / {held}u)) == 0) == ((lane * {held}u & size) == 0);",
        f"    UNROLL for (u32 j = 0; j < {held}u; ++j) {{",
        f"      const {NAME}_item mine = items[j], other = wave_xor(mine, apart / {held}u);",
        f"      items[j] = {NAME}_before(other, mine) == first ? other : mine;",
        "    }",
        "  }",
    ]
    if held > 1:
        places += [
            f"  UNROLL for (u32 apart = {held // 2}u; apart; apart /= 2) {{",
            "    if (apart >= size) continue;",
            f"    UNROLL for (u32 j = 0; j < {held}u; ++j) {{",
            "      if (j & apart) continue;",
            f"      const {NAME}_item a = items[j], b = items[j | apart];",
            f"      const bool turned = {NAME}_before(b, a) == (((lane * {held}u + j) & size) == 0);",
            "      items[j] = turned ? b : a;",
            "      items[j | apart] = turned ? a : b;",
            "    }",
            "  }",
        ]
    return [
        f"SHARED({NAME}_item, parts, [{SELECTING // wave}][{kept}]);",
        f"const u32 row = blockIdx.x * {SELECTING // wave}u + wave_id(), lane = lane_id();",
        f"if (row >= {lines.rows}u) return;",
        *lines.setup,
        *lines.source,
        *lines.targets,
        f"{NAME}_item items[{held}];",
        f"UNROLL for (u32 j = 0; j < {held}u; ++j) {{",
        "  const u32 at = j * WAVE + lane;",
        f"  items[j] = at < {lines.n}u ? {lines.item('at')} : {NAME}_none();",
        "}",
        *places,
        "}",
        f"UNROLL for (u32 j = 0; j < {held}u; ++j) {{",
        f"  if (lane * {held}u + j < {kept}u) parts[wave_id()][lane * {held}u + j] = items[j];",
        "}",
        "wave_sync();",
        f"for (u32 t = lane; t < {kept}u; t += WAVE) {{",
        f"  const u32 at = {NAME}_index(parts[wave_id()][t]);",
        f"  {lines.written('t', 'at')}",
        "}",
    ]


def _sorted(
    lines: _Lines, order: str, outputs: Sequence[Tensor], traits: DeviceTraits, selecting: int, piece: int
) -> KernelSource:
    """Returns one launch that sorts runs, or selects from pieces with `selecting` threads, and one per merge level."""
    n, k, rows = lines.n, lines.k, lines.rows
    run = piece if selecting else _sorted_run(n)
    size = 16 if "struct" in order else 8
    runs, kept = ceil_div(n, run), k if k <= run else run
    t = storage_type(lines.x.dtype)
    given, written = f"const {t}* RESTRICT p0", [f"{t}* RESTRICT q0", "i64* RESTRICT q1"]
    source, results = Buffer("input", 0), [Buffer("output", 0), Buffer("output", 1)]
    alone = runs == 1
    threads = selecting or min(run // 2, traits.max_threads)
    parts = written if alone else [f"{NAME}_item* RESTRICT out"]
    body = _selected_by_blocks(lines, threads, traits.wave, piece) if selecting else _run(lines, run, runs, kept, alone)
    text = order + kernel(f"{NAME}_runs", [given, *parts], body, threads)
    scratch = [] if alone else [rows * runs * kept * size]
    buffers = results if alone else [Buffer("scratch", 0)]
    launches = [KernelLaunch(f"{NAME}_runs", (rows * runs, 1, 1), (threads, 1, 1), (source, *buffers))]
    span = run
    while runs > 1:
        each = MERGED if runs * kept * rows < MANY_ELEMENTS else MERGED_OF_MANY
        groups, most = ceil_div(runs, each), each * kept
        last, out = groups == 1, k if k <= most else most
        entry, pieces = f"{NAME}_merge{len(launches)}", ceil_div(most, THREADS)
        parts = [given, *written] if last else [f"{NAME}_item* RESTRICT out"]
        body = _merge(lines, _Runs(runs, each, kept, span), groups, out, last)
        text += kernel(entry, [f"const {NAME}_item* RESTRICT from", *parts], body, THREADS)
        buffers = [source, *results] if last else [Buffer("scratch", len(scratch))]
        args = (Buffer("scratch", len(scratch) - 1), *buffers)
        launches.append(KernelLaunch(entry, (rows * groups * pieces, 1, 1), (THREADS, 1, 1), args))
        scratch += [] if last else [rows * groups * out * size]
        runs, kept, span = groups, out, span * each
    return finish("topk", text, launches, [lines.x], outputs, scratch=scratch)


def _sorted_run(n: int) -> int:
    """Returns the elements of a line that a block sorts, a power of two; traced extents up to twice as long share it."""
    run = MAX_COUNTED
    while run < RUN and n > run:
        run *= 2
    return run


def exchanges(span: str, kind: str, items: str, wrong: str) -> list[str]:
    """Returns statements with which a block sorts `items` by a bitonic network.

    span: their number, a power of two; kind: their type; wrong: condition under which b must precede a.
    """
    return [
        f"for (u32 size = 2; size <= {span}; size *= 2) {{",
        "  for (u32 apart = size / 2; apart; apart /= 2) {",
        f"    for (u32 t = threadIdx.x; t < {span} / 2; t += blockDim.x) {{",
        "      const u32 low = 2 * t - (t & (apart - 1)), high = low + apart;",
        f"      const {kind} a = {items}[low], b = {items}[high];",
        f"      if (({wrong}) == !(low & size)) {{ {items}[low] = b; {items}[high] = a; }}",
        "    }",
        "    __syncthreads();",
        "  }",
        "}",
    ]


def _run(lines: _Lines, run: int, runs: int, kept: int, alone: bool) -> list[str]:
    """Returns statements with which a block sorts one run by a bitonic network, padded to a power of two with last elements."""
    if alone:
        write = [*lines.targets, f"for (u32 t = threadIdx.x; t < {kept}u; t += blockDim.x) {{",
                 f"  const u32 at = {NAME}_index(part[t]);", f"  {lines.written('t', 'at')}", "}"]  # fmt: skip
    else:
        write = [
            f"for (u32 t = threadIdx.x; t < {kept}u; t += blockDim.x) out[(u64)blockIdx.x * {kept}u + t] = part[t];"
        ]
    return [
        f"SHARED({NAME}_item, part, [{run}]);",
        f"const u32 row = blockIdx.x / {runs}u, start = blockIdx.x % {runs}u * {run}u;",
        *lines.setup,
        *lines.source,
        f"for (u32 t = threadIdx.x; t < {run}u; t += blockDim.x) {{",
        "  const u32 at = start + t;",
        f"  part[t] = at < {lines.n}u ? {lines.item('at')} : {NAME}_none();",
        "}",
        "__syncthreads();",
        *exchanges(f"{run}u", f"{NAME}_item", "part", f"{NAME}_before(b, a)"),
        *write,
    ]


class _Runs(NamedTuple):
    """Sorted runs of each line: their number, how many are merged, elements that each holds, and elements it represents."""

    number: int
    merged: int
    kept: int
    span: int


def _merge(lines: _Lines, runs: _Runs, groups: int, out: int, last: bool) -> list[str]:
    """Returns statements with which each thread ranks one element of a group of runs among the first `out` of the group."""
    pieces = ceil_div(runs.merged * runs.kept, THREADS)
    head = [
        f"const u32 group = blockIdx.x / {pieces}u % {groups}u, row = blockIdx.x / {pieces}u / {groups}u;",
        f"const u32 place = blockIdx.x % {pieces}u * {THREADS}u + threadIdx.x;",
        f"const u32 run = place / {runs.kept}u, first = group * {runs.merged}u;",
        f"const {NAME}_item* const line = from + (u64)row * {runs.number * runs.kept}u;",
    ]
    write = [f"const u32 at = {NAME}_index(mine);", *lines.setup, *lines.source, *lines.targets,
             lines.written("rank", "at")] if last else ["to[rank] = mine;"]  # fmt: skip
    if not last:  # positions that a short group does not fill are sorted last
        head += [
            f"const u32 there = m::min({runs.merged * runs.span}u, {lines.n}u - first * {runs.span}u);",
            f"{NAME}_item* const to = out + ((u64)row * {groups}u + group) * {out}u;",
            f"if (place >= there && place < {out}u) to[place] = {NAME}_none();",
        ]
    return [
        *head,
        f"const u32 end = m::min(first + {runs.merged}u, (u32){runs.number}u);",
        "if (first + run >= end) return;",
        f"const {NAME}_item mine = line[(u64)first * {runs.kept}u + place];",
        f"if ({NAME}_index(mine) == ~0u) return;",
        f"u32 rank = place - run * {runs.kept}u;",
        f"for (u32 r = first; r < end && rank < {out}u; ++r) {{",
        "  if (r == first + run) continue;",
        f"  const {NAME}_item* const other = line + (u64)r * {runs.kept}u;",
        f"  u32 low = 0, high = {runs.kept}u;",
        "  while (low < high) {",
        "    const u32 middle = (low + high) / 2;",
        f"    if ({NAME}_before(other[middle], mine)) low = middle + 1; else high = middle;",
        "  }",
        "  rank += low;",
        "}",
        f"if (rank >= {out}u) return;",
        *write,
    ]
