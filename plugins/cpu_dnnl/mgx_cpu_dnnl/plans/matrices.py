"""Determinants and inverses of small matrices, and triangular systems, in native loops."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

from mgx_core import Kernels, Module
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.factorization import SolveTriangular
from mgx_core.ops.linear import Det, Inverse
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value

from ..emitter import CpuEmitter
from .native_loops import native_loop
from .offer import offer, only

__all__ = ["PLANS"]

PLANS = Kernels("cpu")
MOST: Final = 64  # rows: LAPACK, which computes in blocks, is faster for more
MIN_STEPS: Final = 16384  # minimum multiplications per thread
FLOATS: Final = frozenset({dt.float32, dt.float64})


@offer(PLANS, Det, Inverse, when=only(FLOATS), name="native")
def emit_elimination(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    x = e.row_major(args[0])
    *batch, n, columns = x.lens
    if not 0 < n == columns <= MOST:
        raise Refused(f"matrices of 1 to {MOST} rows are supported, got {n} x {columns}")
    inverts = isinstance(op, Inverse)
    out = e.allocate(x.dtype, x.lens if inverts else batch)
    if prod(batch):
        loop = f"inverse_{x.dtype}" if inverts else f"determinant_{x.dtype}"
        grain, scratch = max(1, MIN_STEPS // n**3), 8 * n * n * (1 + inverts)
        native_loop(e, op.name, loop, [x, out], [out], [n], prod(batch), grain, scratch)
    return out


@offer(PLANS, SolveTriangular, when=only(FLOATS), name="native")
def emit_solve(e: CpuEmitter, op: SolveTriangular, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    a, b = map(e.row_major, args)
    *batch, n, columns = b.lens
    out = e.allocate(b.dtype, b.lens)
    if prod(b.lens):
        flops = n * n * columns
        numbers = [n, columns, op.upper, op.unit]
        grain = max(1, 2 * MIN_STEPS // flops)
        native_loop(
            e,
            op.name,
            f"solve_triangular_{b.dtype}",
            [a, b, out],
            [out],
            numbers,
            prod(batch),
            grain,
            flops=prod(batch) * flops,
        )
    return out
