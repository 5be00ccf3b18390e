"""Static quantization: ranges from calibration data, bytes or 8-bit floats in products."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf, isnan
from typing import Any, TypeVar

from ..errors import ParameterError
from ..ir.instruction import Instruction
from ..ops.convolution import Convolution
from ..plugins.manager import manager
from ..rules.outline import through_views
from ..types import dtype as dt
from ..types.argument import Array
from .calibrate import observe
from .config import PRODUCTS, Calibration, Metric, Quantizable, QuantizeConfig
from .functions import Function, functions
from .layer import Layer
from .products import (
    add_bias,
    candidates,
    constant_bytes,
    mean_shift,
    name_of,
    prepare,
    quantize_tensor,
    quantize_weights,
)
from .ranges import Observer
from .record import QuantizeReport, emptied
from .smoothing import smooth

__all__ = ["autocast_fp8", "quantize", "quantize_fp8", "quantize_int8"]

P = TypeVar("P", bound=Quantizable)
TYPES = {t.name: t for t in (dt.uint8, dt.int8, dt.float8_e4m3fn)}


def quantize(
    program: P,
    config: QuantizeConfig,
    calibration: Calibration,
    target: Any = None,
    report: QuantizeReport | None = None,
    accuracy: Metric | None = None,
    budget: float = 0.005,
) -> P:
    """Let the products of a program compute in narrow types over ranges that calibration shows; it is changed and returned.

    calibration: batches of inputs by name, taken one at a time; target: what they run on, else the best installed; report: is
    filled; accuracy: a number of a compiled program, larger is better: products that lose most stay float until no more than
    `budget` is lost.
    Errors: ParameterError without data, or for values that are not finite.
    """
    on = target_or_best(target)
    kept = emptied(report)
    main = program.get_main_module()
    prepare(main)
    before = constant_bytes(main)
    products = candidates(main, config)
    axes: dict[Instruction, int] = {}
    for ins, why in products:
        for tensor in [] if why else operands(ins):
            axes.setdefault(tensor, 1 if isinstance(ins.op, Convolution) else tensor.shape.rank - 1)
    for function in _functions_of([ins for ins, why in products if not why], axes, config):
        axes.setdefault(function.read, 1)
    seen = dict(zip(axes, observe(main, axes, calibration, on) if axes else [], strict=True))
    for ins, why in products:
        layer = Layer(name_of(ins), ins.op.name, kept=why)
        if ins.inputs[0] in seen:
            layer.low, layer.high = seen[ins.inputs[0]].range("max", 100, dt.float32)
            layer.histogram = seen[ins.inputs[0]].histogram()
        kept.layers.append(layer)
    if accuracy is not None:
        _search(program, config, kept, accuracy, budget, on, seen, products)
    else:
        apply(program, config, kept, seen, products)
    kept.bytes = before, constant_bytes(program.get_main_module())
    program.executable = None
    return program


def target_or_best(target: Any) -> Any:
    """A target that is given, else the best installed one."""
    return manager().target(manager().best_target()) if target is None else target


def operands(ins: Instruction) -> list[Instruction]:
    """The tensors that a product multiplies, without constant weights."""
    return [x for x in ins.inputs[:2] if not through_views(x).is_literal]


def apply(
    program: Quantizable,
    config: QuantizeConfig,
    report: QuantizeReport,
    seen: Mapping[Instruction, Observer],
    products: Iterable[tuple[Instruction, str]],
) -> None:
    """Quantizes every product whose layer in the report says nothing against it."""
    main = program.get_main_module()
    types = TYPES[config.activations], TYPES[config.weights]
    chosen = {ins: layer for (ins, _), layer in zip(products, report.layers, strict=True) if not layer.kept}
    known = dict(seen)
    factors = smooth(main, list(chosen), config, types, known) if config.smooth else {}
    tensors = dict.fromkeys(t for ins in chosen for t in operands(ins))
    limits = {t: known[t].range(config.ranges, config.percentile, types[0]) for t in tensors}
    limits |= _around_functions(_functions_of(chosen, tensors, config), limits, config, known)
    shifts: dict[Instruction, Array] = {}
    for ins, layer in chosen.items():
        left = ins.inputs[0]
        layer.low, layer.high = limits[left]
        layer.input_noise = known[left].noise(*limits[left], types[0])
        layer.histogram, layer.smoothed = known[left].histogram(), ins in factors
        if through_views(ins.inputs[1]).is_literal:
            layer.noise, error = quantize_weights(main, ins, types[1], config.per_channel, factors.get(ins))
            if config.correct_bias:
                shifts[ins] = mean_shift(ins, error, known[left].means)
    for tensor, (low, high) in limits.items():
        quantize_tensor(main, tensor, low, high, types[0])
    for ins, shift in shifts.items():
        add_bias(main, ins, -shift)
    main.sweep()


def _functions_of(
    products: Iterable[Instruction], tensors: Iterable[Instruction], config: QuantizeConfig
) -> list[Function]:
    """The functions whose results targets find in tables, if they may."""
    return functions(products, tensors) if config.functions and TYPES[config.activations].is_integer else []


def _around_functions(
    found: Iterable[Function],
    limits: Mapping[Instruction, tuple[float, float]],
    config: QuantizeConfig,
    known: Mapping[Instruction, Observer],
) -> dict[Instruction, tuple[float, float]]:
    """Ranges of what costly functions read, and of the results of functions where these have none yet."""
    made: dict[Instruction, tuple[float, float]] = {}
    to = TYPES[config.activations]
    for function in found:
        observer = known[function.read]
        low, high = observer.range(config.ranges, config.percentile, to)
        results = limits.get(function.made)
        if results is None:
            results = observer.mapped(function.values).range(config.ranges, config.percentile, to)
            made[function.made] = results
        if function.costly:
            made[function.read] = function.range(low, high, results, to)
    return made


def _search(
    program: Quantizable,
    config: QuantizeConfig,
    report: QuantizeReport,
    accuracy: Metric,
    budget: float,
    target: Any,
    seen: Mapping[Instruction, Observer],
    products: list[tuple[Instruction, str]],
) -> None:
    """Leaves the products in float without which the accuracy suffers most, as few as halving finds."""
    main = program.get_main_module()
    place = {ins: n for n, ins in enumerate(main)}
    open_ones = [n for n, (_, why) in enumerate(products) if not why]

    def tried(left: Iterable[int]) -> float:
        copy = program.clone()
        twins = list(copy.get_main_module())
        out = set(left)
        layers = [replace(x, kept=x.kept or ("left out" if n in out else "")) for n, x in enumerate(report.layers)]
        moved = {twins[place[t]]: o for t, o in seen.items()}
        apply(copy, config, QuantizeReport(layers), moved, [(twins[place[i]], why) for i, why in products])
        copy.compile(target)
        reached = float(accuracy(copy))
        return -inf if isnan(reached) else reached

    original = program.clone()
    original.compile(target)
    base = float(accuracy(original))
    reached = tried([])
    left: list[int] = []
    if not base - reached <= budget:
        alone = {n: tried(m for m in open_ones if m != n) for n in open_ones}
        order = sorted(open_ones, key=lambda n: alone[n])
        low, high = 1, len(order)
        while low < high:
            middle = (low + high) // 2
            if base - tried(order[:middle]) <= budget:
                high = middle
            else:
                low = middle + 1
        left = order[:high]
        reached = tried(left)
    for n in left:
        report.layers[n].kept = f"accuracy falls by {base - alone[n]:.4g} with it alone"
    report.accuracy = base, reached
    apply(program, config, report, seen, products)


def quantize_int8(
    program: P,
    target: Any = None,
    calibration: Calibration | None = None,
    ins_names: Iterable[str] = PRODUCTS,
    **settings: Any,
) -> P:
    """Let products compute in bytes: ``quantize_int8(program, data)``, or in MIGraphX's form ``(program, target, calibration)``.

    settings: fields of `QuantizeConfig`, and `report`, `accuracy` and `budget` of `quantize`.
    """
    return _static(program, target, calibration, ins_names, {"activations": "uint8", "weights": "int8"}, settings)


def quantize_fp8(
    program: P,
    target: Any = None,
    calibration: Calibration | None = None,
    ins_names: Iterable[str] = PRODUCTS,
    **settings: Any,
) -> P:
    """Let products compute in 8-bit floats (e4m3), in the call forms of `quantize_int8`.

    A target without products of that type rounds to it and multiplies in a wider one.
    """
    forms = {"activations": "float8_e4m3fn", "weights": "float8_e4m3fn"}
    return _static(program, target, calibration, ins_names, forms, settings)


def autocast_fp8(program: P) -> P:
    """Let parameters and results of 8-bit float types be float32; it is changed and returned.  Source: MIGraphX autocast_fp8."""
    from ..ops.convert import Convert

    main = program.get_main_module()
    outputs = [
        main.add(Convert(target_type=dt.float32), o) if o.shape.dtype.is_float and o.shape.dtype.bits == 8 else o
        for o in main.outputs
    ]
    main.replace_return(outputs)
    for ins in list(main.parameters.values()):
        dtype = ins.shape.dtype
        if dtype.is_float and dtype.bits == 8:
            readers = [(u, u.inputs) for u in ins.users]
            wide = ins.shape.with_dtype(dt.float32)
            main.replace_op(ins, ins.op.replace(shape=wide), wide)
            back = main.add(Convert(target_type=dtype), ins, before=ins.next)
            for user, inputs in readers:
                main.rewire(user, [back if i is ins else i for i in inputs])
    program.executable = None
    return program


def _static(
    program: P,
    target: Any,
    calibration: Calibration | None,
    ins_names: Iterable[str],
    forms: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> P:
    if calibration is None and target is not None and isinstance(target, Iterable):
        target, calibration = None, target
    if calibration is None:
        raise ParameterError("calibration data is required: batches of inputs, each a mapping from names to values")
    own = {n: settings[n] for n in ("report", "accuracy", "budget") if n in settings}
    rest = {n: v for n, v in settings.items() if n not in own}
    config = QuantizeConfig(ops=frozenset(ins_names), **{**forms, **rest})
    return quantize(program, config, calibration, target, **own)
