"""Image decoding."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest

from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.types.shape import Shape
from mgx_onnx.ops.image import ImageDecoder

Image = pytest.importorskip("PIL.Image")
PIXELS = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)


def encoded(kind: str) -> Any:
    out = io.BytesIO()
    Image.fromarray(PIXELS).save(out, kind)
    return np.frombuffer(out.getvalue(), np.uint8)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM"])
def test_lossless_formats(kind: str) -> None:
    np.testing.assert_array_equal(ImageDecoder().evaluate([encoded(kind)]), PIXELS)
    np.testing.assert_array_equal(ImageDecoder(pixel_format="BGR").evaluate([encoded(kind)]), PIXELS[..., ::-1])


def test_gray() -> None:
    out = ImageDecoder(pixel_format="Grayscale").evaluate([encoded("PNG")])
    assert out.shape == (5, 7, 1)
    luma = PIXELS @ [0.299, 0.587, 0.114]
    assert np.abs(out[..., 0] - luma).max() <= 1


@pytest.mark.parametrize("data", [b"", b"no image", bytes(encoded("PNG"))[:60]])
def test_undecodable_images_are_empty(data: bytes) -> None:
    assert ImageDecoder().evaluate([np.frombuffer(data, np.uint8)]).shape == (0, 0, 3)


def test_formats_that_run_programs_are_not_tried() -> None:
    script = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"
    assert ImageDecoder().evaluate([np.frombuffer(script, np.uint8)]).shape == (0, 0, 3)


@pytest.mark.parametrize("side", [9000, 60000])
def test_bomb(side: int) -> None:
    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    bomb = (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )
    with pytest.raises(ParameterError, match="pixels"):
        ImageDecoder().evaluate([np.frombuffer(bomb, np.uint8)])


def test_shape() -> None:
    shape = ImageDecoder(pixel_format="Grayscale").result([Shape.of(dt.uint8, (10,))])
    assert isinstance(shape, Shape) and shape.dtype is dt.uint8 and shape.rank == 3 and shape[2] == 1
    with pytest.raises(ShapeError, match="uint8"):
        ImageDecoder().result([Shape.of(dt.int8, (10,))])
