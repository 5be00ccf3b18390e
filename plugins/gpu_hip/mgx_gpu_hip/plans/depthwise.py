"""Depthwise convolutions with one or two axes, alone or with their epilogue, in one generated channels-last kernel.

Bytes and 8-bit floats, too: on matrix units, the windows of a channel would be multiplied by a single filter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mgx_core import Kernels, Module, No, Operation, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.control import Group
from mgx_core.ops.convolution import Convolution
from mgx_core.ops.quantized_product import QuantConvolution
from mgx_core.targets.group_checks import around
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value, channels_last, packed_strides
from mgx_core.types.shape import AnyShape

from ..codegen.bodies import flat
from ..codegen.convolution import convolution
from ..codegen.depthwise import MOST_COLUMNS, depthwise, depthwise_group
from ..codegen.generators import Inputs, spread
from ..codegen.narrow_products import refuse_operands
from ..codegen.source import DeviceTraits, KernelSource, Tensor
from ..emitter import GpuEmitter
from .convolutions import to_channels_last
from .offer import emit_generated, offer

__all__ = ["PLANS", "is_narrow_depthwise"]

PLANS = Kernels("gpu")
ANCHORS: Final = (Convolution, QuantConvolution)


def is_narrow_depthwise(op: Operation, inputs: Sequence[AnyShape | None]) -> bool:
    """Returns True for a quantized depthwise convolution that this kernel computes."""
    if not isinstance(op, QuantConvolution) or _of_images(op, inputs, ()) is not None:
        return False
    columns = inputs[1].dims[-1] if isinstance(inputs[1], Shape) else None
    return isinstance(columns, int) and columns <= MOST_COLUMNS


def _of_images(op: Any, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    x, w, *zeros = (i if isinstance(i, Shape) else None for i in inputs)
    if x is None or w is None or x.rank not in (3, 4) or op.group == 1 or w.dims[1] != 1:
        return No("the convolution is not a depthwise convolution with one or two axes")
    if len(zeros) > 1 and zeros[1] is not None:
        return No("the weights have a zero point")
    if isinstance(op, QuantConvolution):
        return refuse_operands(x.dtype, w.dtype, bool(zeros) and zeros[0] is not None)
    return None


def write_depthwise(
    op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits, modules: Sequence[Module]
) -> KernelSource | No:
    if len(ys) != 1:
        return No("the group has several results")
    return depthwise_group(modules[0], [x for x in xs if x is not None], ys[0], traits)


write_single = spread(convolution)


def write_bytes(
    op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits, modules: Sequence[Module] = ()
) -> KernelSource | No:
    given = [x for x in xs if x is not None]
    return depthwise(op, given[0], given[1], ys[0], traits, given, zero="p2[0]" if len(given) > 2 else "")


@offer(PLANS, QuantConvolution, name="depthwise", when=_of_images, write=write_bytes)
def emit_bytes(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    """Emits one launch that stores the sums, channels last in and out."""
    x, w, *zeros = args
    sums = op.infer(Shape(x.shape.dtype, x.lens), Shape(w.shape.dtype, w.lens))
    out = e.allocate(sums.dtype, sums.lens(), channels_last(sums.lens()))
    e.kernel(write_bytes, op, (), [_image(e, x), _weights(e, w), *zeros[:1]], [out])
    return out


@offer(PLANS, Convolution, name="depthwise", when=_of_images, write=write_single)
def emit_single(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    """Emits one launch, channels last in and out."""
    x, w = args
    lens = op.infer(Shape(x.shape.dtype, x.lens), Shape(w.shape.dtype, w.lens)).lens()
    out = e.allocate(x.shape.dtype, lens, channels_last(lens))
    e.kernel(write_single, op, (), [_image(e, x), _weights(e, w)], [out])
    return out


def emit_depthwise(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    """Emits one launch with the epilogue, channels last in and out."""
    if not e.exhaustive and args[0].shape.dtype is dt.float32:
        raise Refused("fusing the epilogue is tried where kernels are timed (exhaustive_tune)")
    body = flat(modules[0])
    places = {p: n for n, p in enumerate(body.parameters.values())}
    anchor = next(i for i in body if isinstance(i.op, ANCHORS))
    given = list(args)
    for ins, laid in zip(anchor.inputs[:2], (_image, _weights), strict=True):
        if ins not in places:
            raise Refused("an operand of the convolution is computed inside the group")
        given[places[ins]] = laid(e, given[places[ins]])
    return emit_generated(e, write_depthwise, op, modules, given)


for cls in ANCHORS:
    of_images = around(cls, when=_of_images, tag=cls.name)
    offer(PLANS, Group, name="depthwise", when=of_images, write=write_depthwise)(emit_depthwise)


def _image(e: GpuEmitter, x: Value) -> Value:
    """Returns an image with unit stride along its channels; gaps between pixels are allowed, as rounded columns leave them.

    An odd number of channels is read one by one, so that a slice of a wider image needs no copy either.
    """
    if x.lens[1] % 2 and x.strides[1] == 1 and min(x.strides[2:]) >= x.lens[1]:
        return x
    gaps = (
        x.strides[1] == 1 and x.strides[-1] > x.lens[1] and all(s % 8 == 0 for a, s in enumerate(x.strides) if a != 1)
    )
    return e.aligned(x) if gaps else to_channels_last(e, x)


def _weights(e: GpuEmitter, w: Value) -> Value:
    """Returns weights [filters, 1, (kh,) kw] with unit stride along their filters."""
    return e.packed(w, packed_strides(w.lens, [*range(2, len(w.lens)), 1, 0]))
