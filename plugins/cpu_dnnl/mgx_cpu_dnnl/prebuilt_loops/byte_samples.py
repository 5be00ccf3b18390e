"""Samples of products of bytes, and of bfloat16 in tiles, that store their sums.

With a loop for their epilogue, they serve before LLVM has compiled both.
"""

from __future__ import annotations

from itertools import product
from typing import Final

from mgx_core import Shape
from mgx_core import dtype as dt
from mgx_core.types.dtype import DType
from mgx_cpu_dnnl.jit.bfloat16_gemm import compile_bfloat16_gemm
from mgx_cpu_dnnl.jit.byte_channels import Fours, compile_fours
from mgx_cpu_dnnl.jit.byte_gemm import compile_byte_gemm
from mgx_cpu_dnnl.jit.byte_pairs import WINDOW_NUMBERS, Windows, compile_channels, compile_filters, compile_pairs
from mgx_cpu_dnnl.jit.engine import Engine
from mgx_cpu_dnnl.jit.gemm_epilogue import Product

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


def _product(left: DType, depth: int, columns: int, rows: int = ROWS) -> Product:
    sums = dt.float32 if left.is_float else dt.int32
    return Product(Shape(left, [rows, depth]), columns, [Shape(sums, [rows, columns])])
