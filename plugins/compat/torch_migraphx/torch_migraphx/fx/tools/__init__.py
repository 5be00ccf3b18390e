"""Tools for lowered modules."""

from __future__ import annotations

from . import mgx_benchmark, mgx_onnx

__all__ = ["mgx_benchmark", "mgx_onnx"]
