"""Converters of the ONNX operators of the domain `example`."""

from __future__ import annotations

from mgx_core import Instruction
from mgx_onnx.converter import Converters
from mgx_onnx.node import Node

from .ops import MovingAverage, Squareplus

__all__ = ["CONVERTERS"]

CONVERTERS = Converters()


@CONVERTERS.converts("Squareplus", domain="example")
def squareplus(n: Node, x: Instruction) -> Instruction:
    return n.add(Squareplus(b=n.attr("b", 4.0)), x)


@CONVERTERS.converts("MovingAverage", domain="example")
def moving_average(n: Node, x: Instruction) -> Instruction:
    return n.add(MovingAverage(window=n.attr("window")), x)
