"""Operations that TensorFlow has and the standard set lacks; on targets without kernels they run by their definition."""

from __future__ import annotations

from mgx_core import OpSet

from . import (
    boxes,
    composed_text,
    csv_lines,
    ctc,
    example,
    fingerprint,
    keyed_hash,
    matrix,
    murmur_hash,
    patterns,
    picture,
    project,
    ragged,
    raw_bytes,
    resampling,
    scripts,
    segment,
    sound,
    sparse,
    sparse_pairs,
    sparse_rows,
    special,
    table,
    text,
    unicode,
    window,
    word_parts,
)

__all__ = ["OPS"]

OPS: OpSet = OpSet.in_module(
    boxes, composed_text, csv_lines, ctc, example, fingerprint, keyed_hash, matrix, murmur_hash, patterns, picture, project,
    ragged, raw_bytes, resampling, scripts, segment, sound, sparse, sparse_pairs, sparse_rows, special, table, text, unicode,
    window, word_parts,
)  # fmt: skip
