"""Kernels in which each thread computes a few adjacent elements of the output from their coordinates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mgx_core import dtype as dt
from mgx_core.types.traced_int import usual

from .geometry import decompose, index_type, load_code, memory_order, offset_code, store_code, vector_width
from .pointwise import each_item
from .source import DeviceTraits, KernelSource, Tensor, finish, pointers, storage_type

__all__ = ["ElementSource", "as_unsigned", "each_element", "each_move", "offset_of", "pointers"]

_CARRIERS = {1: dt.uint8, 2: dt.uint16, 4: dt.uint32, 8: dt.uint64}


def as_unsigned(x: Tensor) -> Tensor:
    """Returns the same memory as unsigned integers, for kernels that only copy elements.  Errors: KeyError for other sizes."""
    return x._replace(dtype=_CARRIERS[x.dtype.size])


@dataclass(frozen=True)
class ElementSource:
    """The source of adjacent elements: statements, address, and the condition under which it is not `fill`."""

    lines: list[str]
    pointer: str
    condition: str = ""
    fill: str = "0"

    def value(self, y: Tensor) -> str:
        """Returns the expression of one element, as an element of y."""
        value = f"*({self.pointer})"
        return f"{self.condition} ? {value} : ({storage_type(y.dtype)}){self.fill}" if self.condition else value


Coordinates = Sequence[str]  # expressions, one per axis of the output


def offset_of(x: Tensor, coordinates: Coordinates, wide: bool = False) -> str:
    """Returns the offset of an element of x from its coordinates."""
    index = "u64" if wide or x.space >= 1 << 31 else "u32"
    pairs = [
        (c, s) for c, s, n in zip(coordinates, x.strides, x.lens, strict=True) if n != 1 and s and c not in ("0u", "0")
    ]
    names = [c if c.isidentifier() or c.replace("u", "").isdigit() else f"({c})" for c, _ in pairs]
    return offset_code(names, [s for _, s in pairs], 0, index)


class _Threads:
    """One thread per `width` adjacent elements along the innermost axis in memory, for outputs of equal extents.

    lines: statements that compute the coordinates; at: of the first element; places: its offset in each output.
    """

    def __init__(self, outputs: Sequence[Tensor], most: int) -> None:
        first = outputs[0]
        order = [a for a in memory_order(first.strides, first.lens) if first.lens[a] != 1]
        self.inner = inner = order[-1] if order else -1
        self.width = width = 1
        if order and all(y.strides[inner] == 1 for y in outputs):
            writes = [(y, [y.strides[a] for a in order], 0) for y in outputs]
            self.width = width = vector_width(first.lens[inner], writes, most)
        dims = [first.lens[a] for a in order]
        if dims:
            dims[-1] //= width
        self.lines, names = decompose("i", dims, "c")
        self.count = math.prod(dims)
        where = {a: names[n] for n, a in enumerate(order)}
        index = index_type(*outputs)
        self.places = [offset_code(names, [y.strides[a] for a in order], 0, index, width) for y in outputs]
        if width > 1:
            self.lines.append(f"const u32 e0 = {where[inner]} * {width}u;")
            where[inner] = "e0"
        self.at = [where.get(a, "0u") for a in range(len(first.lens))]


def each_element(
    word: str,
    inputs: Sequence[Tensor | None],
    outputs: Sequence[Tensor],
    traits: DeviceTraits,
    element: Callable[[Coordinates], tuple[list[str], list[str]]],
    before: str = "",
    unroll: int = 8,
    flops: int = 0,
    moved: int | None = None,
) -> KernelSource:
    """Generates a kernel from the expression of one element.

    element: from coordinates of an output element to statements and one stored value per output (outputs share lens).
    """
    elements = outputs[0].elements
    if elements == 0:
        return finish(word, before, [], inputs, outputs)
    most = min(unroll, 16 // max(y.dtype.size for y in outputs))
    while most > 1 and usual(elements) < most * traits.sm_count * 512:
        most //= 2
    threads = _Threads(outputs, max(most, 1))
    lines, at, width = threads.lines, threads.at, threads.width
    if width > 1:
        at[threads.inner] = "e"
        body, values = element(at)
        lines += [f"vec<{storage_type(y.dtype)}, {width}> out{n};" for n, y in enumerate(outputs)]
        lines += [f"UNROLL for (int k = 0; k < {width}; ++k) {{", "  const u32 e = e0 + k;", *(f"  {x}" for x in body)]
        lines += [f"  out{n}.v[k] = {value};" for n, value in enumerate(values)]
        lines.append("}")
        lines += [f"{store_code(y, width)}(q{n} + ({threads.places[n]}), out{n});" for n, y in enumerate(outputs)]
    else:
        body, values = element(at)
        lines += body
        lines += [f"q{n}[{threads.places[n]}] = {value};" for n, value in enumerate(values)]
    return each_item(word, lines, inputs, outputs, threads.count, traits, before, flops, moved)


def each_move(
    word: str,
    inputs: Sequence[Tensor | None],
    y: Tensor,
    traits: DeviceTraits,
    found: Callable[[Coordinates], ElementSource],
    widest: int,
    before: str = "",
    moved: int | None = None,
) -> KernelSource:
    """Generates a copying kernel: up to `widest` elements at a time, if contiguous in source and destination.

    found: from coordinates of an output element to its source.
    """

    def element(at: Coordinates) -> tuple[list[str], list[str]]:
        source = found(at)
        return source.lines, [source.value(y)]

    threads = _Threads([y], widest) if widest > 1 and y.elements else None
    if threads is None or threads.width == 1:
        return each_element(word, inputs, [y], traits, element, before, 8 if threads is None else 1, moved=moved)
    source, t, width = found(threads.at), storage_type(y.dtype), threads.width
    load = f"{load_code(y, width)}({source.pointer})"
    lines = [*threads.lines, *source.lines, f"vec<{t}, {width}> out0;"]
    if source.condition:
        lines += [
            f"if ({source.condition}) out0 = {load};",
            f"else UNROLL for (int k = 0; k < {width}; ++k) out0.v[k] = {source.fill};",
        ]
    else:
        lines.append(f"out0 = {load};")
    lines.append(f"{store_code(y, width)}(q0 + ({threads.places[0]}), out0);")
    return each_item(word, lines, inputs, [y], threads.count, traits, before, 0, moved)
