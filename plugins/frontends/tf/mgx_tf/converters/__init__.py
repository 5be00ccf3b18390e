"""Converters by family; importing this package collects them all in `STANDARD` and `VALUES`."""

from __future__ import annotations

import importlib
import pkgutil

from ..converter import STANDARD, VALUES

__all__ = ["STANDARD", "VALUES"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
