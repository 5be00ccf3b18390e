"""Kernels in which each thread makes a few neighbouring elements of the output from their coordinates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mgx_core import dtype as dt

from .geometry import ceil_div, decompose, index_type, memory_order, offset_code, store_code, vector_width
from .pointwise import kernel, threads_of
from .source import NAME, DeviceTraits, KernelLaunch, KernelSource, Number, Tensor, finish, pointers, stored

__all__ = ["Moved", "carried", "each_element", "offset_of", "pointers"]

_CARRIERS = {1: dt.uint8, 2: dt.uint16, 4: dt.uint32, 8: dt.uint64}


def carried(x: Tensor) -> Tensor:
    """Returns the same memory as unsigned integers, for kernels that only move elements.  Errors: KeyError for other sizes."""
    return x._replace(dtype=_CARRIERS[x.dtype.size])


@dataclass(frozen=True)
class Moved:
    """The source of a group of neighbours: statements, address, and the condition under which it is not `fill`."""

    lines: list[str]
    pointer: str
    condition: str = ""
    fill: str = "0"


Coordinates = Sequence[str]  # of each axis of the output, as code


def offset_of(x: Tensor, coordinates: Coordinates, wide: bool = False, offset: int = 0) -> str:
    """Returns the offset of an element of x from its coordinates."""
    index = "u64" if wide or x.space >= 1 << 31 else "u32"
    pairs = [
        (c, s) for c, s, n in zip(coordinates, x.strides, x.lens, strict=True) if n != 1 and s and c not in ("0u", "0")
    ]
    names = [c if c.isidentifier() or c.replace("u", "").isdigit() else f"({c})" for c, _ in pairs]
    return offset_code(names, [s for _, s in pairs], offset, index)


def each_element(
    word: str,
    inputs: Sequence[Tensor | None],
    outputs: Sequence[Tensor],
    traits: DeviceTraits,
    element: Callable[[Coordinates], tuple[list[str], list[str]]],
    copies: tuple[Callable[[Coordinates], Moved], int] | None = None,
    before: str = "",
    unroll: int = 8,
    flops: int = 0,
    moved: int | None = None,
) -> KernelSource:
    """Returns kernel text from the expression of one element.

    element: from coordinates of an output element to statements and one stored value for each output (outputs share lens).
    copies: instead, the source of a whole vector along the innermost axis in memory, and the widest vector that fits.
    """
    first = outputs[0]
    if first.elements == 0:
        return finish(word, before, [], inputs, outputs)
    order = [a for a in memory_order(first.strides, first.lens) if first.lens[a] != 1]
    inner = order[-1] if order else -1
    width = 1
    if order and all(y.strides[inner] == 1 for y in outputs):
        writes = [(y, [y.strides[a] for a in order], 0) for y in outputs]
        most = copies[1] if copies else min(unroll, 16 // max(y.dtype.size for y in outputs))
        while most > 1 and not copies and first.elements < most * traits.sm_count * 512:
            most //= 2
        width = vector_width(first.lens[inner], writes, max(most, 1))
    vector = copies is not None and width > 1
    dims = [first.lens[a] for a in order]
    if dims:
        dims[-1] //= width
    setup, names = decompose("i", dims, "c")
    total = math.prod(dims)
    where = {a: names[n] for n, a in enumerate(order)}
    lines = ["const u32 i = blockIdx.x * blockDim.x + threadIdx.x;", "if (i >= n) return;", *setup]
    index = index_type(*outputs)
    places = [offset_code(names, [y.strides[a] for a in order], 0, index, width) for y in outputs]
    if width > 1:
        lines.append(f"const u32 e0 = {where[inner]} * {width}u;")
        where[inner] = "e0"
    at = [where.get(a, "0u") for a in range(len(first.lens))]
    if copies is not None and (vector or width == 1):
        found = copies[0](at)
        y = first
        lines += found.lines
        if width > 1:
            load = (
                f"{'ldv' if width * y.dtype.size <= 16 else 'load_many'}<{stored(y.dtype)}, {width}>({found.pointer})"
            )
            lines.append(f"vec<{stored(y.dtype)}, {width}> out0;")
            if found.condition:
                lines += [
                    f"if ({found.condition}) out0 = {load};",
                    f"else UNROLL for (int k = 0; k < {width}; ++k) out0.v[k] = {found.fill};",
                ]
            else:
                lines.append(f"out0 = {load};")
            lines.append(f"{store_code(y, width)}(q0 + ({places[0]}), out0);")
        else:
            value = f"*({found.pointer})"
            value = f"{found.condition} ? {value} : ({stored(y.dtype)}){found.fill}" if found.condition else value
            lines.append(f"q0[{places[0]}] = {value};")
    elif width > 1:
        at[inner] = "e"
        body, values = element(at)
        lines += [f"vec<{stored(y.dtype)}, {width}> out{n};" for n, y in enumerate(outputs)]
        lines += [f"UNROLL for (int k = 0; k < {width}; ++k) {{", "  const u32 e = e0 + k;", *(f"  {x}" for x in body)]
        lines += [f"  out{n}.v[k] = {value};" for n, value in enumerate(values)]
        lines.append("}")
        lines += [f"{store_code(y, width)}(q{n} + ({places[n]}), out{n});" for n, y in enumerate(outputs)]
    else:
        body, values = element(at)
        lines += body
        lines += [f"q{n}[{places[n]}] = {value};" for n, value in enumerate(values)]
    parameters, buffers = pointers(inputs, outputs)
    threads = threads_of(total, traits)
    text = before + kernel(NAME, [*parameters, "u32 n"], lines, threads)
    launch = KernelLaunch(NAME, (ceil_div(total, threads), 1, 1), (threads, 1, 1), (*buffers, Number("u32", total)))
    return finish(word, text, [launch], inputs, outputs, flops=flops, moved=moved)
