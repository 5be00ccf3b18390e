"""Decoding of strings: raw numbers, CSV, tensors, audio, images."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.types.dim import product

from ..converter import converts
from ..node import Node


@converts("DecodeRaw")
def decode_raw(n: Node, x: Instruction) -> Instruction:
    return n.add("tf_decode_raw", x, target=n.dtype("out_type"), little=n.flag("little_endian", True))


@converts("DecodePaddedRaw")
def decode_padded(n: Node, x: Instruction, length: Instruction) -> Instruction:
    size = n.whole(length, "the length")[0]
    return n.add("tf_decode_raw", x, target=n.dtype("out_type"), little=n.flag("little_endian", True), length=size)


@converts("DecodeCompressed")
def decompress(n: Node, x: Instruction) -> Instruction:
    how = n.string("compression_type", "")
    if how not in ("", "ZLIB", "GZIP"):
        n.fail(f"compression_type must be ZLIB, GZIP or empty, got {how!r}")
    return n.add("tf_decompress", x, how=how)


@converts("DecodeCSV")
def decode_csv(n: Node, x: Instruction, *defaults: Instruction) -> Any:
    return n.items(
        n.add(
            "tf_decode_csv",
            x,
            *defaults,
            delimiter=n.string("field_delim", ","),
            quotes=n.flag("use_quote_delim", True),
            nothing=n.string("na_value", ""),
            columns=tuple(n.ints("select_cols")),
        )
    )


@converts("ParseTensor")
def parse_tensor(n: Node, x: Instruction) -> Instruction:
    return n.add("tf_parse_tensor", x, target=n.dtype("out_type"))


@converts("StringToHashBucket")
def hash_bucket(n: Node, x: Instruction) -> Instruction:
    return n.add("tf_hash64", x, buckets=n.int("num_buckets"))


@converts("Fingerprint")
def fingerprint(n: Node, x: Instruction, method: Instruction) -> Instruction:
    """Returns the bytes of the fingerprint of each row; supported for vectors of strings."""
    if x.shape.rank != 1 or x.shape.dtype is not dt.string:
        n.unsupported("fingerprints of tensors other than string vectors")
    return n.add("tf_fingerprint_bytes", x)


# audio


@converts("DecodeWav")
def decode_wav(n: Node, x: Instruction) -> Any:
    channels, samples = n.int("desired_channels", -1), n.int("desired_samples", -1)
    return n.items(n.add("tf_decode_wav", x, channels=channels, samples=samples))


@converts("AudioSpectrogram")
def spectrogram(n: Node, x: Instruction) -> Instruction:
    squared = n.flag("magnitude_squared")
    return n.add("tf_spectrogram", x, window=n.int("window_size"), stride=n.int("stride"), squared=squared)


@converts("Mfcc")
def mfcc(n: Node, x: Instruction, rate: Instruction) -> Instruction:
    return n.add(
        "tf_mfcc",
        x,
        rate=n.whole(rate, "the sample rate")[0],
        low=n.float("lower_frequency_limit", 20.0),
        high=n.float("upper_frequency_limit", 4000.0),
        bands=n.int("filterbank_channel_count", 40),
        count=n.int("dct_coefficient_count", 13),
    )


# images


@converts("DecodePng", "DecodeBmp", "DecodeJpeg", "DecodeImage")
def decode_picture(n: Node, x: Instruction) -> Instruction:
    channels = n.int("channels", 0)
    if n.op_type == "DecodeJpeg" and n.int("ratio", 1) != 1:
        n.unsupported("JPEG decoding at reduced size (ratio)")
    return n.add(
        "tf_decode_picture",
        x,
        channels=channels,
        target=n.dtype("dtype", dt.uint8),
        smooth=n.flag("fancy_upscaling", True),
        exact_transform=n.string("dct_method", "") == "INTEGER_ACCURATE",
        recover=n.flag("try_recover_truncated"),
    )


@converts("DecodeAndCropJpeg")
def decode_and_crop(n: Node, x: Instruction, window: Instruction) -> Instruction:
    y, left, height, width = n.whole(window, "the window")
    return n.slice(decode_picture(n, x), [0, 1], [y, left], [y + height, left + width])


@converts("ExtractJpegShape")
def jpeg_shape(n: Node, x: Instruction) -> Instruction:
    return n.convert(n.add("tf_jpeg_extents", x), n.dtype("output_type", dt.int32))


@converts("DrawBoundingBoxes", "DrawBoundingBoxesV2")
def draw_boxes(n: Node, x: Instruction, boxes: Instruction, colors: Instruction | None = None) -> Instruction:
    table = n.literal(np.asarray(COLORS, np.float32)) if colors is None else colors
    return n.add("tf_draw_boxes", x, boxes, table)


COLORS = (
    (1, 1, 0, 1), (0, 0, 1, 1), (1, 0, 0, 1), (0, 1, 0, 1), (0.5, 0, 0.5, 1), (0.5, 0.5, 0, 1), (0.5, 0, 0, 1), (0, 0, 0.5, 1),
    (0, 1, 1, 1), (1, 0, 1, 1),
)  # fmt: skip


@converts("UnsortedSegmentJoin")
def segment_join(n: Node, x: Instruction, segments: Instruction, count: Instruction) -> Instruction:
    flat = n.reshape(x, (product(x.shape.dims),))
    if x.shape.rank != segments.shape.rank:
        n.unsupported("segment joins whose segment ids have another rank than the strings")
    at = n.reshape(n.convert(segments, dt.int64), (product(segments.shape.dims),))
    return n.add("tf_segment_join", flat, at, n.convert(count, dt.int64), separator=n.string("separator", ""))


@converts("StringFormat")
def string_format(n: Node, *xs: Instruction) -> Instruction:
    template, holder = n.string("template", "%s"), n.string("placeholder", "%s")
    return n.add("tf_string_format", *xs, template=template, placeholder=holder, most=n.int("summarize", 3))
