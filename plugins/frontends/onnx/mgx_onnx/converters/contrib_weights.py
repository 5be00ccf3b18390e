"""Operators with weights packed to few bits: matrix products, gathers, MX block formats."""

from __future__ import annotations

from typing import Final

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.types.argument import Array
from mgx_core.types.dim import Dim, ceil_div

from ..converter import converts
from ..node import Node
from ..tensors import dtype_of
from .contrib_quant import MS
from .contrib_quant_products import matmul

# 4-bit code -> value relative to the block's largest magnitude
FP4: Final = [0.0, 5.208333333e-03, 2 / 3, 1.0, 1 / 3, 0.5, 1 / 6, 0.25]
NF4: Final = [
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
]  # fmt: skip


def block_size_of(n: Node) -> int:
    size: int = n.attr("block_size")
    if size < 16 or size & (size - 1):
        n.fail(f"block_size must be a power of 2, at least 16, got {size}")
    return size


def unpacked(n: Node, x: Instruction, bits: int) -> Instruction:
    """Unpacks the unsigned codes in the bytes of x along its last axis, low bits first."""
    if bits == 8:
        return x
    return n.add("unpack_int4", x, axis=-1) if bits == 4 else n.add("unpack_bits", x, bits=bits)


def elements(n: Node, x: Instruction, count: Dim, what: str) -> None:
    total = x.shape.sym_elements()
    if isinstance(total, int) and total != count:
        n.fail(f"{what} must have {count} elements, got {total}")


@converts("MatMulNBits", domain=MS)
def matmul_nbits(
    n: Node,
    a: Instruction,
    b: Instruction,
    scales: Instruction,
    zero_points: Instruction | None = None,
    group_index: Instruction | None = None,
    bias: Instruction | None = None,
) -> Instruction:
    bits, size, rows, k = n.attr("bits", 4), block_size_of(n), n.attr("N"), n.attr("K")
    if bits not in (2, 4, 8):
        n.fail(f"bits must be 2, 4 or 8, got {bits}")
    level = n.attr("accuracy_level", 0)
    if level not in range(5):
        n.fail(f"accuracy_level must be from 0 to 4, got {level}")
    if n.attr("weight_prepacked", 0):
        n.unsupported("weights prepacked for a device are not supported")
    if isinstance(a.shape.dims[-1], int) and a.shape.dims[-1] != k:
        n.fail(f"the last extent of A must be K = {k}, got {a.shape.dims[-1]}")
    if a.shape.dims[-1] != k:  # runs with another extent are rejected
        a = n.reshape(a, (*a.shape.dims[:-1], k))
    blocks, blob = ceil_div(k, size), size * bits // 8
    elements(n, b, rows * blocks * blob, f"B ({rows} rows of {blocks} blocks of {blob} bytes)")
    elements(n, scales, rows * blocks, f"scales ({rows} rows of {blocks} blocks)")
    scales = n.reshape(scales, (rows, blocks))
    if coded(a, zero_points, group_index):
        operands = [codes_in_bytes(n, b, rows, blocks * blob, bits, k), scales]
        if zero_points is not None:
            operands.append(codes_of(n, zero_points, rows, blocks, bits))
        elif bits == 2:
            operands.append(n.broadcast_to(n.literal(2, dt.uint8), (rows, blocks)))
        left = a if a.shape.rank > 1 else n.unsqueeze(a, [0])
        # minimum precision of A: 4 is 8 bits, others are float types, all satisfied by A's own type
        rounded = 8 if level == 4 else 0
        y = n.add("dequant_dot", left, *operands, bits=8 if bits == 8 else 4, block_size=size, activation_bits=rounded)
        y = y if a.shape.rank > 1 else n.squeeze(y, [0])
        return y if bias is None else n.pointwise("add", y, bias)
    codes = unpacked(n, n.reshape(b, (rows, blocks * blob)), bits)
    if zero_points is None:
        points = n.broadcast_to(n.literal(1 << (bits - 1), dt.uint8), (rows, blocks))
    elif zero_points.shape.dtype is dt.uint8:
        points = codes_of(n, zero_points, rows, blocks, bits)
    else:
        points = n.reshape(zero_points, (rows, blocks))
        codes = n.convert(codes, points.shape.dtype)
    if group_index is not None:
        codes = n.slice(codes, [1], [0], [k])
        scales, points = (n.add("gather", v, group_index, axis=1) for v in (scales, points))
        weights = n.add("dequantizelinear", codes, scales, points)
    else:
        weights = n.add("dequantizelinear", codes, scales, points, axis=1, block_size=size)
        weights = n.slice(weights, [1], [0], [k])
    y = product(n, a, n.convert(n.transpose(weights, [1, 0]), a.shape.dtype))
    return y if bias is None else n.pointwise("add", y, bias)


