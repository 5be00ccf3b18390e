"""Decodes raw binary numbers, compressed strings and serialized tensors."""

from __future__ import annotations

import zlib
from typing import Literal

import numpy as np
from google.protobuf.message import DecodeError

from mgx_core import MgxError, Shape
from mgx_core.errors import ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.dim import Dim, fresh
from mgx_core.types.dtype import DType
from mgx_core.types.memory_limit import require_bytes, require_memory
from mgx_core.types.strings import decoded, encoded

from ..wire.messages import message
from ..wire.tensors import tensor_array
from .corrupt_data import reading
from .text import each, strings

__all__: list[str] = []

PIECE = 1 << 22  # bytes decompressed between checks of the memory limit


@op("tf_decode_raw", exact=True)
class DecodeRaw(Operation):
    """Strings of equal length reinterpreted as numbers; with `length`, shorter ones are padded with zeros.

    x: string [..] -> target [.., n].  Errors: ShapeError for unequal lengths or an incomplete number.
    Source: TensorFlow DecodeRaw, DecodePaddedRaw.
    """

    target: DType
    little: bool = True
    length: int = -1

    def infer(self, x: Shape) -> Shape:
        strings(x)
        size = np.dtype(self.target.numpy).itemsize
        last: Dim = fresh("numbers") if self.length < 0 else self.length // size
        return Shape.of(self.target, (*x.dims, last))

    def compute(self, x: Array) -> Array:
        rows = [encoded(w) for w in x.reshape(-1).tolist()]
        kind = np.dtype(self.target.numpy)
        if self.length >= 0:
            require_memory((len(rows), self.length), 1)
            rows = [row[: self.length].ljust(self.length, b"\0") for row in rows]
        sizes = {len(row) for row in rows} or {0}
        if len(sizes) > 1 or min(sizes) % kind.itemsize:
            raise ShapeError(
                f"strings of one length, a multiple of {kind.itemsize} bytes, are required, got {sorted(sizes)}"
            )
        made = np.frombuffer(b"".join(rows), kind if self.little else kind.newbyteorder(">")).astype(kind)
        return made.reshape(*x.shape, min(sizes) // kind.itemsize)


@op("tf_decompress", exact=True)
class Decompress(Operation):
    """Decompressed strings.  x: string [..] -> string [..].

    Errors: ShapeError for corrupt strings.  Source: TensorFlow DecodeCompressed.
    """

    how: Literal["", "ZLIB", "GZIP"] = ""

    def infer(self, x: Shape) -> Shape:
        strings(x)
        return x.as_standard()

    def compute(self, x: Array) -> Array:
        held = 0  # characters so far

        def opened(word: str) -> str:
            nonlocal held
            made = encoded(word) if not self.how else _decompressed(encoded(word), self.how, held)
            held += len(made)
            return decoded(made)

        with reading("compressed string"):
            return each(opened, x)


def _decompressed(data: bytes, how: str, held: int) -> bytes:
    """Decompresses one string, all members of a GZIP file.  Errors: DeviceError as soon as the memory limit is exceeded."""
    bits = {"ZLIB": zlib.MAX_WBITS, "GZIP": zlib.MAX_WBITS + 16}[how]
    pieces: list[bytes] = []
    while True:
        open_ = zlib.decompressobj(bits)
        while not open_.eof:
            piece = open_.decompress(data, PIECE)
            held += len(piece)
            require_bytes(held, "the decompressed strings")
            pieces.append(piece)
            data = open_.unconsumed_tail
            if not piece and not data and not open_.eof:
                raise ShapeError("a compressed string is truncated")
        data = open_.unused_data.lstrip(b"\0")
        if how == "ZLIB" or not data:
            return b"".join(pieces)


@op("tf_parse_tensor", exact=True)
class ParseTensor(Operation):
    """A deserialized TensorProto.

    x: string, one element -> target of `dims`, -1 for unknown extents.
    Errors: ShapeError for a corrupt message or another type.  Source: TensorFlow ParseTensor.
    """

    target: DType

    def infer(self, x: Shape) -> Shape:
        strings(x)
        return Shape.unranked(self.target)

    def compute(self, x: Array) -> Array:
        held = message("TensorProto")()
        try:
            held.ParseFromString(encoded(str(x.reshape(-1)[0])))
            made = tensor_array(held)
        except (MgxError, DecodeError, ValueError) as error:
            raise ShapeError(f"a serialized tensor is damaged: {error}") from None
        if made.dtype != np.dtype(self.target.numpy):
            raise ShapeError(f"a serialized tensor of {self.target} is required, got {made.dtype}")
        return made
