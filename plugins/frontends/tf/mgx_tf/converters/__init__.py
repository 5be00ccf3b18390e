"""Converters by family, which register in `STANDARD` and `VALUES`; `load_for` imports the families that an operator needs."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Final

from mgx_core.converting.converters import Converters

from ..converter import STANDARD, VALUES

__all__ = ["STANDARD", "VALUES", "load_all", "load_for"]

# the first two handle complex operands and take precedence over the families for real ones
FIRST: Final = (
    "complex_numbers", "constant", "control", "resources", "neural", "elementwise", "linear", "reduce", "movement", "norm",
    "parts", "index", "lists",
)  # fmt: skip
OTHERS: Final = tuple(m.name for m in pkgutil.iter_modules(__path__) if m.name not in FIRST)


def load_for(operator: str, *tables: Converters) -> None:
    """Imports families until one of the tables (default: both) has a converter for an operator: most models need only a few."""
    for family in FIRST[:2]:
        _load(family)
    for family in (*FIRST[2:], *OTHERS):
        if any(table.knows("", operator) for table in tables or (STANDARD, VALUES)):
            return
        _load(family)


def load_all() -> None:
    """Imports every family."""
    for family in (*FIRST, *OTHERS):
        _load(family)


def _load(family: str) -> None:
    importlib.import_module(f"{__name__}.{family}")
