"""Products of 8-bit floats through cublasLt or hipBLASLt: factors per column, bias, residual and activation in one call."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from mgx_core import Kernels, Module, No, Operation, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused, or_refused
from mgx_core.ops.control import Group
from mgx_core.ops.quantized_product import QuantDot
from mgx_core.targets.group_checks import around
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value
from mgx_core.types.dtype import DType
from mgx_core.types.shape import AnyShape

from ..emitter import LIBRARY_ALIGNMENT, GpuEmitter, has_traced
from ..library.gemm_problem import GemmProblem, Matrix
from .epilogues import Steps, read_group
from .narrow_products import narrow
from .offer import offer
from .products import FLOATS, timed_product

__all__ = ["PLANS"]

PLANS = Kernels("gpu")


def _floats(op: Operation, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    wrong = next((i.dtype for i in inputs if isinstance(i, Shape) and not i.dtype.is_float), None)
    return narrow(op, inputs, modules) if wrong is None else No(f"the library does not scale products of {wrong}")


@offer(PLANS, QuantDot, name="scaled library", when=_floats)
def emit_single(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    return _emit(e, op, args, Steps(), dt.float32)


@offer(PLANS, Group, name="scaled library", when=around(QuantDot, tag=QuantDot.name, when=_floats))
def emit_group(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    found = read_group(e, modules[0], args, QuantDot)
    return _emit(e, found.anchor.op, found.operands, found.epilogue, modules[0].outputs[0].shape.dtype)


def _emit(e: GpuEmitter, op: Any, args: Sequence[Any], epilogue: Steps, to: DType) -> Value:
    """Returns x [.., m, k] times w [k, n] in the type `to`.  Errors: Refused."""
    tuner = e.context.tuner
    if tuner is None or not e.measured or not (tuner.budget or e.exhaustive):
        raise Refused("it is only tried where kernels and library plans are timed")
    x, w, *zero_points = args
    if has_traced(x):
        raise Refused("the extents change with each run")
    if any(z is not None for z in zero_points):
        raise Refused("8-bit floats do not support zero points")
    if to not in FLOATS:
        raise Refused(f"the library does not store scaled sums as {to}")
    if any(n != 1 and s for n, s in zip(w.lens[:-2], w.strides[:-2], strict=True)):
        raise Refused("the weights differ between batches")
    lens = op.infer(*(Shape(v.shape.dtype, v.lens) for v in (x, w))).lens()
    if x.lens[:-1] != lens[:-1]:
        raise Refused("the left operand is broadcast")
    if 0 in lens or x.lens[-1] == 0:
        raise Refused("an extent is 0")
    m, k, n = prod(lens[:-1]), x.lens[-1], lens[-1]
    w = w.view_at(0, Shape(w.shape.dtype, w.lens[-2:], w.strides[-2:]))
    operands = dict(epilogue.operands)
    scaled = "b_scale" in operands
    residual = operands.get("residual")
    problem = GemmProblem(
        m,
        n,
        k,
        a=Matrix(x.shape.dtype, k, align=LIBRARY_ALIGNMENT),
        b=Matrix(w.shape.dtype, k, transposed=True, align=LIBRARY_ALIGNMENT),
        d=Matrix(to, n, align=LIBRARY_ALIGNMENT),
        residual=None if residual is None else Matrix(to, n, align=LIBRARY_ALIGNMENT),
        epilogue=tuple(epilogue.steps),
        alpha=epilogue.alpha,
        bias_dtype=to if "bias" in operands else None,
        scaled=scaled,
    )
    found = or_refused(timed_product(e, problem, compiled=False))
    if residual is not None:
        operands["residual"] = e.aligned(e.row_major(residual))
    for word in {"bias", "b_scale"} & operands.keys():
        column = operands[word].view_at(0, Shape(operands[word].shape.dtype, [n]))
        operands[word] = e.aligned(column)
    if scaled:
        operands["a_scale"] = e.literal(np.ones(m, np.float32))
    out = e.allocate(to, lens)
    a, b = e.aligned(e.row_major(x)), e.packed(w, [1, k])
    e.library(found.plan, "d", {"a": a, "b": b, "d": out, **operands})
    return out
