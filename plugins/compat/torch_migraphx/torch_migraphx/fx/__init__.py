"""Modules that run on mgx, under torch_migraphx's names."""

from __future__ import annotations

from . import tools
from .converters import migraphx_converter
from .lower import LowerPrecision, lower_to_mgx
from .mgx_module import MGXModule

__all__ = ["LowerPrecision", "MGXModule", "lower_to_mgx", "migraphx_converter", "tools"]
