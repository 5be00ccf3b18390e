"""Files that are no ONNX models: the message says what they are."""

from __future__ import annotations

import gzip
import io
import zipfile

import pytest

import mgx_core as mgx


def zipped() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("model.onnx", b"model")
    return packed.getvalue()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
            "it is a pointer of Git LFS.*git lfs pull",
        ),
        (b"<!DOCTYPE html><html></html>", "it is an HTML page: the download failed"),
        (b"<html></html>", "it is an HTML page: the download failed"),
        (b"\n\n\n\n\n\n<!DOCTYPE html>\n<html>", "it is an HTML page: the download failed"),
        (b"\n<HTML>" + b" " * 281, "it is an HTML page: the download failed"),  # which protobuf reads without an error
        (b"\xef\xbb\xbf<!doctype html><html>", "it is an HTML page: the download failed"),
        (gzip.compress(b"model"), "it is compressed by gzip: decompress it first"),
        (zipped(), "it is a zip archive: extract it first"),
        (b"\x1c\0\0\0ORTM" + bytes(100), "it is in onnxruntime's own format"),
        (b"ir_version: 10\ngraph {\n}\n", "it is a model as text"),
        (b"\xff" * 40, r"\(damaged or truncated\)"),
    ],
    ids=[
        "lfs",
        "page",
        "page without type",
        "page behind lines",
        "long page",
        "page with a mark",
        "gzip",
        "zip",
        "ort",
        "text",
        "unknown",
    ],
)
def test_the_message_says_what_the_file_is(data: bytes, message: str) -> None:
    with pytest.raises(mgx.ParseError, match=f"not an ONNX model.*{message}"):
        mgx.parse_onnx_buffer(data)
