"""Convolutions of few input channels (typical first layers) with their epilogue, in one generated kernel.

Bytes and 8-bit floats are multiplied as float16: rows of 16 bytes, as matrix units take them, would hold mostly padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from mgx_core import Instruction, Kernels, Module, No, Operation, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.control import Group
from mgx_core.ops.convert import Convert
from mgx_core.ops.convolution import Convolution
from mgx_core.ops.quantized_product import QuantConvolution
from mgx_core.targets.group_checks import around
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value, channels_last
from mgx_core.types.argument import Array
from mgx_core.types.shape import AnyShape
from mgx_core.types.traced_int import TracedInt

from ..codegen.few_channels import few_channels
from ..codegen.few_channels_tiles import MAX_CHANNELS, RUN, Filters, runs_of
from ..codegen.generators import Inputs
from ..codegen.narrow_products import refuse_operands
from ..codegen.source import DeviceTraits, KernelSource, Tensor
from ..emitter import GpuEmitter
from .narrow_products import per_tensor
from .offer import offer
from .product_groups import ProductGroup, operand

__all__ = ["PLANS", "READ", "is_few_channels", "offer_tile"]

PLANS = Kernels("gpu")
ANCHORS: Final = (Convolution, QuantConvolution)
OPERANDS: Final = 3  # number of kernel operands: image, weights and the image's zero point
TILE_RANKS: Final = 2  # number of tile sizes that are timed, best first by the cost model
MEASURED: Final = ("sm_90",)  # architectures on which it was measured against the library
MAX_PREFERRED: Final = 4  # channels up to which the kernel is chosen without timing a library
MAX_DEPTH: Final = 512  # elements of a window from which on other kernels are faster, if none is timed
EXACT: Final = 1 << 24  # up to this magnitude float32 represents every integer
READ: Final = (dt.float32, dt.float16, dt.bfloat16, dt.uint8, dt.int8)  # image types that the kernel converts on load


@dataclass(frozen=True)
class Form:
    """Parameters of a kernel: the windows, whether an epilogue is fused, and the rank of the tile size."""

    filters: Filters
    fused: bool
    tile_rank: int = 0


def is_few_channels(op: Operation, inputs: Sequence[AnyShape | None], modules: Sequence[Module] = ()) -> No | None:
    if not isinstance(op, ANCHORS) or op.group != 1:
        return No("it is not an ungrouped convolution")
    x, w, *zeros = (i if isinstance(i, Shape) else None for i in inputs)
    if x is None or w is None or not w.ranked or w.rank not in (3, 4):
        return No("it is not a convolution of images with one or two axes")
    channels = w.dims[1]
    if not isinstance(channels, int) or channels > MAX_CHANNELS:
        return No(f"the image has more than {MAX_CHANNELS} channels")
    if isinstance(op, QuantConvolution):
        return _is_exact(x, w, zeros)
    if w.dtype not in (dt.float16, dt.bfloat16):
        return No(f"matrix units do not support {w.dtype}")
    return None


def _is_exact(x: Shape, w: Shape, zeros: Sequence[Shape | None]) -> No | None:
    """Declines narrow operands whose products float16, and whose sums float32, does not represent."""
    if len(zeros) > 1 and zeros[1] is not None:
        return No("the weights have a zero point")
    moved = bool(zeros) and zeros[0] is not None
    refused = refuse_operands(x.dtype, w.dtype, moved)
    if refused is not None:
        return refused
    if x.dtype.is_integer:
        largest = int(x.dtype.highest - x.dtype.lowest) if moved else max(x.dtype.highest, -x.dtype.lowest)
        terms = [d if isinstance(d, int) else EXACT for d in w.dims[1:]]
        if prod(terms) * largest * max(w.dtype.highest, -w.dtype.lowest) > EXACT:
            return No("float32 does not represent all sums of so many terms")
    return None


def write(
    op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits, modules: Sequence[Module] = ()
) -> KernelSource | No:
    if not op.fused:
        return few_channels(xs[:OPERANDS], ys, None, op.filters, traits, op.tile_rank)
    given = xs[OPERANDS:]
    made = ProductGroup.fixed(modules[0], given, *ANCHORS).finish(given, ys[0].lens, OPERANDS, dt.float32)
    return few_channels(xs, ys, made, op.filters, traits, op.tile_rank)


def offer_tile(table: Kernels, tile_rank: int) -> None:
    """Offers the kernel with the tile size of a rank; those beyond the first only where kernels are timed."""
    name = "few channels" if not tile_rank else f"few channels, tile {tile_rank + 1}"

    def single(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
        return _emit(e, op, args, (), (), None, tile_rank)

    def fused(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
        group = ProductGroup.of(modules[0], *ANCHORS)
        if group.chain:
            raise Refused("an op between the convolution and its epilogue cannot be fused")
        extra = group.epilogue_args(args, e.is_constant)
        env: dict[Instruction, Any] = dict(zip(group.body.parameters.values(), args, strict=True))
        x, *others = group.anchor.inputs
        given = [_image(e, x, env), *(None if i.is_absent else operand(e, i, env) for i in others)]
        return _emit(e, group.anchor.op, given, modules, extra, group.body, tile_rank)

    for anchor in ANCHORS:
        offer(table, anchor, name=name, when=is_few_channels)(single)
        offer(table, Group, name=name, when=around(anchor, when=is_few_channels, tag=anchor.name))(fused)


for n in range(TILE_RANKS):
    offer_tile(PLANS, n)


def _image(e: GpuEmitter, ins: Instruction, env: dict[Instruction, Any]) -> Value:
    """Returns the image, or the operand of its conversion: the kernel converts on load."""
    if ins not in env and isinstance(ins.op, Convert) and ins.inputs[0].shape.dtype in READ:
        ins = ins.inputs[0]
    return operand(e, ins, env)


def _emit(
    e: GpuEmitter,
    op: Any,
    args: Sequence[Value | None],
    modules: Sequence[Module],
    extra: Sequence[Value | None],
    body: Module | None,
    tile_rank: int,
) -> Results:
    if tile_rank and not e.measured:
        raise Refused("it is only tried where kernels are timed")
    x, w, zero = (*args, None, None)[:3]
    assert x is not None and w is not None
    if any(type(n) is TracedInt for n in x.lens[2:]):
        raise Refused("the size of a tile depends on the extents")
    narrow = isinstance(op, QuantConvolution)
    if not narrow and x.shape.dtype not in (w.shape.dtype, *READ):
        raise Refused(f"the kernel does not read images of {x.shape.dtype}")
    dtype = dt.float16 if narrow else w.shape.dtype
    rank = len(w.lens) - 2
    strides, dilations, begins, _ = op.sliding(x.lens[2:], w.lens[2:])
    sums = op.infer(Shape(x.shape.dtype if narrow else dtype, x.lens), Shape(w.shape.dtype, w.lens))
    lens = sums.lens()
    if 0 in lens or 0 in x.lens or 0 in w.lens:
        raise Refused("an extent is 0")

    def two(values: Sequence[int], first: int) -> tuple[int, int]:
        return (int(values[0]), int(values[1])) if rank == 2 else (first, int(values[0]))

    filters = runs_of(int(w.lens[1]), two(w.lens[2:], 1), two(strides, 1), two(dilations, 1), two(begins, 0))
    if narrow:
        if filters.depth > MAX_DEPTH and not e.measured:
            raise Refused("kernels for bytes are faster for so large windows")
    elif e.context.libraries is not None and not e.exhaustive and not _preferred(filters, rank, e.context.traits):
        raise Refused("a library was faster, or neither was measured")
    weights = e.derived_constant(
        w, ("few channels", filters), lambda array: order_weights(array.astype(dtype.numpy, copy=False), filters)
    )
    if weights is None:
        raise Refused("the weights are not constant")
    results = [lens] if body is None else [o.shape.lens() for o in body.outputs]
    types = [sums.dtype] if body is None else [o.shape.dtype for o in body.outputs]
    if any(r != lens for r in results):
        raise Refused("the extents of the results differ from the convolution's")
    outs = [e.allocate(t, lens, channels_last(lens)) for t in types]
    form = Form(filters, body is not None, tile_rank)
    e.kernel(write, form, modules, [x, weights, per_tensor(zero), *extra], outs)  # type: ignore[arg-type]
    return outs[0] if len(outs) == 1 else tuple(outs)


def _preferred(f: Filters, rank: int, traits: DeviceTraits) -> bool:
    """Returns True for the class of convolutions where the kernel beat the library in every measurement (H100)."""
    return traits.arch in MEASURED and rank == 2 and f.channels <= MAX_PREFERRED and f.depth <= MAX_DEPTH


def order_weights(w: Array, f: Filters) -> Array:
    """Returns weights [o, c, (h,) w] as rows in the kernel's order of terms, zero-padded to a multiple of 16 rows."""
    high, wide = f.kernel
    turned = np.moveaxis(w.reshape(w.shape[0], w.shape[1], high, wide), 1, -1)  # [o, h, w, c]
    rows = np.zeros((w.shape[0], high, f.per_row * RUN), w.dtype)
    if f.apart:
        rows.reshape(w.shape[0], high, wide, RUN)[..., : w.shape[1]] = turned
    else:
        rows[..., : wide * f.taken].reshape(w.shape[0], high, wide, f.taken)[..., : w.shape[1]] = turned
    made = np.zeros((-(-w.shape[0] // 16) * 16, f.depth), w.dtype)
    made[: w.shape[0], : high * f.per_row * RUN] = rows.reshape(w.shape[0], -1)
    return made
