"""Operations that TensorFlow has and the standard set lacks; on targets without kernels they run by their definition."""

from __future__ import annotations

from mgx_core import OpSet

from . import boxes, fingerprint, matrix, patterns, ragged, segment, special, table, text, window, word_parts

__all__ = ["OPS"]

OPS: OpSet = OpSet.in_module(
    boxes, fingerprint, matrix, patterns, ragged, segment, special, table, text, window, word_parts
)
