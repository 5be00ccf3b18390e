"""Convolutions through vendor libraries, with fused epilogues, or as products of unfolded windows (im2col)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from typing import Any, Final

import numpy as np

from mgx_core import Kernels, Module, No, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused, or_refused
from mgx_core.ops.control import Group
from mgx_core.ops.convolution import Convolution
from mgx_core.ops.pad import Pad
from mgx_core.targets.group_checks import around
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value, channels_last
from mgx_core.types.argument import Array

from ..codegen.depthwise import MOST_COLUMNS
from ..codegen.generators import static
from ..codegen.movement import pad
from ..codegen.unfold import Windows, unfold
from ..emitter import GpuEmitter, has_traced, tensor_of
from ..library.convolution import ConvProblem
from ..library.epilogue import Activation
from ..library.gemm_problem import GemmProblem, Matrix
from ..steps import LibraryStep
from ..tuning import TimedPlan
from .epilogues import Steps, read_group
from .offer import offer
from .products import BANDWIDTH, COPY, FLOATS, rounded_columns, timed_product

__all__ = ["PLANS", "library_us", "more_channels", "to_channels_last"]

PLANS = Kernels("gpu")
MAX_UNFOLDED: Final = 512 << 20  # bytes of an unfolded image
VECTOR: Final = 8  # channels in 16 bytes, the vector width of the libraries' fast kernels
MAX_MERGED: Final = 3  # ways of merging groups that are timed
MERGED_RATE: Final = 4e8  # operations per microsecond of a convolution with few groups on an H200

write_pad = static(1, pad)


@offer(PLANS, Convolution, name="library")
def emit_convolution(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    return library_convolution(e, op, *args)


@offer(PLANS, Group, name="library", when=around(Convolution, tag=Convolution.name))
def emit_group(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    found = read_group(e, modules[0], args, Convolution)
    x, w = found.operands
    return library_convolution(e, found.anchor.op, x, w, found.epilogue)


def library_convolution(e: GpuEmitter, op: Any, x: Value, w: Value, epilogue: Steps | None = None) -> Value:
    """x [n, c, ..] with weights [o, c / group, ..], channels-last result; by convolution or product, whichever is faster.

    Errors: Refused.
    """
    if e.context.libraries is None:
        raise Refused("the device has no vendor libraries")
    epilogue = epilogue or Steps()
    dtype = x.shape.dtype
    if dtype not in FLOATS or w.shape.dtype is not dtype:
        raise Refused(f"the libraries do not convolve {dtype} with {w.shape.dtype}")
    if has_traced(x):
        raise Refused("a library's plans are for fixed extents")
    window = w.lens[2:]
    if len(window) not in (1, 2, 3):
        raise Refused(f"the libraries convolve up to three spatial axes, got {len(window)}")
    lens = op.infer(Shape(dtype, x.lens), Shape(dtype, w.lens)).lens()
    if 0 in lens or 0 in x.lens:
        raise Refused("an extent is 0")
    rounded = None if op.group > 1 else rounded_columns(e, w, 0, epilogue)
    if rounded is not None:
        made = library_convolution(e, op, x, *rounded)
        return Value(Shape(dtype, lens, made.strides), made.buffer, made.offset)
    problem = _problem(e, op, x, w, epilogue)
    tiled = x.shape.rank in (3, 4) and window[-1] <= MOST_COLUMNS
    if problem.is_depthwise and (dtype is dt.float32 or (tiled and not e.exhaustive)):
        raise Refused("the generated depthwise kernel is faster than the libraries'")
    tuner = e.context.tuner
    guess = None if tuner is None else tuner.estimate(problem, e.exhaustive)
    # before the library searches its engines, which may take 0.2 s
    if guess is not None and guess > _generated_us(problem):
        raise Refused("the cost model expects a generated kernel to be faster")
    route = or_refused(_route(e, problem, x, w))
    if route.us > _generated_us(problem):
        raise Refused("a generated kernel is faster")
    if not e.exhaustive and _doubtful(problem, route.us) and _apart_us(e, problem, x, w) < route.us:
        raise Refused("a convolution and a separate launch are faster than the library's fused convolution")
    operands = dict(epilogue.operands)
    if "residual" in operands:
        operands["residual"] = to_channels_last(e, operands["residual"])
    operands = {word: e.aligned(value) for word, value in operands.items()}
    out = e.allocate(dtype, lens, channels_last(lens))
    _emit(e, problem, route, x, w, out, operands)
    return out


def library_us(e: GpuEmitter, op: Any, x: Value, w: Value, epilogue: Steps | None = None) -> float:
    """Returns microseconds of a convolution and its epilogue: by a library, in one launch or two, or by a generated kernel.

    0 if nothing is measured any more, after many sets of extents: a library's plan needs no compilation.
    """
    epilogue = epilogue or Steps()
    rounded = None if op.group > 1 else rounded_columns(e, w, 0, epilogue)
    w, epilogue = rounded or (w, epilogue)
    problem = _problem(e, op, x, w, epilogue)
    tuner = e.context.tuner
    if tuner is not None and tuner.estimate(problem, e.exhaustive) is not None:
        return 0.0
    route = _route(e, problem, x, w)
    us = min(inf if isinstance(route, No) else route.us, _generated_us(problem))
    return min(us, _apart_us(e, problem, x, w)) if _doubtful(problem, us) else us


def _doubtful(problem: ConvProblem, us: float) -> bool:
    """Returns True if an epilogue in a launch of its own may be faster than this time of a fused one."""
    # an exact GELU takes cuDNN's kernels longer than the sums it follows
    costly = any(isinstance(step, Activation) and step.kind == "gelu_erf" for step in problem.epilogue)
    return bool(problem.epilogue) and _slow(problem, us, 1.0 if costly else 2.0)


def _apart_us(e: GpuEmitter, problem: ConvProblem, x: Value, w: Value) -> float:
    """Returns microseconds of a library's convolution and of a launch of its own for the epilogue."""
    bare = _route(e, replace(problem, epilogue=(), bias_dtype=None, alpha=1.0), x, w)
    return inf if isinstance(bare, No) else bare.us + 2.0 + 2 * prod(problem.out_dims) * problem.dtype.size / 3e6


