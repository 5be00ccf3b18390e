"""This package's converter tables: for tensors, and for values of any kind."""

from __future__ import annotations

from mgx_core.converting.converters import Converters

__all__ = ["STANDARD", "VALUES", "converts", "converts_values"]

STANDARD = Converters()
VALUES = Converters()
converts = STANDARD.converts
converts_values = VALUES.converts
