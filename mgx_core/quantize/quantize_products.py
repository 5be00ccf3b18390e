"""Quantizes the products of a program over calibrated ranges."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ..ir.instruction import Instruction
from ..rules.outline import through_views
from ..types import dtype as dt
from ..types.argument import Array
from .concatenations import joined_ranges
from .config import Quantizable, QuantizeConfig
from .functions import Function, functions
from .pairs import Pair, pairs
from .products import add_bias, channel_axis, mean_shift, quantize_tensor, quantize_weights
from .ranges import Observer
from .record import QuantizeReport
from .smoothing import smooth

__all__ = ["TYPES", "functions_of", "operands", "pairs_of", "quantize_products"]

TYPES = {t.name: t for t in (dt.uint8, dt.int8, dt.float8_e4m3fn)}


def operands(ins: Instruction) -> list[Instruction]:
    """Returns the operands of a product, without constant weights."""
    return [x for x in ins.inputs[:2] if not through_views(x).is_literal]


def quantize_products(
    program: Quantizable,
    config: QuantizeConfig,
    report: QuantizeReport,
    seen: Mapping[Instruction, Observer],
    products: Iterable[tuple[Instruction, str]],
) -> None:
    """Quantizes every product that the report does not exclude."""
    main = program.get_main_module()
    types = TYPES[config.activations], TYPES[config.weights]
    chosen = {ins: layer for (ins, _), layer in zip(products, report.layers, strict=True) if not layer.kept}
    known = dict(seen)
    factors = smooth(main, list(chosen), config, types, known) if config.smooth else {}
    tensors = dict.fromkeys(t for ins in chosen for t in operands(ins))
    limits = {t: known[t].range(config.ranges, config.percentile, types[0]) for t in tensors}
    joined, parts = joined_ranges(limits)
    limits |= joined
    limits |= _around_functions(functions_of(chosen, tensors, config), limits, config, known)
    limits |= _of_pairs(pairs_of(chosen, limits, config), config, known)
    shifts: dict[Instruction, Array] = {}
    for ins, layer in chosen.items():
        left = ins.inputs[0]
        layer.low, layer.high = limits[left]
        layer.input_noise = known[left].noise(*limits[left], types[0])
        layer.histogram, layer.smoothed = known[left].histogram(), ins in factors
        if through_views(ins.inputs[1]).is_literal:
            layer.noise, error = quantize_weights(main, ins, types[1], config.per_channel, factors.get(ins))
            # the means may belong to the channels of another kind of product
            if config.correct_bias and known[left].axis == channel_axis(ins, left):
                shifts[ins] = mean_shift(ins, error, known[left].means)
    for tensor, (low, high) in limits.items():
        if tensor not in parts:
            quantize_tensor(main, tensor, low, high, types[0])
    for ins, shift in shifts.items():
        add_bias(main, ins, -shift)
    main.sweep()


def functions_of(
    products: Iterable[Instruction], tensors: Iterable[Instruction], config: QuantizeConfig
) -> list[Function]:
    """Returns the functions whose results, or operands too, are to be rounded, if enabled; tables are those of bytes."""
    if not config.functions:
        return []
    return functions(products, tensors, config.tables is not False and TYPES[config.activations].is_integer)


def pairs_of(products: Iterable[Instruction], tensors: Collection[Instruction], config: QuantizeConfig) -> list[Pair]:
    """Returns the pairs of operands of which one is to be rounded, if enabled."""
    return pairs(products, tensors) if config.functions else []


def _of_pairs(
    found: Iterable[Pair], config: QuantizeConfig, known: Mapping[Instruction, Observer]
) -> dict[Instruction, tuple[float, float]]:
    """Returns a range for one tensor of each pair, the one with the narrower range and so the smaller step."""
    to = TYPES[config.activations]
    made: dict[Instruction, tuple[float, float]] = {}
    for pair in found:
        ranges = {tensor: known[tensor].range(config.ranges, config.percentile, to) for tensor in pair}
        chosen = min(pair, key=lambda tensor: ranges[tensor][1] - ranges[tensor][0])
        made[chosen] = ranges[chosen]
    return made


def _around_functions(
    found: Iterable[Function],
    limits: Mapping[Instruction, tuple[float, float]],
    config: QuantizeConfig,
    known: Mapping[Instruction, Observer],
) -> dict[Instruction, tuple[float, float]]:
    """Returns ranges for the inputs of expensive functions, and for the results of functions that have none yet."""
    made: dict[Instruction, tuple[float, float]] = {}
    to = TYPES[config.activations]
    for function in found:
        results = limits.get(function.made)
        if results is None:
            observer = known.get(function.made) or known[function.read].mapped(function.values)
            results = observer.range(config.ranges, config.percentile, to)
            made[function.made] = results
        if function.costly:
            low, high = known[function.read].range(config.ranges, config.percentile, to)
            made[function.read] = function.range(low, high, results, to)
    return made
