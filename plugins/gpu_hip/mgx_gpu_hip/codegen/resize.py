"""Resampling: neighbors and weights along each axis are embedded as tables, or computed by the kernel for changing extents."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from mgx_core import No
from mgx_core.ops.resize import MOST_SUMMED, Axis, interpolation_type
from mgx_core.types.traced_int import TracedInt, surely_equal

from .elements import Coordinates, ElementSource, as_unsigned, each_element, each_move, offset_of
from .extents import varies
from .geometry import nest
from .movement import inner_axis, straight
from .primitives import constant
from .source import NAME, DeviceTraits, KernelSource, Tensor, compute_type, storage_type, to_compute, to_storage

__all__ = ["resize"]

MAX_TAPS = 16  # neighbors along one axis
ROUNDED: Final = {
    "round_prefer_floor": "m::ceil({} - 0.5f)", "round_prefer_ceil": "m::floor({} + 0.5f)", "floor": "m::floor({})",
    "ceil": "m::ceil({})", "simple": "{} < 1 ? m::ceil({}) : m::floor({})",
}  # fmt: skip


def _table(kind: str, name: str, numbers: Any) -> str:
    cells = ", ".join(
        str(int(v)) if kind == "i32" else constant(float(v), kind) for v in np.asarray(numbers).reshape(-1)
    )
    return f"static __device__ const {kind} {NAME}_{name}[] = {{{cells}}};\n"


def resize(op: Any, x: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource | No:
    axes = op.resized(len(x.lens))
    dims = [x.lens[a] for a in axes]
    targets = [y.lens[a] for a in axes]
    if any(map(varies, (*dims, *targets))):
        made = _computed(op, x, y, traits)
        if not isinstance(made, No) or any(type(n) is TracedInt for n in (*dims, *targets)):
            return made
    if op.scales:
        factors = list(op.scales)
    elif op.keep_aspect_ratio_policy == "stretch":
        factors = [t / d if d else 1.0 for t, d in zip(targets, dims, strict=True)]
    else:
        factors = [op.aspect(dims, [int(s) for s in op.sizes])] * len(dims)
    box = [*op.roi] or [0.0] * len(axes) + [1.0] * len(axes)
    cropped = op.coordinate_transformation_mode == "tf_crop_and_resize"
    nearest = op.mode == "nearest"
    kind = compute_type(x.dtype if nearest or x.dtype.is_float else interpolation_type(x.dtype))
    before, taps, outside = "", {}, {}
    for k, axis in enumerate(axes):
        plan = Axis(dims[k], targets[k], factors[k], box[k], box[k + len(axes)])
        whole = not cropped or (plan.start, plan.end) == (0, 1)
        if plan.out == 0 or (plan.size == plan.out and plan.scale == 1.0 and whole):
            continue
        at = op.source(plan)
        if nearest:
            before += _table("i32", f"at{axis}", np.clip(op.nearest(at, plan.scale), 0, plan.size - 1))
            taps[axis] = 1
        else:
            index, weight = op.weights(at, plan.scale)
            beyond = (index < 0) | (index >= plan.size)
            if op.exclude_outside:
                weight = np.where(beyond, 0, weight)
                weight = weight / weight.sum(-1, keepdims=True)
            if index.shape[1] > MAX_TAPS:
                return No(f"at most {MAX_TAPS} neighbors along an axis are supported, got {index.shape[1]}")
            before += _table("i32", f"at{axis}", np.clip(index, 0, plan.size - 1))
            before += _table(kind, f"by{axis}", weight)
            taps[axis] = index.shape[1]
        if cropped:
            outside[axis] = True
            before += _table("i32", f"out{axis}", (at < 0) | (at > plan.size - 1))
    if nearest and not cropped:
        cx, cy = as_unsigned(x), as_unsigned(y)

        def found(at: Coordinates) -> ElementSource:
            place = [f"(u32){NAME}_at{a}[{c}]" if a in taps else c for a, c in enumerate(at)]
            return ElementSource([], f"p0 + ({offset_of(cx, place)})")

        inner = inner_axis(cy)
        width = straight(cx, inner) if inner >= 0 and inner not in taps else 1
        return each_move("resize", [cx], cy, traits, found, width, before)

    def element(at: Coordinates) -> tuple[list[str], list[str]]:
        heads = [[f"UNROLL for (int t{a} = 0; t{a} < {count}; ++t{a}) {{"] for a, count in taps.items()]
        place = [f"(u32){NAME}_at{a}[{at[a]} * {taps[a]} + t{a}]" if a in taps else at[a] for a in range(len(at))]
        value = f"({kind}){to_compute(f'p0[{offset_of(x, place)}]', x.dtype)}"
        weights = "" if nearest else "".join(f" * {NAME}_by{a}[{at[a]} * {count} + t{a}]" for a, count in taps.items())
        lines = [f"{kind} acc = 0;", *nest(heads, [f"acc += {value}{weights};"])]
        if outside:
            test = " || ".join(f"{NAME}_out{a}[{at[a]}]" for a in outside)
            lines.append(f"if ({test}) acc = {constant(op.extrapolation_value, kind)};")
        result = "acc" if y.dtype.kind == "f" else f"convert<{storage_type(y.dtype)}>(acc)"
        return lines, [to_storage(result, y.dtype)]

    flops = y.elements * int(np.prod([*taps.values(), 2]))
    return each_element("resize", [x], [y], traits, element, before=before, unroll=4, flops=flops)


def _computed(op: Any, x: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource | No:
    """Generates a kernel that computes the neighbors and weights of its elements, as `Resize.source` and the rest define them."""
    cropped = op.coordinate_transformation_mode == "tf_crop_and_resize"
    if cropped or not (op.scales or op.keep_aspect_ratio_policy == "stretch"):
        return No("factors, aspect ratios and crops that depend on changing extents are not supported")
    nearest = op.mode == "nearest"
    axes = {}
    for k, a in enumerate(op.resized(len(x.lens))):
        factor = op.scales[k] if op.scales else 0.0
        if not (factor in (0.0, 1.0) and surely_equal([x.lens[a]], [y.lens[a]])):
            axes[a] = factor
    if nearest:
        cx, cy = as_unsigned(x), as_unsigned(y)

        def found(at: Coordinates) -> ElementSource:
            lines = [line for a, f in axes.items() for line in _nearest(op, a, x.lens[a], y.lens[a], f, at[a])]
            return ElementSource(
                lines, f"p0 + ({offset_of(cx, [f'n{a}' if a in axes else c for a, c in enumerate(at)])})"
            )

        inner = inner_axis(cy)
        width = straight(cx, inner) if inner >= 0 and inner not in axes else 1
        return each_move("resize", [cx], cy, traits, found, width)
    kind = compute_type(x.dtype if x.dtype.is_float else interpolation_type(x.dtype))
    taps = 2 if op.mode == "linear" else 4

    result = "acc" if y.dtype.kind == "f" else f"convert<{storage_type(y.dtype)}>(acc)"

    def filtered(at: Coordinates) -> tuple[list[str], list[str]]:
        found = [_filter(op, a, x.lens[a], y.lens[a], f, at[a]) for a, f in axes.items()]
        place = offset_of(x, [f"n{a}" if a in axes else c for a, c in enumerate(at)])
        weight = "".join(f" * w{a}" for a in axes)
        lines = [line for lines, _ in found for line in lines]
        value = f"({kind})({to_compute(f'p0[{place}]', x.dtype)} * ({kind})(1.0{weight}))"
        heads = [head for _, head in found]
        return [*lines, f"{kind} acc = 0;", *nest(heads, [f"acc += {value};"])], [to_storage(result, y.dtype)]

    if op.antialias:
        return each_element("resize", [x], [y], traits, filtered, flops=2 * y.elements * taps ** len(axes))

    def element(at: Coordinates) -> tuple[list[str], list[str]]:
        lines = [line for a, f in axes.items() for line in _weights(op, a, x.lens[a], y.lens[a], f, at[a], taps, kind)]
        heads = [
            [
                f"UNROLL for (int t{a} = 0; t{a} < {taps}; ++t{a}) {{",
                f"if (same{a} && t{a} != {taps // 2 - 1}) continue;",
            ]
            for a in axes
        ]
        place = offset_of(x, [f"n{a}[t{a}]" if a in axes else c for a, c in enumerate(at)])
        value = f"({kind}){to_compute(f'p0[{place}]', x.dtype)}" + "".join(f" * w{a}[t{a}]" for a in axes)
        return [*lines, f"{kind} acc = 0;", *nest(heads, [f"acc += {value};"])], [to_storage(result, y.dtype)]

    return each_element("resize", [x], [y], traits, element, unroll=4, flops=2 * y.elements * taps ** len(axes))


def _same(a: int, size: int, out: int, factor: float) -> str:
    """Returns a statement that tests whether axis `a` keeps its extent: then it keeps its elements, whatever the mode."""
    return f"const bool same{a} = {f'{size}u == {out}u' if factor in (0.0, 1.0) else 'false'};"


def _position(op: Any, a: int, size: int, out: int, factor: float, at: str, kind: str) -> list[str]:
    """Returns statements that compute the position `x` of element `at` of axis `a`, rounded to `kind`; factor: 0: out / size."""
    if factor and math.frexp(factor)[0] == 0.5:
        scale, divided = f"{factor!r}", f" * {1 / factor!r}"
    else:
        scale = f"{factor!r}" if factor else f"((double){out} / (double){size})"
        divided = f" / {scale}"
    half = "0.5f" if kind == "float" else "0.5"
    match op.coordinate_transformation_mode:
        case "align_corners":
            found = f"(i * ((double){size} - 1.0) / ((double){size} * {scale} - 1.0))"
            found = f"({out} > 1 ? {found} : 0.0)"
        case "asymmetric":
            found = f"(i{divided})"
        case "tf_half_pixel_for_nn":
            found = f"((i + 0.5){divided})"
        case how:
            found = f"({kind})((i + 0.5){divided}) - {half}"
            if how == "pytorch_half_pixel":
                found = f"({out} > 1 ? {found} : ({kind})0)"
            elif how == "half_pixel_symmetric":
                found += f" + ({kind})((double){size} / 2.0 * (1.0 - (double){out} / ({scale} * (double){size})))"
    return [f"const double i = (double)(u32)({at});", f"const {kind} x = same{a} ? ({kind})i : ({kind})({found});"]


def _nearest(op: Any, a: int, size: int, out: int, factor: float, at: str) -> list[str]:
    """Returns statements that compute the nearest neighbor n{a} of an element."""
    rounded = ROUNDED[op.nearest_mode]
    if op.nearest_mode == "simple":
        scale = f"{factor!r}" if factor else f"((double){out} / (double){size})"
        found = rounded.format(scale, "x", "x")
    else:
        found = rounded.format("x")
    return [
        _same(a, size, out, factor),
        f"u32 n{a};",
        "{",
        *(f"  {line}" for line in _position(op, a, size, out, factor, at, "float")),
        f"  n{a} = (u32)m::min(m::max((i32)({found}), 0), {size} - 1);",
        "}",
    ]


def _weight(op: Any) -> str:
    """Returns the weight of a neighbor at distance `d`."""
    if op.mode == "linear":
        return "m::max(1.0 - d, 0.0)"
    c = constant(op.cubic_coeff_a, "double")
    near = f"(({c} + 2.0) * d - ({c} + 3.0)) * d * d + 1.0"
    far = f"(({c} * d - 5.0 * {c}) * d + 8.0 * {c}) * d - 4.0 * {c}"
    return f"d <= 1.0 ? {near} : d < 2.0 ? {far} : 0.0"


def _filter(op: Any, a: int, size: int, out: int, factor: float, at: str) -> tuple[list[str], list[str]]:
    """Returns statements for a filter stretched to a shrinking axis, and a loop over its neighbors n{a} and weights w{a}."""
    scale = f"{factor!r}" if factor else f"((double){out} / (double){size})"
    reach = 1 if op.mode == "linear" else 2
    each = [
        f"for (i32 t{a} = first{a}; t{a} <= 1 - first{a}; ++t{a}) {{",
        f"  const double d = m::abs((low{a} + (double)t{a} - x{a}) * narrow{a});",
        f"  const i32 k = (i32)low{a} + t{a};",
        f"  {'const ' if not op.exclude_outside else ''}double v = {_weight(op)};",
        *([f"  if (k < 0 || k >= {size}) v = 0.0;"] if op.exclude_outside else []),
    ]
    lines = [
        _same(a, size, out, factor),
        f"double x{a}, sum{a} = 0.0;",
        "{",
        *(f"  {line}" for line in _position(op, a, size, out, factor, at, "double")),
        f"  x{a} = x;",
        "}",
        f"const double low{a} = m::floor(x{a}), narrow{a} = m::min({scale}, 1.0);",
        f"const i32 first{a} = (i32)m::floor({-reach}.0 / narrow{a}) + 1;",
        *each,
        f"  sum{a} += v;",
        "}",
        f"const double by{a} = {'1.0 / sum' + str(a) if op.exclude_outside else f'narrow{a} < 1.0 ? 1.0 / sum{a} : 1.0'};",
    ]
    used = [f"  const double w{a} = v * by{a};", f"  if (w{a} == 0.0 && first{a} < {1 - MOST_SUMMED // 2}) continue;"]
    return lines, [*each, *used, f"  const u32 n{a} = (u32)m::min(m::max(k, 0), {size} - 1);"]


def _weights(op: Any, a: int, size: int, out: int, factor: float, at: str, taps: int, kind: str) -> list[str]:
    """Returns statements that compute the neighbors n{a} of an element and their weights w{a}."""
    weight = _weight(op)
    kept = [f"if (k < 0 || k >= {size}) v = 0.0;", "sum += v;"] if op.exclude_outside else []
    last = [f"UNROLL for (int t = 0; t < {taps}; ++t) w{a}[t] = ({kind})(part[t] / sum);"] if kept else []
    return [
        _same(a, size, out, factor),
        f"u32 n{a}[{taps}];",
        f"{kind} w{a}[{taps}];",
        "{",
        *(f"  {line}" for line in _position(op, a, size, out, factor, at, "double")),
        "  const double low = m::floor(x);",
        *([f"  double part[{taps}], sum = 0.0;"] if kept else []),
        f"  UNROLL for (int t = 0; t < {taps}; ++t) {{",
        f"    const double d = m::abs(low + (double)(t - {taps // 2 - 1}) - x);",
        f"    const i32 k = (i32)low + t - {taps // 2 - 1};",
        f"    {'' if kept else 'const '}double v = {weight};",
        *(f"    {line}" for line in kept),
        f"    {'part' if kept else f'w{a}'}[t] = {'v' if kept else f'({kind})v'};",
        f"    n{a}[t] = (u32)m::min(m::max(k, 0), {size} - 1);",
        "  }",
        *(f"  {line}" for line in last),
        "}",
    ]
