"""The table of this package's converters, and the operators that never compute with their elements."""

from __future__ import annotations

from mgx_core.converting.converters import Converters

__all__ = ["STANDARD", "converts"]

STANDARD = Converters()
converts = STANDARD.converts
