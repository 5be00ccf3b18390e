"""Converters by family; importing this package collects them all in `STANDARD`."""

from __future__ import annotations

import importlib
import pkgutil

from ..converter import STANDARD

__all__ = ["STANDARD"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
