"""Pointwise work on a concatenation: one kernel that reads the parts in place."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import NamedTuple

from mgx_core import Module, No
from mgx_core.types.traced_int import divides, usual

from .bodies import Body
from .evaluate import body_function
from .extents import plain
from .geometry import (
    Reader,
    aligned,
    decompose,
    index_type,
    load_code,
    memory_order,
    merge,
    offset_code,
    preferred_width,
    store_code,
)
from .movement import by_part
from .pointwise import braced, each_item
from .source import NAME, DeviceTraits, KernelSource, Tensor, entry_word, finish, storage_type

__all__ = ["concat_pointwise"]


def concat_pointwise(
    module: Module,
    parts: Sequence[Tensor],
    axis: int,
    place: int,
    others: Sequence[Tensor],
    y: Tensor,
    traits: DeviceTraits,
) -> KernelSource | No:
    """Generates a kernel for a module of pointwise ops whose parameter `place` is the concatenation of `parts` along `axis`.

    others: the module's remaining operands in order; y: its result, of the concatenation's extents.
    Errors: UnsupportedError for other ops than pointwise ones.
    """
    whole = Tensor(parts[0].dtype, y.lens, y.strides, y.align)
    inputs = [*others[:place], whole, *others[place:]]
    body = Body.of(module, inputs)
    function, accesses = body_function(f"{NAME}_at", body, inputs, [y])
    xs = [*parts, *others]
    wanted = [(n, s) for n, s in zip(y.lens, y.strides, strict=True) if n != 1]
    here = [a for a in accesses if a.index == place]
    if any([(n, s) for n, s in zip(body.dims, a.strides, strict=True) if n != 1] != wanted or a.offset for a in here):
        return No("the work does not read the concatenation element by element")
    if not y.elements:
        return finish("concat", "", [], xs, [y])
    nest = _nest(parts, axis, [a.strides for a in accesses if a.index != place], y, traits)
    width, index = nest.width, index_type(*xs, y)
    setup, names = decompose("i", nest.dims, "c")
    lines = [*setup, *_part(nest, parts, axis, names, index)]
    call = []
    others_read = iter(nest.others)
    for n, access in enumerate(accesses):
        if access.index == place:
            call.append("v.v[k]" if width > 1 else "v")
            continue
        strides = next(others_read)
        number = len(parts) + access.index - (access.index > place)
        reader = Reader(xs[number], strides, access.offset, width)
        lines += reader.lines(f"a{n}", f"p{number}", offset_code(names, strides, access.offset, index, width))
        call.append(reader.element(f"a{n}"))
    target = offset_code(names, nest.result, 0, index, width)
    if width > 1:
        lines.append(f"vec<{storage_type(y.dtype)}, {width}> b;")
        lines += braced(f"UNROLL for (int k = 0; k < {width}; ++k)", [f"{NAME}_at({', '.join([*call, 'b.v[k]'])});"])
        lines.append(f"{store_code(y, width)}(q0 + ({target}), b);")
    else:
        lines.append(f"{NAME}_at({', '.join([*call, f'q0[{target}]'])});")
    word = entry_word([f"concat_{len(parts)}", *body.words])
    flops = y.elements * len(body.members)
    return each_item(word, lines, xs, [y], prod(map(plain, nest.dims)), traits, before=function, flops=flops)


class _Nest(NamedTuple):
    """The loop nest in the result's memory order: merged axes outside and inside the concatenated one.

    dims: extents, the last one in vectors of `width` elements; joined: index of the concatenated axis; parts, others, result:
    strides along the nest of the parts, of the other operands as they are read, and of the result.
    """

    dims: list[int]
    joined: int
    width: int
    parts: list[tuple[int, ...]]
    others: list[tuple[int, ...]]
    result: tuple[int, ...]


def _nest(parts: Sequence[Tensor], axis: int, read: Sequence[Sequence[int]], y: Tensor, traits: DeviceTraits) -> _Nest:
    """Returns the loop nest; read: the strides of the other operands as they are read."""
    order = memory_order(y.strides, y.lens)
    at = order.index(axis)
    strides = [*(p.strides for p in parts), *read, y.strides]
    outer, inner = (merge(y.lens, strides, o) for o in (order[:at], order[at + 1 :]))
    steps = [(*a, s[axis], *b) for a, s, b in zip(outer.strides, strides, inner.strides, strict=True)]
    dims = [*outer.dims, y.lens[axis], *inner.dims]
    own, result = steps[: len(parts)], steps[-1]
    innermost = dims[-1:] if inner.dims else [p.lens[axis] for p in parts]
    width = preferred_width([*parts, y])
    while width > 1 and not (
        all(divides(width, n) for n in innermost)
        and all(aligned(t, s, 0, width) for t, s in zip([*parts, y], [*own, result], strict=True))
        and usual(y.elements) >= width * traits.wave * traits.sm_count
    ):
        width //= 2
    dims[-1] //= width
    return _Nest(dims, len(outer.dims), width, own, steps[len(parts) : -1], result)


def _part(nest: _Nest, parts: Sequence[Tensor], axis: int, names: Sequence[str], index: str) -> list[str]:
    """Returns statements that read `v`, an element or vector of the concatenation.

    Only the address depends on the part: loads behind branches run one after the other, and with them the work.
    """
    width, kind = nest.width, storage_type(parts[0].dtype)

    def selected(n: int, coordinates: Sequence[str]) -> str:
        return f"from = p{n} + ({offset_code(coordinates, nest.parts[n], 0, index, width)});"

    ends = [*accumulate(p.lens[axis] for p in parts)]
    scale = 1 if nest.joined < len(nest.dims) - 1 else width
    value = (
        f"const vec<{kind}, {width}> v = {load_code(parts[0], width)}(from);"
        if width > 1
        else f"const {kind} v = *from;"
    )
    return [f"const {kind}* from;", *by_part(ends, scale, names, nest.joined, selected), value]
