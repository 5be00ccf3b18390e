"""Quantized products: which there are, and how tensors and weights around them become bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compile.stages import RULES
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ops.convolution import Convolution
from ..ops.linear import Dot
from ..ops.quantized import Dequantizelinear, Quantizelinear
from ..ops.scalar import widen
from ..passes.fold_constants import FoldConstants
from ..passes.merge_common import MergeCommon
from ..passes.normalize import Normalize
from ..passes.rewrite import Rewrite
from ..rules.engine import ROUNDING
from ..rules.integer_products import NARROW_FLOAT_PRODUCTS
from ..rules.outline import through_views
from ..rules.selection import OPTIONAL
from ..types import dtype as dt
from ..types.argument import Argument, Array
from ..types.dtype import DType
from .config import QuantizeConfig

__all__ = ["candidates", "constant_bytes", "name_of", "prepare", "quantize_tensor", "quantize_weights"]


def prepare(main: Module) -> None:
    """Brings a program into the form in which weights are final: constants folded, factors and norms in the weights."""
    main.sweep()
    rules = RULES.within(ROUNDING).without([*OPTIONAL, *(r.name for r in NARROW_FLOAT_PRODUCTS.rules)])
    for one in (Normalize(), FoldConstants(), MergeCommon(), Rewrite(rules), FoldConstants()):
        one.apply(main)
        main.sweep()


def name_of(ins: Instruction) -> str:
    return ins.sources[0] if ins.sources else ins.op.name


def candidates(main: Module, config: QuantizeConfig) -> list[tuple[Instruction, str]]:
    """The products of a module, each with the reason for which it stays float, if there is one."""
    found = []
    for ins in main:
        if not isinstance(ins.op, (Dot, Convolution)):
            continue
        why = ""
        if not isinstance(ins.op, config.classes):
            why = f"{ins.op.name} is not among the chosen ops"
        elif any(part and any(part in s for s in ins.sources) for part in config.skip):
            why = "its name is to be skipped"
        elif ins.shape.dtype not in (dt.float32, dt.float16, dt.bfloat16):
            why = f"it computes in {ins.shape.dtype}"
        elif through_views(ins.inputs[0]).is_literal:
            why = "its left operand is constant"
        elif isinstance(ins.op, Convolution) and not ins.inputs[1].is_literal:
            why = "its weights are not constant"
        found.append((ins, why))
    return found


def constant_bytes(main: Module) -> int:
    return sum(i.shape.elements() * i.shape.dtype.bits // 8 for i in main if i.is_literal)


def quantize_tensor(main: Module, tensor: Instruction, low: float, high: float, to: DType) -> None:
    """Lets everything that reads a tensor read it as it is after rounding to `to` over its range."""
    scale, zero = scale_of(low, high, to)
    after = tensor.next if not tensor.is_param else next((i for i in main if not i.is_param), None)
    readers = [(u, u.inputs) for u in tensor.users if u.parent is main and not u.is_return]
    literals = [main.add_literal(Argument.from_value(np.array(scale, np.float32)))]
    if zero is not None:
        literals.append(main.add_literal(Argument.from_value(np.array(zero, to.numpy))))
    for one in literals:
        if after is not None:
            main.move(one, after)
    narrow = main.add(Quantizelinear(out_type=to), tensor, *literals, before=after, sources=tensor.sources)
    form = Dequantizelinear(out_type=tensor.shape.dtype)
    wide = main.add(form, narrow, *literals, before=after, sources=tensor.sources)
    for user, inputs in readers:
        main.rewire(user, [wide if i is tensor else i for i in inputs])


def scale_of(low: float, high: float, to: DType) -> tuple[float, int | None]:
    """Scale and zero point for a range that holds 0; a range of nothing but 0 has scale 1."""
    if to.is_float or to.kind == "i":
        most = max(-low, high)
        scale = most / float(to.highest)
        return (scale if scale > 1e-30 else 1.0), None
    span = (high - low) / float(to.highest - to.lowest)
    if span <= 1e-30:
        return 1.0, int(to.lowest)
    zero = round(float(to.lowest) - low / span)
    return span, int(min(max(zero, int(to.lowest)), int(to.highest)))


def quantize_weights(main: Module, product: Instruction, to: DType, per_channel: bool) -> float:
    """Puts dequantized narrow weights in the place of a product's constant right operand; returns their SQNR in decibel."""
    weights = product.inputs[1]
    source = through_views(weights)
    assert source.literal is not None
    value = widen(np.asarray(source.literal.value)).astype(np.float32)
    axis = 0 if isinstance(product.op, Convolution) else value.ndim - 1
    narrow, scale = rounded(value, axis if per_channel else None, to)
    values = main.add_literal(Argument.from_value(narrow))
    factors = main.add_literal(Argument.from_value(scale))
    before = product
    views: list[Instruction] = []
    at = weights
    while at is not source:
        views.append(at)
        at = at.inputs[0]
    for one in (values, factors):
        main.move(one, before)
    form = Dequantizelinear(axis=axis, out_type=weights.shape.dtype)
    made = main.add(form, values, factors, before=before, sources=product.sources)
    spread = scale.reshape([-1 if a == axis else 1 for a in range(value.ndim)]) if scale.ndim else scale
    wide = narrow.astype(np.float32) * spread
    for view in reversed(views):
        made = main.add(view.op, made, before=before, sources=view.sources)
    main.rewire(product, [product.inputs[0], made])
    return signal_to_noise(value, wide)


def rounded(value: Array, axis: int | None, to: DType) -> tuple[Array, Array]:
    """An array in a narrow type with one scale, or one an index of an axis."""
    others: Any = None if axis is None else tuple(a for a in range(value.ndim) if a != axis)
    most = np.abs(value).max(axis=others, keepdims=axis is not None) if value.size else np.zeros(())
    scale = np.where(most > 1e-30, most / float(to.highest), 1.0).astype(np.float32)
    quotient = value / scale
    if to.is_integer:
        quotient = np.clip(np.rint(quotient), -float(to.highest), float(to.highest))
    return quotient.astype(to.numpy), np.ascontiguousarray(scale.reshape(-1) if axis is not None else scale.reshape(()))


def signal_to_noise(wide: Array, narrow: Array) -> float:
    noise = float(((wide - narrow).astype(np.float64) ** 2).sum())
    signal = float((wide.astype(np.float64) ** 2).sum())
    return 10 * float(np.log10(signal / noise)) if noise and signal else 200.0
