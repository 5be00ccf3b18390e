"""Products of one row with constant weights (GEMV) with their epilogue, as decoders run them for each token."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from mgx_core import Kernels, Module, No, Shape
from mgx_core.errors import Refused
from mgx_core.ops.control import Group
from mgx_core.ops.linear import Dot
from mgx_core.targets.group_checks import around
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value

from ..codegen.gemv import TYPES, gemv
from ..codegen.generators import Inputs
from ..codegen.source import DeviceTraits, KernelSource, Tensor
from ..emitter import GpuEmitter
from ..join_rows import MIN_WEIGHTS
from .offer import offer
from .product_groups import ProductGroup, group_results

__all__ = ["PLANS", "operands_of_row"]

PLANS = Kernels("gpu")


def write(
    op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits, modules: Sequence[Module] = ()
) -> KernelSource | No:
    if not modules:
        return gemv(xs, ys, None, traits)
    given = xs[2:]
    after = ProductGroup.fixed(modules[0], given).finish(given, ys[0].lens, 2)
    return gemv(xs, ys, after, traits)


@offer(PLANS, Dot, name="single row")
def emit_single(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    """Emits one launch."""
    x, w = args
    given = operands_of_row(e, x, w)
    out = e.allocate(x.shape.dtype, [*x.lens[:-1], w.lens[-1]])
    e.kernel(write, op, (), given, [out])
    return out


@offer(PLANS, Group, name="single row", when=around(Dot, tag=Dot.name))
def emit_group(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    """Emits one launch with the epilogue."""
    group = ProductGroup.of(modules[0])
    if any(o.shape.lens() != group.joint.shape.lens() for o in group.body.outputs):
        raise Refused("the extents of the results differ from the product's")
    (x, w), _ = group.operands(e, args)
    given = [*operands_of_row(e, x, w), *group.epilogue_args(args)]
    results, outs = group_results(e, group.body)
    e.kernel(write, op, modules, given, outs)
    return results


def operands_of_row(e: GpuEmitter, x: Value | None, w: Value) -> list[Value]:
    """Returns the row, if it is given, and the weights as rows [n, k].  Errors: Refused."""
    if x is not None and prod(x.lens[:-1]) != 1:
        raise Refused(f"one row is required, got {prod(x.lens[:-1])}")
    if w.shape.dtype not in TYPES or (x is not None and x.shape.dtype is not w.shape.dtype):
        raise Refused(
            f"the kernel does not multiply {w.shape.dtype if x is None else x.shape.dtype} and {w.shape.dtype}"
        )
    if prod(w.lens[-2:]) < MIN_WEIGHTS:
        raise Refused("the weights are too small for memory bandwidth to dominate")
    flat_weights = w.view_at(0, Shape(w.shape.dtype, w.lens[-2:], w.strides[-2:]))
    rows = e.derived_constant(flat_weights, ("rows of columns, not padded",), lambda a: np.swapaxes(a, -1, -2))
    if rows is None:
        raise Refused("the weights are not constant")
    return [rows] if x is None else [e.aligned(e.row_major(x)), rows]
