"""Image decoding (JPEG, PNG and BMP, detected by signature) and drawing of bounding boxes."""

from __future__ import annotations

import struct
import zlib

import numpy as np

from mgx_core import Shape
from mgx_core import dtype as dt
from mgx_core.errors import ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.dim import fresh
from mgx_core.types.dtype import DType
from mgx_core.types.memory_limit import require_memory
from mgx_core.types.strings import encoded

from .corrupt_data import reading
from .jpeg import extents, jpeg
from .png_filters import SIGNATURE, unfiltered
from .text import strings

__all__: list[str] = []

# permitted bit depths by PNG color type
DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
PLANES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # samples per pixel by PNG color type


@op("tf_jpeg_extents", exact=True)
class JpegExtents(Operation):
    """Height, width and channels of a JPEG file.

    x: string, one element -> int64 [3].  Errors: ShapeError for corrupt files.  Source: TensorFlow ExtractJpegShape.
    """

    def infer(self, x: Shape) -> Shape:
        strings(x)
        return Shape.of(dt.int64, (3,))

    def compute(self, x: Array) -> Array:
        with reading("JPEG file"):
            return np.array(extents(encoded(str(x.reshape(-1)[0]))), np.int64)


@op("tf_decode_picture")
class DecodePicture(Operation):
    """The pixels of an encoded image: JPEG, PNG or BMP, detected by signature.

    x: string, one element -> target [height, width, channels].
    channels: 1 grayscale, 3 RGB, 4 RGBA, 0 those of the file; target: uint8, uint16 or float32 in 0..1; smooth: interpolates
    JPEG chroma (`fancy_upscaling`); exact_transform: 13-bit instead of 8-bit inverse DCT (INTEGER_ACCURATE); recover: accepts
    truncated JPEG data, with gray for missing blocks (`try_recover_truncated`).
    Errors: ShapeError for corrupt files and other formats.  Source: TensorFlow DecodeImage, DecodeJpeg, DecodePng, DecodeBmp.
    """

    channels: int = 0
    target: DType
    smooth: bool = True
    exact_transform: bool = False
    recover: bool = False

    def infer(self, x: Shape) -> Shape:
        strings(x)
        last = self.channels or fresh("channels")
        return Shape.of(self.target, (fresh("height"), fresh("width"), last))

    def compute(self, x: Array) -> Array:
        data = encoded(str(x.reshape(-1)[0]))
        with reading("image"):
            if data.startswith(SIGNATURE):
                made = _png(data, self.channels in (2, 4))
            elif data.startswith(b"BM"):
                made = _bmp(data)
            elif data.startswith(b"\xff\xd8"):
                made = jpeg(data, self.channels == 1, self.smooth, self.exact_transform, self.recover)
            else:
                raise ShapeError("the image must be a JPEG, PNG or BMP file")
        return self._typed(_with_channels(made, self.channels))

    def _typed(self, made: Array) -> Array:
        name, wide = self.target.name, made.dtype == np.uint16
        real: Array
        if name == "uint8":
            real = np.asarray(made >> 8, np.uint8) if wide else made
            return real
        if name == "uint16":
            real = made if wide else np.asarray(made * np.uint16(257), np.uint16)
            return real
        real = (made / np.float32(65535 if wide else 255)).astype(self.target.numpy)
        return real


def _with_channels(made: Array, channels: int) -> Array:
    """Converts an image to a number of channels."""
    have = made.shape[2]
    if not channels or channels == have:
        return made
    most = made.dtype.type(np.iinfo(made.dtype).max)
    if channels == 1:
        if have >= 3:  # luma weights in units of 1/32768
            scaled = made[..., :3].astype(np.int64) @ np.array([9797, 19234, 3737])
            return np.asarray(scaled >> 15, made.dtype)[..., None]
        return made[..., :1]
    gray = made[..., :1]
    colors = made[..., :3] if have >= 3 else np.repeat(gray, 3, 2)
    if channels == 3:
        return colors
    opacity = made[..., -1:] if have in (2, 4) else np.full_like(gray, most)
    return np.concatenate([gray if channels == 2 else colors, opacity], 2)


