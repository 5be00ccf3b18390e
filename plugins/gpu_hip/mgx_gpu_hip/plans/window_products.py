"""Convolutions of changing extents with their epilogues, in one generated kernel whose arguments are the extents.

A library's plan is for fixed extents, and takes longer to make than most convolutions to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from mgx_core import Kernels, Module, No, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.control import Group
from mgx_core.ops.convolution import Convolution
from mgx_core.targets.group_checks import around
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value, channels_last
from mgx_core.types.traced_int import divides

from ..codegen.generators import Inputs
from ..codegen.narrow_operands import Windows
from ..codegen.source import DeviceTraits, KernelSource, Tensor
from ..codegen.window_products import TYPES, chunk_of, window_product
from ..emitter import DEVICE_ALIGNMENT, LIBRARY_ALIGNMENT, GpuEmitter, has_traced
from .convolutions import more_channels, to_channels_last
from .offer import offer
from .product_groups import ProductGroup

__all__ = ["PLANS"]

PLANS = Kernels("gpu")
OPERANDS = 2  # kernel operands: the image and the weights


@dataclass(frozen=True)
class Form:
    """Parameters of a kernel: the windows, and whether an epilogue is fused."""

    windows: Windows
    fused: bool


def write(
    op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits, modules: Sequence[Module] = ()
) -> KernelSource | No:
    if not op.fused:
        return window_product(xs[:OPERANDS], ys, None, op.windows, traits)
    given = xs[OPERANDS:]
    after = ProductGroup.fixed(modules[0], given, Convolution).finish(given, ys[0].lens, OPERANDS, dt.float32)
    return window_product(xs, ys, after, op.windows, traits)


@offer(PLANS, Convolution, name="windows")
def emit_convolution(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    return _emit(e, op, args, (), (), None)


@offer(PLANS, Group, name="windows", when=around(Convolution, tag=Convolution.name))
def emit_group(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    group = ProductGroup.of(modules[0], Convolution)
    if group.chain:
        raise Refused("an op between the convolution and its epilogue cannot be fused")
    operands, _ = group.operands(e, args)
    extra = group.epilogue_args(args, e.is_constant)
    return _emit(e, group.anchor.op, operands, modules, extra, group.body)


def _emit(
    e: GpuEmitter,
    op: Any,
    args: Sequence[Value],
    modules: Sequence[Module],
    extra: Sequence[Value | None],
    body: Module | None,
) -> Results:
    x, w = args
    if not has_traced(x):
        raise Refused("kernels for fixed extents are faster")
    dtype = x.shape.dtype
    if dtype not in TYPES or w.shape.dtype is not dtype or has_traced(w):
        raise Refused(f"the kernel does not multiply {dtype} and {w.shape.dtype} of changing extents")
    lens = op.infer(Shape(dtype, x.lens), Shape(dtype, w.lens)).lens()
    if 0 in lens or 0 in x.lens or 0 in w.lens:
        raise Refused("an extent is 0")
    results = [lens] if body is None else [o.shape.lens() for o in body.outputs]
    types = [dtype] if body is None else [o.shape.dtype for o in body.outputs]
    if any(r != lens for r in results):
        raise Refused("the extents of the results differ from the convolution's")
    missing = -w.lens[1] % chunk_of(dtype)
    if missing and op.group > 1:
        raise Refused("the channels of a group are not whole chunks")
    strides, dilations, begins, _ = op.sliding(x.lens[2:], w.lens[2:])
    windows = Windows(tuple(w.lens[2:]), tuple(strides), tuple(dilations), tuple(begins), op.group)
    if missing:
        x, w = more_channels(e, x, missing), more_channels(e, w, missing)
    w = e.packed(w, channels_last(w.lens))
    rows = w.view_at(0, Shape(dtype, [w.lens[0], prod(w.lens[1:])]))
    outs = [e.allocate(t, lens, channels_last(lens)) for t in types]
    e.kernel(write, Form(windows, body is not None), modules, [_image(e, x), rows, *extra], outs)  # type: ignore[arg-type]
    return outs[0] if len(outs) == 1 else tuple(outs)


def _image(e: GpuEmitter, x: Value) -> Value:
    """Returns an image whose pixels are whole chunks, with unit stride along its channels: itself, also with gaps, or a copy."""
    chunk = chunk_of(x.shape.dtype)
    steps = [s for a, s in enumerate(x.strides) if a != 1]
    whole = x.strides[1] == 1 and all(divides(chunk, s) for s in steps)
    if whole and x.align(DEVICE_ALIGNMENT) % LIBRARY_ALIGNMENT == 0:
        return x
    return to_channels_last(e, x)
