"""Products of few rows with quantized weights (codes of 4 or 8 bits), in one launch that reads each code once."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from mgx_core import Instruction, Kernels, Module, No
from mgx_core.errors import Refused
from mgx_core.ops.coded_product import DequantDot
from mgx_core.ops.control import Group, PointwiseGroup
from mgx_core.ops.slice import Slice
from mgx_core.rules.outline import through_views
from mgx_core.targets.group_checks import tagged
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value

from ..codegen.bodies import flat
from ..codegen.coded_products import coded_product
from ..codegen.coded_tiles import lane_bytes, tiled_codes, tiled_numbers
from ..codegen.generators import Inputs, computing
from ..codegen.product_epilogue import product_epilogue
from ..codegen.source import DeviceTraits, KernelSource, Tensor
from ..emitter import GpuEmitter, tensor_of
from ..join_rows import CODED, MAX_ROWS
from .offer import offer
from .product_groups import group_results

__all__ = ["PLANS"]

PLANS = Kernels("gpu")


write = computing(coded_product)


@offer(PLANS, DequantDot, name="coded", write=write)
def emit_coded(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    """Emits one launch for few rows."""
    a, codes, *_ = args
    assert a is not None and codes is not None
    rows = prod(a.lens[:-1])
    if rows > MAX_ROWS:
        raise Refused(f"with {rows} rows a product with dequantized weights is faster")
    out = e.allocate(a.shape.dtype, [*a.lens[:-1], codes.lens[0]])
    e.kernel(write, op, (), _operands(e, op, args, 1), [out])
    return out


def _operands(e: GpuEmitter, op: DequantDot, args: Sequence[Value | None], parts: int) -> list[Value | None]:
    """Returns the kernel's operands: constant weights are packed into tiles where matrix units multiply them."""
    a, codes, scale, zero = (None if v is None else e.row_major(v) for v in (*args, None, None)[:4])
    assert a is not None and codes is not None and scale is not None
    plain = [a, codes, scale, zero]
    k = a.lens[-1]
    size = lane_bytes(op, a.shape.dtype, k, tensor_of(codes), zero is not None, e.context.traits)
    if size is None or codes.lens[0] % parts or tensor_of(a).align % 16:
        return plain
    used = k * op.bits // 8
    pieces = used // (4 * size)
    made = [
        e.derived_constant(
            codes, ("tiles", op.bits, size, used, parts), lambda c: tiled_codes(c, op.bits, size, used, parts)
        )
    ]
    for v in (scale, zero):
        numbers = ("tiles", pieces, parts)
        made.append(None if v is None else e.derived_constant(v, numbers, lambda c: tiled_numbers(c, pieces, parts)))
    if made[0] is None or made[1] is None or (zero is not None and made[2] is None):
        return plain
    return [a, *made]


def write_fused(
    op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits, modules: Sequence[Module]
) -> KernelSource | No:
    """xs: the operands of the product, None for absent ones, then those of the epilogue."""
    product, sums, tail = _members(modules[0])
    fixed = flat(tail.modules[0])
    parameters = list(fixed.parameters.values())
    joints = [parameters[tail.inputs.index(part)] for part in sums]
    return coded_product(product.op, xs, ys, traits, product_epilogue(fixed, joints, xs[4:], ys[0].lens, 4))


def _members(body: Module) -> tuple[Instruction, list[Instruction], Instruction]:
    """Returns the product, its result or slices of it in order, and the group that reads these."""
    product = next(i for i in body if isinstance(i.op, DequantDot))
    parts = sorted(
        ((i.op.starts, n, i) for n, i in enumerate(body) if isinstance(i.op, Slice) and i.inputs[0] is product)
    )
    return product, [i for *_, i in parts] or [product], next(i for i in body if isinstance(i.op, PointwiseGroup))


@offer(
    PLANS,
    Group,
    name="coded",
    when=tagged(CODED, "a product with quantized weights and its epilogue"),
    write=write_fused,
)
def emit_fused(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    """Emits one launch."""
    body = modules[0]
    product, sums, tail = _members(body)
    env: dict[Instruction, Any] = dict(zip(body.parameters.values(), args, strict=True))
    for ins in body:
        if ins not in env and ins not in sums and through_views(ins) is not ins:
            env[ins] = e.emit(ins, env)
    assert isinstance(product.op, DequantDot)
    operands = [None if i.is_absent else e.value_of(i, env) for i in product.inputs]
    given = _operands(e, product.op, operands, len(sums))
    given += [None if i in sums else e.value_of(i, env) for i in tail.inputs]
    results, outs = group_results(e, body)
    e.kernel(write_fused, op, modules, given, outs)
    return results
