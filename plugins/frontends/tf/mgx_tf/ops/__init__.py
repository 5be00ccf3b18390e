"""Operations that TensorFlow has and the standard set lacks; on targets without kernels they run by their definition."""

from __future__ import annotations

from mgx_core import OpSet

from . import boxes, matrix, ragged, segment, special, table, text, window

__all__ = ["OPS"]

OPS: OpSet = OpSet.in_module(boxes, matrix, ragged, segment, special, table, text, window)
