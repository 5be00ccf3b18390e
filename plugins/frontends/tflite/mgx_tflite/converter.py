"""The converter table of this package."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Final

from mgx_core.converting.converters import Converters

__all__ = ["STANDARD", "converts"]

FAMILIES: Final = (  # in import order: later ones are imported only if the operator was not found
    "neural", "elementwise", "movement", "reduce", "parts", "positions", "boxes", "control", "recurrent", "stablehlo",
)  # fmt: skip

STANDARD = Converters(partial(import_module, f"{__package__}.converters.{name}") for name in FAMILIES)
converts = STANDARD.converts
