"""Elements written to positions that are given at run time: a copy of the data or zeros first, then the updates."""

from __future__ import annotations

import math
from typing import Any

from mgx_core import No
from mgx_core import dtype as dt
from mgx_core.ops.axes import normalize

from .elements import carried, offset_of, pointers
from .geometry import ceil_div, decompose, offset_code
from .indexing import position
from .pointwise import kernel, threads_of
from .source import NAME, Buffer, DeviceTraits, KernelLaunch, KernelSource, Tensor, finish, stored

__all__ = ["concat_past_present", "max_unpool", "scatter", "scatternd", "tensor_scatter"]

_ATOMIC = (dt.float16, dt.bfloat16, dt.float32, dt.float64, dt.int32, dt.uint32, dt.int64, dt.uint64)


def _copy(x: Tensor, y: Tensor, traits: DeviceTraits) -> tuple[str, KernelLaunch]:
    """y = x, as the first launch."""
    setup, names = decompose("i", x.lens, "c")
    total = x.elements
    threads = threads_of(total, traits)
    at = [offset_code(names, t.strides, 0, "u64") for t in (x, y)]
    lines = [
        "const u32 i = blockIdx.x * blockDim.x + threadIdx.x;",
        f"if (i >= {total}u) return;",
        *setup,
        f"q0[{at[1]}] = p0[{at[0]}];",
    ]
    t = stored(x.dtype)
    text = kernel(f"{NAME}_copy", [f"const {t}* RESTRICT p0", f"{t}* RESTRICT q0"], lines, threads)
    launch = KernelLaunch(
        f"{NAME}_copy", (ceil_div(total, threads), 1, 1), (threads, 1, 1), (Buffer("input", 0), Buffer("output", 0))
    )
    return text, launch


def _zeros(y: Tensor, traits: DeviceTraits) -> tuple[str, KernelLaunch]:
    """y = 0, as the first launch; in the order of memory, unless that has gaps."""
    total = y.elements
    setup, names = ([], ["i"]) if y.space == total else decompose("i", y.lens, "c")
    threads = threads_of(total, traits)
    lines = [
        "const u32 i = blockIdx.x * blockDim.x + threadIdx.x;",
        f"if (i >= {total}u) return;",
        *setup,
        f"q0[{offset_code(names, y.strides if setup else (1,), 0, 'u64')}] = 0;",
    ]
    text = kernel(f"{NAME}_zeros", [f"{stored(y.dtype)}* RESTRICT q0"], lines, threads)
    grid = (ceil_div(total, threads), 1, 1)
    return text, KernelLaunch(f"{NAME}_zeros", grid, (threads, 1, 1), (Buffer("output", 0),))


def _written(
    word: str, first: tuple[str, KernelLaunch], xs: list[Tensor], y: Tensor, over: tuple[int, ...], body: list[str],
    reduction: str, value: str, place: str, traits: DeviceTraits,
) -> KernelSource:  # fmt: skip
    """Returns the launch `first`, then one thread for each update over extents `over` (coordinates c0..)."""
    text, launch = first
    total = math.prod(over)
    if not y.elements:
        return finish(word, text, [], xs, [y])
    launches = [launch]
    if total:
        setup, _ = decompose("i", over, "c")
        threads = threads_of(total, traits)
        put = f"q0[{place}] = {value};" if reduction == "none" else f"atomic_{reduction}(&q0[{place}], {value});"
        lines = [
            "const u32 i = blockIdx.x * blockDim.x + threadIdx.x;",
            f"if (i >= {total}u) return;",
            *setup,
            *body,
            put,
        ]
        names, buffers = pointers(xs, [y])
        text += kernel(NAME, names, lines, threads)
        launches.append(KernelLaunch(NAME, (ceil_div(total, threads), 1, 1), (threads, 1, 1), tuple(buffers)))
    return finish(word, text, launches, xs, [y])


def _prepared(op: Any, xs: list[Tensor], y: Tensor, which: tuple[int, ...]) -> tuple[list[Tensor], Tensor] | No:
    if op.reduction == "none":
        return [carried(x) if n in which else x for n, x in enumerate(xs)], carried(y)
    if xs[0].dtype not in _ATOMIC:
        return No(f"no atomic {op.reduction} for {xs[0].dtype}")
    return xs, y


def scatter(
    op: Any, data: Tensor, indices: Tensor, updates: Tensor, y: Tensor, traits: DeviceTraits
) -> KernelSource | No:
    """scatter_*: of several updates for one place any may be the result."""
    ready = _prepared(op, [data, indices, updates], y, (0, 2))
    if isinstance(ready, No):
        return ready
    (data, indices, updates), y = ready
    axis = normalize(op.axis, len(data.lens))
    n = data.lens[axis]
    at = [f"c{a}" for a in range(len(indices.lens))]
    body = [f"const auto g = {position(indices, at)};"]
    if op.skip_out_of_bounds:
        below = "" if indices.dtype is dt.uint64 else f"g < -{n}ll || "
        body.append(f"if ({below}g >= {n}) return;")
    body.append(f"const u32 t = (u32)wrapped(g, {n});")
    place = offset_of(y, ["t" if a == axis else c for a, c in enumerate(at)])
    value = f"p2[{offset_of(updates, at)}]"
    xs, first = [data, indices, updates], _copy(data, y, traits)
    return _written(op.name, first, xs, y, indices.lens, body, op.reduction, value, place, traits)


