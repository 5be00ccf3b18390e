"""Computes products and convolutions of dequantized tensors on the quantized values, with wide accumulators and one scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ..errors import No
from ..ir.instruction import Instruction
from ..ops.broadcast import Multibroadcast, common_dims
from ..ops.convert import Convert
from ..ops.convolution import Convolution
from ..ops.linear import Dot
from ..ops.pointwise import Add, Mul
from ..ops.quantized import Dequantizelinear
from ..ops.quantized_product import QuantConvolution, QuantDot
from ..ops.reshape import Reshape
from ..types.dim import Dim, bounds, product
from ..types.dtype import (
    DType,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float32,
    float64,
    int4,
    int8,
    int32,
    uint4,
    uint8,
)
from .constants import aligned, computed, is_constant, uniform
from .engine import ROUNDING, Builder, Rules
from .matching import one_user, op_as
from .outline import through_views
from .quantization import Quantized, dequantized

__all__ = ["INTEGER_PRODUCTS", "NARROW_FLOAT_PRODUCTS"]

INTEGER_PRODUCTS: Final = Rules("integer-products")
NARROW_FLOAT_PRODUCTS: Final = Rules("narrow-float-products")  # for targets with 8-bit float products

BYTES: Final = (int8, uint8)
FLOATS: Final = (float8_e4m3fn, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz)
WIDER: Final = {int4: int8, uint4: uint8}
INTEGERS: Final = (*BYTES, *WIDER)
LARGEST: Final = 2**31 - 1


@INTEGER_PRODUCTS.on(Dot, reads=Dequantizelinear, changes=ROUNDING)
def integer_dot(i: Instruction, b: Builder) -> Instruction | No | None:
    """dot(dequantizelinear(p, s, y), dequantizelinear(q, t, z)) -> convert(quant_dot(p, q, y, z)) * (s t)."""
    return _dot(i, b, INTEGERS)


@NARROW_FLOAT_PRODUCTS.on(Dot, reads=Dequantizelinear, changes=ROUNDING)
def narrow_float_dot(i: Instruction, b: Builder) -> Instruction | No | None:
    """dot(dequantizelinear(p, s), dequantizelinear(q, t)) -> quant_dot(p, q) * (s t) for 8-bit floats."""
    return _dot(i, b, FLOATS)


def _dot(i: Instruction, b: Builder, types: Sequence[DType]) -> Instruction | No | None:
    left, right = (dequantized(x) for x in i.inputs)
    if left is None or right is None:
        return None
    rank = i.shape.rank
    rows, columns = (rank, rank - 2), (rank, rank - 1)
    counts = i.inputs[0].shape.dims[-1], i.inputs[1].shape.dims[-2]
    wrong = _unfit(left, rank - 2, i.inputs[0], types) or _unfit(right, rank - 1, i.inputs[1], types)
    wrong = wrong or _overflow(left, right, counts)
    if wrong:
        return wrong
    zeros = _along(b, _zero(left), *rows), _along(b, _zero(right), *columns)
    sums = b.add(QuantDot(), _bytes(b, left), _bytes(b, right), *_operands(b, left, right, zeros))
    return _scaled(b, i, sums, _along(b, left.scale, *rows), _along(b, right.scale, *columns))


@INTEGER_PRODUCTS.on(Convolution, reads=Dequantizelinear, changes=ROUNDING)
def integer_convolution(i: Instruction, b: Builder) -> Instruction | No | None:
    """convolution(dequantizelinear(p, s, y), dequantizelinear(q, t, z)) -> convert(quant_convolution(p, q, y, z)) * (s t)."""
    return _convolution(i, b, INTEGERS)


@NARROW_FLOAT_PRODUCTS.on(Convolution, reads=Dequantizelinear, changes=ROUNDING)
def narrow_float_convolution(i: Instruction, b: Builder) -> Instruction | No | None:
    """convolution(dequantizelinear(p, s), dequantizelinear(q, t)) -> quant_convolution(p, q) * (s t) for 8-bit floats."""
    return _convolution(i, b, FLOATS)


def _convolution(i: Instruction, b: Builder, types: Sequence[DType]) -> Instruction | No | None:
    left, right = (dequantized(x) for x in i.inputs)
    if left is None or right is None:
        return None
    if not left.by_tensor:
        return No("the image has more than one scale")
    wrong = _unfit(left, 0, i.inputs[0], types) or _unfit(right, 0, i.inputs[1], types)
    wrong = wrong or _overflow(left, right, (product(i.inputs[1].shape.dims[1:]),))
    if wrong:
        return wrong
    zeros = (_along(b, _zero(left), 0, 0), _along(b, _zero(right), 1, 0))
    sums = b.add(_narrow(i), _bytes(b, left), _bytes(b, right), *_operands(b, left, right, zeros))
    return _scaled(b, i, sums, _along(b, left.scale, 0, 0), _along(b, right.scale, i.shape.rank, 1))


def _narrow(i: Instruction) -> QuantConvolution:
    """Returns the quantized convolution with the attributes of a float one."""
    op = op_as(i, Convolution)
    return QuantConvolution(
        padding=op.padding, stride=op.stride, dilation=op.dilation, group=op.group, padding_mode=op.padding_mode
    )


def _unfit(x: Quantized, axis: int, wide: Instruction, types: Sequence[DType]) -> No | None:
    """Returns a refusal if a tensor's quantized type is not one of these, or its scale varies along other axes than `axis`."""
    dtype = x.values.shape.dtype
    if dtype not in types:
        return No(f"numbers of type {dtype} are not multiplied as {'floats' if types is FLOATS else 'integers'}")
    if wide.shape.dtype is float64:
        return No("a float64 result would lose precision with a factor in float32")
    if x.op.block_size:
        return No("blocks along the summed axis have different scales")
    if x.zero_point is not None and dtype.is_float and uniform(x.zero_point) != 0:
        return No("the zero point is not 0")
    if x.zero_point is not None and not dtype.is_float and not x.zero_point.shape.dtype.is_integer:
        return No("the zero point is not an integer")
    if x.by_tensor:
        return None
    if x.scale.shape.rank != 1 or x.op.axis % wide.shape.rank != axis:
        return No(f"the scale does not vary along axis {axis} alone")
    return None


