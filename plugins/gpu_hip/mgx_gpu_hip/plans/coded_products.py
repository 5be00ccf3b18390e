"""Products with coded weights for few rows, in one launch that reads the codes once."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from mgx_core import Kernels, Module, No
from mgx_core.errors import Refused
from mgx_core.ops.coded_product import DequantDot
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value

from ..codegen.coded_products import FEW, coded_product
from ..codegen.source import DeviceTraits, KernelSource, Tensor
from ..codegen.writing import Inputs, computing
from ..emitter import GpuEmitter
from .offer import offer

__all__ = ["PLANS"]

PLANS = Kernels("gpu")


def _written(op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits) -> KernelSource | No:
    return coded_product(op, xs, ys[0], traits)


write = computing(_written)


@offer(PLANS, DequantDot, name="coded", write=write)
def emit_coded(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    """Returns one launch for few rows."""
    a, codes, *_ = args
    assert a is not None and codes is not None
    rows = prod(a.lens[:-1])
    if rows > FEW:
        raise Refused(f"with {rows} rows a product with the whole weights is faster")
    given = [None if v is None else e.row_major(v) for v in args]
    out = e.allocate(a.shape.dtype, [*a.lens[:-1], codes.lens[0]])
    e.kernel(write, op, (), given, [out])
    return out
