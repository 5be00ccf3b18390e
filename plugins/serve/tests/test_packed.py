"""Compressed bodies: what they unpack to comes in parts, and what they may hold is bounded."""

from __future__ import annotations

import asyncio
import zlib
from typing import Any

import pytest

from mgx_serve.errors import TooLarge
from mgx_serve.http_infer import read_body
from mgx_serve.packed import PART, Packed

EMPTY = b"\0\0\0\xff\xff"  # a block of deflate that holds nothing, and is not the last


@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, 3 * PART])
def test_what_is_unpacked_comes_in_bounded_parts(size: int) -> None:
    data = zlib.compress(bytes(size))
    for step in (1, len(data)):
        packed = Packed()
        parts = [part for at in range(0, len(data), step) for part in packed.parts(data[at : at + step])]
        packed.require_end()
        assert sum(map(len, parts)) == size and max(map(len, parts)) <= PART


@pytest.mark.parametrize(("blocks", "fits"), [(400, True), (500, False)])
def test_bodies_that_unpack_to_nothing_are_bounded(blocks: int, fits: bool) -> None:
    """They could go on for as long as a body may take."""
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