def coded(a: Instruction, zero_points: Instruction | None, group_index: Instruction | None) -> bool:
    """Returns True if a product keeps its weights quantized: integer zero points, columns not reordered."""
    integers = zero_points is None or zero_points.shape.dtype is dt.uint8
    return integers and group_index is None and a.shape.rank > 0


def codes_in_bytes(n: Node, codes: Instruction, rows: int, width: int, bits: int, count: Dim) -> Instruction:
    """Returns rows of `width` bytes in the layout of `dequant_dot`: two 4-bit codes per byte, or one code per byte.

    2-bit codes become 4-bit ones: of a constant here, since the constants between would be too large to be folded.
    """
    if bits == 2:
        known = n.constant(codes)
        if known is not None:
            return n.literal(doubled(known.reshape(rows, width)))
        return n.add("pack_int4", unpacked(n, n.reshape(codes, (rows, width)), bits), axis=-1)
    packed = n.reshape(codes, (rows, width))
    return packed if bits == 4 else n.slice(unpacked(n, packed, bits), [1], [0], [count])


def doubled(x: Array) -> Array:
    """Returns 2-bit codes, four per byte, as 4-bit codes, two per byte."""
    halves = (x & 3) | ((x & 12) << 2), ((x >> 4) & 3) | ((x >> 6) << 4)
    return np.stack(halves, -1).reshape(*x.shape[:-1], 2 * x.shape[-1])


def codes_of(n: Node, zero_points: Instruction, rows: int, blocks: Dim, bits: int) -> Instruction:
    """Returns packed zero points unpacked to one byte each."""
    width = ceil_div(blocks * bits, 8)
    elements(n, zero_points, rows * width, f"zero_points ({rows} rows of {width} bytes)")
    points = unpacked(n, n.reshape(zero_points, (rows, width)), bits)
    return n.slice(points, [1], [0], [blocks])


def product(n: Node, a: Instruction, b: Instruction) -> Instruction:
    """Returns a [.., k] @ b [k, n] as one matrix product, for a of any rank."""
    if a.shape.rank == 2:
        return n.add("dot", a, b)
    if a.shape.rank == 1:
        return n.squeeze(n.add("dot", n.unsqueeze(a, [0]), b), [0])
    return matmul(n, a, b)


@converts("MatMulBnb4", domain=MS)
def matmul_bnb4(n: Node, a: Instruction, b: Instruction, absmax: Instruction) -> Instruction:
    size, rows, k, kind = block_size_of(n), n.attr("N"), n.attr("K"), n.attr("quant_type")
    if kind not in (0, 1):
        n.fail(f"quant_type must be 0 (FP4) or 1 (NF4), got {kind}")
    inner = k if n.attr("transB", 1) else rows
    if not a.shape.rank or (isinstance(a.shape.dims[-1], int) and a.shape.dims[-1] != inner):
        n.fail(f"the last extent of A must be {inner}, got {a.shape}")
    count = rows * k
    have = b.shape.sym_elements()
    if isinstance(have, int) and 2 * have < count:
        n.fail(f"B must have {ceil_div(count, 2)} bytes, got {have}")
    pairs = n.slice(n.reshape(b, (have,)), [0], [0], [ceil_div(count, 2)])
    codes = n.add("unpack_int4", n.unsqueeze(pairs, [1]), axis=1)  # the high nibble comes first
    codes = n.reshape(n.add("reverse", codes, axes=(1,)), (2 * ceil_div(count, 2),))
    table = NF4 if kind else [*FP4, *(-v for v in FP4)]
    values = n.add("gather", n.literal(table, absmax.shape.dtype), n.convert(codes, dt.int32), axis=0)
    values = n.slice(values, [0], [0], [count])
    elements(n, absmax, ceil_div(count, size), "absmax")
    scaled = n.add("dequantizelinear", values, n.reshape(absmax, (ceil_div(count, size),)), axis=0, block_size=size)
    weights = n.convert(n.reshape(scaled, (rows, k)), a.shape.dtype)
    return product(n, a, n.transpose(weights, [1, 0]) if n.attr("transB", 1) else weights)


