"""Settings of quantization, and what was done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, TypeAlias

from ..errors import ParameterError
from ..ir.module import Module
from ..ops.convolution import Convolution
from ..ops.linear import Dot
from ..ops.operation import Operation

__all__ = [
    "PRODUCTS",
    "Calibration",
    "Layer",
    "Metric",
    "Quantizable",
    "QuantizeConfig",
    "QuantizeReport",
    "Range",
    "emptied",
]

Calibration: TypeAlias = Iterable[Mapping[str, Any]]
Range: TypeAlias = Literal["max", "percentile", "entropy", "mse"]


class Quantizable(Protocol):
    """A program: modules that are changed, and what they were compiled to, which is dropped."""

    executable: Any

    def get_main_module(self) -> Module: ...

    def clone(self) -> Any: ...

    def get_parameter_shapes(self) -> Any: ...


BY_NAME: Final = {cls.name: cls for cls in (Dot, Convolution)}
PRODUCTS: Final = frozenset(BY_NAME)
TYPES: Final = {"activations": ("uint8", "int8", "float8_e4m3fn"), "weights": ("int8", "float8_e4m3fn")}

Metric: TypeAlias = Callable[[Any], float]  # of a compiled program: larger is better


@dataclass(frozen=True)
class QuantizeConfig:
    """Settings: the types, how ranges are chosen, which products are quantized.

    activations: type of what products read: ``uint8`` with a zero point, ``int8`` or ``float8_e4m3fn`` without; weights: their
    type; per_channel: a scale for each row of results, else one for all weights of a product; ranges: how a tensor's range is
    chosen from what calibration saw: everything (``max``), all but `percentile` percent at the ends, the least divergence
    (``entropy``) or the least squared error (``mse``); ops: names of the ops that are quantized; skip: source names (or parts of
    them) of those that are not.
    """

    activations: Literal["uint8", "int8", "float8_e4m3fn"] = "uint8"
    weights: Literal["int8", "float8_e4m3fn"] = "int8"
    per_channel: bool = True
    ranges: Range = "max"
    percentile: float = 99.99
    ops: frozenset[str] = PRODUCTS
    skip: frozenset[str] = frozenset()

    @property
    def classes(self) -> tuple[type[Operation], ...]:
        """The classes of `ops`."""
        return tuple(BY_NAME[name] for name in sorted(self.ops))

    def __post_init__(self) -> None:
        for use, name in (("activations", self.activations), ("weights", self.weights)):
            if name not in TYPES[use]:
                raise ParameterError(f"{use} must be {' or '.join(TYPES[use])}, got {name!r}")
        if self.ranges not in ("max", "percentile", "entropy", "mse"):
            raise ParameterError(f"ranges must be max, percentile, entropy or mse, got {self.ranges!r}")
        if not 50 < self.percentile <= 100:
            raise ParameterError(f"percentile must lie between 50 and 100, got {self.percentile}")
        unknown = set(self.ops) - PRODUCTS
        if unknown or not self.ops:
            known, got = " and ".join(sorted(PRODUCTS)), ", ".join(sorted(unknown)) or "none"
            raise ParameterError(f"ops must be of {known}, got {got}")
        if (self.activations == "float8_e4m3fn") != (self.weights == "float8_e4m3fn"):
            raise ParameterError(f"activations of {self.activations} do not go with weights of {self.weights}")


@dataclass
class Layer:
    """One product: where it came from, and what became of it.

    low, high: range of its left operand; noise: ratio of signal to noise of its weights in decibel; kept: why it stays float.
    """

    name: str
    op: str
    low: float = 0.0
    high: float = 0.0
    noise: float = 0.0
    kept: str = ""


@dataclass
class QuantizeReport:
    """Record of a quantization, layer by layer; filled by `quantize`.

    accuracy: of the program before and after, where a metric was given; bytes: of its constants before and after.
    """

    layers: list[Layer] = field(default_factory=list)
    accuracy: tuple[float, float] | None = None
    bytes: tuple[int, int] = (0, 0)

    def text(self) -> str:
        """A table for the terminal."""
        lines = [f"{'layer':40} {'op':12} {'low':>10} {'high':>10} {'SQNR dB':>8}  left in float because"]
        lines += [
            f"{x.name[:40]:40} {x.op:12} {x.low:10.4g} {x.high:10.4g} {x.noise:8.1f}  {x.kept}" for x in self.layers
        ]
        lines.append(f"constants: {self.bytes[0]} bytes before, {self.bytes[1]} after")
        if self.accuracy is not None:
            lines.append(f"accuracy: {self.accuracy[0]:.6g} before, {self.accuracy[1]:.6g} after")
        return "\n".join(lines)

    def html(self) -> str:
        """The same as a page."""
        from html import escape

        cells = "".join(
            f"<tr><td>{escape(x.name)}</td><td>{escape(x.op)}</td><td>{x.low:.4g}</td><td>{x.high:.4g}</td>"
            f"<td>{x.noise:.1f}</td><td>{escape(x.kept)}</td></tr>"
            for x in self.layers
        )
        head = "".join(f"<th>{t}</th>" for t in ("layer", "op", "low", "high", "SQNR (dB)", "left in float because"))
        facts = "<br>".join(escape(line) for line in self.text().splitlines()[len(self.layers) + 1 :])
        return (
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>Quantization</title>'
            f"<h1>Quantization</h1><p>{facts}</p><table><tr>{head}</tr>{cells}</table></html>"
        )


def emptied(report: QuantizeReport | None) -> QuantizeReport:
    """A report to fill: the given one, without what an earlier quantization left there, or a new one."""
    if report is None:
        return QuantizeReport()
    report.layers.clear()
    report.accuracy, report.bytes = None, (0, 0)
    return report
