"""Low-precision products and convolutions (int8, fp8) on matrix units, with their epilogues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from mgx_core import Kernels, Module, No, Operation, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.control import Group, PointwiseGroup
from mgx_core.ops.convolution import Convolution
from mgx_core.ops.quantized_product import QuantConvolution, QuantDot
from mgx_core.targets.group_checks import around
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value, channels_last
from mgx_core.types.argument import Array
from mgx_core.types.shape import AnyShape

from ..codegen.generators import Inputs
from ..codegen.narrow_operands import CHUNK, Windows
from ..codegen.narrow_products import narrow_product, refuse_operands
from ..codegen.source import DeviceTraits, KernelSource, Tensor
from ..emitter import GpuEmitter
from .convolutions import to_channels_last
from .depthwise import is_narrow_depthwise
from .offer import offer
from .product_groups import ProductGroup

__all__ = ["Form", "PLANS", "TILE_RANKS", "narrow", "narrow_group", "padded", "per_tensor", "summed_group", "write"]

PLANS = Kernels("gpu")

ANCHORS = (QuantDot, QuantConvolution)
TILE_RANKS = 3  # number of tile sizes that are timed, best first by the cost model
OPERANDS = 5  # kernel operands: x, w, column sums of w, zero points of x and w


@dataclass(frozen=True)
class Form:
    """Parameters of a kernel: the windows of a convolution, whether an epilogue is fused, and the tile size.

    tile_rank: rank of the tile size by estimated time.
    """

    windows: Windows | None
    fused: bool = False
    tile_rank: int = 0


def narrow(op: Operation, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    x, w, *zeros = (i.dtype for i in inputs if isinstance(i, Shape))
    refused = refuse_operands(x, w, bool(zeros))
    if refused is not None:
        return refused
    return No("the depthwise kernel is faster") if is_narrow_depthwise(op, inputs) else None


narrow_group = around(*ANCHORS, when=narrow)


def write(
    op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits, modules: Sequence[Module] = ()
) -> KernelSource | No:
    """Generates the kernel of a form, also of convolutions of 16-bit floats (`half_convolutions`)."""
    if not op.fused:
        return narrow_product(xs, ys, None, op.windows, traits, op.tile_rank)
    given = xs[OPERANDS:]
    finish = ProductGroup.fixed(modules[0], given, *ANCHORS, Convolution).finish(given, ys[0].lens, OPERANDS)
    return narrow_product(xs, ys, finish, op.windows, traits, op.tile_rank)


def emit_group(e: GpuEmitter, modules: Sequence[Module], args: Sequence[Value], tile_rank: int) -> Results:
    """Emits one launch with the epilogue."""
    group = summed_group(modules[0])
    if not any(isinstance(i.op, PointwiseGroup) for i in modules[0]):
        raise Refused("nothing follows the product")
    operands, _ = group.operands(e, args)
    extra = group.epilogue_args(args, e.is_constant)
    return _emit(e, group.anchor.op, operands, modules, extra, group.body, tile_rank)


def summed_group(body: Module) -> ProductGroup:
    """Returns a group around a low-precision product or convolution.  Errors: Refused if the epilogue reshapes its columns."""
    group = ProductGroup.of(body, *ANCHORS)
    columns = group.joint.shape.dims[-1], group.anchor.shape.dims[-1]
    if group.chain and (isinstance(group.anchor.op, QuantConvolution) or columns[0] != columns[1]):
        raise Refused("the epilogue reshapes the columns of the product")
    return group


def _plan(tile_rank: int) -> None:
    """Offers the kernels with the tile size of a rank; those beyond the first only where kernels are timed."""
    name = "matrix units" if not tile_rank else f"matrix units, tile {tile_rank + 1}"

    def single(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
        return _emit(e, op, args, (), (), None, tile_rank)

    def group(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
        return emit_group(e, modules, args, tile_rank)

    offer(PLANS, *ANCHORS, name=name, when=narrow)(single)
    offer(PLANS, Group, name=name, when=narrow_group)(group)


for n in range(TILE_RANKS):
    _plan(n)


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
    x, w, x_zero, w_zero = (*args, None, None)[:4]
    assert x is not None and w is not None
    given = [None if v is None else Shape(v.shape.dtype, v.lens) for v in (x, w)]
    lens = op.infer(*given).lens()
    if 0 in lens or 0 in x.lens or 0 in w.lens:
        raise Refused("an extent is 0")
    results = [lens] if body is None else [o.shape.lens() for o in body.outputs]
    types = [op.infer(*given).dtype] if body is None else [o.shape.dtype for o in body.outputs]
    if any(r != results[0] for r in results):
        raise Refused("the results differ in their extents")
    convolution = isinstance(op, QuantConvolution)
    if convolution:
        form, operands = _windows(e, op, x, w, x_zero is not None)
        zeros = [per_tensor(x_zero), _along(w_zero, lens, 1)]
        outs = [e.allocate(t, r, channels_last(r)) for t, r in zip(types, results, strict=True)]
    else:
        form, operands = _matrices(e, x, w, lens, x_zero is not None)
        zeros = [_rows(x_zero, lens), _along(w_zero, lens, len(lens) - 1)]
        if len(operands[1].lens) > 2 and results[0] != lens:
            raise Refused("the epilogue reshapes a batch of products")
        outs = [e.allocate(t, r) for t, r in zip(types, results, strict=True)]
    form = Form(form.windows, body is not None, tile_rank)
    e.kernel(write, form, modules, [*operands, *zeros, *extra], outs)  # type: ignore[arg-type]
    return outs[0] if len(outs) == 1 else tuple(outs)


# operands --------------------------------------------------------------------------------------------------------------


def _windows(e: GpuEmitter, op: Any, x: Value, w: Value, moved: bool) -> tuple[Form, list[Any]]:
    """Returns a channels-last image, and weights [o, k] in the order of its windows."""
    rank = len(x.lens) - 2
    kernel = tuple(w.lens[2:])
    strides, dilations, begins, ends = op.sliding(x.lens[2:], kernel)
    order = (0, *range(2, rank + 2), 1)
    matrix = e.derived_constant(w, ("windows", order), lambda a: padded(a.transpose(order).reshape(a.shape[0], -1)))
    sums = None
    if matrix is None:
        packed = e.copy(w, channels_last(w.lens))
        matrix = packed.view_at(0, Shape(w.shape.dtype, [w.lens[0], prod(w.lens[1:])]))
    elif moved or x.shape.dtype is dt.uint8:
        axes = tuple(range(1, rank + 2))
        sums = e.derived_constant(w, ("sums", axes), lambda a: a.astype(np.int32).sum(axes, dtype=np.int32))
    if x.strides[1] != 1 and x.lens[1] != 1:
        x = to_channels_last(e, x)
    windows = Windows(kernel, strides, dilations, begins, op.group)
    if op.group == 1 and not begins[-1] and ends[-1] <= 0:
        x, windows = _wide_pixels(x, windows)
    return Form(windows), [x, matrix, sums]


def _wide_pixels(x: Value, w: Windows) -> tuple[Value, Windows]:
    """Returns an image whose pixels have the channels of a whole row of a window, if these are adjacent; or the image itself.

    w: without groups, and without padding along the last axis.  Few channels are then loaded 16 bytes at a time instead of one.
    """
    channels, taps, step = x.lens[1], w.kernel[-1], w.stride[-1]
    adjacent = x.strides[1] == 1 and x.strides[-1] == channels and w.dilation[-1] == 1
    if not adjacent or channels % CHUNK == 0 or channels * taps % CHUNK:
        return x, w
    count = (x.lens[-1] - taps) // step + 1
    lens = [x.lens[0], channels * taps, *x.lens[2:-1], count]
    steps = [*x.strides[:-1], channels * step]
    pixels = x.view_at(0, Shape(x.shape.dtype, lens, steps))
    return pixels, replace(w, kernel=(*w.kernel[:-1], 1), stride=(*w.stride[:-1], 1))


def _matrices(e: GpuEmitter, x: Value, w: Value, lens: Sequence[int], moved: bool) -> tuple[Form, list[Any]]:
    """Returns x with all batch axes, and w [.., n, k], without batch axes where it is broadcast."""
    shared = all(n == 1 or not s for n, s in zip(w.lens[:-2], w.strides[:-2], strict=True))
    if shared and len(w.lens) > 2:
        w = w.view_at(0, Shape(w.shape.dtype, w.lens[-2:], w.strides[-2:]))
    packed = e.derived_constant(w, ("rows of columns",), lambda a: padded(np.swapaxes(a, -1, -2)))
    sums = None
    if packed is None:
        order = [*range(len(w.lens) - 2), len(w.lens) - 1, len(w.lens) - 2]
        packed = w.view_at(0, Shape(w.shape.dtype, [w.lens[a] for a in order], [w.strides[a] for a in order]))
        if packed.strides[-1] != 1 and packed.lens[-1] != 1:
            packed = e.copy(packed)
    elif shared and (moved or x.shape.dtype is dt.uint8):
        sums = e.derived_constant(w, ("sums of columns",), lambda a: a.astype(np.int32).sum(-2, dtype=np.int32))
    if x.strides[-1] != 1 and x.lens[-1] != 1:
        x = e.copy(x)
    wide = [*lens[:-1], x.lens[-1]]
    if x.lens != wide:
        missing = len(wide) - len(x.lens)
        steps = [0] * missing + [0 if n == 1 else s for n, s in zip(x.lens, x.strides, strict=True)]
        x = x.view_at(0, Shape(x.shape.dtype, wide, steps))
    return Form(None), [x, packed, sums]


def padded(rows: Array) -> Array:
    """Returns rows zero-padded to a multiple of 16 elements."""
    wide = np.zeros((*rows.shape[:-1], -(-rows.shape[-1] // CHUNK) * CHUNK), rows.dtype)
    wide[..., : rows.shape[-1]] = rows
    return wide


def per_tensor(zero: Value | None) -> Value | None:
    """Returns a per-tensor zero point as a scalar."""
    return None if zero is None else zero.view_at(0, Shape(zero.shape.dtype, []))


def _along(zero: Value | None, lens: Sequence[int], axis: int) -> Value | None:
    """Returns a per-tensor or per-axis zero point broadcast to the extents of the sums.  Errors: Refused."""
    if zero is None or prod(zero.lens) == 1:
        return per_tensor(zero)
    varies = [a for a, n in enumerate(zero.lens) if n != 1]
    if len(varies) != 1 or zero.lens[varies[0]] != lens[axis]:
        raise Refused("the right operand's zero points must be per tensor or per column")
    return zero.view_at(0, Shape(zero.shape.dtype, [lens[axis]], [zero.strides[varies[0]]]))


def _rows(zero: Value | None, lens: Sequence[int]) -> Value | None:
    """Returns a per-tensor or per-row zero point broadcast to the extents of the sums.  Errors: Refused."""
    if zero is None or prod(zero.lens) == 1:
        return per_tensor(zero)
    if zero.lens[-1] != 1:
        raise Refused("the left operand's zero points must be per tensor or per row")
    missing = len(lens) - len(zero.lens)
    steps = [0] * missing + [0 if n == 1 else s for n, s in zip(zero.lens, zero.strides, strict=True)]
    return zero.view_at(0, Shape(zero.shape.dtype, lens, steps))
