"""Ops that only copy elements: copies, strided views, padding, concatenation, tiling, reversal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from mgx_core import Module, No, Shape
from mgx_core.ops.axes import normalize, normalize_all
from mgx_core.ops.broadcast import Broadcast, BroadcastForDot, Multibroadcast
from mgx_core.ops.movement import Contiguous, Layout
from mgx_core.ops.pad import Pad
from mgx_core.ops.reshape import Flatten, Reshape, ReshapeLazy, Squeeze, Unsqueeze
from mgx_core.ops.scalar import convert
from mgx_core.types.shape import row_major
from mgx_core.types.traced_int import divides, int_or_traced

from .elements import Coordinates, ElementSource, as_unsigned, each_move, offset_of
from .extents import plain
from .geometry import aligned, decompose, index_type, memory_order, merge, offset_code, store_code
from .pointwise import braced, each_item, pointwise
from .source import DeviceTraits, KernelSource, Tensor, finish, storage_type, supported

__all__ = ["by_part", "concat", "copy", "copy_mapped", "pad", "reverse", "slices", "tile", "window"]


def copy(x: Tensor, y: Tensor, traits: DeviceTraits, word: str = "copy") -> KernelSource:
    """Copies x to the layout of y: equal extents, other strides."""
    x, y = as_unsigned(x), as_unsigned(y)
    module = Module("copy")
    module.add_return([module.add_parameter("x", Shape.of(x.dtype, x.lens))])
    return pointwise(module, [x], [y], traits, word)


def window(
    op: Any, xs: Sequence[Tensor | None], ys: Sequence[Tensor], traits: DeviceTraits, modules: Sequence[Module] = ()
) -> KernelSource | No:
    """Copies a strided view of an input's memory."""
    (x, *others), (y,) = xs, ys
    if any(o is not None for o in others) and not isinstance(op, (Broadcast, BroadcastForDot, Multibroadcast)):
        return No("an attribute of the view is known only at run time")
    if x is None or not supported(as_unsigned(x).dtype):
        return No(f"{op.name} does not support elements of {0 if x is None else x.dtype.size} bytes")
    if isinstance(op, (Contiguous, Layout)):
        return copy(x, y, traits, op.name)
    seen = op.view(*(t.shape for t in xs if t is not None)) if op.view is not None else None
    if seen is not None and seen[0] == 0:
        return copy(x._replace(lens=tuple(seen[1].lens()), strides=tuple(seen[1].strides())), y, traits, op.name)
    if isinstance(op, (Reshape, Flatten, Squeeze, Unsqueeze, ReshapeLazy)) and y.shape.standard():
        return copy(x, y._replace(lens=x.lens, strides=tuple(row_major(x.lens))), traits, op.name)
    return No(f"{op.name} of {x.shape} is not a strided view of memory")


def inner_axis(y: Tensor) -> int:
    """Returns the innermost axis in memory."""
    axes = [a for a in memory_order(y.strides, y.lens) if y.lens[a] != 1]
    return axes[-1] if axes else -1


