"""TFLite-specific operations; targets without kernels run their reference implementations."""

from __future__ import annotations

from mgx_core import OpSet

from . import boxes, table

__all__ = ["OPS"]

OPS: OpSet = OpSet.in_module(boxes, table)
