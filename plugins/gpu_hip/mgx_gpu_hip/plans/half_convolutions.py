"""Convolutions of 16-bit floats with their epilogues in one generated kernel, where it takes less time than the libraries."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any, Final

from mgx_core import Kernels, Module, Shape
from mgx_core.errors import Refused
from mgx_core.ops.control import Group, PointwiseGroup
from mgx_core.ops.convolution import Convolution
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.scalar import primitives
from mgx_core.targets.group_checks import around
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value, channels_last
from mgx_core.types.dtype import DType

from ..codegen.narrow_operands import BITS, CHUNK, PIECES, Windows
from ..codegen.narrow_products import HALVES
from ..codegen.narrow_tiles import JOINT, half_microseconds, tiles_by_time
from ..emitter import DEVICE_ALIGNMENT, GpuEmitter, has_traced, tensor_of
from .convolutions import library_us, to_channels_last
from .epilogues import read_group
from .narrow_products import TILE_RANKS, Form, padded, write
from .offer import offer
from .product_groups import ProductGroup
from .products import BANDWIDTH, COPY

__all__ = ["PLANS"]

PLANS = Kernels("gpu")
WORTH: Final = 0.97  # of the libraries' measured time, below which the estimate must be
READ: Final = 4e6  # bytes per microsecond that an epilogue reads


def _plan(tile_rank: int) -> None:
    """Offers the kernels with the tile size of a rank; those beyond the first only where kernels are timed."""
    name = "matrix units" if not tile_rank else f"matrix units, tile {tile_rank + 1}"

    def single(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
        return _emit(e, op, args, (), (), None, tile_rank)

    def group(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
        found = ProductGroup.of(modules[0], Convolution)
        if found.chain or not any(isinstance(i.op, PointwiseGroup) for i in modules[0]):
            raise Refused("no pointwise work follows the convolution directly")
        operands, _ = found.operands(e, args)
        return _emit(e, found.anchor.op, operands, modules, args, found, tile_rank)

    offer(PLANS, Convolution, name=name)(single)
    offer(PLANS, Group, name=name, when=around(Convolution, tag=Convolution.name))(group)


for n in range(TILE_RANKS):
    _plan(n)


def _emit(
    e: GpuEmitter,
    op: Any,
    operands: Sequence[Value],
    modules: Sequence[Module],
    args: Sequence[Value],
    group: ProductGroup | None,
    tile_rank: int,
) -> Results:
    x, w = operands
    dtype, rank = x.shape.dtype, len(x.lens)
    if tile_rank and not e.exhaustive:
        raise Refused("it is only tried where kernels are timed")
    if e.context.traits.arch not in JOINT:
        raise Refused("the device has no warpgroup instructions")
    if dtype not in HALVES or w.shape.dtype is not dtype or has_traced(x) or has_traced(w):
        raise Refused(f"the kernel does not multiply {dtype} and {w.shape.dtype}, or their extents change")
    lens = op.infer(Shape(dtype, x.lens), Shape(dtype, w.lens)).lens()
    if 0 in lens or 0 in x.lens:
        raise Refused("an extent is 0")
    if rank not in (3, 4, 5):
        raise Refused(f"the libraries convolve up to three spatial axes, got {rank - 2}")
    piece = next((size for size in PIECES if w.lens[1] * dtype.size % size == 0 and _direct(x, size)), 0)
    direct = piece > 0
    piece = piece or next((size for size in PIECES if w.lens[1] * dtype.size % size == 0), 0)
    if not piece or (piece < CHUNK and prod(w.lens[2:]) > BITS):
        raise Refused(
            "the channels of a group are not whole words, or those of a large window not whole chunks of 16 bytes"
        )
    outputs = () if group is None else group.body.outputs
    results = [o.shape.lens() for o in outputs] or [lens]
    types = [o.shape.dtype for o in outputs] or [dtype]
    if any(r != lens for r in results):
        raise Refused("the extents of the results differ from the convolution's")
    symbolic = group is not None and any(p.result.dynamic() for p in group.body.parameters.values())
    reads = [] if group is None else [v for v, used in zip(args, group.epilogue_reads(), strict=True) if used]
    costly = group is not None and _is_costly(group.body)
    own = _estimated_us(e, op, w, lens, costly, piece) + sum(tensor_of(v).nbytes for v in reads) / READ
    own += 0.0 if direct else COPY + 2 * tensor_of(x).nbytes / BANDWIDTH
    if not e.exhaustive and own > WORTH * _library_us(e, op, x, w, modules, args, types):
        raise Refused("the libraries are faster")
    strides, dilations, begins, _ = op.sliding(x.lens[2:], w.lens[2:])
    order = (0, *range(2, rank), 1)
    rows = e.derived_constant(w, ("windows", order), lambda a: padded(a.transpose(order).reshape(a.shape[0], -1)))
    if rows is None:
        if prod(w.lens[1:]) * dtype.size % CHUNK:
            raise Refused("the weights are computed, and their rows are not whole chunks of 16 bytes")
        rows = e.copy(w, channels_last(w.lens)).view_at(0, Shape(dtype, [w.lens[0], prod(w.lens[1:])]))
    outs = [e.allocate(t, lens, channels_last(lens)) for t in types]
    form = Form(Windows(tuple(w.lens[2:]), strides, dilations, begins, op.group), group is not None, tile_rank)
    extra = () if group is None else group.epilogue_args(args, lambda v: not symbolic or e.is_constant(v))
    e.kernel(write, form, modules, [x if direct else to_channels_last(e, x), rows, None, None, None, *extra], outs)  # type: ignore[arg-type]
    return outs[0] if len(outs) == 1 else tuple(outs)


def _direct(x: Value, size: int) -> bool:
    """Returns True if an image's pixels are aligned to `size` bytes, with adjacent channels; there may be gaps between them."""
    steps = [s for a, s in enumerate(x.strides) if a != 1]
    whole = x.strides[1] == 1 and all(s * x.shape.dtype.size % size == 0 for s in steps)
    return whole and x.align(DEVICE_ALIGNMENT) % size == 0


