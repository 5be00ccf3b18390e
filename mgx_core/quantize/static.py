"""Static quantization: products in 8-bit integers or floats, with ranges from calibration data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from operator import length_hint
from typing import Any, Final, TypeVar

from ..errors import ParameterError, suggestion
from ..ir.instruction import Instruction
from ..ir.module import Module, nested
from ..log import log
from ..ops.convert import Convert
from ..plugins.manager import manager
from ..types import dtype as dt
from .calibrate import observe, require_batches
from .config import PRODUCTS, Calibration, Metric, Quantizable, QuantizeConfig
from .pairs import CHANNELS
from .products import candidates, channel_axis, constant_bytes, name_of, names_in, prepare_chosen
from .quantize_products import functions_of, operands, pairs_of, quantize_products
from .record import Layer, QuantizeReport, emptied
from .search import Trials, leave_inaccurate, leave_slow

__all__ = ["autocast_fp8", "quantize", "quantize_fp8", "quantize_int8"]

P = TypeVar("P", bound=Quantizable)
FIELDS: Final = frozenset(f.name for f in fields(QuantizeConfig)) - {"ops"}  # passed as `ins_names`
OWN: Final = ("report", "accuracy", "budget", "only_faster")  # settings of `quantize` itself


def quantize(
    program: P,
    config: QuantizeConfig,
    calibration: Calibration,
    target: Any = None,
    report: QuantizeReport | None = None,
    accuracy: Metric | None = None,
    budget: float = 0.005,
    only_faster: bool = False,
) -> P:
    """Quantizes the products of a program over calibrated ranges; modifies and returns the program.

    calibration: batches of inputs by name, consumed one at a time; target: runs the calibration; None: the best installed one;
    report: is filled; accuracy: a metric of a compiled program, larger is better: the most sensitive products stay in float
    until the loss is at most `budget`; only_faster: also keeps products in float if the program does not run faster on the
    target with them quantized, timed on the first batch; see the layers' reasons and the report's `seconds`.
    Errors: ParameterError without data, or for non-finite values.
    """
    on = target_or_best(target)
    if config.tables is None:
        config = replace(config, tables=on.byte_tables)
    kept = emptied(report)
    main = program.get_main_module()
    before = prepare_chosen(main, config)
    products = candidates(main, config, on.narrow_attention if config.attention is None else config.attention)
    axes: dict[Instruction, int] = {}
    for ins, why in products:
        for tensor in [] if why else operands(ins):
            axes.setdefault(tensor, channel_axis(ins, tensor))
    for function in functions_of([ins for ins, why in products if not why], tuple(axes), config):
        if function.costly or function.made not in axes:  # otherwise only the range of its results is needed
            axes.setdefault(function.read, function.axis)
    for pair in pairs_of([ins for ins, why in products if not why], tuple(axes), config):
        axes |= dict.fromkeys(pair, CHANNELS)
    data = _Batches(calibration)
    seen = dict(zip(axes, observe(main, axes, data, on) if axes else [], strict=True))
    for ins, why in products:
        layer = Layer(name_of(ins), ins.op.name, kept=why)
        if not why and not all(seen[t].seen for t in operands(ins)):
            layer.kept = "its operands have no elements in the calibration data"
        observer = seen.get(ins.inputs[0])
        if observer is not None and observer.seen:
            layer.low, layer.high = observer.range("max", 100, dt.float32)
            layer.histogram = observer.histogram()
        kept.layers.append(layer)
    trials = Trials(program, config, kept, on, seen, products)
    if only_faster and trials.candidates:
        leave_slow(trials, data.first)
    if accuracy is not None:
        leave_inaccurate(trials, accuracy, budget)
    quantize_products(program, config, kept, seen, products)
    kept.layers += _layers_inside(main, config)
    kept.bytes = before, constant_bytes(program.get_main_module())
    program.executable = None
    return program


def _layers_inside(main: Module, config: QuantizeConfig) -> list[Layer]:
    """Returns the products of branches and loops, which stay in float, and warns of those that `config` chooses."""
    why = "it is in a branch or a loop, whose tensors are not calibrated"
    _, *inner = nested(main)
    found = [(i, reason) for m in inner for i, reason in candidates(m, config)]
    chosen = [i for i, reason in found if not reason]
    if chosen:
        log.warning(
            "%d products stay in float, as %r: %s (quantize_dynamic and quantize_int4_weights quantize products there)",
            len(chosen), name_of(chosen[0]), why,
        )  # fmt: skip
    return [Layer(name_of(i), i.op.name, kept=reason or why) for i, reason in found]


class _Batches:
    """Calibration data; stores its first batch during iteration."""

    def __init__(self, data: Calibration) -> None:
        require_batches(data)
        self._data = data
        self.first: Mapping[str, Any] = {}

    def __length_hint__(self) -> int:
        return length_hint(self._data, 1)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        for batch in self._data:
            self.first = self.first or batch
            yield batch


def target_or_best(target: Any) -> Any:
    """Returns the given target, or the best installed one."""
    return manager().target(manager().best_target()) if target is None else target


def quantize_int8(
    program: P,
    target: Any = None,
    calibration: Calibration | None = None,
    ins_names: Iterable[str] = PRODUCTS,
    **settings: Any,
) -> P:
    """Quantizes products to 8-bit integers; modifies and returns the program.

    Call it as ``quantize_int8(program, data)``, or like MIGraphX's with ``(program, target, calibration)``.
    settings: fields of `QuantizeConfig`, and `report`, `accuracy`, `budget` and `only_faster` of `quantize`.
    """
    return _static(program, target, calibration, ins_names, {"activations": "uint8", "weights": "int8"}, settings)


def quantize_fp8(
    program: P,
    target: Any = None,
    calibration: Calibration | None = None,
    ins_names: Iterable[str] = PRODUCTS,
    **settings: Any,
) -> P:
    """Quantizes products to 8-bit floats (e4m3); arguments as for `quantize_int8`.

    Targets without products of that type round operands to it and multiply in a wider type.
    """
    forms = {"activations": "float8_e4m3fn", "weights": "float8_e4m3fn"}
    return _static(program, target, calibration, ins_names, forms, settings)


def autocast_fp8(program: P) -> P:
    """Makes 8-bit float parameters and results float32; modifies and returns the program.  Source: MIGraphX autocast_fp8."""
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
    own = {n: settings[n] for n in OWN if n in settings}
    rest = {n: names_in(v, n) if n in ("names", "skip") else v for n, v in settings.items() if n not in own}
    for name in rest:
        if name not in FIELDS:
            raise ParameterError(f"there is no setting {name!r}; {suggestion(name, sorted({*FIELDS, *OWN}))}")
    config = QuantizeConfig(ops=names_in(ins_names, "ins_names"), **{**forms, **rest})
    return quantize(program, config, calibration, target, **own)