def _problem(e: GpuEmitter, op: Any, x: Value, w: Value, epilogue: Steps) -> ConvProblem:
    """Returns a convolution as a library problem; one over a single axis as that of images of one row."""
    window, dtype = w.lens[2:], x.shape.dtype
    strides, dilations, begin, end = op.sliding(x.lens[2:], window)
    flat = len(window) == 1
    return ConvProblem(
        dims=(*x.lens[:2], 1, x.lens[2]) if flat else tuple(x.lens),
        filters=w.lens[0],
        kernel=(1, window[0]) if flat else tuple(window),
        stride=(1, strides[0]) if flat else strides,
        dilation=(1, dilations[0]) if flat else dilations,
        pads=((0, 0), (begin[0], end[0])) if flat else tuple(zip(begin, end, strict=True)),
        groups=op.group,
        dtype=dtype,
        epilogue=tuple(epilogue.steps),
        bias_dtype=dtype if "bias" in epilogue.steps else None,
        tf32=e.tf32 and dtype is dt.float32,
        alpha=epilogue.alpha,
    )


def _emit(
    e: GpuEmitter, problem: ConvProblem, route: Route, x: Value, w: Value, out: Value, operands: dict[str, Value]
) -> None:
    """Emits a route: a convolution, or the product of unfolded windows."""
    if route.windows is not None:
        rows, width = problem.dims[0] * prod(problem.image), route.windows.width
        matrix = e.allocate(problem.dtype, (rows, width))
        image = _with_two_axes(x) if len(x.lens) == 3 else x
        source = unfold(tensor_of(image), tensor_of(matrix), route.windows)
        e.launch(source, [image], [matrix])
        weights = _unfolded_weights(e, w, route.windows)
        e.library(route.timed.plan, "d", {"a": matrix, "b": weights, "d": out, **operands})
    else:
        if route.merged > 1:
            w = _merged(e, w, problem.groups, route.merged)
        wide = route.channels - x.lens[1]
        if route.padded:
            image = _with_two_axes(x) if len(x.lens) == 3 else x
            given = _padded_image(e, image, problem.pads, wide)
        else:
            given = more_channels(e, x, wide) if wide else to_channels_last(e, x)
        weights = more_channels(e, w, wide) if wide else w
        weights = e.packed(weights, channels_last(weights.lens))
        if route.product:
            e.library(route.timed.plan, "d", {"a": given, "b": weights, "d": out, **operands})
        else:
            e.library(route.timed.plan, "y", {"x": given, "w": weights, "y": out, **operands})