def straight(x: Tensor, axis: int) -> int:
    """Returns the widest vector of x along `axis` that is aligned for all other coordinates."""
    if axis < 0 or x.strides[axis] != 1:
        return 1
    width = max(1, 16 // x.dtype.size)
    others = [s for a, s in enumerate(x.strides) if a != axis and x.lens[a] != 1]
    while width > 1 and not aligned(x, [*others, 1], 0, width):
        width //= 2
    return width


# from an output coordinate and a signed type for it to the source coordinate, and the condition under which that is valid
Map = Callable[[str, str], tuple[str, str]]


def copy_mapped(
    word: str, x: Tensor, y: Tensor, traits: DeviceTraits, maps: Sequence[Map | None], fill: str = "0"
) -> KernelSource:
    """y[c] = x[map(c)] per axis (None: identity), `fill` where a map's condition is false."""
    inner = inner_axis(y)

    def found(at: Coordinates) -> ElementSource:
        source, conditions, lines = [], [], []
        for a, m in enumerate(maps):
            signed = "i32" if x.lens[a] < 1 << 31 and y.lens[a] < 1 << 31 else "i64"
            code, condition = (at[a], "") if m is None else m(at[a], signed)
            if not (code.isidentifier() or code == "0u"):
                lines.append(f"const {signed} s{a} = {code};")
                code = f"s{a}"
            source.append(code)
            if condition:
                conditions.append(condition.replace("@", code))
        return ElementSource(lines, f"p0 + ({offset_of(x, source)})", " && ".join(conditions), fill)

    width = straight(x, inner) if inner >= 0 and maps[inner] is None else 1
    return each_move(word, [x], y, traits, found, width)


def slices(op: Any, x: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource:
    """Copies a slice, of any steps."""
    x, y = as_unsigned(x), as_unsigned(y)
    maps: list[Map | None] = [None] * len(x.lens)
    for axis, start, end, step in op.ranges(len(x.lens), op.starts, op.ends, op.axes, op.steps):
        at = range(x.lens[axis])[int(start) : int(end) : step]
        maps[axis] = _stepped(at.start, step)
    return copy_mapped("slice", x, y, traits, maps)


def _stepped(start: int, step: int) -> Map | None:
    if start == 0 and step == 1:
        return None
    if step == 1:
        return lambda c, signed: (f"{start} + ({signed}){c}", "")
    sign = "+" if step > 0 else "-"
    return lambda c, signed: (f"{start} {sign} ({signed}){c} * {abs(step)}", "")


def reverse(op: Any, x: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource:
    x, y = as_unsigned(x), as_unsigned(y)
    axes = normalize_all(op.axes, len(x.lens))
    return copy_mapped(
        "reverse", x, y, traits, [_stepped(n - 1, -1) if a in axes else None for a, n in enumerate(x.lens)]
    )


def tile(x: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource:
    x, y = as_unsigned(x), as_unsigned(y)
    maps: list[Map | None] = [None if n == m else _modulo(n) for n, m in zip(x.lens, y.lens, strict=True)]
    return copy_mapped("tile", x, y, traits, maps)


def _modulo(n: int) -> Map:
    return lambda c, signed: (f"{c} % {n}u", "")


def bits(value: Any, of: Any) -> str:
    """Returns the bits of one element as an unsigned number."""
    host = convert(np.asarray(value), of) if not isinstance(value, np.ndarray) else value
    raw = int.from_bytes(np.asarray(host).reshape(-1)[:1].tobytes(), "little")
    return f"{raw}ull" if of.size == 8 else f"{raw}u"


def pad(op: Any, x: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource | No:
    """Generates a kernel that pads by static widths, in any mode."""
    rank = len(x.lens)
    if not isinstance(op, Pad):
        op = Pad(pads=(*[0] * rank, *(m - n for n, m in zip(x.lens, y.lens, strict=True))))
    begins, ends = ([int_or_traced(p) for p in part] for part in (op.pads[:rank], op.pads[rank:]))
    mode, fill = op.mode, bits(op.value, x.dtype) if op.mode == "constant" else "0"
    left = [n + min(b, 0) + min(e, 0) for n, b, e in zip(x.lens, begins, ends, strict=True)]
    if mode != "constant" and y.elements and any(n <= 0 for n in left):
        return No(f"an axis of {x.lens} has no elements to repeat in mode {mode!r}")
    x, y = as_unsigned(x), as_unsigned(y)
    maps: list[Map | None] = []
    for n, b, e in zip(x.lens, begins, ends, strict=True):
        maps.append(None if b == e == 0 else _border(mode, n, b, e))
    return copy_mapped("pad", x, y, traits, maps, fill)


def _border(mode: str, n: int, begin: int, end: int) -> Map:
    if mode == "constant":
        return lambda c, signed: (f"({signed}){c} - {begin}", f"@ >= 0 && @ < {n}")
    first, length = max(-begin, 0), n - max(-begin, 0) - max(-end, 0)  # after cropping

    def repeated(c: str, signed: str) -> tuple[str, str]:
        at = f"(({signed}){c} - {max(begin, 0)})"

        def number(value: int) -> str:
            return f"({signed}){value}"

        if mode == "edge":
            return f"{first} + m::min(m::max({at}, {number(0)}), {number(length - 1)})", ""
        if mode == "wrap":
            return f"{first} + m::mod({at}, {number(max(length, 1))})", ""
        if length <= 1:
            return f"{first}", ""
        last = number(length - 1)
        return f"{first} + ({last} - m::abs({last} - m::mod({at}, {number(2 * (length - 1))})))", ""

    return repeated


def by_part(
    ends: Sequence[int], scale: int, names: Sequence[str], joined: int, statement: Callable[[int, Sequence[str]], str]
) -> list[str]:
    """Returns statements that run the one for the part of a concatenation in which an element lies.

    ends: of the parts along the concatenated axis, of which `names[joined]` is the coordinate, in units of `scale`.
    statement: returns the statement for a part from the element's coordinates within it.
    """
    found: list[tuple[int, list[str]]] = []  # first coordinate and statement of each part with elements
    begin = 0
    for n, end in enumerate(ends):
        if end == begin:
            continue
        own = f"({names[joined]} - {begin // scale}u)" if begin else names[joined]
        found.append((begin // scale, [statement(n, [*names[:joined], own, *names[joined + 1 :]])]))
        begin = end
    return _bisected(names[joined], found)


def _bisected(name: str, parts: Sequence[tuple[int, list[str]]]) -> list[str]:
    """Returns the statements of the part in which a coordinate lies, after a logarithmic number of tests."""
    if len(parts) < 2:
        return [line for _, lines in parts for line in lines]
    middle = len(parts) // 2
    branches = _bisected(name, parts[:middle]), _bisected(name, parts[middle:])
    return [*braced(f"if ({name} < {parts[middle][0]}u)", branches[0]), *braced("else", branches[1])]


def concat(op: Any, xs: Sequence[Tensor], y: Tensor, traits: DeviceTraits) -> KernelSource | No:
    """Concatenates tensors in one launch."""
    axis = normalize(op.axis, len(y.lens))
    xs, y = [as_unsigned(x) for x in xs], as_unsigned(y)
    if y.elements == 0:
        return finish("concat", "", [], xs, [y])
    order = memory_order(y.strides, y.lens)
    place = order.index(axis)
    strides = [*(x.strides for x in xs), y.strides]
    outer = merge(y.lens, strides, order[:place])
    after = merge(y.lens, strides, order[place + 1 :])
    unit = 1  # elements inside the axis are concatenated as one unit
    steps = [s[axis] for s in strides]
    tail = list(after.dims)
    inner = [list(s) for s in after.strides]
    if tail and all(a == t * i[0] for a, t, i in zip(steps, [tail[0]] * len(steps), inner, strict=True)):
        unit, steps = tail[0], [i[0] for i in inner]
        tail, inner = tail[1:], [i[1:] for i in inner]
    ends, total = [], 0
    for x in xs:
        total += x.lens[axis] * unit
        ends.append(total)
    size = y.dtype.size
    width = 1
    if (tail and all(i[-1] == 1 for i in inner)) or (not tail and all(s == 1 for s in steps)):
        width = 16 // size
        extents = tail[-1:] if tail else ends
        while width > 1:
            fits = all(divides(width, e) for e in extents) and all(
                aligned(t, [*o, *([s, *i[:-1]] if tail else []), 1], 0, width)
                for t, o, s, i in zip([*xs, y], outer.strides, steps, inner, strict=True)
            )
            if fits:
                break
            width //= 2
    dims = [*outer.dims, total, *tail]
    dims[-1] //= width
    joined = len(outer.dims)
    scale = width if not tail else 1
    setup, names = decompose("i", dims, "c")
    index = index_type(*xs, y)
    t = storage_type(y.dtype)
    kind = f"vec<{t}, {width}>" if width > 1 else t

    def loaded(n: int, coordinates: Sequence[str]) -> str:
        at = offset_code(coordinates, [*outer.strides[n], steps[n], *inner[n]], 0, index, width)
        return f"v = ldv<{t}, {width}>(p{n} + ({at}));" if width > 1 else f"v = p{n}[{at}];"

    lines = [*setup, f"{kind} v;", *by_part(ends, scale, names, joined, loaded)]
    at = offset_code(names, [*outer.strides[-1], steps[-1], *inner[-1]], 0, index, width)
    lines.append(f"{store_code(y, width)}(q0 + ({at}), v);" if width > 1 else f"q0[{at}] = v;")
    return each_item(f"concat_{len(xs)}", lines, xs, [y], prod(map(plain, dims)), traits)