def _overflow(left: Quantized, right: Quantized, counts: Sequence[Dim]) -> No | None:
    """Returns a refusal if the integer sums may overflow int32; counts: the number of terms, from the shape of each operand."""
    if left.values.shape.dtype.is_float:
        return None
    most = _magnitude(left) * _magnitude(right)
    if min(bounds(c)[1] for c in counts) * most <= LARGEST:
        return None
    return No(f"sums of {counts[0]} products of up to {most} may exceed int32")


def _magnitude(x: Quantized) -> int:
    """Returns the largest possible magnitude of a value minus its zero point."""
    dtype = WIDER.get(x.values.shape.dtype, x.values.shape.dtype)
    zero = 0 if x.zero_point is None else aligned(x.zero_point)
    if zero is None:
        return int(dtype.highest - dtype.lowest)
    low, high = int(np.min(zero)), int(np.max(zero))
    return int(max(abs(dtype.highest - low), abs(dtype.lowest - high)))


def _bytes(b: Builder, x: Quantized) -> Instruction:
    wide: DType | None = WIDER.get(x.values.shape.dtype)
    return x.values if wide is None else b.add(Convert(target_type=wide), x.values)


def _zero(x: Quantized) -> Instruction | None:
    """Returns the zero point of an integer tensor; 0 for floats."""
    return None if x.values.shape.dtype.is_float else x.zero_point


def _along(b: Builder, x: Instruction | None, rank: int, axis: int) -> Instruction | None:
    """Returns a scale or zero point as a scalar, or reshaped to broadcast along one axis of a tensor of that rank."""
    if x is None:
        return None
    if all(d == 1 for d in x.shape.dims):
        return b.add(Reshape(dims=()), x) if x.shape.rank else x
    dims = (x.shape.dims[0], *(1,) * (rank - 1 - axis))
    return b.add(Reshape(dims=dims), x) if dims != x.shape.dims else x


def _operands(b: Builder, left: Quantized, right: Quantized, zeros: Sequence[Instruction | None]) -> list[Instruction]:
    """Returns zero points as operands of the product, in the type of their tensors, without trailing absent ones."""
    found = []
    for x, zero in zip((left, right), zeros, strict=True):
        if zero is None:
            found.append(b.absent())
        else:
            wide = WIDER.get(x.values.shape.dtype)
            found.append(zero if wide is None else b.add(Convert(target_type=wide), zero))
    while found and found[-1].is_absent:
        found.pop()
    return found


