"""TensorFlow-specific operations; targets without kernels run their reference implementations."""

from __future__ import annotations

from mgx_core import OpSet

from . import (
    audio,
    boxes,
    crosses,
    csv_decoding,
    ctc,
    encoding,
    example,
    feature_lists,
    fingerprint,
    image,
    matrix,
    murmur_hash,
    projective_transform,
    ragged,
    raw_bytes,
    regex,
    resampling,
    segment,
    siphash,
    sparse,
    sparse_arithmetic,
    sparse_sets,
    special,
    string_format,
    string_split,
    table,
    text,
    unicode,
    unicode_scripts,
    window,
)

__all__ = ["OPS"]

OPS: OpSet = OpSet.in_module(
    audio, boxes, crosses, csv_decoding, ctc, encoding, example, feature_lists, fingerprint, image, matrix, murmur_hash,
    projective_transform, ragged, raw_bytes, regex, resampling, segment, siphash, sparse, sparse_arithmetic, sparse_sets,
    special, string_format, string_split, table, text, unicode, unicode_scripts, window,
)  # fmt: skip