def scatternd(
    op: Any, data: Tensor, indices: Tensor, updates: Tensor, y: Tensor, traits: DeviceTraits
) -> KernelSource | No:
    ready = _prepared(op, [data, indices, updates], y, (0, 2))
    if isinstance(ready, No):
        return ready
    (data, indices, updates), y = ready
    k, lead = indices.lens[-1], len(indices.lens) - 1
    at = [f"c{a}" for a in range(len(updates.lens))]
    body = [
        f"const u32 t{j} = (u32)wrapped({position(indices, [*at[:lead], str(j)])}, {data.lens[j]});" for j in range(k)
    ]
    place = offset_of(y, [*(f"t{j}" for j in range(k)), *at[lead:]])
    value = f"p2[{offset_of(updates, at)}]"
    xs, first = [data, indices, updates], _copy(data, y, traits)
    return _written(op.name, first, xs, y, updates.lens, body, op.reduction, value, place, traits)


def max_unpool(op: Any, x: Tensor, indices: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource | No:
    """Writes kernels that put values to places counted along the result less what its extents append, in zeros."""
    dims = (*x.lens[:2], *op.natural(x.lens[2:]))
    size = math.prod(dims)
    if indices.lens != x.lens or any(n < 0 or n > m for n, m in zip(dims, y.lens, strict=True)):
        return No(f"indices {list(indices.lens)} into {list(dims)} for a result of {list(y.lens)}")
    if x.elements and not 0 < size < 1 << 32:
        return No(f"a result of {size} elements")
    x, y = carried(x), carried(y)
    at = [f"c{a}" for a in range(len(x.lens))]
    setup, places = decompose("g", dims, "t")
    body = [f"const u32 g = (u32)wrapped({position(indices, at)}, {size});", *setup]
    value, place = f"p0[{offset_of(x, at)}]", offset_of(y, places)
    return _written("max_unpool", _zeros(y, traits), [x, indices], y, x.lens, body, "none", value, place, traits)


def tensor_scatter(op: Any, xs: list[Tensor | None], ys: list[Tensor], traits: DeviceTraits) -> KernelSource | No:
    """A run of new entries written into a cache."""
    cache, update, start = [*xs, None][:3]
    assert cache is not None and update is not None
    y = carried(ys[0])
    axis = normalize(op.axis, len(cache.lens))
    n = cache.lens[axis]
    at = [f"c{a}" for a in range(len(update.lens))]
    base = "0" if start is None else f"(i64)p2[c0 * {start.strides[0]}u]"
    body = [f"const i64 g = {base} + (i64)c{axis};"]
    body.append(
        f"const u32 t = (u32)m::mod(g, (i64){n});" if op.mode == "circular" else f"const u32 t = (u32)wrapped(g, {n});"
    )
    place = offset_of(y, ["t" if a == axis else c for a, c in enumerate(at)])
    given = [carried(cache), carried(update), *([] if start is None else [start])]
    first, value = _copy(given[0], y, traits), f"p1[{offset_of(update, at)}]"
    return _written("tensor_scatter", first, given, y, update.lens, body, "none", value, place, traits)


def concat_past_present(
    op: Any, present: Tensor, seqlens: Tensor, past: Tensor, y: Tensor, traits: DeviceTraits
) -> KernelSource:
    """Writes a kernel that puts new keys or values behind those of a cache: one launch picks each row's source."""
    from .elements import each_element

    x, old, y = carried(present), carried(past), carried(y)
    s, c = x.lens[2], old.lens[2]

    def element(at: Any) -> tuple[list[str], list[str]]:
        lines = [
            f"const i64 tokens = (i64)p1[{offset_of(seqlens, [at[0]])}] + 1;",
            f"const i64 start = tokens > {s} ? tokens - {s} : 0, row = (i64){at[2]} - start;",
            f"const bool fresh = row >= 0 && row < {s};",
        ]
        new = f"p0[{offset_of(x, [at[0], at[1], '(u32)row', at[3]])}]"
        kept = (
            f"p2[{offset_of(old, at)}]"
            if c >= y.lens[2]
            else f"({at[2]} < {c}u ? p2[{offset_of(old, at)}] : ({stored(y.dtype)})0)"
        )
        return lines, [f"fresh ? {new} : {kept}"]

    return each_element("concat_past_present", [x, seqlens, old], [y], traits, element)
