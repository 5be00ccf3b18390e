"""Hooks of this package for mgx; nothing is imported until it is used."""

from __future__ import annotations

from mgx_core import Lazy, hookimpl

mgx_interface = 1


@hookimpl
def operations() -> list[Lazy]:
    return [Lazy("custom_op", "example_mgx_custom_op.ops:OPS", "squareplus and moving_average")]


@hookimpl
def converters(frontend: str) -> list[Lazy]:
    if frontend != "onnx":
        return []
    return [Lazy("custom_op", "example_mgx_custom_op.converters:CONVERTERS", "the same in the ONNX domain `example`")]