def _is_costly(body: Module) -> bool:
    """Returns True if pointwise members compute the error function."""
    return any(isinstance(i.op, Pointwise) and "erf" in primitives(type(i.op).scalar) for i in body)


def _estimated_us(e: GpuEmitter, op: Any, w: Value, lens: Sequence[int], costly: bool, piece: int) -> float:
    """Returns estimated microseconds of the kernel with the best tile, without the operands of the epilogue."""
    depth, gathered = prod(w.lens[1:]) * w.shape.dtype.size, prod(w.lens[2:]) > 1
    sizes = lens[0] * prod(lens[2:]), w.lens[0] // op.group, depth, op.group, e.context.traits
    tile = tiles_by_time(*sizes, turns=op.group == 1 and piece == CHUNK, halves=True, gathered=gathered, piece=piece)[0]
    return half_microseconds(tile, *sizes, gathered, costly, piece)


def _library_us(
    e: GpuEmitter,
    op: Any,
    x: Value,
    w: Value,
    modules: Sequence[Module],
    args: Sequence[Value],
    types: Sequence[DType],
) -> float:
    """Returns microseconds of the libraries' convolution, and of what follows, if they do not support it, in another launch."""
    if e.context.libraries is None:
        return inf
    marks = e.marks()
    try:
        if not modules:
            return library_us(e, op, x, w)
        try:
            epilogue = read_group(e, modules[0], args, Convolution).epilogue
        except Refused:
            lens = op.infer(Shape(x.shape.dtype, x.lens), Shape(x.shape.dtype, w.lens)).lens()
            moved: int = sum(tensor_of(v).nbytes for v in args if v is not x and v is not w)
            moved += prod(lens) * (x.shape.dtype.size + sum(t.size for t in types))
            return library_us(e, op, x, w) + 2.0 + moved / BANDWIDTH
        return library_us(e, op, x, w, epilogue)
    finally:
        e.rollback(marks)
