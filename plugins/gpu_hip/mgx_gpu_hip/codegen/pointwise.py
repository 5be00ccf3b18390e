"""Pointwise groups: one pass in the outputs' memory order, vectorized; transposed inputs through shared-memory tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from mgx_core import Module
from mgx_core.types.traced_int import divides, usual

from .bodies import Access, Body
from .evaluate import body_function
from .extents import plain
from .geometry import (
    Loop,
    Reader,
    aligned,
    ceil_div,
    decompose,
    index_type,
    memory_order,
    merge,
    offset_code,
    preferred_width,
    store_code,
    vector_width,
)
from .source import (
    NAME,
    Buffer,
    DeviceTraits,
    KernelLaunch,
    KernelSource,
    Number,
    Tensor,
    entry_word,
    finish,
    pointers,
    storage_type,
)

__all__ = ["braced", "each_item", "kernel", "one_launch", "pointwise", "threads_of"]

MIN_TILE = 16  # a shared-memory tile does not pay off for smaller extents
MAX_LINES = 8  # vectors of one thread
SHORT = 8  # bytes of a vector for which finding its place takes longer than moving it
STRAIGHT = 128  # contiguous bytes that adjacent threads write together


def threads_of(count: int, traits: DeviceTraits) -> int:
    """Returns threads per block for `count` independent items: fewer if that keeps more multiprocessors busy."""
    threads = 256
    count = usual(count)
    while threads > 64 and ceil_div(count, threads) < 2 * traits.sm_count:
        threads //= 2
    return max(threads, traits.wave)


@dataclass
class _Plan:
    """A body with its loop nest in the outputs' memory order."""

    body: Body
    inputs: list[Tensor]
    outputs: list[Tensor]
    accesses: list[Access]
    loop: Loop
    word: str
    function: str

    @property
    def read_strides(self) -> list[tuple[int, ...]]:
        return list(self.loop.strides[: len(self.accesses)])

    @property
    def write_strides(self) -> list[tuple[int, ...]]:
        return list(self.loop.strides[len(self.accesses) :])

    @property
    def index(self) -> str:
        return index_type(*self.inputs, *self.outputs)

    @property
    def pointers(self) -> list[str]:
        return pointers(self.inputs, self.outputs)[0]

    @property
    def buffers(self) -> list[Buffer]:
        return pointers(self.inputs, self.outputs)[1]


def pointwise(
    module: Module, inputs: Sequence[Tensor], outputs: Sequence[Tensor], traits: DeviceTraits, word: str = ""
) -> KernelSource:
    """Generates a kernel for a module of pointwise ops and views.  Errors: UnsupportedError for anything else."""
    body = Body.of(module, inputs)
    word = word or entry_word(["pointwise", *body.words])
    function, accesses = body_function(f"{NAME}_at", body, list(inputs), list(outputs))
    order = memory_order(outputs[0].strides, body.dims)
    loop = merge(body.dims, [*(a.strides for a in accesses), *(o.strides for o in outputs)], order)
    plan = _Plan(body, list(inputs), list(outputs), accesses, loop, word, function)
    flops = loop.count * len(body.members)
    if loop.count == 0:
        return finish(word, function, [], inputs, outputs)
    tile = _tile_axis(plan)
    text, launch = _tiled(plan, traits, tile) if tile is not None else _linear(plan, traits)
    return finish(word, text, [launch], inputs, outputs, flops=flops)


# one flat index --------------------------------------------------------------------------------------------------------


