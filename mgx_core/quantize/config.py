"""Settings of quantization."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias

from ..errors import ParameterError
from ..ir.module import Module
from ..ops.convolution import Convolution
from ..ops.linear import Dot
from ..ops.operation import Operation
from ..records import dataclass

__all__ = ["PRODUCTS", "Calibration", "Metric", "Quantizable", "QuantizeConfig", "Range"]

Calibration: TypeAlias = Iterable[Mapping[str, Any]]
Range: TypeAlias = Literal["max", "percentile", "entropy", "mse"]


class Quantizable(Protocol):
    """The interface of a program to quantize: its modules, which are modified, and its executable, which is dropped."""

    executable: Any

    def get_main_module(self) -> Module: ...

    def clone(self) -> Any: ...

    def get_parameter_shapes(self) -> Any: ...


BY_NAME: Final = {cls.name: cls for cls in (Dot, Convolution)}
PRODUCTS: Final = frozenset(BY_NAME)
TYPES: Final = {"activations": ("uint8", "int8", "float8_e4m3fn"), "weights": ("int8", "float8_e4m3fn")}

Metric: TypeAlias = Callable[[Any], float]  # of a compiled program; larger is better


@dataclass(frozen=True)
class QuantizeConfig:
    """Settings: types, range selection, and which products to quantize.

    activations: type of activations: ``uint8`` with a zero point, ``int8`` or ``float8_e4m3fn`` without; weights: their type;
    per_channel: one scale per output channel (for 8-bit floats only if the channels' largest weights differ 16-fold), else
    one per weight tensor; ranges: how calibrated ranges are chosen: the extremes (``max``), without `percentile` percent at
    the ends (``percentile``), minimal KL divergence (``entropy``) or minimal squared error (``mse``); ops: names of the ops
    to quantize; names: source names (or parts of them) of the products to quantize, all if empty; skip: of products to leave
    in float; smooth: migrate outlier channels of activations into the weights (SmoothQuant) where that reduces the error;
    correct_bias: correct the mean error that rounding the weights adds to results; functions: also round results of functions
    of products that have several readers, one of two convolution results that are added or multiplied, and with `tables` the
    inputs of expensive functions; tables: the target looks up functions of bytes, None: as the target says
    (`Target.byte_tables`); attention: quantize the two products of attention, None: if the target benefits
    (`Target.narrow_attention`).
    """

    activations: Literal["uint8", "int8", "float8_e4m3fn"] = "uint8"
    weights: Literal["int8", "float8_e4m3fn"] = "int8"
    per_channel: bool = True
    ranges: Range = "max"
    percentile: float = 99.99
    ops: frozenset[str] = PRODUCTS
    names: frozenset[str] = frozenset()
    skip: frozenset[str] = frozenset()
    smooth: bool = True
    correct_bias: bool = True
    functions: bool = True
    tables: bool | None = None
    attention: bool | None = None

    @property
    def classes(self) -> tuple[type[Operation], ...]:
        """The op classes named in `ops`."""
        return tuple(BY_NAME[name] for name in sorted(self.ops))

    def __post_init__(self) -> None:
        for use, given in (("ops", self.ops), ("names", self.names), ("skip", self.skip)):
            if isinstance(given, str) or not all(isinstance(name, str) and name for name in given):
                raise ParameterError(f"{use} must be a collection of names, none of them empty, got {given!r}")
        for use, name in (("activations", self.activations), ("weights", self.weights)):
            if name not in TYPES[use]:
                raise ParameterError(f"{use} must be {' or '.join(TYPES[use])}, got {name!r}")
        if self.ranges not in ("max", "percentile", "entropy", "mse"):
            raise ParameterError(f"ranges must be max, percentile, entropy or mse, got {self.ranges!r}")
        if not 50 < self.percentile <= 100:
            raise ParameterError(f"percentile must be above 50 and at most 100, got {self.percentile}")
        unknown = set(self.ops) - PRODUCTS
        if unknown or not self.ops:
            known, got = " and ".join(sorted(PRODUCTS)), ", ".join(sorted(unknown)) or "none"
            raise ParameterError(f"ops must be among {known}, got {got}")
        if (self.activations == "float8_e4m3fn") != (self.weights == "float8_e4m3fn"):
            raise ParameterError(f"activations of {self.activations} cannot be combined with weights of {self.weights}")
