"""Conversion between element types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np

from ..errors import ParameterError
from ..types.argument import Array
from ..types.dtype import DType, float8_e8m0fnu
from ..types.shape import Shape
from .declaration import op
from .elementwise import Pointwise
from .scalar import Cast, convert, widen, x0

__all__ = ["SATURATING", "Convert", "RoundMode", "cast"]

RoundMode = Literal["up", "down", "nearest"]
SATURATING: Final = frozenset({"float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"})


@op("convert", scalar=Cast(x0, "target_type"), accepts="biufcs")
class Convert(Pointwise):
    """Converts to another element type.

    Floats round to nearest even, truncate to integers; integers keep the low bits.  `saturate`: values that exceed
    an 8-bit float become its largest value instead of NaN or infinity.  `round_mode`: rounding to powers of two
    (float8_e8m0fnu).  Strings hold numbers as decimal text.
    Errors: ParameterError at run time for text that is not a number.  Source: ONNX Cast-28.
    """

    target_type: DType
    saturate: bool = True
    round_mode: Literal["up", "down", "nearest"] = "up"

    def result_dtype(self, xs: Sequence[Shape]) -> DType:
        return self.target_type

    def compute(self, x: Array) -> Array:  # type: ignore[override]
        return cast(x, self.target_type, self.saturate, self.round_mode)


def cast(x: Array, to: DType, saturate: bool = True, round_mode: RoundMode = "up") -> Array:
    """Returns `x` as type `to` by the rules of `Convert`."""
    if x.dtype == to.numpy:
        return x
    if x.dtype.kind == "O":
        return _from_text(x, to, saturate, round_mode)
    if to.kind == "s":
        return _to_text(x)
    if x.dtype.kind == "c" and to.kind not in "bc":
        x = x.real
    if to is float8_e8m0fnu:
        return _to_power_of_two(x, saturate, round_mode)
    if saturate and to.name in SATURATING:
        wide = widen(x)
        wide = wide.astype(np.float32) if wide.dtype.kind in "biu" else wide
        return np.clip(wide, to.lowest, to.highest).astype(to.numpy)
    return convert(x, to)


def _to_power_of_two(x: Array, saturate: bool, round_mode: RoundMode) -> Array:
    wide = widen(x)
    wide = np.abs(wide.astype(np.float64))  # the sign is lost: results for negative numbers are unspecified
    mantissa, exponent = np.frexp(wide)  # mantissa in [1/2, 1), 0 for 0
    step = {"up": mantissa > 0.5, "down": False, "nearest": mantissa >= 0.75}[round_mode]
    power = np.where(wide == 0, -1000, np.where(np.isinf(wide), 1000, exponent - 1 + step))
    code = np.clip(power, -127, 127) + 127
    if not saturate:
        code = np.where(np.abs(power) > 127, 255, code)
    code = np.where(np.isnan(wide), 255, code).astype(np.uint8)
    return code.view(float8_e8m0fnu.numpy)


def _to_text(x: Array) -> Array:
    wide = widen(x)
    flat = (wide.astype(np.int8) if wide.dtype.kind == "b" else wide).reshape(-1)
    return np.array([str(v) for v in flat], dtype=object).reshape(x.shape)


def _from_text(x: Array, to: DType, saturate: bool, round_mode: RoundMode) -> Array:
    if to.is_integer or to.kind == "b":
        flat: list[Any] = [_integer(text) for text in x.reshape(-1)]
        span = 1 << to.bits
        if to.kind == "b":
            flat = [v != 0 for v in flat]
        elif to.kind == "i":
            flat = [(v + span // 2) % span - span // 2 for v in flat]
        else:
            flat = [v % span for v in flat]
        return np.array(flat, dtype=to.accumulate).astype(to.numpy).reshape(x.shape)
    numbers = np.array([_number(text) for text in x.reshape(-1)], dtype=np.float64).reshape(x.shape)
    return cast(numbers, to, saturate, round_mode)


def _number(text: Any) -> float:
    try:
        if "_" in str(text):
            raise ValueError
        return float(str(text))
    except ValueError:
        raise ParameterError(f"the text {str(text)[:40]!r} is not a number") from None


def _integer(text: Any) -> int:
    word = str(text).strip()
    if word.lower() in ("true", "false"):
        return int(word.lower() == "true")
    if word[word[:1] in "+-" :].isdecimal() and len(word) < 40:
        return int(word)
    number = _number(word)
    if not np.isfinite(number):
        raise ParameterError(f"the text {word[:40]!r} is not an integer")
    return int(number)
