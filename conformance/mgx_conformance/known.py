"""The ops that the kit tests: the standard set and those of the ONNX frontend."""

from __future__ import annotations

from typing import Final

from mgx_core.ops import STANDARD
from mgx_onnx.ops import OPS as ONNX_OPS

__all__ = ["OPS"]

OPS: Final = STANDARD | ONNX_OPS
