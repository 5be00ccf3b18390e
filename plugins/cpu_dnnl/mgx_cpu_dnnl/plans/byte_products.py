"""Registers plans for int8 products and convolutions with constant weights: for the single op, and for groups around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mgx_core import Kernels, Module, No, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.control import Group
from mgx_core.ops.quantized_product import QuantConvolution, QuantDot
from mgx_core.targets.group_checks import around
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value

from ..emitter import CpuEmitter
from ..native_library import native
from .loops import allocate_results
from .offer import Check, offer
from .packed_products import EmitFused, Prepare, extent, group_of_product, innermost

__all__ = ["with_epilogue", "offer_bytes"]

if TYPE_CHECKING:
    from ..jit.gemm_epilogue import Product
    from ..jit.kernel import JitKernel


def offer_bytes(plans: Kernels, name: str, fits: Check, prepare: Prepare) -> None:
    """Registers plans for products and convolutions that `fits` accepts, alone and with a pointwise epilogue."""

    @offer(plans, QuantDot, QuantConvolution, when=fits, name=name)
    def emit_product(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
        (found,) = prepare(e, op, args)(None, 0, ())
        return found

    @offer(plans, Group, when=around(QuantDot, QuantConvolution, when=fits), name=name)
    def emit_group(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
        given = [a for a in args if a is not None]
        return group_of_product(e, modules[0], given, (QuantDot, QuantConvolution), prepare)


def with_epilogue(
    e: CpuEmitter,
    rows: Shape,
    given: Sequence[Value],
    lens: Sequence[int],
    axis: int,
    settings: Any,
    compiled: Callable[[Product], JitKernel | No],
    label: str,
) -> EmitFused:
    """Returns the function that emits a kernel with its epilogue.

    rows: shape of the left matrix; given: the kernel's operands; lens: extents of the sums; axis: their columns;
    settings: cache key of everything that `compiled` depends on besides its argument and the shape of the first operand.
    """
    n = lens[axis]

    def emit(body: Module | None, at: int, extra: Sequence[Value]) -> list[Value]:
        from ..jit.gemm_epilogue import Product

        shapes = [Shape(dt.int32, lens)] if body is None else [o.shape for o in body.outputs]
        results = [innermost(s, axis) for s in shapes]
        if any(extent(r, axis) != n for r in results):
            raise Refused(f"the epilogue changes the {n} columns of the product: results {results}")
        threads = e.threads or native().thread_count()
        others = [v.shape for v in extra]
        about = settings, at, threads, axis, e.fast_math
        shapes = [given[0].shape, *results, *others]
        product = Product(rows, n, results, body, at, others, threads, axis)
        kernel = e.shared.kernels.kernel(body, about, shapes, lambda: compiled(product))
        operands = [*given, *extra]
        outs = allocate_results(e, kernel, operands, results)
        e.loop(kernel, operands, outs, label)
        return outs

    return emit
