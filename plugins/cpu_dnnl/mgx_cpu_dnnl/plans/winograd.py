"""Convolutions with small filters by Winograd's minimal filtering: a fraction of the multiplications."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from mgx_core import Kernels, Module, No, Operation, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.convolution import Convolution
from mgx_core.ops.window import explicit_padding
from mgx_core.targets.epilogue import Link
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

__all__ = ["PLANS"]

PLANS = Kernels("cpu")

# as the loops number them
KINDS: Final = {
    name: n
    for n, name in enumerate(
        "add mul sub div max min relu linear clip logistic swish hardswish tanh".split()  # noqa: SIM905
    )
}
MOST_LINKS: Final = 16


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
    if stride is None or not tiles_for(*_plane([int(n) for n in window], 1), stride):
        return No(f"no transforms for a window {window} with stride {op.stride}")
    return None


def _numbers(given: Any) -> Sequence[int]:
    return (given,) if isinstance(given, int) else given


def _stride(op: Any) -> int | None:
    """Returns the one stride of all axes."""
    strides = set(_numbers(op.stride)) or {1}
    return int(strides.pop()) if len(strides) == 1 else None


def _plane(extents: Sequence[int], missing: int) -> tuple[int, int]:
    """Returns rows and columns; a line is a plane of one row."""
    return (missing, extents[0]) if len(extents) == 1 else (extents[0], extents[1])


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
    problem = Problem(lens[0], x.lens[1], lens[1], *_plane(lens[2:], 1), *_plane(window, 1), stride)
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
    links = _links(epilogue, lens)
    source = weights if len(window) == 2 else weights[:, :, None]
    recipe = Recipe("winograd", (tile.numbers, lanes))
    held = e.shared.weights.derived([source], recipe, lambda: Derived([source], remade(recipe, source), recipe=recipe))
    _emit(e, tile, problem, x, held, out, links, _plane(begin, 0))
    forget_pages(weights)
    return out


def _links(epilogue: Epilogue | None, lens: Sequence[int]) -> list[tuple[list[int], Value | None]]:
    """Returns the epilogue of the convolution as the loops read it: seven numbers, the position of the operand left out."""
    found: list[tuple[list[int], Value | None]] = []
    for link, operand in [] if epilogue is None else epilogue.links:
        kind = KINDS.get(link.algorithm)
        if kind is None or len(found) == MOST_LINKS:
            raise Refused(f"no {link.algorithm} after a Winograd convolution")
        strides = [0, 0, 0, 0] if operand is None else _operand_strides(link, operand, lens)
        found.append(([kind, _bits(link.alpha), _bits(link.beta), *strides], operand))
    return found


def _operand_strides(link: Link, operand: Value, lens: Sequence[int]) -> list[int]:
    """Of images, rows, columns and channels, 0 where the operand repeats."""
    if operand.shape.dtype is not dt.float32 or len(operand.lens) != len(lens):
        raise Refused(f"an operand {operand.shape} of {link.algorithm}")
    image, channel, *plane = (
        0 if n == 1 and there != 1 else s for n, s, there in zip(operand.lens, operand.strides, lens, strict=True)
    )
    if lens[1] != 1 and channel not in (0, 1):
        raise Refused(f"an operand of {link.algorithm} whose channels lie apart")
    return [image, *_plane(plane, 0), min(channel, 1)]


def _bits(number: float) -> int:
    return int(struct.unpack("<i", struct.pack("<f", number))[0])


def _emit(
    e: CpuEmitter,
    tile: Tile,
    p: Problem,
    x: Value,
    packed: Any,
    out: Value,
    links: Sequence[tuple[list[int], Value | None]],
    padding: tuple[int, int],
) -> None:
    lanes = native().winograd_lanes()
    threads = e.threads or native().thread_count()
    work = cut(p, tile, lanes, threads)
    rows, columns = -(-p.height // tile.down), -(-p.width // tile.across)
    tiles = p.tiles(tile)
    blocks = -(-tiles // work.block)
    args = [p.images, *_plane(x.lens[2:], 1), p.channels, p.height, p.width, p.out_channels, *padding]
    for value in (x, out):
        args += [value.strides[0], *_plane(value.strides[2:], 0)]
    args += [rows, columns, work.block, work.span, len(links)]
    operands: list[Value] = []
    for numbers, operand in links:
        place = 0
        if operand is not None:
            place = 3 + len(operands)
            operands.append(operand)
        args += [*numbers[:3], place, *numbers[3:]]
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
