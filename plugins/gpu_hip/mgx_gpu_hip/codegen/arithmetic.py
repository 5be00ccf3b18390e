"""Ops that are neither pointwise nor reductions: logical reductions, ranges, triangles, LRN, rotary embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Module, No, Shape
from mgx_core import dtype as dt
from mgx_core.ops.axes import normalize
from mgx_core.ops.compare import Not
from mgx_core.ops.convert import Convert
from mgx_core.ops.reduce import ReduceAll, ReduceMin
from mgx_core.ops.rotary import RotaryEmbedding

from .elements import Coordinates, as_unsigned, each_element, offset_of
from .pointwise import one_launch
from .primitives import constant
from .reduce import fused_reduce
from .source import DeviceTraits, KernelSource, Tensor, compute_type, storage_type, to_compute, to_storage

__all__ = ["dynamic_range", "extents", "eye_like", "logical", "lrn", "rotary", "trilu", "unpack_int4"]


def logical(op: Any, x: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource:
    """Returns reduce_any and reduce_all as a minimum over zeros and ones, so that long rows are split like those of sums."""
    inverse = [] if isinstance(op, ReduceAll) else [Not()]  # any(x) = not all(not x)
    steps = [
        Convert(target_type=dt.bool_),
        *inverse,
        Convert(target_type=dt.int32),
        ReduceMin(axes=op.reduced_axes(len(x.lens))),  # over no elements, the minimum is the largest number: true
        Convert(target_type=dt.bool_),
        *inverse,
        Convert(target_type=x.dtype),
    ]
    module = Module(op.name)
    last = module.add_parameter("x0", Shape.of(x.dtype, x.lens))
    for step in steps:
        last = module.add(step, last)
    module.add_return([last])
    return fused_reduce(module, [x], [y], traits, op.name)


def dynamic_range(
    op: Any, start: Tensor, limit: Tensor, delta: Tensor, y: Tensor, traits: DeviceTraits
) -> KernelSource | No:
    if op.length is None:
        return No("the length of the range is unknown")
    kind = compute_type(y.dtype)

    def element(at: Coordinates) -> tuple[list[str], list[str]]:
        value = f"{to_compute('p0[0]', start.dtype)} + ({kind})(i64){at[0]} * {to_compute('p2[0]', delta.dtype)}"
        return [], [to_storage(f"({kind})({value})", y.dtype)]

    return each_element("dynamic_range", [start, None, delta], [y], traits, element, unroll=1)


def extents(lens: Sequence[int], y: Tensor) -> KernelSource:
    """Returns a kernel that stores extents, which may be arguments of the launch."""
    lines = [f"q0[{axis}] = {n}ll;" for axis, n in enumerate(lens)]
    return one_launch("extents", lines, [], [y], 1, 1)


def eye_like(op: Any, y: Tensor, traits: DeviceTraits) -> KernelSource:
    def element(at: Coordinates) -> tuple[list[str], list[str]]:
        return [], [to_storage(f"({compute_type(y.dtype)})((i64){at[1]} - (i64){at[0]} == {op.k})", y.dtype)]

    return each_element("eye_like", [None], [y], traits, element)


def trilu(op: Any, xs: list[Tensor | None], ys: list[Tensor], traits: DeviceTraits) -> KernelSource:
    x, k = [*xs, None][:2]
    assert x is not None
    x, y = as_unsigned(x), as_unsigned(ys[0])

    def element(at: Coordinates) -> tuple[list[str], list[str]]:
        bound = f"{op.k}" if k is None else "(i64)p1[0]"
        keep = f"(i64){at[-1]} - (i64){at[-2]} {'>=' if op.upper else '<='} {bound}"
        return [], [f"{keep} ? p0[{offset_of(x, at)}] : ({storage_type(y.dtype)})0"]

    return each_element("trilu", [x, k], [y], traits, element)


def unpack_int4(op: Any, x: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource:
    axis = normalize(op.axis, len(x.lens))

    def element(at: Coordinates) -> tuple[list[str], list[str]]:
        place = [f"({c} / 2u)" if n == axis else c for n, c in enumerate(at)]
        code = f"((u32)p0[{offset_of(x, place)}] >> 4u * ({at[axis]} & 1u) & 15u)"
        value = f"(i32)({code} ^ 8u) - 8" if y.dtype.is_signed else code
        return [], [f"({storage_type(y.dtype)})({value})"]

    return each_element("unpack_int4", [x], [y], traits, element)


def lrn(op: Any, x: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource:
    kind = compute_type(x.dtype)
    before, after = (op.size - 1) // 2, op.size // 2

    def element(at: Coordinates) -> tuple[list[str], list[str]]:
        place = [at[0], "(u32)c", *at[2:]]
        lines = [
            f"{kind} power = 0;",
            f"for (i32 j = -{before}; j <= {after}; ++j) {{",
            f"  const i32 c = (i32){at[1]} + j;",
            f"  if ((u32)c >= {x.lens[1]}u) continue;",
            f"  const {kind} v = {to_compute(f'p0[{offset_of(x, place)}]', x.dtype)};",
            "  power += v * v;",
            "}",
            f"const {kind} base = {constant(op.bias, kind)} + {constant(op.alpha / op.size, kind)} * power;",
        ]
        own = to_compute(f"p0[{offset_of(x, at)}]", x.dtype)
        return lines, [to_storage(f"{own} / m::pow(base, {constant(op.beta, kind)})", y.dtype)]

    return each_element("lrn", [x], [y], traits, element, unroll=4)


def rotary(op: Any, xs: list[Tensor | None], ys: list[Tensor], traits: DeviceTraits) -> KernelSource | No:
    """rotary_embedding and gqa_rotary_embedding: x [b, h, s, d], pairs rotated by angles of their position."""
    y = ys[0]
    if isinstance(op, RotaryEmbedding):
        x, cos, sin, positions = [*xs, None][:4]
        lengths = None
        ids = (1, 2)
    else:
        x, lengths, cos, sin = xs
        positions, ids = None, (2, 3)
    assert x is not None and cos is not None and sin is not None
    half = cos.lens[-1]
    kind = compute_type(x.dtype)
    s = x.lens[2]

    def element(at: Coordinates) -> tuple[list[str], list[str]]:
        b, h, row, e = at
        if op.interleaved:
            lines = [f"const u32 pair = {e} / 2u, other = {e} ^ 1u;", f"const bool second = {e} & 1u;"]
        else:
            lines = [
                f"const bool second = {e} >= {half}u;",
                f"const u32 pair = second ? {e} - {half}u : {e}, other = second ? {e} - {half}u : {e} + {half}u;",
            ]
        if lengths is not None:
            lines.append(f"const i64 total = (i64)p1[{offset_of(lengths, [b])}] + 1;")
            lines.append(
                f"const i64 at = m::min((total > {s} ? total - {s} : (i64)0) + (i64){row}, (i64){cos.lens[0] - 1});"
            )
        elif positions is not None and len(positions.lens) == 1:
            lines.append(f"const i64 at = wrapped((i64)p3[0] + (i64){row}, {cos.lens[0]});")
        elif positions is not None:
            lines.append(f"const i64 at = wrapped((i64)p3[{offset_of(positions, [b, row])}], {cos.lens[0]});")
        angle = [b, row, "pair"] if len(cos.lens) == 3 else ["(u32)at", "pair"]
        mine = to_compute(f"p0[{offset_of(x, at)}]", x.dtype)
        theirs = to_compute(f"p0[{offset_of(x, [b, h, row, 'other'])}]", x.dtype)
        lines += [
            f"{kind} v = {mine};",
            f"if ({e} < {2 * half}u) {{",
            f"  const {kind} o = {theirs}, c = {to_compute(f'p{ids[0]}[{offset_of(cos, angle)}]', cos.dtype)}, "
            f"z = {to_compute(f'p{ids[1]}[{offset_of(sin, angle)}]', sin.dtype)};",
            "  v = second ? z * o + c * v : c * v - z * o;",
            "}",
        ]
        return lines, [to_storage("v", y.dtype)]

    return each_element(op.name, xs, [y], traits, element)
