"""Operations that TFLite has and the standard set lacks; on targets without kernels they run by their definition."""

from __future__ import annotations

from mgx_core import OpSet

from . import boxes, table

__all__ = ["OPS"]

OPS: OpSet = OpSet.in_module(boxes, table)
