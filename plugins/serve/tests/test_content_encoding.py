"""Compressed bodies are decompressed in parts, and their size is bounded."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from typing import Any

import pytest

from mgx_serve.content_encoding import PART, Decompressor
from mgx_serve.errors import BadRequest, TooLarge
from mgx_serve.http_infer import read_body

EMPTY = b"\0\0\0\xff\xff"  # an empty deflate block that is not the last one


def unpacked(data: bytes, step: int) -> list[bytes]:
    """Decompresses data that arrives in pieces of `step` bytes; returns the parts."""
    packed = Decompressor()
    parts = [part for at in range(0, len(data), step) for part in packed.parts(data[at : at + step])]
    packed.require_end()
    return parts


@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, 3 * PART])
def test_decompressed_data_has_bounded_parts(size: int) -> None:
    data = zlib.compress(bytes(size))
    for step in (1, len(data)):
        parts = unpacked(data, step)
        assert sum(map(len, parts)) == size and max(map(len, parts)) <= PART


@pytest.mark.parametrize("step", [1, 20, 1 << 20])
def test_members_of_gzip_follow_each_other(step: int) -> None:
    members = [b"ab", b"", bytes(PART), b"c"]
    data = b"".join(gzip.compress(m, mtime=0) for m in members)
    parts = unpacked(data, step)
    assert b"".join(parts) == b"".join(members) and max(map(len, parts)) <= PART


@pytest.mark.parametrize(
    ("data", "refused"),
    [
        pytest.param(zlib.compress(b"a") + gzip.compress(b"b", mtime=0), "more bytes", id="gzip behind zlib"),
        pytest.param(gzip.compress(b"a", mtime=0) + zlib.compress(b"b"), "more bytes", id="zlib behind gzip"),
        pytest.param(gzip.compress(b"a", mtime=0) + b"\x1f\x8c", "incorrect header", id="no member"),
        pytest.param(gzip.compress(b"a", mtime=0) + b"\x1f\x8b", "ends before", id="cut off"),
    ],
)
def test_unknown_members_are_rejected(data: bytes, refused: str) -> None:
    with pytest.raises(BadRequest, match=refused):
        unpacked(data, 1)


def test_members_that_decompress_to_nothing_are_bounded() -> None:
    data, come = gzip.compress(b"", mtime=0), 0

    async def receive() -> Any:
        nonlocal come
        come += 1
        return {"type": "http.request", "body": data, "more_body": True}

    with pytest.raises(TooLarge, match="at most 1024 bytes"):
        asyncio.run(read_body(receive, {"content-encoding": "gzip"}, 1024))
    assert come == 2 * 1024 // len(data) + 1


@pytest.mark.parametrize(("blocks", "fits"), [(400, True), (500, False)])
def test_bodies_that_decompress_to_nothing_are_bounded(blocks: int, fits: bool) -> None:
    """They could keep the server busy up to the body timeout."""
    packed = zlib.compress(b"x")
    data = packed[:2] + EMPTY * blocks + packed[2:]
    given = iter([data[at : at + 100] for at in range(0, len(data), 100)])

    async def receive() -> Any:
        part = next(given)
        return {"type": "http.request", "body": part, "more_body": not data.endswith(part)}

    reading = read_body(receive, {"content-encoding": "deflate"}, 1024)
    if fits:
        assert asyncio.run(reading) == b"x"
    else:
        with pytest.raises(TooLarge, match="at most 1024 bytes"):
            asyncio.run(reading)
