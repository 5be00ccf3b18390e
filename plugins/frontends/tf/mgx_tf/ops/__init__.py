"""Operations that TensorFlow has and the standard set lacks; on targets without kernels they run by their definition."""

from __future__ import annotations

from mgx_core import OpSet

from . import (
    boxes,
    example,
    fingerprint,
    keyed_hash,
    matrix,
    patterns,
    project,
    ragged,
    segment,
    sparse,
    special,
    table,
    text,
    unicode,
    window,
    word_parts,
)  # fmt: skip

__all__ = ["OPS"]

OPS: OpSet = OpSet.in_module(
    boxes, example, fingerprint, keyed_hash, matrix, patterns, project, ragged, segment, sparse, special, table, text, unicode,
    window, word_parts,
)  # fmt: skip
