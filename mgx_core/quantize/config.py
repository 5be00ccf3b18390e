"""Settings of quantization, and what was done."""

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
    (``entropy``) or the least squared error (``mse``); ops: names of the ops that are quantized; names: source names (or parts
    of them) of the products that are, all if empty; skip: of those that are not; smooth: let weights take over part of the size
    of channels of their left operand, where products lose less by it; correct_bias: take from products what the rounding of
    their weights adds to their mean; functions: round what costly functions of products read, too, so that targets find
    the results of bytes in tables, results of functions that are read in several places, and one of two results of convolutions
    that are added or multiplied; attention: quantize the two products of attention, None for those targets that gain by it
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
    attention: bool | None = None

    @property
    def classes(self) -> tuple[type[Operation], ...]:
        """The classes of `ops`."""
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
            raise ParameterError(f"percentile must lie between 50 and 100, got {self.percentile}")
        unknown = set(self.ops) - PRODUCTS
        if unknown or not self.ops:
            known, got = " and ".join(sorted(PRODUCTS)), ", ".join(sorted(unknown)) or "none"
            raise ParameterError(f"ops must be of {known}, got {got}")
        if (self.activations == "float8_e4m3fn") != (self.weights == "float8_e4m3fn"):
            raise ParameterError(f"activations of {self.activations} do not go with weights of {self.weights}")
