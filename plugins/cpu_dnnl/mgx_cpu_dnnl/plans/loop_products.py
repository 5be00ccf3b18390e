"""Products and convolutions of all number types as compiled loops, where oneDNN has no kernel for the type or shape."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from mgx_core import Kernels, Module, No, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.convert import Convert
from mgx_core.ops.convolution import Convolution
from mgx_core.ops.linear import Dot
from mgx_core.ops.pointwise import Mul, Sub
from mgx_core.ops.quantized_product import QuantConvolution, QuantDot
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Buffer, Value, channels_last
from mgx_core.types.argument import Array
from mgx_core.types.dtype import DType
from mgx_core.types.traced_int import TracedInt, larger, surely_equal

from ..emitter import CpuEmitter
from ..layout import as_channels_last
from .native_loops import GRAIN_BYTES, broadcast, copy_into_image, emit_op, grain_of, native_loop
from .offer import NUMBERS, offer, only
from .pooling import Axis, encode_windows

__all__ = ["PLANS", "accumulator_type", "fill_zeros"]

PLANS = Kernels("cpu")
MULTIPLIED = NUMBERS - {dt.bool_}


def accumulator_type(dtype: DType) -> DType:
    """Returns the accumulator type; narrowing integer sums afterwards equals wrap-around arithmetic in `dtype`."""
    if dtype.is_float:
        return dt.float64 if dtype is dt.float64 else dt.float32
    return dt.int64 if dtype.bits == 64 else dt.int32


@offer(PLANS, Dot, when=only(MULTIPLIED), name="loop")
def emit_dot(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    a, b = args
    return dot(e, a, b, a.shape.dtype)


def supported(op: Any, inputs: Sequence[Any], modules: Sequence[Module]) -> No | None:
    if any(s is not None and s.dtype not in MULTIPLIED for s in inputs):
        return No("loops do not support the types of the operands")
    return None


@offer(PLANS, QuantDot, when=supported, name="loop")
def emit_quant_dot(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    a, b, *zeros = (*args, None, None)
    assert a is not None and b is not None
    if type(a.shape.elements()) is TracedInt and zeros[0] is not None and zeros[1] is None:
        with e.trial() as trial:
            sums = _less_zero_point(e, a, b, zeros[0])
            trial.keep()
            return sums
    rank = max(len(a.lens), len(b.lens))
    batch = op.infer(a.shape, b.shape).lens()[:-2]
    a, b = (_broadcast(x, [*batch, *x.lens[-2:]], rank) for x in (a, b))
    return dot(e, a, b, accumulator_type(a.shape.dtype), zeros[0], zeros[1])


def _less_zero_point(e: CpuEmitter, a: Value, b: Value, zero: Value) -> Value:
    """Emits the product of bytes a [.., m, k] and constant b [k, n], and subtracts a's zero point times the sums of columns.

    Errors: Refused if the zero point has several elements, or b is not such a constant.
    """
    array = e.constant(b)
    if array is None or prod(b.lens[:-2]) != 1 or zero.shape.elements() != 1:
        raise Refused("one zero point and constant weights of one matrix are required")
    sums = emit_op(e, QuantDot(), a, b)
    weights = array

    def columns() -> list[Array]:
        return [weights.reshape(weights.shape[-2:]).sum(0, dtype=np.int32)]

    [total] = e.derived_literals([array], "sums of columns", columns)
    point = broadcast(as_type(e, zero, dt.int32), total.lens)
    excess = emit_op(e, Mul(), point, total)
    strides = [*[0] * (len(sums.lens) - 1), 1]
    return emit_op(e, Sub(), sums, excess.view_at(0, Shape(dt.int32, sums.lens, strides)))


def _broadcast(x: Value, lens: Sequence[int], rank: int) -> Value:
    """Returns a value broadcast to extents, aligned at the trailing axes."""
    missing = rank - len(x.lens)
    strides = [0] * missing + [0 if n == 1 else s for n, s in zip(x.lens, x.strides, strict=True)]
    return Value(Shape(x.shape.dtype, lens, strides), x.buffer, x.offset)


def dot(
    e: CpuEmitter, a: Value, b: Value, result: DType, a_zero: Value | None = None, b_zero: Value | None = None
) -> Value:
    """Emits the product of a [.., m, k] and b [.., k, n], minus their zero points."""
    from ..jit.product import Line, compile_product, panel_width

    dtype = accumulator_type(a.shape.dtype)
    *batch, m, k = a.lens
    n = b.lens[-1]
    out = e.allocate(result, [*batch, m, n])
    if 0 in out.lens:
        return out
    if not k:
        fill_zeros(e, out.buffer, out.shape.elements() * result.size)
        return out
    width = panel_width(dtype, e.engine.lanes)
    padded = -(-n // width) * width
    left = as_type(e, a, dtype, a_zero)
    # b is packed once along broadcast axes
    held = [1 if s == 0 else d for d, s in zip(b.lens[:-2], b.strides[:-2], strict=True)]
    core = Value(Shape(b.shape.dtype, [*held, k, n], b.strides), b.buffer, b.offset)
    zero_per_batch = b_zero is not None and prod(b_zero.lens[:-2]) != 1
    if zero_per_batch:
        core, held = b, list(b.lens[:-2])
    right = converted_and_padded(e, core, dtype, [*held, k, padded], b_zero)
    steps = [0 if d == 1 else s for d, s in zip(held, right.strides[:-2], strict=True)]
    lines = [
        Line(d, x, y, z) for d, x, y, z in zip(batch, left.strides[:-2], steps, out.strides[:-2], strict=True) if d != 1
    ]
    rows = Line(m, left.strides[-2], 0, out.strides[-2])
    if m == 1 and lines:
        rows = lines.pop() if not lines[-1].right else rows
    while (
        lines
        and not lines[-1].right
        and lines[-1].left == rows.left * rows.extent
        and lines[-1].out == rows.out * rows.extent
    ):
        rows = Line(rows.extent * lines.pop().extent, rows.left, 0, rows.out)
    kernel = compile_product(dtype, result, lines, rows, n, Line(k, left.strides[-1]), (), e.engine)
    e.loop(kernel, [left, right], [out], "product")
    return out


@offer(PLANS, Convolution, when=only(MULTIPLIED), name="loop")
def emit_convolution(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    x, w = args
    return convolve(e, op, x, w, x.shape.dtype)


@offer(PLANS, QuantConvolution, when=supported, name="loop")
def emit_quant_convolution(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    x, w, *zeros = (*args, None, None)
    assert x is not None and w is not None
    by_kernel = zeros[1]
    if by_kernel is not None and by_kernel.shape.elements() > 1:
        lens = [by_kernel.lens[0]] + [1] * (len(w.lens) - 1)
        strides = [by_kernel.strides[0]] + [0] * (len(w.lens) - 1)
        by_kernel = Value(Shape(by_kernel.shape.dtype, lens, strides), by_kernel.buffer, by_kernel.offset)
    return convolve(e, op, x, w, dt.int32, zeros[0], by_kernel)


def convolve(
    e: CpuEmitter, op: Any, x: Value, w: Value, result: DType, x_zero: Value | None = None, w_zero: Value | None = None
) -> Value:
    """Emits the convolution of x [n, c, *s] with w [m, c / group, *k]: per tap of the window, a product over the channels."""
    from ..jit.product import Line, compile_product, panel_width

    dtype = accumulator_type(x.shape.dtype)
    narrowed = [Shape(dtype, v.lens) for v in (x, w)]
    lens = Convolution(
        padding=op.padding, stride=op.stride, dilation=op.dilation, group=op.group, padding_mode=op.padding_mode
    ).infer(*narrowed).lens()  # fmt: skip
    out = e.allocate(result, lens, channels_last(lens))
    if 0 in lens:
        return out
    if 0 in x.lens or 0 in w.lens:
        fill_zeros(e, out.buffer, out.shape.elements() * result.size)
        return out
    window = w.lens[2:]
    stride, dilation, begin, end = op.sliding(x.lens[2:], window)
    group, channels, kernels = op.group, w.lens[1], w.lens[0] // op.group
    if channels == kernels == 1 and group > 1 and x.shape.dtype is result is dt.float32:
        _sum_windows(e, x, w, out, [Axis(*n) for n in zip(lens[2:], window, stride, dilation, begin, strict=True)])
        return out
    left = _padded(e, x, dtype, begin, end, x_zero)
    width = panel_width(dtype, e.engine.lanes)
    right = _weights(e, w, dtype, group, -(-kernels // width) * width, w_zero)
    places = [
        Line(d, s * step, 0, o)
        for d, s, step, o in zip(lens[2:], stride, left.strides[2:], out.strides[2:], strict=True)
    ]
    outer = [Line(lens[0], left.strides[0], 0, out.strides[0]), Line(group, channels, right.strides[0], kernels)]
    taps = [Line(k, d * step) for k, d, step in zip(window, dilation, left.strides[2:], strict=True)]
    kernel = compile_product(
        dtype,
        result,
        [line for line in (*outer, *places[:-1]) if line.extent != 1],
        places[-1],
        kernels,
        Line(channels, 1),
        [t for t in taps if t.extent != 1],
        e.engine,
    )
    e.loop(kernel, [left, right], [out], "convolution")
    return out


def _sum_windows(e: CpuEmitter, x: Value, w: Value, out: Value, axes: Sequence[Axis]) -> None:
    """Emits a depthwise convolution of x [n, c, *s] with w [c, 1, *k], vectors along the channels."""
    x = as_channels_last(e, x)
    window = [a.length for a in axes]
    turned = w.view_at(0, Shape(w.shape.dtype, [*window, w.lens[0]], [*w.strides[2:], w.strides[0]]))
    weights = converted_and_padded(e, turned, dt.float32, turned.lens, None)
    work = out.lens[0] * prod(out.lens[2:-1])
    grain = larger(1, grain_of(work, [x]) // prod(window))
    numbers = [w.lens[0], *encode_windows(x, axes), x.strides[0]]
    flops = 2 * out.shape.elements() * prod(window)
    operands, scratch = [x, weights, out], 16 * prod(window[:-1])
    native_loop(e, "conv taps", "sum_windows_float32", operands, [out], numbers, work, grain, scratch, flops=flops)


def _padded(
    e: CpuEmitter, x: Value, dtype: DType, begin: Sequence[int], end: Sequence[int], zero: Value | None
) -> Value:
    """Returns x converted to `dtype`, channels last, zero-padded.  Errors: Refused for negative padding."""
    lens = [*x.lens[:2], *(b + n + a for b, n, a in zip(begin, x.lens[2:], end, strict=True))]
    if any(n <= 0 for n in lens) or min((*begin, *end), default=0) < 0:
        raise Refused("negative padding is not supported")
    dense = zero is None and x.shape.dtype is dtype and surely_equal(x.strides, channels_last(x.lens))
    around = not surely_equal(lens, x.lens)
    if dense and not around:
        return x
    whole = e.allocate(dtype, lens, channels_last(lens))
    if dense and copy_into_image(e, x, whole, begin):
        return whole
    if around:
        fill_zeros(e, whole.buffer, whole.shape.elements() * dtype.size)
    start = sum(b * s for b, s in zip(begin, whole.strides[2:], strict=True))
    convert_into(e, x, whole.view_at(start, Shape(dtype, x.lens, whole.strides)), zero)
    return whole


def _weights(e: CpuEmitter, w: Value, dtype: DType, group: int, padded: int, zero: Value | None) -> Value:
    """Returns weights as [group, taps.., channels, outputs padded to whole panels]."""
    kernels, channels, window = w.lens[0] // group, w.lens[1], w.lens[2:]
    apart = [group, kernels, channels, *window]
    seen = Value(Shape(w.shape.dtype, apart, [kernels * w.strides[0], *w.strides]), w.buffer, w.offset)
    if zero is not None and zero.shape.elements() > 1:
        strides = [kernels * zero.strides[0], zero.strides[0]] + [0] * (len(apart) - 2)
        zero = Value(
            Shape(zero.shape.dtype, [group, kernels] + [1] * (len(apart) - 2), strides), zero.buffer, zero.offset
        )
    order = [0, *range(3, len(apart)), 2, 1]
    turned = Value(
        Shape(seen.shape.dtype, [apart[a] for a in order], [seen.strides[a] for a in order]), w.buffer, w.offset
    )
    if zero is not None and zero.shape.elements() > 1:
        zero = Value(
            Shape(zero.shape.dtype, [zero.lens[a] for a in order], [zero.strides[a] for a in order]),
            zero.buffer,
            zero.offset,
        )
    return converted_and_padded(e, turned, dtype, [group, *window, channels, padded], zero)


# conversion of operands to the accumulator type


def as_type(e: CpuEmitter, x: Value, dtype: DType, zero: Value | None = None) -> Value:
    """Returns a value minus its zero point, converted; the value itself if nothing changes."""
    if x.shape.dtype is dtype and zero is None:
        return x
    out = e.allocate(dtype, x.lens)
    convert_into(e, x, out, zero)
    return out


def convert_into(e: CpuEmitter, x: Value, out: Value, zero: Value | None = None) -> None:
    """Emits x minus its zero point, converted, into `out`."""
    from ..jit.pointwise import compile_pointwise

    if zero is None:
        e.copy_into(x, out)
        return
    body = Module("less_zero_point")
    wide = Convert(target_type=out.shape.dtype)
    given = body.add(wide, body.add_parameter("x", Shape(x.shape.dtype, x.lens)))
    point = body.add(wide, body.add_parameter("zero", Shape(zero.shape.dtype, zero.lens)))
    if zero.lens != x.lens:
        point = body.add(Multibroadcast(out_lens=tuple(x.lens)), point)
    body.add_return([body.add(Sub(), given, point)])
    shapes = [x.shape, zero.shape, out.shape]
    kernel = e.shared.kernels.kernel(
        body,
        None,
        shapes,
        lambda: compile_pointwise(body, shapes[:2], shapes[2:], e.engine, "convert"),
    )
    e.loop(kernel, [x, zero], [out])


def converted_and_padded(e: CpuEmitter, x: Value, dtype: DType, lens: Sequence[int], zero: Value | None) -> Value:
    """Returns x minus its zero point, converted and zero-padded to `lens`; computed at compile time if constant."""
    constant = e.constant(x)
    point = None if zero is None else e.constant(zero)
    if constant is not None and (zero is None or point is not None):

        def make() -> list[Array]:
            made = np.zeros(lens, dtype.numpy)
            value = constant.astype(dtype.numpy)
            made[..., : x.lens[-1]] = value if point is None else value - point.astype(dtype.numpy)
            return [made]

        [made] = e.derived_literals([constant, point], (dtype, tuple(lens)), make)
        return made
    if surely_equal(lens, x.lens) and x.shape.dtype is dtype and zero is None and x.shape.standard():
        return x
    out = e.allocate(dtype, lens)
    convert_into(e, x, out.view_at(0, Shape(dtype, x.lens, out.strides)), zero)
    return out


def fill_zeros(e: CpuEmitter, buffer: Buffer, size: int, offset: int = 0) -> None:
    """Emits a fill of `size` bytes of a buffer with zeros."""
    out = Value(Shape(dt.uint8, [size]), buffer, offset)
    native_loop(e, "zeros", "fill_1", [out], [out], [0], size, GRAIN_BYTES)
