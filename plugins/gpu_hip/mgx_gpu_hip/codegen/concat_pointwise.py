"""Pointwise work on a concatenation: one kernel that reads the parts in place."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod

from mgx_core import Module, No

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
    read = [a for a in accesses if a.index != place]
    order = memory_order(y.strides, y.lens)
    at = order.index(axis)
    strides = [*(p.strides for p in parts), *(a.strides for a in read), y.strides]
    outer, inner = (merge(y.lens, strides, o) for o in (order[:at], order[at + 1 :]))
    # per tensor: strides along the loop nest, the concatenated axis between the others
    steps = [(*a, s[axis], *b) for a, s, b in zip(outer.strides, strides, inner.strides, strict=True)]
    dims = [*outer.dims, y.lens[axis], *inner.dims]
    joined = len(outer.dims)
    lengths = [p.lens[axis] for p in parts]
    own, seen = steps[: len(parts)], steps[len(parts) : -1]
    width = preferred_width([*parts, y])
    while width > 1 and not (
        all(n % width == 0 for n in (lengths if not inner.dims else dims[-1:]))
        and all(aligned(t, s, 0, width) for t, s in zip([*parts, y], [*own, steps[-1]], strict=True))
        and y.elements >= width * traits.wave * traits.sm_count
    ):
        width //= 2
    dims[-1] //= width
    scale = 1 if inner.dims else width
    setup, names = decompose("i", dims, "c")
    index = index_type(*xs, y)
    t = storage_type(whole.dtype)

    def selected(n: int, coordinates: Sequence[str]) -> str:
        return f"from = p{n} + ({offset_code(coordinates, own[n], 0, index, width)});"

    # only the address depends on the part: loads behind branches run one after the other, and with them the work
    lines = [*setup, f"const {t}* from;", *by_part([*accumulate(lengths)], scale, names, joined, selected)]
    lines.append(
        f"const vec<{t}, {width}> v = {load_code(whole, width)}(from);" if width > 1 else f"const {t} v = *from;"
    )
    call = []
    readers = iter(zip(read, seen, strict=True))
    for n, access in enumerate(accesses):
        if access.index == place:
            call.append("v.v[k]" if width > 1 else "v")
            continue
        _, s = next(readers)
        number = len(parts) + access.index - (access.index > place)
        reader = Reader(xs[number], s, access.offset, width)
        lines += reader.lines(f"a{n}", f"p{number}", offset_code(names, s, access.offset, index, width))
        call.append(reader.element(f"a{n}"))
    target = offset_code(names, steps[-1], 0, index, width)
    if width > 1:
        lines.append(f"vec<{storage_type(y.dtype)}, {width}> b;")
        lines += braced(f"UNROLL for (int k = 0; k < {width}; ++k)", [f"{NAME}_at({', '.join([*call, 'b.v[k]'])});"])
        lines.append(f"{store_code(y, width)}(q0 + ({target}), b);")
    else:
        lines.append(f"{NAME}_at({', '.join([*call, f'q0[{target}]'])});")
    word = entry_word([f"concat_{len(parts)}", *body.words])
    flops = y.elements * len(body.members)
    return each_item(word, lines, xs, [y], prod(map(plain, dims)), traits, before=function, flops=flops)
