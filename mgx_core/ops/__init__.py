"""The standard op set, by family."""

from __future__ import annotations

import importlib
import pkgutil

from ..ir.builtin import Undefined
from ..operation import OpSet

__all__ = ["STANDARD"]


def _collect() -> OpSet:
    modules = [importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)]
    return OpSet.in_module(*modules) | OpSet.of(Undefined)


STANDARD: OpSet = _collect()
