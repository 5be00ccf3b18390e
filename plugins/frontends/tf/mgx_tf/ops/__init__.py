"""TensorFlow-specific operations; targets without kernels run their reference implementations."""

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
