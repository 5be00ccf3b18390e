"""Convolutions with small windows by Winograd's minimal filtering algorithm (Lavin and Gray, 2015), with `fast_math`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mgx_core import Kernels, No, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.convolution import Convolution, ConvolutionBackwards
from mgx_core.targets.values import Value
from mgx_core.types.argument import Array
from mgx_core.types.mapped import forget_pages

from ..emitter import CpuEmitter, is_traced
from ..native_library import native
from ..packing import Derived
from ..recipes import Recipe, apply_recipe
from ..winograd import Problem, Tile, best_tile, partition, tiles_for
from .anchors import float32_only, of_one_type, offer_anchor
from .epilogues import Epilogue
from .links import encode_links, input_and_result, result_extents, two_axes
from .native_loops import native_loop
from .offer import FLOATS

__all__ = ["MIN_CHANNELS", "PLANS", "emit_filtering", "transformed_weights"]

PLANS = Kernels("cpu")
LANES_AVX512: Final = 16
MIN_CHANNELS: Final = 16  # minimum input and output channels per group for which transforms pay off


@of_one_type(FLOATS)
def fits(op: Any, x: Shape, w: Shape) -> No | None:
    if op.group > 1 and (w.dynamic() or min(w.lens()[0] // op.group, w.lens()[1]) < MIN_CHANNELS):
        return No(
            f"groups of at least {MIN_CHANNELS} inputs and outputs are required, "
            f"got {op.group} groups of {w.dims[1]} inputs with {w.dims[0]} outputs in total"
        )
    window = w.dims[2:]
    if len(window) not in (1, 2) or not all(isinstance(n, int) for n in window):
        return No(f"static windows with one or two axes are required, got {window}")
    stride = _stride(op)
    if stride != 1 and any(n != 1 for n in _numbers(op.dilation)):
        return No(f"dilated windows with stride {op.stride} are not supported, only with stride 1")
    if stride is None or not tiles_for(*two_axes([int(n) for n in window], 1), stride):
        return No(f"there are no transforms for a window {window} with stride {op.stride}")
    return None


def _numbers(given: Any) -> Sequence[int]:
    return (given,) if isinstance(given, int) else given


def _stride(op: Any) -> int | None:
    """Returns the stride if it is the same along all axes, else None."""
    strides = set(_numbers(op.stride)) or {1}
    return int(strides.pop()) if len(strides) == 1 else None


def convolve(e: CpuEmitter, op: Any, x: Value, w: Value, epilogue: Epilogue | None) -> Value:
    """Emits the convolution of x [n, c, ..] with w [o, c / group, ..]; operand and result are channels last."""
    lens = result_extents(e, op, x, w, epilogue, constant=False)
    moves = op.sliding(x.lens[2:], w.lens[2:])
    return _filtered(e, op, x, w, lens, epilogue, moves.dilation, moves.begins)


def deconvolve(e: CpuEmitter, op: Any, x: Value, w: Value, epilogue: Epilogue | None) -> Value:
    """Emits the transposed convolution with stride 1 of x [n, c, ..] with w [c, o, ..]: a convolution with turned weights."""
    if e.is_constant(w):
        raise Refused("constant weights are packed by oneDNN")
    lens = result_extents(e, op, x, w, epilogue, constant=False)
    _, dilation, begins, _, _ = op.plan(len(w.lens) - 2, w.lens[2:])
    first = [gap * (taps - 1) - b for gap, taps, b in zip(dilation, w.lens[2:], begins, strict=True)]
    if min(first) < 0:
        raise Refused(f"padding of {begins} exceeds the reach of the windows")
    return _filtered(e, op, x, w, lens, epilogue, dilation, first, turned=True)


def _filtered(
    e: CpuEmitter,
    op: Any,
    x: Value,
    w: Value,
    lens: list[int],
    epilogue: Epilogue | None,
    dilation: Sequence[int],
    begins: Sequence[int],
    turned: bool = False,
) -> Value:
    """Emits the convolution; turned: with weights [c, o, ..] whose windows are reversed."""
    if not e.fast_math:
        raise Refused("Winograd transforms require fast_math")
    fresh, window = not e.is_constant(w), w.lens[2:]
    narrow = x.shape.dtype is dt.bfloat16
    if narrow and (native().winograd_lanes() != LANES_AVX512 or "amx_bf16" in native().cpu_features()):
        raise Refused("bfloat16 requires AVX-512, and AMX tiles are faster")
    if fresh and (narrow or is_traced(w.shape)):
        raise Refused("weights that are not constant must be float32 of static extents")
    sizes = lens[0], w.lens[0 if turned else 1], lens[1] // op.group
    gaps = two_axes([gap if taps > 1 else 1 for gap, taps in zip(dilation, window, strict=True)], 1)
    problem = Problem(
        *sizes, *two_axes(lens[2:], 1), *two_axes(window, 1), _stride(op) or 1, op.group, *gaps, narrow, fresh
    )
    tile = best_tile(problem.usual(), native().winograd_lanes())
    if tile is None:
        raise Refused("direct summation is about as fast")
    x, out = input_and_result(e, x, w, lens, epilogue)
    links = encode_links(epilogue, lens)
    updated = epilogue is not None and epilogue.residual is not None
    weights = _packed_in_runs(e, w, tile, problem, turned) if fresh else transformed_weights(e, w, tile, op.group)
    emit_filtering(e, tile, problem, x, weights, out, links, two_axes(begins, 0), updated)
    return out


def _packed_in_runs(e: CpuEmitter, w: Value, tile: Tile, p: Problem, turned: bool) -> Value:
    """Emits the transform of weights that are not constant to the filters of tiles."""
    panel = 2 * native().winograd_lanes()
    panels = p.groups * -(-p.out_channels // panel)
    made = e.allocate(dt.float32, [tile.points * panels * p.channels * panel])
    (outer, inner), taps = w.strides[:2], two_axes(w.strides[2:], 0)
    if turned:
        last = sum((n - 1) * s for n, s in zip(w.lens[2:], w.strides[2:], strict=True))
        w = w.view_at(last, Shape(w.shape.dtype, [w.shape.elements()]))
        outer, inner, taps = inner, outer, (-taps[0], -taps[1])
    args = [outer, inner, *taps, p.out_channels, p.channels, p.out_channels * outer]
    loop = native().winograd_loops(tile.numbers)[3]
    native_loop(e, f"conv winograd {tile.down}x{tile.across} weights", loop, [w, made], [made], args, panels)
    return made


def transformed_weights(e: CpuEmitter, w: Value, tile: Tile, groups: int) -> Value:
    """Returns constant weights [o, c / groups, ..] as the filters of tiles."""
    recipe = Recipe("winograd", (tile.numbers, native().winograd_lanes(), groups))

    def transformed(weights: Array) -> Derived:
        source = weights if weights.ndim == 4 else weights[:, :, None]
        made = Derived([source], apply_recipe(recipe, source), recipe=recipe)
        forget_pages(weights)
        return made

    return e.made_of(w, recipe, transformed)


def emit_filtering(
    e: CpuEmitter,
    tile: Tile,
    p: Problem,
    x: Value,
    weights: Value,
    out: Value,
    links: tuple[Sequence[int], Sequence[Value]],
    padding: tuple[int, int],
    updated: bool,
) -> None:
    """Emits one loop over blocks of tiles, or one that transforms inputs followed by one that multiplies and transforms back."""
    lanes = native().winograd_lanes()
    threads = e.threads or native().thread_count()
    work = partition(p.usual(), tile, lanes, threads)
    tiles = p.tiles(tile)
    blocks = -(-tiles // work.block)
    args = [p.images, p.groups, *two_axes(x.lens[2:], 1), p.channels, p.height, p.width, p.out_channels, *padding]
    args += [p.gap_down, p.gap_across]
    for value in (x, out):
        args += [value.strides[0], *two_axes(value.strides[2:], 0)]
    numbers, operands = links
    args += [p.tile_rows(tile), p.tile_columns(tile), work.block, work.span, len(numbers) // 8, *numbers]
    transform, multiply, both, _ = native().winograd_loops(tile.numbers, p.narrow)
    values, products = tile.points * work.values_bytes(p, lanes), tile.points * work.products_bytes()
    flops = 2 * p.groups * tiles * tile.points * p.channels * p.out_channels
    name = f"conv winograd {tile.down}x{tile.across}"
    if not work.separate:
        given, loop, items, scratch = x, both, p.groups * blocks, values + products
    else:
        given = e.allocate(dt.float32, [p.groups * blocks * values // 4])
        native_loop(e, f"{name} inputs", transform, [x, given], [given], args, p.groups * tiles, 2)
        loop, items, scratch = multiply, p.groups * blocks * -(-p.out_channels // work.span), products
    bound = [given, weights, out, *operands]
    native_loop(e, name, loop, bound, [out], args, items, 1, scratch, updated=updated, flops=flops)


offer_anchor(PLANS, Convolution, convolve, "winograd", fits)


@float32_only
def turns(op: Any, x: Shape, w: Shape) -> No | None:
    if op.group > 1 or _stride(op) != 1:
        return No(f"one group and stride 1 are required, got {op.group} groups and stride {op.stride}")
    return fits(op, [x, w], ())


offer_anchor(PLANS, ConvolutionBackwards, deconvolve, "winograd", turns)
