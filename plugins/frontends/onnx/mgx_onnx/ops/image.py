"""Decoding of encoded images, with Pillow if it is installed."""

from __future__ import annotations

import io
from typing import Any, Final, Literal

import numpy as np

from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError, UnsupportedError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.dim import fresh
from mgx_core.types.shape import Shape

__all__: list[str] = []

MAX_PIXELS: Final = 1 << 26  # a small file may declare any size; 8192 x 8192 pixels take 192 MiB
FORMATS: Final = ("BMP", "JPEG", "JPEG2000", "TIFF", "PNG", "WEBP", "PPM")  # some other decoders run external programs


@op("image_decoder", exact=True)
class ImageDecoder(Operation):
    """Decodes an image (BMP, JPEG, JPEG 2000, TIFF, PNG, WebP or PNM).

    stream: uint8 [n] -> uint8 [h, w, c], c = 1 for Grayscale, else 3; an image that cannot be decoded gives [0, 0, c].
    Errors: ParameterError for an image of more than 2^26 pixels, UnsupportedError without Pillow.  Source: ONNX ImageDecoder-20.
    """

    pixel_format: Literal["RGB", "BGR", "Grayscale"] = "RGB"

    def infer(self, stream: Shape) -> Shape:
        if stream.dtype is not dt.uint8 or stream.rank != 1:
            raise ShapeError(f"the encoded stream must be uint8 [n], got {stream}")
        return Shape.of(dt.uint8, (fresh("height"), fresh("width"), 1 if self.pixel_format == "Grayscale" else 3))

    def compute(self, stream: Array) -> Array:
        try:
            from PIL import Image
        except ImportError:
            raise UnsupportedError(
                "image_decoder requires the package Pillow, which is not installed: pip install mgx-onnx[image]"
            ) from None
        gray = self.pixel_format == "Grayscale"
        try:
            image: Any = Image.open(io.BytesIO(stream.tobytes()), formats=FORMATS)
        except (Image.DecompressionBombError, Image.DecompressionBombWarning):
            raise _too_large("that many") from None
        except Exception:  # Pillow raises arbitrary errors for corrupt files; the standard requires an empty image
            return np.empty((0, 0, 1 if gray else 3), np.uint8)
        with image:
            if image.width * image.height > MAX_PIXELS:
                raise _too_large(f"{image.width} x {image.height}")
            try:
                pixels = np.asarray(image.convert("L" if gray else "RGB"))
            except Exception:
                return np.empty((0, 0, 1 if gray else 3), np.uint8)
        if gray:
            return pixels[..., None].copy()
        return np.ascontiguousarray(pixels[..., ::-1] if self.pixel_format == "BGR" else pixels)


def _too_large(size: str) -> ParameterError:
    return ParameterError(f"the image has {size} pixels, more than the {MAX_PIXELS} that are allowed")
