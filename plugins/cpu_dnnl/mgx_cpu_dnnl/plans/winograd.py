"""Convolutions with small filters by Winograd's minimal filtering: a fraction of the multiplications."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mgx_core import Kernels, Module, No, Operation, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.convolution import Convolution
from mgx_core.ops.window import explicit_padding
from mgx_core.targets.values import Buffer, Value, channels_last
from mgx_core.types.mapped import forget_pages
from mgx_core.types.shape import AnyShape

from ..emitter import CpuEmitter
from ..layout import as_channels_last
from ..native_library import native
from ..packing import Derived
from ..remaking import Recipe, remade
from ..winograd import Problem, Tile, best_tile, cut, tiles_for
from .anchors import around, offer_anchor
from .epilogues import Epilogue
from .links import links_of, plane

__all__ = ["PLANS"]

PLANS = Kernels("cpu")


def _possible(op: Any, x: AnyShape | None, w: AnyShape | None) -> No | None:
    if not isinstance(x, Shape) or not isinstance(w, Shape) or x.dtype is not dt.float32 or w.dtype is not dt.float32:
        return No(f"a convolution of {x} with {w}")
    if op.group != 1:
        return No(f"{op.group} groups")
    if any(n != 1 for n in _numbers(op.dilation)):
        return No("a dilation")
    window = w.dims[2:]
    if len(window) not in (1, 2) or not all(isinstance(n, int) for n in window):
        return No(f"a window {window}")
    stride = _stride(op)
    if stride is None or not tiles_for(*plane([int(n) for n in window], 1), stride):
        return No(f"no transforms for a window {window} with stride {op.stride}")
    return None


def _numbers(given: Any) -> Sequence[int]:
    return (given,) if isinstance(given, int) else given


def _stride(op: Any) -> int | None:
    """Returns the one stride of all axes."""
    strides = set(_numbers(op.stride)) or {1}
    return int(strides.pop()) if len(strides) == 1 else None


def fits(op: Any, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    return _possible(op, inputs[0], inputs[1])


def fits_group(op: Operation, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    why = around(Convolution)(op, inputs, modules)
    if why is not None:
        return why
    anchor = next(i for i in modules[0] if isinstance(i.op, Convolution))
    return _possible(anchor.op, anchor.inputs[0].result, anchor.inputs[1].result)


def convolve(e: CpuEmitter, op: Any, x: Value, w: Value, epilogue: Epilogue | None) -> Value:
    """x [n, c, ..] with constant weights [o, c, ..], channels last in and out."""
    if not e.fast_math:
        raise Refused("sums are exact without fast_math")
    weights = e.constant(w)
    if weights is None:
        raise Refused("weights that are not constants")
    result = op.infer(Shape(x.shape.dtype, x.lens), Shape(w.shape.dtype, w.lens))
    lens, window = result.lens(), w.lens[2:]
    if 0 in lens or 0 in x.lens:
        raise Refused("an extent is 0")
    stride, one = _stride(op) or 1, [1] * len(window)
    begin, _ = explicit_padding(x.lens[2:], window, [stride] * len(window), one, op.padding, op.padding_mode)
    problem = Problem(lens[0], x.lens[1], lens[1], *plane(lens[2:], 1), *plane(window, 1), stride)
    lanes = native().winograd_lanes()
    tile = best_tile(problem, lanes)
    if tile is None:
        raise Refused("summing all taps is about as cheap")
    if epilogue is not None and epilogue.dtype is not dt.float32:
        raise Refused(f"a result of {epilogue.dtype}")
    x = as_channels_last(e, x)
    out = None if epilogue is None else epilogue.in_place([x, w], channels_last(lens))
    if out is None:
        out = e.allocate(dt.float32, lens, channels_last(lens))
    links = links_of(epilogue, lens, 3)
    source = weights if len(window) == 2 else weights[:, :, None]
    recipe = Recipe("winograd", (tile.numbers, lanes))
    held = e.shared.weights.derived([source], recipe, lambda: Derived([source], remade(recipe, source), recipe=recipe))
    _emit(e, tile, problem, x, held, out, links, plane(begin, 0))
    forget_pages(weights)
    return out


def _emit(
    e: CpuEmitter,
    tile: Tile,
    p: Problem,
    x: Value,
    packed: Any,
    out: Value,
    links: tuple[Sequence[int], Sequence[Value]],
    padding: tuple[int, int],
) -> None:
    lanes = native().winograd_lanes()
    threads = e.threads or native().thread_count()
    work = cut(p, tile, lanes, threads)
    rows, columns = -(-p.height // tile.down), -(-p.width // tile.across)
    tiles = p.tiles(tile)
    blocks = -(-tiles // work.block)
    args = [p.images, *plane(x.lens[2:], 1), p.channels, p.height, p.width, p.out_channels, *padding]
    for value in (x, out):
        args += [value.strides[0], *plane(value.strides[2:], 0)]
    numbers, operands = links
    args += [rows, columns, work.block, work.span, len(numbers) // 8, *numbers]
    weights = e.literal(packed.array, owner=packed)
    transform, multiply, both = native().winograd_loops(tile.numbers)
    values, products = tile.points * work.values_bytes(p, lanes), tile.points * work.products_bytes()
    flops = 2 * tiles * tile.points * p.channels * p.out_channels
    name = f"conv winograd {tile.down}x{tile.across}"
    if not work.apart:
        _step(
            e,
            name,
            both,
            args,
            [x, weights, *operands],
            [x, weights, out, *operands],
            out,
            blocks,
            1,
            values + products,
            flops,
        )
        return
    there = e.allocate(dt.float32, [blocks * values // 4])
    _step(e, f"{name} inputs", transform, args, [x], [x, there], there, tiles, 2, 0, 0)
    spans = -(-p.out_channels // work.span)
    bound = [there, weights, out, *operands]
    _step(e, name, multiply, args, [there, weights, *operands], bound, out, blocks * spans, 1, products, flops)


def _step(
    e: CpuEmitter,
    name: str,
    address: int,
    args: Sequence[int],
    reads: Sequence[Value],
    bound: Sequence[Value],
    written: Value,
    work: int,
    grain: int,
    scratch: int,
    flops: int,
) -> None:
    def install(program: Any, ident: Callable[[Buffer], int]) -> None:
        where = [(ident(v.buffer), v.byte_offset) for v in bound]
        program.add_loop(name, address, None, where, list(args), work, grain, scratch)

    moved = sum(v.shape.elements() * 4 for v in bound)
    e.step(name, [v.buffer for v in reads], [written.buffer], install, flops, moved)


offer_anchor(PLANS, Convolution, convolve, "winograd", fits, fits_group)
