"""Products of few rows with quantized weights (codes of 4 or 8 bits), in one launch that reads each code once."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from mgx_core import Instruction, Kernels, Module, No, Shape
from mgx_core.errors import Refused
from mgx_core.ops.coded_product import DequantDot
from mgx_core.ops.control import Group, PointwiseGroup
from mgx_core.ops.slice import Slice
from mgx_core.targets.group_checks import tagged
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value

from ..codegen.coded_products import coded_product
from ..codegen.coded_tiles import lane_bytes, tiled_codes, tiled_numbers
from ..codegen.generators import Inputs, computing
from ..codegen.source import DeviceTraits, KernelSource, Tensor
from ..emitter import GpuEmitter, tensor_of
from ..join_rows import CODED, CODED_ROW, MAX_ROWS
from .offer import offer
from .product_groups import epilogue_of_parts, group_results, operand
from .row_groups import RowGroup

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
    tiled = None if tensor_of(a).align % 16 else _tiled(e, op, a.shape, (codes, scale, zero), parts)
    return [a, codes, scale, zero] if tiled is None else [a, *tiled]


def _tiled(
    e: GpuEmitter, op: DequantDot, a: Shape, weights: Sequence[Value | None], parts: int
) -> list[Value | None] | None:
    """Returns codes, scale and zero points in tiles; None if they are not constant or matrix units do not multiply them."""
    codes, scale, zero = weights
    assert codes is not None and scale is not None
    k = a.lens()[-1]
    size = lane_bytes(op, a.dtype, k, tensor_of(codes), zero is not None, e.context.traits)
    if size is None or codes.lens[0] % parts:
        return None
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
        return None
    return list(made)


def write_fused(
    op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits, modules: Sequence[Module]
) -> KernelSource | No:
    """Generates a product with its epilogue; xs: its operands, None for absent ones, then those of the epilogue."""
    product, sums, tail = _members(modules[0])
    return coded_product(product.op, xs, ys, traits, epilogue_of_parts(tail, sums, xs[4:], ys[0].lens, 4))


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
    assert isinstance(product.op, DequantDot)
    operands = [None if i.is_absent else operand(e, i, env) for i in product.inputs]
    given = _operands(e, product.op, operands, len(sums))
    given += [None if i in sums else operand(e, i, env) for i in tail.inputs]
    results, outs = group_results(e, body)
    e.kernel(write_fused, op, modules, given, outs)
    return results


def write_row_group(
    op: Any, xs: Inputs, ys: Sequence[Tensor], traits: DeviceTraits, modules: Sequence[Module]
) -> KernelSource | No:
    """Generates the kernel of a `RowGroup`.

    xs: the operands of the reduction, then codes, scale and zero points, None if absent, then those of the epilogue.
    """
    group = RowGroup.of(modules[0])
    assert group.reduction is not None
    before = len(group.reduction.inputs)
    prologue = group.prologue(modules[0], [x for x in xs[:before] if x is not None], ys)
    if isinstance(group.product.op, DequantDot):
        return coded_product(group.product.op, xs, ys, traits, None, prologue)
    product, sums, tail = _members(group.product.modules[0])
    after = epilogue_of_parts(tail, sums, xs[before + 3 :], ys[-1].lens, before + 3)
    return coded_product(product.op, xs, ys, traits, after, prologue)


@offer(
    PLANS,
    Group,
    name="coded row",
    when=tagged(CODED_ROW, "a product with quantized weights, its epilogue and the reduction that computes its row"),
    write=write_row_group,
)
def emit_row_group(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value]) -> Results:
    """Emits one launch."""
    body = modules[0]
    group = RowGroup.of(body)
    assert group.reduction is not None
    env: dict[Instruction, Any] = dict(zip(body.parameters.values(), args, strict=True))

    def value(ins: Instruction) -> Value | None:
        return None if ins.is_absent else operand(e, ins, env)

    product, inner, row = group.row
    assert isinstance(product.op, DequantDot)
    sums, tail = ([], None) if inner is body else _members(inner)[1:]
    if inner is not body:
        parameters = dict(zip(inner.parameters.values(), group.product.inputs, strict=True))
        read = [parameters[i] for i in ([] if tail is None else tail.inputs) if i in parameters]
        if any(group.result_index(i) is not None for i in read):
            raise Refused("the epilogue reads a result of the reduction, which would be a launch of its own")
        env |= {p: value(i) for p, i in parameters.items() if i is not row}
    weights = [None if v is None else e.row_major(v) for v in map(value, product.inputs[1:])]
    tiled = _tiled(e, product.op, product.inputs[0].shape, (*weights, None)[:3], max(len(sums), 1))
    if tiled is None:
        raise Refused("matrix units do not multiply these weights")
    given = [*map(value, group.reduction.inputs), *tiled]
    given += [None if i in sums else value(i) for i in ([] if tail is None else tail.inputs)]
    results, outs = group_results(e, body)
    e.kernel(write_row_group, op, modules, given, outs)
    return results
