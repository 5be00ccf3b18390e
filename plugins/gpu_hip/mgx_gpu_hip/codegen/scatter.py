"""Scatter: initializes the result with the data or zeros, then applies updates at positions given by an operand."""

from __future__ import annotations

import math
from typing import Any

from mgx_core import No
from mgx_core import dtype as dt
from mgx_core.ops.axes import normalize
from mgx_core.targets.values import packed_strides

from .elements import as_unsigned, offset_of, pointers
from .geometry import ceil_div, decompose, memory_order, merge, offset_code, vector_width
from .indexing import position
from .pointwise import kernel, threads_of
from .source import (
    NAME,
    Buffer,
    DeviceTraits,
    KernelLaunch,
    KernelSource,
    Tensor,
    finish,
    storage_type,
    to_compute,
    to_storage,
)

__all__ = ["concat_past_present", "max_unpool", "scatter", "scatternd", "tensor_scatter"]

_ATOMIC = (dt.float16, dt.bfloat16, dt.float32, dt.float64, dt.int32, dt.uint32, dt.int64, dt.uint64)


def _converted(
    name: str, x: Tensor, source: Buffer, y: Tensor, target: Buffer, traits: DeviceTraits
) -> tuple[str, KernelLaunch]:
    """y = x converted to y's type, as a launch; vectorized."""
    loop = merge(y.lens, [x.strides, y.strides], memory_order(y.strides, y.lens))
    dims, (froms, tos) = list(loop.dims or (1,)), (s or (1,) for s in loop.strides)
    repeated = not froms[-1]  # one element, for example a zero, for all of a vector
    given = [(y, tos, 0)] if repeated else [(x, froms, 0), (y, tos, 0)]
    width = vector_width(dims[-1], given, 16 // max(x.dtype.size, y.dtype.size))
    while width > 1 and loop.count < width * traits.sm_count * 256:
        width //= 2
    dims[-1] //= width
    total = math.prod(dims)
    setup, names = decompose("i", dims, "c")
    threads = threads_of(total, traits)
    at = [offset_code(names, s, 0, "u64", width) for s in (froms, tos)]
    t, some, item = storage_type(x.dtype), 1 if repeated else width, f"a.v[{'0' if repeated else 'k'}]"
    value = item if x.dtype is y.dtype else to_storage(to_compute(item, x.dtype), y.dtype)
    lines = [
        "const u32 i = blockIdx.x * blockDim.x + threadIdx.x;",
        f"if (i >= {total}u) return;",
        *setup,
        f"const vec<{t}, {some}> a = ldv<{t}, {some}>(p0 + ({at[0]}));",
        f"vec<{storage_type(y.dtype)}, {width}> b;",
        f"UNROLL for (int k = 0; k < {width}; ++k) b.v[k] = {value};",
        f"stv<{storage_type(y.dtype)}, {width}>(q0 + ({at[1]}), b);",
    ]
    names = [f"const {storage_type(x.dtype)}* RESTRICT p0", f"{storage_type(y.dtype)}* RESTRICT q0"]
    grid = (ceil_div(total, threads), 1, 1)
    return kernel(name, names, lines, threads), KernelLaunch(name, grid, (threads, 1, 1), (source, target))


def _copy(x: Tensor, y: Tensor, traits: DeviceTraits) -> tuple[str, KernelLaunch]:
    """y = x, as the first launch."""
    return _converted(f"{NAME}_copy", as_unsigned(x), Buffer("input", 0), as_unsigned(y), Buffer("output", 0), traits)


def _zeros(y: Tensor, traits: DeviceTraits) -> tuple[str, KernelLaunch]:
    """y = 0, as the first launch; in memory order, unless that has gaps."""
    total = y.elements
    setup, names = ([], ["i"]) if y.space == total else decompose("i", y.lens, "c")
    threads = threads_of(total, traits)
    lines = [
        "const u32 i = blockIdx.x * blockDim.x + threadIdx.x;",
        f"if (i >= {total}u) return;",
        *setup,
        f"q0[{offset_code(names, y.strides if setup else (1,), 0, 'u64')}] = 0;",
    ]
    text = kernel(f"{NAME}_zeros", [f"{storage_type(y.dtype)}* RESTRICT q0"], lines, threads)
    grid = (ceil_div(total, threads), 1, 1)
    return text, KernelLaunch(f"{NAME}_zeros", grid, (threads, 1, 1), (Buffer("output", 0),))


def _written(
    word: str, first: tuple[str, KernelLaunch], xs: list[Tensor], y: Tensor, over: tuple[int, ...], body: list[str],
    reduction: str, value: str, place: str, traits: DeviceTraits, width: int = 1, sums: Tensor | None = None,
) -> KernelSource:  # fmt: skip
    """Returns the launch `first`, then one thread per update over extents `over` (coordinates c0..).

    width: elements, contiguous along the last axis, per thread; `value` and `place` are the first one's.
    sums: scratch buffer initialized by `first` in which updates are combined instead of in y; a last launch rounds it.
    """
    if not y.elements:
        return finish(word, first[0], [], xs, [y])
    text, launches = first[0], [first[1]]
    dims = [*over[:-1], over[-1] // width] if width > 1 else list(over)
    total = math.prod(dims)
    if total:
        setup, _ = decompose("i", dims, "c" if width == 1 else "g")
        if width > 1:
            setup += [f"const u32 c{a} = g{a}{f' * {width}u' if a == len(over) - 1 else ''};" for a in range(len(over))]
        threads = threads_of(total, traits)
        lines = [
            "const u32 i = blockIdx.x * blockDim.x + threadIdx.x;",
            f"if (i >= {total}u) return;",
            *setup,
            *body,
            *_put(y, sums, reduction, value, place, width),
        ]
        names, buffers = pointers(xs, [y])
        if sums is not None:
            names, buffers = [*names, "float* sums"], [*buffers, Buffer("scratch", 0)]
        text += kernel(NAME, names, lines, threads)
        launches.append(KernelLaunch(NAME, (ceil_div(total, threads), 1, 1), (threads, 1, 1), tuple(buffers)))
    if sums is None:
        return finish(word, text, launches, xs, [y])
    last = _converted(f"{NAME}_rounded", sums, Buffer("scratch", 0), y, Buffer("output", 0), traits)
    return finish(word, text + last[0], [*launches, last[1]], xs, [y], scratch=[4 * y.elements])


def _put(y: Tensor, sums: Tensor | None, reduction: str, value: str, place: str, width: int) -> list[str]:
    """Returns statements that store or combine the updates of one thread."""
    t, to = storage_type(y.dtype), f"{'q0' if sums is None else 'sums'} + ({place})"
    if width == 1:
        value = value if sums is None else f"to_f({value})"
        return [f"*({to}) = {value};" if reduction == "none" else f"atomic_{reduction}({to}, {value});"]
    lines = [f"const vec<{t}, {width}> a = ldv<{t}, {width}>(&{value});"]
    if sums is not None:
        lines.append(f"vec<float, {width}> b;")
        lines.append(f"UNROLL for (int k = 0; k < {width}; ++k) b.v[k] = to_f(a.v[k]);")
    a = "a" if sums is None else "b"
    return [*lines, f"stv<{t}, {width}>({to}, a);" if reduction == "none" else f"atomic_{reduction}({to}, {a});"]


def _sums(y: Tensor, reduction: str) -> Tensor | None:
    """Returns a float32 buffer for sums or products of narrow floats, rounded once at the end, in y's memory order."""
    if reduction not in ("add", "mul") or y.dtype not in (dt.float16, dt.bfloat16):
        return None
    return Tensor(dt.float32, y.lens, tuple(packed_strides(list(y.lens), memory_order(y.strides, y.lens))))


def _first(data: Tensor, y: Tensor, sums: Tensor | None, traits: DeviceTraits) -> tuple[str, KernelLaunch]:
    """Returns the launch that initializes the destination of the updates with the data."""
    if sums is None:
        return _copy(data, y, traits)
    return _converted(f"{NAME}_wide", data, Buffer("input", 0), sums, Buffer("scratch", 0), traits)


def _width(updates: Tensor, to: Tensor, traits: DeviceTraits) -> int:
    """Returns the number of elements along the last axis per thread, if they share one index."""
    given = [(t, t.strides, 0) for t in (updates, to)]
    width = vector_width(updates.lens[-1], given, 16 // to.dtype.size)
    while width > 1 and updates.elements < width * traits.sm_count * 256:
        width //= 2
    return width


def _prepared(op: Any, xs: list[Tensor], y: Tensor, which: tuple[int, ...]) -> tuple[list[Tensor], Tensor] | No:
    if op.reduction == "none":
        return [as_unsigned(x) if n in which else x for n, x in enumerate(xs)], as_unsigned(y)
    if xs[0].dtype not in _ATOMIC:
        return No(f"no atomic {op.reduction} for {xs[0].dtype}")
    return xs, y


def scatter(
    op: Any, data: Tensor, indices: Tensor, updates: Tensor, y: Tensor, traits: DeviceTraits
) -> KernelSource | No:
    """scatter_*: for duplicate positions, any one of the updates may win."""
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
    sums = _sums(y, op.reduction)
    to = y if sums is None else sums
    place = offset_of(to, ["t" if a == axis else c for a, c in enumerate(at)])
    value = f"p2[{offset_of(updates, at)}]"
    xs, first = [data, indices, updates], _first(data, y, sums, traits)
    last = len(data.lens) - 1
    whole = axis != last and indices.strides[last] == 0 and indices.lens[last] == updates.lens[last]
    width = _width(updates, to, traits) if whole else 1
    return _written(op.name, first, xs, y, indices.lens, body, op.reduction, value, place, traits, width, sums)


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
    sums = _sums(y, op.reduction)
    to = y if sums is None else sums
    place = offset_of(to, [*(f"t{j}" for j in range(k)), *at[lead:]])
    value = f"p2[{offset_of(updates, at)}]"
    xs, first = [data, indices, updates], _first(data, y, sums, traits)
    width = _width(updates, to, traits) if len(at) > lead else 1
    return _written(op.name, first, xs, y, updates.lens, body, op.reduction, value, place, traits, width, sums)


def max_unpool(op: Any, x: Tensor, indices: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource | No:
    """Generates kernels that scatter values into zeros, at flat indices within an image."""
    dims = (*x.lens[:2], *op.natural(x.lens[2:]))
    size = math.prod(dims)
    if indices.lens != x.lens or any(n < 0 or n > m for n, m in zip(dims, y.lens, strict=True)):
        return No(f"indices {list(indices.lens)} into {list(dims)} for a result of {list(y.lens)}")
    if x.elements and not 0 < size < 1 << 32:
        return No(f"a result of {size} elements is too large")
    x, y = as_unsigned(x), as_unsigned(y)
    at = [f"c{a}" for a in range(len(x.lens))]
    setup, places = decompose("g", dims, "t")
    body = [f"const u32 g = (u32)wrapped({position(indices, at)}, {size});", *setup]
    value, place = f"p0[{offset_of(x, at)}]", offset_of(y, places)
    return _written("max_unpool", _zeros(y, traits), [x, indices], y, x.lens, body, "none", value, place, traits)


def tensor_scatter(op: Any, xs: list[Tensor | None], ys: list[Tensor], traits: DeviceTraits) -> KernelSource | No:
    """Writes a run of new entries into a cache."""
    cache, update, start = [*xs, None][:3]
    assert cache is not None and update is not None
    y = as_unsigned(ys[0])
    axis = normalize(op.axis, len(cache.lens))
    n = cache.lens[axis]
    at = [f"c{a}" for a in range(len(update.lens))]
    base = "0" if start is None else f"(i64)p2[c0 * {start.strides[0]}u]"
    body = [f"const i64 g = {base} + (i64)c{axis};"]
    body.append(
        f"const u32 t = (u32)m::mod(g, (i64){n});" if op.mode == "circular" else f"const u32 t = (u32)wrapped(g, {n});"
    )
    place = offset_of(y, ["t" if a == axis else c for a, c in enumerate(at)])
    given = [as_unsigned(cache), as_unsigned(update), *([] if start is None else [start])]
    first, value = _copy(given[0], y, traits), f"p1[{offset_of(update, at)}]"
    return _written("tensor_scatter", first, given, y, update.lens, body, "none", value, place, traits)


def concat_past_present(
    op: Any, present: Tensor, seqlens: Tensor, past: Tensor, y: Tensor, traits: DeviceTraits
) -> KernelSource:
    """Generates a kernel that appends new keys or values to a cache: one launch selects each row's source."""
    from .elements import each_element

    x, old, y = as_unsigned(present), as_unsigned(past), as_unsigned(y)
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
            else f"({at[2]} < {c}u ? p2[{offset_of(old, at)}] : ({storage_type(y.dtype)})0)"
        )
        return lines, [f"fresh ? {new} : {kept}"]

    return each_element("concat_past_present", [x, seqlens, old], [y], traits, element)
