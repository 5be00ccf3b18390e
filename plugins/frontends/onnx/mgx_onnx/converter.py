"""The table of this package's converters."""

from __future__ import annotations

from mgx_core.converting.converters import Converter, Converters

__all__ = ["STANDARD", "Converter", "Converters", "converts"]

STANDARD = Converters()
converts = STANDARD.converts
