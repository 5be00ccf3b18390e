"""Encodes results as strings: PNG images, WAV audio, serialized tensors."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np

from mgx_core import Shape
from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.strings import decoded, encoded

from ..wire.messages import message
from ..wire.tensors import DTYPES
from .png_filters import SIGNATURE

__all__: list[str] = []

COLORS = {1: 0, 2: 4, 3: 2, 4: 6}  # a PNG file's color type by the number of channels
CODES = {kind.name: code for code, kind in reversed(DTYPES.items())}


@op("tf_encode_png", exact=True)
class EncodePng(Operation):
    """PNG files of images.

    x: uint8 or uint16 [.., height, width, channels] -> string [..]; level: of compression, -1 for zlib's default.
    Errors: ShapeError for empty images and more than 4 channels; ParameterError for a level outside -1..9.
    Source: TensorFlow EncodePng.
    """

    level: int = -1

    def infer(self, x: Shape) -> Shape:
        if not -1 <= self.level <= 9:
            raise ParameterError(f"a compression level of -1 to 9 is required, got {self.level}")
        if x.dtype not in (dt.uint8, dt.uint16) or x.rank < 3:
            raise ShapeError(f"images [.., height, width, channels] of uint8 or uint16 are required, got {x}")
        return Shape.of(dt.string, x.dims[:-3])

    def compute(self, x: Array) -> Array:
        if x.shape[-1] not in COLORS or 0 in x.shape[-3:-1]:
            raise ShapeError(f"images of at least one pixel with 1 to 4 channels are required, got {list(x.shape)}")
        out = np.empty(x.shape[:-3], object)
        for place in np.ndindex(out.shape):
            out[place] = decoded(self._file(x[place]))
        return out

    def _file(self, image: Array) -> bytes:
        height, width, channels = image.shape
        rows = image.astype(image.dtype.newbyteorder(">")).reshape(height, -1).view(np.uint8)
        filtered = np.pad(rows, ((0, 0), (1, 0)))  # each row begins with its filter: none
        header = struct.pack(">2I5B", width, height, 8 * image.itemsize, COLORS[channels], 0, 0, 0)
        body = zlib.compress(filtered.tobytes(), self.level)
        return SIGNATURE + b"".join(_chunk(*c) for c in ((b"IHDR", header), (b"IDAT", body), (b"IEND", b"")))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


@op("tf_encode_wav", exact=True)
class EncodeWav(Operation):
    """A 16-bit PCM WAV file of samples; values outside -1..1 are clipped.

    x: float32 [samples, channels], rate: int32 [] -> string [].
    Errors: ShapeError for numbers that the file's header cannot contain.  Source: TensorFlow EncodeWav.
    """

    def infer(self, x: Shape, rate: Shape) -> Shape:
        if x.dtype is not dt.float32 or x.rank != 2 or rate.dtype is not dt.int32 or rate.rank:
            raise ShapeError(f"samples float32 [samples, channels] and a rate int32 [] are required, got {x}, {rate}")
        return Shape.of(dt.string, ())

    def compute(self, x: Array, rate: Array) -> Array:
        channels, hertz = x.shape[1], int(rate)
        width = 2 * channels
        if not 0 < channels < 1 << 15 or hertz < 1 or max(hertz, len(x) + 32) * width >= 1 << 32:
            raise ShapeError(
                "a WAV file has a positive rate, 1 to 32767 channels, and less than 4 GiB in all and per second, "
                f"got a rate of {hertz} and {list(x.shape)}"
            )
        scaled = np.clip(np.nan_to_num(x), -1, 1) * np.float32(1 << 15)
        rounded = np.trunc(scaled + np.copysign(np.float32(0.5), scaled))  # halves away from zero
        data = np.minimum(rounded, (1 << 15) - 1).astype("<i2").tobytes()
        sound = struct.pack("<2H2I2H", 1, channels, hertz, hertz * width, width, 16)
        parts = b"fmt ", struct.pack("<I", len(sound)), sound, b"data", struct.pack("<I", len(data)), data
        body = b"WAVE" + b"".join(parts)
        return np.array(decoded(b"RIFF" + struct.pack("<I", len(body)) + body), object)


@op("tf_serialize_tensor", exact=True)
class SerializeTensor(Operation):
    """The TensorProto message of a tensor, serialized.  x: any -> string [].  Source: TensorFlow SerializeTensor."""

    def infer(self, x: Shape) -> Shape:
        return Shape.of(dt.string, ())

    def compute(self, x: Array) -> Array:
        made: Any = message("TensorProto")(dtype=CODES[dt.of(x.dtype).name])
        made.tensor_shape.SetInParent()
        for extent in x.shape:
            made.tensor_shape.dim.add(size=extent)
        if x.dtype == object:
            made.string_val.extend(encoded(word) for word in x.reshape(-1).tolist())
        else:
            made.tensor_content = np.ascontiguousarray(x).tobytes()
        return np.array(decoded(made.SerializeToString()), object)
