"""Dynamic quantization: activations are quantized over their range in each run, without calibration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import numpy as np

from ..ir.instruction import Instruction
from ..ir.module import Module, nested
from ..ops.compare import Equal
from ..ops.convert import Convert
from ..ops.linear import Dot
from ..ops.pointwise import Clip, Div, Max, Min, Nearbyint, Sub, Where
from ..ops.quantized import Dequantizelinear, Quantizelinear
from ..ops.reduce import ReduceMax, ReduceMin
from ..ops.reshape import Reshape
from ..rules.outline import through_views
from ..types import dtype as dt
from .config import Quantizable, QuantizeConfig
from .products import candidates, name_of, names_in, prepare_chosen, quantize_weights, swept
from .record import Layer, QuantizeReport, emptied

__all__ = ["quantize_dynamic"]

P = TypeVar("P", bound=Quantizable)


def quantize_dynamic(
    program: P,
    ins_names: Iterable[str] = (Dot.name,),
    skip: Iterable[str] = (),
    names: Iterable[str] = (),
    per_channel: bool = True,
    report: QuantizeReport | None = None,
) -> P:
    """Quantizes products with constant weights to int8; the other operand's range is computed in each run.

    names: products to quantize, by parts of their source names, all if empty; skip: products to leave in float.  Modifies and
    returns the program.
    """
    config = QuantizeConfig(
        ops=names_in(ins_names, "ins_names"),
        names=names_in(names, "names"),
        skip=names_in(skip, "skip"),
        per_channel=per_channel,
    )
    kept = emptied(report)
    main = program.get_main_module()
    before = prepare_chosen(main, config)
    for module in nested(main):
        _quantize_module(module, config, kept)
    kept.bytes = before, swept(main)
    program.executable = None
    return program


def _quantize_module(module: Module, config: QuantizeConfig, kept: QuantizeReport) -> None:
    """Quantizes the products of one module; appends them to the report."""
    wide: dict[Instruction, Instruction] = {}
    for ins, reason in candidates(module, config):
        why = reason
        if not why and not through_views(ins.inputs[1]).is_literal:
            why = "its weights are not constant"
        layer = Layer(name_of(ins), ins.op.name, kept=why)
        kept.layers.append(layer)
        if why:
            continue
        layer.noise, _ = quantize_weights(module, ins, dt.int8, config.per_channel)
        x, *rest = ins.inputs
        if x not in wide:
            wide[x] = _over_own_range(module, x, ins)
        module.rewire(ins, [wide[x], *rest])


def _over_own_range(main: Module, x: Instruction, before: Instruction) -> Instruction:
    """Quantizes x to uint8 over its own range, extended to include 0.  Source: ONNX DynamicQuantizeLinear-11."""

    def add(op: object, *inputs: Instruction) -> Instruction:
        return main.add(op, *inputs, before=before, sources=x.sources)  # type: ignore[arg-type]

    def number(value: float) -> Instruction:
        return main.add_literal(np.array(value, np.float32), before=before)

    given = x if x.shape.dtype is dt.float32 else add(Convert(target_type=dt.float32), x)
    zero = number(0.0)
    high = add(Max(), add(Reshape(dims=()), add(ReduceMax(), given)), zero)
    low = add(Min(), add(Reshape(dims=()), add(ReduceMin(), given)), zero)
    span = add(Div(), add(Sub(), high, low), number(255.0))
    scale = add(Where(), add(Equal(), high, low), number(1.0), span)
    point = add(Clip(), add(Nearbyint(), add(Sub(), zero, add(Div(), low, scale))), zero, number(255.0))
    zero_point = add(Convert(target_type=dt.uint8), point)
    narrow = add(Quantizelinear(out_type=dt.uint8), given, scale, zero_point)
    return add(Dequantizelinear(out_type=x.shape.dtype), narrow, scale, zero_point)