def _linear(plan: _Plan, traits: DeviceTraits) -> tuple[str, KernelLaunch]:
    dims = plan.loop.dims or (1,)
    reads = [s or (0,) for s in plan.read_strides]
    writes = [s or (1,) for s in plan.write_strides]
    width = preferred_width([*(plan.inputs[a.index] for a in plan.accesses), *plan.outputs])
    while width > 1 and usual(plan.loop.count) < width * traits.wave * traits.sm_count:
        width //= 2
    flat = len(dims) == 1 and all(s[0] == 1 for s in writes)
    odd = False
    if flat:
        while width > 1 and not all(aligned(y, s, 0, width) for y, s in zip(plan.outputs, writes, strict=True)):
            width //= 2
        odd = not divides(width, dims[0])
    else:
        width = vector_width(dims[-1], [(y, s, 0) for y, s in zip(plan.outputs, writes, strict=True)], width)
    groups = (*dims[:-1], ceil_div(dims[-1], width))
    index = plan.index
    lines = None if flat else _lines(groups, width, plan, traits)
    if lines is not None:
        groups = (*groups[: lines.axis], groups[lines.axis] // lines.number, *groups[lines.axis + 1 :])
    setup, names = decompose("i", groups, "c")
    if lines is not None:
        names[lines.axis] = f"({names[lines.axis]} * {lines.number}u + line)"
    head = [f"const u32 i = blockIdx.x * blockDim.x + threadIdx.x;  // {width} neighbor{'s' * (width > 1)} each"]
    head += ["if (i >= n) return;", *setup]
    fast: list[str] = []
    readers = [Reader(plan.inputs[a.index], s, a.offset, width) for a, s in zip(plan.accesses, reads, strict=True)]
    call: list[str] = []
    for n, (access, reader) in enumerate(zip(plan.accesses, readers, strict=True)):
        at = offset_code(names, reader.strides, reader.offset, index, width)
        loads = reader.lines(f"a{n}", f"p{access.index}", at)
        if lines is not None and reader.strides[lines.axis] == 0:
            head += loads
        else:
            fast += loads
        call.append(reader.element(f"a{n}"))
    places = [offset_code(names, s, 0, index, width) for s in writes]
    if width == 1:
        call += [f"q{n}[{at}]" for n, at in enumerate(places)]
        fast.append(f"{NAME}_at({', '.join(call)});")
    else:
        for n, y in enumerate(plan.outputs):
            fast.append(f"vec<{storage_type(y.dtype)}, {width}> b{n};")
            call.append(f"b{n}.v[k]")
        fast.append(f"UNROLL for (int k = 0; k < {width}; ++k) {NAME}_at({', '.join(call)});")
        fast += [
            f"{store_code(y, width)}(q{n} + ({at}), b{n});"
            for n, (y, at) in enumerate(zip(plan.outputs, places, strict=True))
        ]
    if lines is not None:
        fast = [f"UNROLL for (u32 line = 0; line < {lines.number}u; ++line) {{", *(f"  {code}" for code in fast), "}"]
    numbers = [Number("u32", ceil_div(plan.loop.count, width) if flat else prod(groups))]
    parameters = [*plan.pointers, "u32 n"]
    if odd:
        parameters.append("u32 odd")
        numbers.append(Number("u32", dims[0] % width))
        here, more = ("i", "k") if index == "u32" else ("(u64)i", "(u64)k")
        slow = [
            f"p{a.index}[{here} * {width}u * {r.step}u + {more} * {r.step}u{f' + {r.offset}u' if r.offset else ''}]"
            for a, r in zip(plan.accesses, readers, strict=True)
        ]
        slow += [f"q{n}[{here} * {width}u + k]" for n in range(len(plan.outputs))]
        fast = [
            "if (i + 1 < n || odd == 0) {",
            *(f"  {line}" for line in fast),
            "} else {",
            f"  for (u32 k = 0; k < odd; ++k) {NAME}_at({', '.join(slow)});",
            "}",
        ]
    threads = threads_of(numbers[0].value if isinstance(numbers[0].value, int) else 0, traits)
    text = plan.function + kernel(NAME, parameters, [*head, *fast], threads)
    grid = (ceil_div(plain(numbers[0].value), threads), 1, 1)
    return text, KernelLaunch(NAME, grid, (threads, 1, 1), (*plan.buffers, *numbers))


class _Lines(NamedTuple):
    """A thread computes one vector at each of `number` adjacent places along an axis of the loop nest."""

    axis: int
    number: int


def _lines(groups: Sequence[int], width: int, plan: _Plan, traits: DeviceTraits) -> _Lines | None:
    """Returns how many short vectors a thread computes, so that it finds its place once for all of them; None for one.

    Adjacent threads still write contiguous memory: the innermost axes of `STRAIGHT` bytes are not among the repeated ones.
    """
    size = max((y.dtype.size for y in plan.outputs), default=1)
    if width * size > SHORT or len(groups) < 3:
        return None
    inside = width * size
    for axis in reversed(range(len(groups))):
        extent = groups[axis]
        if inside >= STRAIGHT and type(extent) is int:
            counts = [n for n in range(2, MAX_LINES + 1) if extent % n == 0]
            if counts and usual(plain(prod(groups))) // counts[-1] >= 4096 * traits.sm_count:
                return _Lines(axis, counts[-1])
        inside *= usual(plain(extent))
    return None


def braced(head: str, lines: Sequence[str]) -> list[str]:
    """Returns the statement `head` (a loop or condition) with the given statements in braces."""
    return [f"{head} {{", *(f"  {line}" for line in lines), "}"]


def kernel(
    name: str,
    parameters: Sequence[str],
    lines: Sequence[str],
    threads: int,
    blocks: int = 0,
    ahead: Sequence[str] = (),
    cluster: int = 0,
) -> str:
    """Returns the source of one kernel; `blocks`: minimum resident blocks per multiprocessor; `cluster`: blocks of a cluster.

    The kernel may start before the previous one has ended, and lets the next one start early if that is generated too (`Chained`,
    which `finish` appends to each launch's arguments).  ahead: statements that run before the previous kernel has ended; they
    must only read constant memory, not write, and not return.
    """
    body = "".join(f"  {line}\n" for line in (*ahead, "grid_wait();", "if (chained) grid_done();", *lines))
    head = ", ".join([*parameters, "u32 chained"])
    limits = f"KERNEL({threads}{f', {blocks}' if blocks else ''})" + (f" CLUSTER({cluster})" if cluster else "")
    return f"{limits} {name}({head}) {{\n{body}}}\n"


def one_launch(
    word: str,
    lines: Sequence[str],
    inputs: Sequence[Tensor | None],
    outputs: Sequence[Tensor],
    grid: int | tuple[int, int, int],
    threads: int,
    *,
    before: str = "",
    blocks: int = 0,
    ahead: Sequence[str] = (),
    cluster: int = 0,
    shared: int = 0,
    items: int | None = None,
    flops: int = 0,
    moved: int | None = None,
) -> KernelSource:
    """Returns a kernel of these statements on all operands, in one launch; grid: blocks, in one dimension or three.

    before: source in front of the kernel; blocks, ahead, cluster: as for `kernel`; shared: bytes of dynamic shared memory; items:
    a number passed as the last parameter `n`; flops, moved: as for `finish`.
    """
    parameters, buffers = pointers(inputs, outputs)
    counted, numbers = ([], []) if items is None else (["u32 n"], [Number("u32", items)])
    text = before + kernel(NAME, [*parameters, *counted], lines, threads, blocks, ahead, cluster)
    sides = grid if isinstance(grid, tuple) else (grid, 1, 1)
    launch = KernelLaunch(NAME, sides, (threads, 1, 1), (*buffers, *numbers), shared)
    return finish(word, text, [launch], inputs, outputs, flops=flops, moved=moved)


def each_item(
    word: str,
    lines: Sequence[str],
    inputs: Sequence[Tensor | None],
    outputs: Sequence[Tensor],
    count: int,
    traits: DeviceTraits,
    before: str = "",
    flops: int = 0,
    moved: int | None = None,
) -> KernelSource:
    """Returns a kernel with one thread per item of `count`, whose index is `i` in the statements."""
    threads = threads_of(count, traits)
    own = ["const u32 i = blockIdx.x * blockDim.x + threadIdx.x;", "if (i >= n) return;", *lines]
    grid = ceil_div(count, threads)
    return one_launch(word, own, inputs, outputs, grid, threads, before=before, items=count, flops=flops, moved=moved)


# shared tiles ------------------------------------------------------------------------------------------------------------


def _tile_axis(plan: _Plan) -> int | None:
    """Returns the axis along which transposed inputs are contiguous, if there are any and tiles pay off."""
    dims = plan.loop.dims
    if len(dims) < 2 or usual(dims[-1]) < MIN_TILE or any(s[-1] != 1 for s in plan.write_strides):
        return None
    axes = {s.index(1) for s in plan.read_strides if s[-1] > 1 and 1 in s and usual(dims[s.index(1)]) >= MIN_TILE}
    return axes.pop() if len(axes) == 1 else None


def _tiled(plan: _Plan, traits: DeviceTraits, across: int) -> tuple[str, KernelLaunch]:
    dims = plan.loop.dims
    through = [n for n, s in enumerate(plan.read_strides) if s[-1] > 1 and s[across] == 1]
    sizes = [plan.inputs[plan.accesses[n].index].dtype.size for n in through]
    side = 64 if max(sizes) <= 2 and usual(dims[-1]) >= 64 and usual(dims[across]) >= 64 else 32
    if sum(sizes) * side * (side + 2) > traits.shared_bytes * 3 // 4:
        side = 32
    if sum(sizes) * side * (side + 2) > traits.shared_bytes:
        return _linear(plan, traits)
    rest = [a for a in range(len(dims)) if a not in (across, len(dims) - 1)]
    rows, columns = dims[across], dims[-1]
    index = plan.index
    outer, names = decompose("blockIdx.y", [dims[a] for a in rest], "c")
    where = {a: names[n] for n, a in enumerate(rest)}
    lines = [
        f"const u32 r0 = blockIdx.x / {ceil_div(columns, side)}u * {side}u, "
        f"s0 = blockIdx.x % {ceil_div(columns, side)}u * {side}u;",
        *outer,
    ]

    def at(strides: Sequence[int], offset: int, row: str, column: str) -> str:
        return offset_code(
            [row if a == across else column if a == len(dims) - 1 else where[a] for a in range(len(dims))],
            strides, offset, index,
        )  # fmt: skip

    for n, size in zip(through, sizes, strict=True):
        t = storage_type(plan.inputs[plan.accesses[n].index].dtype)
        lines.append(f"SHARED({t}, tile{n}, [{side}][{side + (2 if size <= 2 else 1)}]);")
    lines += [
        f"for (u32 j = threadIdx.y; j < {side}; j += 8)  // along the inputs' memory",
        f"  for (u32 l = threadIdx.x; l < {side}; l += 32) {{",
        "    const u32 r = r0 + l, s = s0 + j;",
        f"    if (r < {rows}u && s < {columns}u) {{",
    ]
    for n in through:
        access = plan.accesses[n]
        code = at(plan.read_strides[n], access.offset, "r", "s")
        lines.append(f"      tile{n}[j][l] = p{access.index}[{code}];")
    lines += [
        "    }",
        "  }",
        "__syncthreads();",
        f"for (u32 j = threadIdx.y; j < {side}; j += 8)  // along the outputs' memory",
        f"  for (u32 l = threadIdx.x; l < {side}; l += 32) {{",
        "    const u32 r = r0 + j, s = s0 + l;",
        f"    if (r < {rows}u && s < {columns}u) {{",
    ]
    call = [
        f"tile{n}[l][j]" if n in through else f"p{a.index}[{at(plan.read_strides[n], a.offset, 'r', 's')}]"
        for n, a in enumerate(plan.accesses)
    ]
    call += [f"q{n}[{at(s, 0, 'r', 's')}]" for n, s in enumerate(plan.write_strides)]
    lines += [f"      {NAME}_at({', '.join(call)});", "    }", "  }"]
    grid = (ceil_div(rows, side) * ceil_div(columns, side), prod([dims[a] for a in rest]), 1)
    if grid[1] > 65535:
        return _linear(plan, traits)
    text = plan.function + kernel(NAME, plan.pointers, lines, 256)
    return text, KernelLaunch(NAME, grid, (32, 8, 1), tuple(plan.buffers))