def _scaled(
    b: Builder, i: Instruction, sums: Instruction, left: Instruction | None, right: Instruction | None
) -> Instruction:
    """Returns the sums times both scales, in the result type of the original product."""
    assert left is not None and right is not None
    dims = i.shape.dims
    factors = [x if x.shape.dtype is float32 else b.add(Convert(target_type=float32), x) for x in (left, right)]
    common = common_dims(*(x.shape.dims for x in factors))
    wide = [x if x.shape.dims == common else b.add(Multibroadcast(out_lens=common), x) for x in factors]
    factor = b.add(Mul(), *wide)
    if factor.shape.dims != dims:
        factor = b.add(Multibroadcast(out_lens=dims), factor)
    single = sums if sums.shape.dtype is float32 else b.add(Convert(target_type=float32), sums)
    out = b.add(Mul(), single, factor)
    return out if i.shape.dtype is float32 else b.add(Convert(target_type=i.shape.dtype), out)


# forms that kernels support ----------------------------------------------------------------------------------------


@INTEGER_PRODUCTS.on(QuantDot, QuantConvolution)
def signed_weights(i: Instruction, b: Builder) -> Instruction | No | None:
    """A constant uint8 right operand -> int8, with 128 subtracted from it and from its zero point, or as it is if below 128."""
    weights = i.inputs[1]
    if weights.shape.dtype is not uint8:
        return None
    zero = i.inputs[3] if len(i.inputs) > 3 and not i.inputs[3].is_absent else None
    source = through_views(weights)
    if source.literal is None or not isinstance(source.literal.value, np.ndarray):
        return No("the right operand is not constant")
    if zero is None:
        if source.literal.value.max(initial=0) > int8.highest:
            return No("the right operand has no zero point from which 128 could be subtracted")
        return b.add(i.op, i.inputs[0], _signed(b, weights, 0), *i.inputs[2:3])
    points = aligned(zero)
    if points is None:
        return No("the zero point of the right operand is not constant")
    first = i.inputs[2] if not i.inputs[2].is_absent else b.absent()
    moved = _signed(b, weights)
    if not (points != 128).any():
        return b.add(i.op, i.inputs[0], moved, *(() if first.is_absent else (first,)))
    return b.add(i.op, i.inputs[0], moved, first, _signed(b, zero))


def _signed(b: Builder, x: Instruction, less: int = 128) -> Instruction:
    """Returns a uint8 constant minus 128, or minus 0 if it is below 128, as int8, broadcast as before."""
    if x.literal is None:
        return b.add(x.op, _signed(b, x.inputs[0], less))
    value = np.asarray(x.literal.value)
    return b.literal(np.asarray(value ^ np.uint8(less)).view(np.int8))


@INTEGER_PRODUCTS.on(QuantDot, QuantConvolution)
def drop_zero_points_of_zero(i: Instruction, b: Builder) -> Instruction | No | None:
    """quant_dot(a, b, 0, 0) -> quant_dot(a, b); each of them, and quant_convolution likewise."""
    zeros = i.inputs[2:]
    kept = [None if _is_zero(z) else z for z in zeros]
    while kept and kept[-1] is None:
        kept.pop()
    if len(kept) == len(zeros) and all(k is z or z.is_absent for k, z in zip(kept, zeros, strict=True)):
        return None
    return b.add(i.op, *i.inputs[:2], *(b.absent() if k is None else k for k in kept))


def _is_zero(x: Instruction) -> bool:
    if x.is_absent:
        return True
    value = aligned(x)
    return value is not None and not value.any()


@INTEGER_PRODUCTS.on(Convert, changes=ROUNDING)
def bias_after_factor(i: Instruction, b: Builder) -> Instruction | No | None:
    """convert(product + bias) -> convert(product) + convert(bias) for int32 sums and a constant bias."""
    total = i.inputs[0]
    if not isinstance(total.op, Add) or total.shape.dtype is not int32 or i.shape.dtype is not float32:
        return None
    x, y = total.inputs
    if not isinstance(x.op, (QuantDot, QuantConvolution)):
        x, y = y, x
    if not isinstance(x.op, (QuantDot, QuantConvolution)):
        return None
    if not is_constant(y) or not one_user(total) or not one_user(x):
        return No("the term is not constant, or a sum has other users")
    bias = computed(b, i.op, i, aligned(y))
    return None if bias is None else b.add(Add(), b.add(i.op, x), bias)