@converts("GatherBlockQuantized", domain=MS)
def gather_block_quantized(
    n: Node,
    data: Instruction,
    indices: Instruction,
    scales: Instruction,
    zero_points: Instruction | None = None,
) -> Instruction:
    rank, size, bits = data.shape.rank, n.attr("block_size", 128), n.attr("bits", 4)
    (gathered,) = n.axes([n.attr("gather_axis", 0)], rank)
    (along,) = n.axes([n.attr("quantize_axis", 1)], rank)
    if gathered == along:
        n.fail("gather_axis and quantize_axis must differ")
    codes = data.shape.dtype

    def picked(x: Instruction) -> Instruction:
        one = x.shape.dims[gathered] == 1 and data.shape.dims[gathered] != 1
        return n.add("gather", n.broadcast_to(x, _with(x, gathered, data)) if one else x, indices, axis=gathered)

    def picked_bytes(x: Instruction) -> Instruction:
        """Gathers while the codes are packed: a table of embeddings has many more rows than are read."""
        if gathered == rank - 1:
            return picked(unpacked(n, x, bits))
        return unpacked(n, picked(x), bits)

    factors = picked(scales)
    points = None
    if codes is dt.uint8:
        values = picked_bytes(data)
        if zero_points is None:
            points = n.broadcast_to(n.literal(1 << (bits - 1), dt.uint8), factors.shape.dims)
        else:
            last = factors.shape.rank - 1
            points = n.slice(picked_bytes(zero_points), [last], [0], [factors.shape.dims[last]])
    else:
        byte, width = dt.int8 if codes.is_signed else dt.uint8, data.shape.dims[-1]
        if data.is_literal and bits == 4 and isinstance(width, int) and width % 2 == 0:
            values = picked_bytes(n.add("pack_int4", data, axis=-1))
        else:
            values = n.convert(picked(data), byte)
        if zero_points is not None:
            points = picked(n.convert(zero_points, byte))
    if along > gathered:
        along += indices.shape.rank - 1
    extent = values.shape.dims[along]
    if not size:
        if not isinstance(extent, int):
            n.unsupported("block_size 0 requires a static extent of quantize_axis")
        size = extent
    return n.add("dequantizelinear", values, factors, points, axis=along, block_size=size)


def _with(x: Instruction, axis: int, like: Instruction) -> tuple[Dim, ...]:
    return tuple(like.shape.dims[i] if i == axis else d for i, d in enumerate(x.shape.dims))


def mx_scales(n: Node, x: Instruction, axis: int, size: int) -> Instruction:
    """Returns a power-of-two scale per block of `size` along an axis, such that the block's maximum fits into fp4."""
    dims = list(x.shape.dims)
    blocks = ceil_div(dims[axis], size)
    missing = blocks * size - dims[axis]
    if missing != 0:
        pads: list[Dim] = [0] * (2 * len(dims))
        pads[len(dims) + axis] = missing
        x = n.add("pad", x, pads=tuple(pads))
    split = n.reshape(n.convert(x, dt.float32), (*dims[:axis], blocks, size, *dims[axis + 1 :]))
    top = n.squeeze(n.add("reduce_max", n.add("abs", split), axes=(axis + 1,)), [axis + 1])
    two, four = n.full_like(top, 2.0), n.full_like(top, 4.0)
    return n.add("div", n.add("pow", two, n.add("floor", n.add("log2", top))), four)


@converts("MXQuantizeDequantize", "MXFixNeuron", domain=MS)
def mx_quantize_dequantize(n: Node, x: Instruction) -> Instruction:
    if n.attr("element_dtype") != "fp4_e2m1":
        n.unsupported(f"element_dtype must be fp4_e2m1, got {n.attr('element_dtype')!r}")
    if n.attr("rounding_mode", 2) != 2:
        n.unsupported(f"rounding_mode must be 2 (ties to even), got {n.attr('rounding_mode')}")
    size = n.attr("block_size", 32)
    (axis,) = (0,) if x.shape.rank == 1 else n.axes([n.attr("axis")], x.shape.rank)
    scales = mx_scales(n, x, axis, size)
    empty = n.add("equal", scales, n.full_like(scales, 0.0))
    scales = n.add("where", empty, n.full_like(scales, 1.0), scales)
    narrow = n.add("quantizelinear", x, scales, axis=axis, block_size=size, out_type=dt.float4_e2m1fn)
    return n.add("dequantizelinear", narrow, scales, axis=axis, block_size=size, out_type=x.shape.dtype)


@converts("DynamicScale", domain=MS)
def dynamic_scale(n: Node, x: Instruction) -> Instruction:
    if dtype_of(n.attr("output_dtype")) is not dt.float4_e2m1fn:
        n.unsupported("output_dtype must be float4e2m1")
    if n.attr("scale_selection_method") != "floor" or n.attr("zero_point_selection_method", "None") != "None":
        n.unsupported("scale_selection_method must be 'floor', without zero points")
    (axis,) = n.axes([n.attr("group_dim")], x.shape.rank)
    return mx_scales(n, x, axis, n.attr("group_size"))
