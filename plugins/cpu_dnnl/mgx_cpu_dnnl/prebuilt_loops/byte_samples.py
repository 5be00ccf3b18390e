"""Samples of products of bytes, and of bfloat16 in tiles: those that store their sums, and the epilogues of quantized files.

With a loop for their epilogue, the first serve before LLVM has compiled both.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

from mgx_core import Program, Shape
from mgx_core import dtype as dt
from mgx_core.types.dtype import DType
from mgx_cpu_dnnl.jit.bfloat16_gemm import compile_bfloat16_gemm
from mgx_cpu_dnnl.jit.byte_channels import Fours, compile_fours
from mgx_cpu_dnnl.jit.byte_gemm import compile_byte_gemm
from mgx_cpu_dnnl.jit.byte_pairs import WINDOW_NUMBERS, Windows, compile_channels, compile_filters, compile_pairs
from mgx_cpu_dnnl.jit.engine import Engine
from mgx_cpu_dnnl.jit.gemm_epilogue import Product

from .network import Network, Value

__all__ = ["byte_products"]

ROWS: Final = 64
MANY_ROWS: Final = 4096  # of which each tile reads all weights
COLUMNS: Final = (128, 80, 96, 112, 72, 88, 104, 120)  # last panels of all numbers of vectors, full and partial
DEPTHS: Final = (64, 62, 8192, 8190)  # in whole steps or not, of weights that fit into a near cache or do not


def byte_products(engine: Engine) -> None:
    """Compiles products and convolutions of all layouts that code is specialized for."""
    for columns, depth, left, tiled in product(COLUMNS, DEPTHS, (dt.uint8, dt.int8), (False, True)):
        compile_byte_gemm(_product(left, depth, columns), engine, tiled)
    if engine.wide:
        for columns, depth, rows in product(COLUMNS, (64, 62), (ROWS, MANY_ROWS)):
            compile_bfloat16_gemm(_product(dt.bfloat16, depth, columns, rows), engine)
    windows = Windows((1,) * WINDOW_NUMBERS, 3, 3, 9)
    for columns, left in product((128, 120, 92), (dt.uint8, dt.int8)):
        for depth, grouped, shape in product((64, 62, 8192), (1, 2), (None, windows)):
            compile_pairs(_product(left, depth, grouped * columns), engine, left is dt.int8, shape, grouped)
        compile_filters(_product(left, 64, columns), engine, windows, (1, 8, 8))
    for channels in (64, 56):
        compile_channels(_product(dt.uint8, channels, channels), engine, windows)
        compile_fours(_product(dt.uint8, channels, channels), engine, windows, Fours(True, 1, 3, 3, 1))
        for quantized in _quantized(channels, channels):
            compile_fours(quantized, engine, windows, Fours(True, 1, 3, 3, 1))
    for columns, depth in product(COLUMNS, (64, 8192)):
        for quantized in (*_quantized(depth, columns), *(_summed(depth, columns) if columns % 16 == 0 else ())):
            compile_byte_gemm(quantized, engine, tiled=False)


def _product(left: DType, depth: int, columns: int, rows: int = ROWS) -> Product:
    sums = dt.float32 if left.is_float else dt.int32
    return Product(Shape(left, [rows, depth]), columns, [Shape(sums, [rows, columns])])


def _quantized(depth: int, columns: int) -> Iterator[Product]:
    """Yields products of bytes whose sums are scaled, by column or by one number: with and without a bias, to floats or bytes."""
    for by_column, bias, to in product((True, False), (True, False), (dt.uint8, dt.float32)):
        n = Network()
        y = _scaled(n, columns, by_column, bias)
        yield _after(depth, columns, n.finished(y if to.is_float else _bytes(n, y, 0.05, 117.0)))


def _summed(depth: int, columns: int) -> Iterator[Product]:
    """Yields products whose results are quantized and added to other bytes, with and without a zero point, in both orders."""
    for by_column, first, zero in product((True, False), (True, False), (0.0, 121.0)):
        n = Network()
        made = _floats(n, _bytes(n, _scaled(n, columns, by_column, True), 0.02, 117.0), 0.02, 117.0)
        other = _floats(n, n.input(ROWS, columns, type="uint8"), 0.03, zero)
        terms = (made, other) if first else (other, made)
        yield _after(depth, columns, n.finished(_bytes(n, n.each("add", *terms), 0.05, 117.0)))


def _after(depth: int, columns: int, epilogue: Program) -> Product:
    body = epilogue.get_main_module()
    _, *others = (p.shape for p in body.parameters.values())
    to = body.outputs[0].shape
    return Product(Shape(dt.uint8, [ROWS, depth]), columns, [to], body, extra=others)


def _scaled(n: Network, columns: int, by_column: bool, bias: bool) -> Value:
    sums = n.add("convert", n.input(ROWS, columns, type="int32"), target_type=dt.float32)
    y = n.each("mul", sums, n.input(columns) if by_column else 0.003)
    return n.each("add", y, n.input(columns)) if bias else y


def _bytes(n: Network, x: Value, scale: float, zero: float) -> Value:
    """Returns floats quantized to bytes, as the decomposition of the op does."""
    whole = n.each("nearbyint", n.each("div", x, scale))
    codes = n.each("clip", n.each("add", whole, zero) if zero else whole, 0.0, 255.0)
    return n.add("convert", codes, target_type=dt.uint8)


def _floats(n: Network, x: Value, scale: float, zero: float) -> Value:
    codes = n.add("convert", x, target_type=dt.float32)
    return n.each("mul", n.each("sub", codes, zero) if zero else codes, scale)
