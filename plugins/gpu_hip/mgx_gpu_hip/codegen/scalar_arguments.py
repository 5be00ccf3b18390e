"""Scalars of a kernel as arguments: layers that differ only in scales share a kernel, which is compiled once."""

from __future__ import annotations

import math
import re
from typing import Final

import numpy as np

__all__ = ["scalar_arguments"]

_KERNEL: Final = re.compile(
    r"^(KERNEL\([^)]*\)(?: CLUSTER\(\d+\))? ([^\s(]+)\()([^)]*)(\) \{\n)(.*?)(?=^\}\n)", re.M | re.S
)
_SCALAR: Final = re.compile(r"(?<![\w.])(\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+)f\b")


def scalar_arguments(text: str) -> tuple[str, dict[str, list[float]]]:
    """Returns the source with float numbers in kernels replaced by parameters, and the values of these by kernel."""
    values: dict[str, list[float]] = {}

    def kernel(found: re.Match[str]) -> str:
        head, name, parameters, start, body = found.groups()
        own: dict[float, str] = {}

        def scalar(number: re.Match[str]) -> str:
            value = float(np.float32(number[1]))
            if not math.isfinite(value) or (2 * value).is_integer() or math.frexp(value)[0] == 0.5:
                return number[0]  # the same in all layers: a bound of a type, a half, a power of two
            return own.setdefault(value, f"scalar{len(own)}")

        body = _SCALAR.sub(scalar, body)
        values[name] = list(own)
        added = [f"float {word}" for word in own.values()]
        return f"{head}{', '.join([parameters, *added] if parameters else added)}{start}{body}"

    return _KERNEL.sub(kernel, text), values
