"""The tables of this package's converters: on tensors, and on values of any kind."""

from __future__ import annotations

from mgx_core.converting.converters import Converters

__all__ = ["STANDARD", "VALUES", "converts", "converts_values"]

STANDARD = Converters()
VALUES = Converters()
converts = STANDARD.converts
converts_values = VALUES.converts