def _generated_us(p: ConvProblem) -> float:
    """Returns estimated microseconds of the generated convolution kernels on an H200, epilogue included."""
    if p.dtype is dt.float32:
        return inf
    if p.is_depthwise and p.kernel[-1] <= MOST_COLUMNS:
        return 2.5 + max(p.flops / 17e6, (prod(p.dims) + prod(p.out_dims)) * p.dtype.size / 3.6e6)
    terms = p.dims[1] // p.groups * prod(p.kernel)  # one thread sums them sequentially
    return 4.0 + 0.05 * terms + p.flops / 1e6 if terms <= 256 else inf


def _slow(p: ConvProblem, us: float, times: float = 2.0) -> bool:
    """Returns True if a time is more than so many times that of a good kernel on an H200."""
    moved = (prod(p.dims) + prod(p.out_dims) + p.filters * p.dims[1] // p.groups * prod(p.kernel)) * p.dtype.size
    rate = 4e7 if p.dtype is dt.float32 else 4e8  # operations per microsecond
    return us > times * (2.5 + p.flops / rate + moved / 3e6)


@dataclass
class Route:
    """One way to run a convolution: as a convolution over `channels`, a product, or a product of unfolded windows.

    us: time including estimates for copies; merged: so many groups' weights form one block-diagonal matrix; padded: a copy of
    the image holds the padding.
    """

    timed: TimedPlan
    us: float
    channels: int = 0
    product: bool = False
    windows: Windows | None = None
    merged: int = 1
    padded: bool = False


def _route(e: GpuEmitter, p: ConvProblem, x: Value, w: Value) -> Route | No:
    """Returns the fastest route, by measured times and estimates for copies."""
    tuner, libraries = e.context.tuner, e.context.libraries
    assert libraries is not None
    constant = e.is_constant(w)
    if tuner is None:
        plan = libraries.plan(p)
        return plan if isinstance(plan, No) else Route(TimedPlan.of(plan, 0.0), 0.0, p.dims[1])
    routes: list[Route] = []
    refused: No | None = None
    odd = p.groups == 1 and p.dims[1] % VECTOR and p.dtype is not dt.float32 and constant
    few = odd and p.dims[1] < VECTOR
    widths = [p.dims[1]]
    if odd:
        widths += [n for n in (4, -(-p.dims[1] // VECTOR) * VECTOR) if n > p.dims[1]]
    laid = {n: _layout_us(e, p, x, n) for n in widths}
    for channels in widths:
        wide = replace(p, dims=(p.dims[0], channels, *p.dims[2:]))
        timed = tuner.convolution(wide, e.exhaustive)
        if not isinstance(timed, No):
            routes.append(Route(timed, timed.us + laid[channels], channels))
            continue
        refused = timed
        if any(before != after or before < 0 for before, after in p.pads):  # MIOpen; negative padding crops
            wide = _unpadded(wide)
            timed = tuner.convolution(wide, e.exhaustive)
            if not isinstance(timed, No):
                copied = COPY + (prod(x.lens) + prod(wide.dims)) * p.dtype.size / BANDWIDTH
                routes.append(Route(timed, timed.us + copied, channels, padded=True))
    plain = set(p.kernel) == set(p.stride) == {1} and not any(map(any, p.pads))
    slow = p.dtype is not dt.float32 and (not routes or _slow(p, min(r.us for r in routes)))
    for merged in _mergeable(p, min((r.us for r in routes), default=inf)) if slow and constant else ():
        timed = tuner.convolution(replace(p, groups=p.groups // merged), e.exhaustive)
        if not isinstance(timed, No):
            routes.append(Route(timed, timed.us, p.dims[1], merged=merged))
    if p.groups == 1 and constant:
        image = prod(p.image) * p.dims[0]
        width = -(-p.dims[1] * prod(p.kernel) // VECTOR) * VECTOR
        apart = p.kernel == p.stride and p.dims[1] % VECTOR
        unfolded = len(p.kernel) == 2 and (p.dtype is dt.float32 or few or apart or slow)
        for channels in widths if plain else ():
            product = timed_product(e, _as_product(p, image, channels), compiled=slow)
            if not isinstance(product, No):
                routes.append(Route(product, product.us + laid[channels], channels, product=True))
        if not plain and unfolded and image * width * p.dtype.size <= MAX_UNFOLDED:
            inside = x.strides[1] == 1 and x.lens[1] > 1
            windows = Windows(p.kernel, p.stride, p.dilation, (p.pads[0][0], p.pads[1][0]), p.image, inside, width)  # type: ignore[arg-type]
            vectors = inside and p.dims[1] * p.dtype.size % 16 == 0
            cost = 2.0 + image * width * p.dtype.size / (2.5e6 if vectors else 1e6)
            product = timed_product(e, _as_product(p, image, width), compiled=slow)
            if not isinstance(product, No):
                routes.append(Route(product, product.us + cost, windows=windows))
    if not routes:
        return refused or No("no library supports the convolution")
    return min(routes, key=lambda r: r.us)


def _mergeable(p: ConvProblem, us: float) -> list[int]:
    """Returns how many groups to compute as one, zeros between them included, where that can take less than `us` microseconds.

    Libraries are slow for groups of few channels, above all if these are not whole vectors.
    """
    if not 1 < p.groups < p.dims[1]:
        return []
    each = p.dims[1] // p.groups
    numbers = [m for m in range(2, p.groups + 1) if p.groups % m == 0 and p.flops * m / MERGED_RATE < us]
    return sorted(numbers, key=lambda m: (m * each % VECTOR > 0, m != p.groups, m))[:MAX_MERGED]


def _layout_us(e: GpuEmitter, p: ConvProblem, x: Value, channels: int) -> float:
    """Returns estimated microseconds of converting an image to channels last and padding its channels; 0 if neither is needed."""
    more = channels - x.lens[1]
    there = x.has_strides(channels_last(x.lens)) if not more else _already_padded(e, x, more) is not None
    if p.groups > 1 or there:
        return 0.0
    return COPY + prod(x.lens) // x.lens[1] * (x.lens[1] + channels) * p.dtype.size / BANDWIDTH


def _unpadded(p: ConvProblem) -> ConvProblem:
    """Returns the problem for an image that contains its padding."""
    image = (n + sum(pad) for n, pad in zip(p.dims[2:], p.pads, strict=True))
    return replace(p, dims=(*p.dims[:2], *image), pads=((0, 0),) * len(p.pads))


def _as_product(p: ConvProblem, rows: int, width: int) -> GemmProblem:
    residual = "residual" in p.epilogue
    d = Matrix(p.dtype, p.filters, align=16)
    return GemmProblem(
        rows, p.filters, width, a=Matrix(p.dtype, width, align=16), b=Matrix(p.dtype, width, True, align=16), d=d,
        residual=d if residual else None, epilogue=p.epilogue, alpha=p.alpha, bias_dtype=p.bias_dtype,
        compute="tf32" if p.tf32 else "f32",
    )  # fmt: skip


def _with_two_axes(x: Value) -> Value:
    n, c, length = x.lens
    a, b, s = x.strides
    return Value(Shape(x.shape.dtype, (n, c, 1, length), (a, b, length * s, s)), x.buffer, x.offset)


def _unfolded_weights(e: GpuEmitter, w: Value, windows: Windows) -> Value:
    """Returns weights as rows of window elements, zero-padded; computed once."""

    def rows(array: Array) -> Array:
        turned = np.moveaxis(array, 1, -1) if windows.channels_inside else array
        flat = turned.reshape(array.shape[0], -1)
        made = np.zeros((flat.shape[0], windows.width), array.dtype)
        made[:, : flat.shape[1]] = flat
        return made

    found = e.derived_constant(w, ("unfolded", windows.channels_inside, windows.width), rows)
    assert found is not None
    return found


def _merged(e: GpuEmitter, w: Value, groups: int, merged: int) -> Value:
    """Returns constant weights of a grouped convolution with so many groups merged into one, with zeros between them."""

    def spread(array: Array) -> Array:
        filters, channels = array.shape[0] // groups, array.shape[1]
        made = np.zeros((array.shape[0], channels * merged, *array.shape[2:]), array.dtype)
        for g in range(groups):
            rows, first = slice(g * filters, (g + 1) * filters), g % merged * channels
            made[rows, first : first + channels] = array[rows]
        return made

    found = e.derived_constant(w, ("merged", groups, merged), spread)
    assert found is not None
    return found


def more_channels(e: GpuEmitter, x: Value, more: int) -> Value:
    """Returns x with zero-padded channels, channels last."""
    rank = len(x.lens)
    made = e.derived_constant(x, ("channels", more), lambda a: np.pad(a, [(0, 0), (0, more)] + [(0, 0)] * (rank - 2)))
    return made or _already_padded(e, x, more) or _padded_image(e, x, ((0, 0),) * (rank - 2), more)


def _padded_image(e: GpuEmitter, x: Value, pads: Sequence[tuple[int, int]], more: int) -> Value:
    """Returns a copy of an image, channels last, with its padding and `more` channels of zeros."""
    before, after = zip((0, 0), (0, more), *pads, strict=True)
    lens = [n + b + a for n, b, a in zip(x.lens, before, after, strict=True)]
    out = e.allocate(x.shape.dtype, lens, channels_last(lens))
    e.kernel(write_pad, Pad(pads=(*before, *after)), (), [x], [out])
    return out


def _already_padded(e: GpuEmitter, x: Value, more: int) -> Value | None:
    """Returns an image with padded channels, where the product that computed it wrote padding; None for other images.

    See `rounded_columns`.  The padding holds the activation of zero; the weights that multiply it are zero.
    """
    e.uncacheable()  # depends on the preceding step
    lens = [x.lens[0], x.lens[1] + more, *x.lens[2:]]
    if x.offset or not x.has_strides(channels_last(lens)):
        return None
    step = next((s for s in reversed(e.steps) if x.buffer in s.writes), None)
    if not isinstance(step, LibraryStep) or "residual" in step.operands:
        return None
    made = step.operands.get("y") or step.operands.get("d")
    weights = step.operands.get("w") or step.operands.get("b")
    if (
        made is None
        or weights is None
        or made.buffer is not x.buffer
        or made.lens != lens
        or weights.lens[0] != lens[1]
    ):
        return None
    for value in (weights, step.operands.get("bias")):
        if value is None:
            continue
        array = e.constant(value)
        if array is None or array.shape[0] != lens[1] or array[x.lens[1] :].any():
            return None
    return Value(Shape(x.shape.dtype, lens, channels_last(lens)), x.buffer)


def to_channels_last(e: GpuEmitter, value: Value) -> Value:
    """Returns an image with unit stride along its channels: itself or a copy."""
    wanted = channels_last(value.lens)
    if value.has_strides(wanted):
        return e.aligned(Value(Shape(value.shape.dtype, value.lens, wanted), value.buffer, value.offset))
    return e.copy(value, wanted)
