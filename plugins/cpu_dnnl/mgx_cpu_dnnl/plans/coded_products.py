"""Products with low-bit weights, dequantized in registers or the L1 cache, so that only the codes are read from memory."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

from mgx_core import Kernels, Module, No, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.coded_product import DequantDot
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value

from ..emitter import CpuEmitter
from ..native_library import native
from .native_loops import GRAIN_BYTES, native_loop
from .offer import offer

__all__ = ["PLANS"]

PLANS = Kernels("cpu")

MAX_ROWS_8BIT: Final = 16  # above, a product with dequantized weights beats dequantizing 8-bit codes once per four rows
WIDTH: Final = 32  # columns of a panel
PANEL_ROWS: Final = 5  # minimum rows for which codes are dequantized once for all rows
PANEL_ROWS_HALVES: Final = 3  # the same for 4-bit codes in blocks of half vectors, which lack a fast one-row kernel
PANEL_ROWS_8BIT: Final = 9  # the same for 8-bit codes, whose kernel for few rows reads longer streams
UNIT: Final = 128  # 4-bit codes per vector
PART_SIZES: Final = frozenset({16, 32, 64})  # block sizes of which a unit contains several
UNIT_BYTES: Final = 512  # sizeof(CodedUnit) in coded_row.h: 128 activations as 24-bit integers
VECTOR_BITS: Final = 512  # bits of codes per vector
MIN_PART: Final = 16  # minimum activations per scale
TABLE_BYTES: Final = 192  # bytes of sums and scales stored with a unit
STREAM_BYTES: Final = 1 << 18  # minimum bytes of codes per work item, read as four streams of many pages each
TILE_ROWS: Final = 16  # minimum rows for which three bfloat16 tile products are faster than one float32 vector product


def supported(op: Any, inputs: Sequence[Any], modules: Sequence[Module]) -> No | None:
    a, _, scale = inputs[:3]
    if a.dtype is not dt.float32 or scale.dtype is not dt.float32:
        return No(f"float32 activations and scales are required, got {a.dtype} and {scale.dtype}")
    return None


@offer(PLANS, DequantDot, when=supported, name="coded")
def emit_dequant_dot(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    """Emits a [.., k] times dequantized codes [n, ..]; selects the kernel by rows, code width, block size and processor.

    Errors: Refused if dequantizing the weights once is faster, or blocks do not fill vectors.
    """
    a, codes, scale, points = (*args, None)[:4]
    assert a is not None and codes is not None and scale is not None
    halves = e.engine.wide and op.bits == 4 and op.block_size % 32 != 0  # blocks fill two vectors of 8 lanes
    wide = e.engine.wide and not halves
    lanes, isa = (16, "avx512") if wide else (8, "avx2")
    *outer, k = a.lens
    rows, n = prod(outer), codes.lens[0]
    out = e.allocate(dt.float32, [*outer, n])
    if not rows or not n or not k:
        raise Refused("an extent is 0")
    codes, scale = e.row_major(codes), e.row_major(scale)
    if op.activation_bits == 8 and aligns_with_parts(e, op, scale):
        emit_8bit(e, op, e.row_major(a), codes, scale, points, out)
        return out
    if op.bits == 4 and rows >= TILE_ROWS and op.block_size % 32 == 0 and fills_tiles(e, codes, scale):
        emit_tiles(e, op, e.row_major(a), codes, scale, points, out)
        return out
    if (
        e.engine.wide
        and rows >= (PANEL_ROWS_8BIT if op.bits == 8 else PANEL_ROWS_HALVES if halves else PANEL_ROWS)
        and (op.bits == 8 or op.block_size % 2 == 0)
    ):
        emit_panels(e, op, e.row_major(a), codes, scale, points, out)
        return out
    if op.bits == 8 and rows > MAX_ROWS_8BIT:
        raise Refused(f"with {rows} rows a product with dequantized weights is faster")
    if op.bits == 4 and rows == 1 and fills_units(e, op, codes, scale):
        emit_one_row(e, op, e.row_major(a), codes, scale, points, out)
        return out
    emit_few_rows(e, op, a, codes, scale, points, out, lanes, isa)
    return out.view_at(0, Shape(dt.float32, out.lens))


def emit_few_rows(
    e: CpuEmitter, op: Any, a: Value, codes: Value, scale: Value, points: Value | None, out: Value, lanes: int, isa: str
) -> None:
    """Emits a product that dequantizes codes in registers, once per four rows.  Errors: Refused if blocks do not fill vectors."""
    *outer, k = a.lens
    rows, n = prod(outer), codes.lens[0]
    blocks, row_bytes = scale.lens[1], codes.lens[1]
    padded = k
    if op.bits == 4:
        if op.block_size % (2 * lanes) or row_bytes * 2 < blocks * op.block_size:
            raise Refused(f"blocks of {op.block_size} codes do not fill vectors of {lanes}")
        padded = blocks * op.block_size
    elif op.block_size % lanes and blocks > 1:
        raise Refused(f"blocks of {op.block_size} codes do not fill vectors of {lanes}")
    a = e.row_major(a)
    if op.bits == 4:
        ordered = e.allocate(dt.float32, [rows, padded])
        native_loop(e, "order", f"coded_order_{isa}", [a, ordered], [ordered], [k, k, padded], rows, rows)
        a = ordered
    given, point = zero_points(e, op, points)
    numbers = [rows, padded, blocks, op.block_size, min(row_bytes, k) if op.bits == 8 else row_bytes, n, op.bits, point]
    if op.bits == 8 and row_bytes != k:
        raise Refused(f"rows of {row_bytes} codes do not match the depth {k}")
    read = [a, codes, scale, *given]
    grain = max(16 if rows > 4 else 2, 65536 // max(row_bytes * -(-rows // 4), 1))
    native_loop(e, op.name, f"coded_product_{isa}", [*read, out], [out], numbers, n, grain)


def zero_points(e: CpuEmitter, op: Any, points: Value | None) -> tuple[list[Value], int]:
    """Returns the zero-point operand, if any, and the argument of the loops: the constant zero point, or -1 with an operand."""
    return ([], 1 << (op.bits - 1)) if points is None else ([e.row_major(points)], -1)


def aligns_with_parts(e: CpuEmitter, op: Any, scale: Value) -> bool:
    """Returns True if the processor has VNNI and quantization blocks align with parts of a vector of codes."""
    per_vector, block = VECTOR_BITS // op.bits, op.block_size
    halves = block >= MIN_PART and per_vector % block == 0
    return "avx512_vnni" in e.features and (halves or block % per_vector == 0 or scale.lens[1] == 1)


def emit_8bit(e: CpuEmitter, op: Any, a: Value, codes: Value, scale: Value, points: Value | None, out: Value) -> None:
    """Emits a product with activations quantized to 8 bits, with VNNI."""
    *outer, k = a.lens
    rows, (n, row_bytes), blocks = prod(outer), codes.lens, scale.lens[1]
    per_vector = VECTOR_BITS // op.bits
    part = op.block_size if blocks > 1 and op.block_size < per_vector else per_vector
    count = -(-k // per_vector)
    units = e.allocate(dt.uint8, [rows, count, VECTOR_BITS // op.bits + TABLE_BYTES])
    given, point = zero_points(e, op, points)
    numbers = [rows, k, blocks, op.block_size, row_bytes, n, point, count, part]
    loop = f"coded_bytes_{op.bits}"
    native_loop(e, "round", f"{loop}_round", [a, units], [units], numbers, rows, max(1, GRAIN_BYTES // k))
    read = [units, codes, scale, *given]
    if rows == 1:
        native_loop(e, op.name, f"{loop}_row", [*read, out], [out], numbers, n, max(4, STREAM_BYTES // row_bytes))
    else:
        native_loop(e, op.name, f"{loop}_panels", [*read, out], [out], numbers, -(-n // WIDTH), 1)


def fills_units(e: CpuEmitter, op: Any, codes: Value, scale: Value) -> bool:
    """Returns True if each unit of 128 4-bit codes is part of one block or, with VNNI, consists of whole blocks."""
    blocks, per_vector = scale.lens[1], 2 * codes.lens[1]
    parts = op.block_size in PART_SIZES and "avx512_vnni" in e.features
    return per_vector >= blocks * op.block_size and (blocks == 1 or parts or op.block_size % UNIT == 0)


def emit_one_row(
    e: CpuEmitter, op: Any, a: Value, codes: Value, scale: Value, points: Value | None, out: Value
) -> None:
    """Emits a one-row product with 4-bit codes: activations as 24-bit integers for VNNI."""
    (n, row_bytes), blocks, k = codes.lens, scale.lens[1], a.lens[-1]
    per_vector = -(-blocks * op.block_size // UNIT)
    units = e.allocate(dt.uint8, [2, per_vector, UNIT_BYTES])  # [1] holds rounding errors of [0] if they matter
    given, point = zero_points(e, op, points)
    isa = "vnni" if "avx512_vnni" in e.features else "avx2"
    native_loop(e, "units", f"coded_units_{isa}", [a, units], [units], [k, point, per_vector], per_vector, per_vector)
    numbers = [k, blocks, op.block_size, row_bytes, point]
    grain = max(4, STREAM_BYTES // row_bytes)
    native_loop(e, op.name, f"coded_row_{isa}", [a, units, codes, scale, *given, out], [out], numbers, n, grain)


def emit_panels(e: CpuEmitter, op: Any, a: Value, codes: Value, scale: Value, points: Value | None, out: Value) -> None:
    """Emits a many-row product that dequantizes panels of columns into the L1 cache, from which all rows read them."""
    *outer, k = a.lens
    given, point = zero_points(e, op, points)
    n, row_bytes = codes.lens
    numbers = [prod(outer), k, scale.lens[1], op.block_size, row_bytes, n, op.bits, point]
    native_loop(e, op.name, "coded_panels_avx512", [a, codes, scale, *given, out], [out], numbers, -(-n // WIDTH), 1)


def fills_tiles(e: CpuEmitter, codes: Value, scale: Value) -> bool:
    """Returns True if the processor has bfloat16 tiles and the codes' offsets fit in 32 bits."""
    places = 16 * max(codes.lens[1], scale.lens[1])
    return native().multiplies_tiles() and "amx_bf16" in e.features and places < 1 << 31


def emit_tiles(e: CpuEmitter, op: Any, a: Value, codes: Value, scale: Value, points: Value | None, out: Value) -> None:
    """Emits a many-row product on AMX tiles, with floats split into three bfloat16 terms."""
    *outer, k = a.lens
    rows, (n, row_bytes), blocks = prod(outer), codes.lens, scale.lens[1]
    depth, tall = blocks * op.block_size, -(-rows // 64) * 64
    if row_bytes * 2 < depth:
        raise Refused(f"rows of {row_bytes} bytes do not hold {depth} 4-bit codes")
    pieces = e.allocate(dt.uint16, [depth // 32, tall // 16, 3, 16, 32])
    numbers = [rows, k, k, tall, depth]
    native_loop(e, "pieces", "coded_pieces_amx", [a, pieces], [pieces], numbers, tall, 16)
    given, point = zero_points(e, op, points)
    numbers = [rows, tall, blocks, op.block_size, row_bytes, n, n, point, k]
    native_loop(e, op.name, "coded_product_amx", [pieces, codes, scale, *given, out], [out], numbers, -(-n // 16), 4)