def _png(data: bytes, alpha: bool) -> Array:
    """Decodes a PNG file; alpha: returns alpha if a transparent color is defined."""
    at, packed, palette, opacity, header = 8, [], b"", b"", None
    while at + 8 <= len(data):
        size, name = struct.unpack_from(">I4s", data, at)
        body = data[at + 8 : at + 8 + size]
        match name:
            case b"IHDR":
                header = struct.unpack(">IIBBBBB", body)
            case b"PLTE":
                palette = body
            case b"tRNS":
                opacity = body
            case b"IDAT":
                packed.append(body)
            case b"IEND":
                break
        at += size + 12
    if header is None:
        raise ShapeError("the PNG file has no IHDR chunk")
    width, height, depth, kind, _, _, interlaced = header
    if interlaced or not width or not height:
        raise ShapeError("interlaced and empty PNG files are not supported")
    if depth not in DEPTHS.get(kind, ()):
        raise ShapeError(f"bit depths of PNG color type {kind} are {DEPTHS.get(kind, ())}, got {depth}")
    planes = PLANES[kind]
    row = (width * planes * depth + 7) // 8
    require_memory((height, width, planes + 1), 2)
    open_ = zlib.decompressobj()
    raw = open_.decompress(b"".join(packed), height * (row + 1))
    lines = unfiltered(np.frombuffer(raw, np.uint8).reshape(height, row + 1), max(1, planes * depth // 8))
    if depth == 16:
        made = lines.view(">u2").astype(np.uint16).reshape(height, width, planes)
    else:
        if depth < 8:
            shifts = np.arange(8 - depth, -1, -depth, dtype=np.uint8)
            lines = ((lines[..., None] >> shifts) & np.uint8((1 << depth) - 1)).reshape(height, -1)[:, :width]
        made = lines.reshape(height, width, planes)
    if kind == 3:
        return _from_palette(made[..., 0], palette, opacity)
    key = struct.unpack(f">{planes}H", opacity) if alpha and opacity and kind in (0, 2) else None
    shown = None if key is None else (made != np.array(key)).any(-1, keepdims=True)
    if depth < 8:
        made = (np.arange(1 << depth) * 255 // ((1 << depth) - 1)).astype(np.uint8)[made]
    return (
        made
        if shown is None
        else np.concatenate([made, shown * np.iinfo(made.dtype).max], 2, dtype=made.dtype, casting="unsafe")
    )


def _from_palette(places: Array, palette: bytes, opacity: bytes) -> Array:
    """Returns the palette's colors for indices."""
    table = np.frombuffer(palette, np.uint8).reshape(-1, 3)
    if opacity:
        shown = np.full((len(table), 1), 255, np.uint8)
        shown[: len(opacity), 0] = np.frombuffer(opacity, np.uint8)
        table = np.concatenate([table, shown], 1)
    require_memory((*places.shape, table.shape[1]), 1)
    return table[places]


def _bmp(data: bytes) -> Array:
    (start,) = struct.unpack_from("<I", data, 10)
    width, height, _, bits, packed = struct.unpack_from("<iiHHI", data, 18)
    planes = bits // 8
    if packed not in (0, 3) or planes not in (1, 3, 4) or width < 1 or not height:
        raise ShapeError(f"uncompressed BMP files with 8, 24 or 32 bits per pixel are required, got {bits}")
    row = (width * planes + 3) // 4 * 4
    require_memory((abs(height), row), 1)
    made = np.frombuffer(data, np.uint8, row * abs(height), start).reshape(abs(height), row)
    pixels = made[:, : width * planes].reshape(abs(height), width, planes)
    pixels = pixels[::-1] if height > 0 else pixels
    order = {1: [0], 3: [2, 1, 0], 4: [2, 1, 0, 3]}[planes]
    return np.ascontiguousarray(pixels[..., order])


@op("tf_draw_boxes", exact=True)
class DrawBoxes(Operation):
    """Images with bounding boxes drawn into them, one pixel wide.

    x: float [n, h, w, c]; boxes: float32 [n, k, 4], normalized (top, left, bottom, right); colors: float32 [m, c'], used
    cyclically -> x's shape.  Errors: ShapeError for other extents.  Source: TensorFlow DrawBoundingBoxesV2.
    """

    def infer(self, x: Shape, boxes: Shape, colors: Shape) -> Shape:
        if x.rank != 4 or boxes.rank != 3 or colors.rank != 2:
            raise ShapeError(f"images, boxes [n, k, 4] and colors are required, got {x}, {boxes} and {colors}")
        return x.as_standard()

    def compute(self, x: Array, boxes: Array, colors: Array) -> Array:
        out = x.copy()
        high, wide, count = x.shape[1:]
        if boxes.shape[0] != x.shape[0] or boxes.shape[2] != 4 or colors.shape[1] < count:
            raise ShapeError(f"boxes {boxes.shape} and colors {colors.shape} do not fit images {x.shape}")
        for picture, rows in zip(out, boxes, strict=True):
            for k, box in enumerate(rows):
                top, bottom = (int(v) for v in box[0::2] * np.float32(high - 1))
                left, right = (int(v) for v in box[1::2] * np.float32(wide - 1))
                if top > bottom or left > right or top >= high or bottom < 0 or left >= wide or right < 0:
                    continue
                color = colors[k % len(colors), :count]
                across, along = slice(max(left, 0), right + 1), slice(max(top, 0), bottom + 1)
                for row in (top, bottom):
                    if 0 <= row < high:
                        picture[row, across] = color
                for column in (left, right):
                    if 0 <= column < wide:
                        picture[along, column] = color
        return out
