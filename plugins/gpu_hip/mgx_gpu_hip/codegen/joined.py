"""Pointwise groups that read concatenations: each group of neighbours comes from the part that it lies in."""

from __future__ import annotations

import math

from .bodies import Access, Body, Joined
from .elements import pointers
from .geometry import (
    Reader,
    aligned,
    ceil_div,
    decompose,
    index_type,
    load_code,
    memory_order,
    merge,
    offset_code,
    preferred_width,
    store_code,
    vector_width,
)
from .pointwise import kernel, threads_of
from .source import NAME, DeviceTraits, KernelLaunch, KernelSource, Number, Tensor, finish, stored

__all__ = ["joined"]


def joined(
    body: Body,
    function: str,
    accesses: list[Access],
    joins: list[Joined],
    inputs: list[Tensor],
    outputs: list[Tensor],
    traits: DeviceTraits,
    word: str,
) -> KernelSource:
    """The kernel of a body with joined reads, given its element function."""
    parts = [(j, n, a) for j, join in enumerate(joins) for n, (_, a) in enumerate(join.parts)]
    fences = [[int(axis == join.axis) for axis in range(len(body.dims))] for join in joins]  # axes that stay apart
    strides = [
        *(a.strides for a in accesses),
        *(a.strides for _, _, a in parts),
        *(o.strides for o in outputs),
        *fences,
    ]
    loop = merge(body.dims, strides, memory_order(outputs[0].strides, body.dims))
    if loop.count == 0 or not loop.dims:
        return finish(word, function, [], inputs, outputs) if loop.count == 0 else _scalar_refusal()
    count, dims = len(accesses), loop.dims
    reads, part_strides = loop.strides[:count], loop.strides[count : count + len(parts)]
    writes = loop.strides[count + len(parts) : count + len(parts) + len(outputs)]
    places = [fence.index(1) if 1 in fence else -1 for fence in loop.strides[count + len(parts) + len(outputs) :]]
    width = preferred_width([*(inputs[a.index] for a in accesses), *(inputs[a.index] for _, _, a in parts), *outputs])
    width = vector_width(dims[-1], [(y, s, 0) for y, s in zip(outputs, writes, strict=True)], width)
    last = len(dims) - 1
    while width > 1 and not all(
        (places[j] != last or all(end % width == 0 for end, _ in joins[j].parts))
        and (s[-1] != 1 or aligned(inputs[a.index], s, a.offset, width))
        for (j, _, a), s in zip(parts, part_strides, strict=True)
    ):
        width //= 2
    groups = (*dims[:-1], dims[-1] // width)
    index = index_type(*inputs, *outputs)
    setup, names = decompose("i", groups, "c")
    lines = [
        f"const u32 i = blockIdx.x * blockDim.x + threadIdx.x;  // {width} neighbour{'s' * (width > 1)} each",
        "if (i >= n) return;",
        *setup,
    ]
    call: list[str] = []
    for n, (access, steps) in enumerate(zip(accesses, reads, strict=True)):
        reader = Reader(inputs[access.index], steps, access.offset, width)
        lines += reader.lines(f"a{n}", f"p{access.index}", offset_code(names, steps, access.offset, index, width))
        call.append(reader.element(f"a{n}"))
    for j, join in enumerate(joins):
        t = stored(inputs[join.parts[0][1].index].dtype)
        kind = f"vec<{t}, {width}>" if width > 1 else t
        lines.append(f"{kind} j{j};")
        at, begin = places[j], 0
        scale = width if at == last else 1
        for (end, access), steps in zip(
            join.parts, (s for (k, _, _), s in zip(parts, part_strides, strict=True) if k == j), strict=True
        ):
            if end == begin:
                continue
            own = list(names)
            if begin:
                own[at] = f"({names[at]} - {begin // scale}u)"
            code = offset_code(own, steps, access.offset, index, width)
            x, pointer = inputs[access.index], f"p{access.index}"
            if width == 1:
                read = f"j{j} = {pointer}[{code}];"
            elif steps[-1] == 1:
                read = f"j{j} = {load_code(x, width)}({pointer} + ({code}));"
            else:
                read = f"for (int k = 0; k < {width}; ++k) j{j}.v[k] = {pointer}[{code} + k * {steps[-1]}];"
            test = "" if end == join.parts[-1][0] else f"if ({names[at]} < {end // scale}u) "
            lines.append(f"{'else ' if begin else ''}{test}{read}")
            begin = end
        call.append(f"j{j}.v[k]" if width > 1 else f"j{j}")
    targets = [offset_code(names, s, 0, index, width) for s in writes]
    if width == 1:
        call += [f"q{n}[{code}]" for n, code in enumerate(targets)]
        lines.append(f"{NAME}_at({', '.join(call)});")
    else:
        lines += [f"vec<{stored(y.dtype)}, {width}> b{n};" for n, y in enumerate(outputs)]
        call += [f"b{n}.v[k]" for n in range(len(outputs))]
        lines.append(f"UNROLL for (int k = 0; k < {width}; ++k) {NAME}_at({', '.join(call)});")
        lines += [
            f"{store_code(y, width)}(q{n} + ({code}), b{n});"
            for n, (y, code) in enumerate(zip(outputs, targets, strict=True))
        ]
    total = math.prod(groups)
    threads = threads_of(total, traits)
    names_, buffers = pointers(inputs, outputs)
    text = function + kernel(NAME, [*names_, "u32 n"], lines, threads)
    launch = KernelLaunch(NAME, (ceil_div(total, threads), 1, 1), (threads, 1, 1), (*buffers, Number("u32", total)))
    return finish(f"concat_{word}"[:60], text, [launch], inputs, outputs, flops=loop.count * len(body.members))


def _scalar_refusal() -> KernelSource:
    from mgx_core.errors import UnsupportedError

    raise UnsupportedError("a concatenation of one element")
