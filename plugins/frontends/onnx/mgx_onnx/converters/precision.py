"""Computes composite ops on narrow types in a wider type, rounding once."""

from __future__ import annotations

from mgx_core import Instruction
from mgx_core import dtype as dt

from ..node import Node

__all__ = ["as_float", "widened"]


def widened(n: Node, x: Instruction) -> Instruction:
    """Returns `x` as float32 if its float type is narrower, else unchanged."""
    dtype = x.shape.dtype
    return n.convert(x, dt.float32) if dtype.is_float and dtype.bits < 32 else x


def as_float(n: Node, x: Instruction) -> Instruction:
    """Returns `x` in a type that supports elementary functions: float32 for narrow floats, float64 for integers."""
    return n.convert(x, dt.float64) if x.shape.dtype.is_integer else widened(n, x)
