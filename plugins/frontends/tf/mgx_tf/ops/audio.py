"""Audio: WAV decoding, spectrograms, mel-frequency cepstral coefficients."""

from __future__ import annotations

import math
import struct

import numpy as np

from mgx_core import Shape, TupleShape
from mgx_core import dtype as dt
from mgx_core.errors import ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.dim import Dim, fresh
from mgx_core.types.memory_limit import require_memory
from mgx_core.types.strings import encoded

from .corrupt_data import reading
from .text import strings

__all__: list[str] = []


@op("tf_decode_wav", exact=True)
class DecodeWav(Operation):
    """The samples of a 16-bit PCM WAV file, and its sample rate.

    x: string, one element -> float32 [samples, channels] in -1..1, int32.
    channels, samples: requested numbers, -1 for those of the file; missing samples are 0, missing channels repeat the first.
    Errors: ShapeError for corrupt files and other encodings.  Source: TensorFlow DecodeWav.
    """

    channels: int = -1
    samples: int = -1

    def infer(self, x: Shape) -> TupleShape:
        strings(x)
        dims: list[Dim] = [
            fresh(name) if n < 0 else n for name, n in (("samples", self.samples), ("channels", self.channels))
        ]
        return TupleShape([Shape.of(dt.float32, dims), Shape.of(dt.int32, ())])

    def compute(self, x: Array) -> tuple[Array, Array]:
        data = encoded(str(x.reshape(-1)[0]))
        with reading("WAV file"):
            return self._samples(*self._chunks(data))

    def _samples(self, count: int, rate: int, raw: bytes) -> tuple[Array, Array]:
        made = np.frombuffer(raw[: len(raw) // (2 * count) * 2 * count], "<i2").reshape(-1, count)
        made = (made / np.float32(32768)).astype(np.float32)
        wanted = self.channels if self.channels >= 0 else count
        require_memory((max(len(made), self.samples), wanted), 4)
        if count < wanted:
            made = np.concatenate([made, np.repeat(made[:, :1], wanted - count, 1)], 1)
        made = made[:, :wanted]
        if self.samples >= 0:
            made = np.pad(made[: self.samples], ((0, max(self.samples - len(made), 0)), (0, 0)))
        return made, np.array(rate, np.int32)

    def _chunks(self, data: bytes) -> tuple[int, int, bytes]:
        """Returns channels, sample rate and samples.  Errors: ShapeError."""
        if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
            raise ShapeError("a WAV file must begin with RIFF and WAVE")
        at, found = 12, None
        while at + 8 <= len(data):
            name, size = data[at : at + 4], struct.unpack_from("<I", data, at + 4)[0]
            if name == b"fmt ":
                found = struct.unpack_from("<HHIIHH", data, at + 8)
            elif name == b"data" and found is not None:
                kind, count, rate, _, _, bits = found
                if kind not in (1, 0xFFFE) or bits != 16 or not count:
                    raise ShapeError(f"WAV files must be 16-bit PCM, got encoding {kind} with {bits} bits")
                return count, rate, data[at + 8 : at + 8 + size]
            at += 8 + size + size % 2
        raise ShapeError("a WAV file must have a format chunk and a data chunk")


@op("tf_spectrogram")
class Spectrogram(Operation):
    """Magnitudes of the short-time Fourier transform with Hann windows, zero-padded to a power of two.

    x: float [samples, channels] -> [channels, windows, coefficients]; squared: squared magnitudes.
    Source: TensorFlow AudioSpectrogram.
    """

    window: int
    stride: int
    squared: bool = False

    def _length(self) -> int:
        return 1 << max(self.window - 1, 0).bit_length()

    def infer(self, x: Shape) -> Shape:
        if x.rank != 2 or self.window < 2 or self.stride < 1:
            raise ShapeError(f"samples [n, channels], a window of at least 2 and a stride are required, got {x}")
        windows = (x.dims[0] - self.window) // self.stride + 1
        return x.with_dims((x.dims[1], windows, self._length() // 2 + 1))

    def compute(self, x: Array) -> Array:
        count = max((len(x) - self.window) // self.stride + 1, 0)
        require_memory((x.shape[1], count, self._length()), 16)
        weights = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(self.window) / self.window)
        at = np.arange(count)[:, None] * self.stride + np.arange(self.window)
        parts = np.moveaxis(x[at], 2, 0) * weights
        found = np.abs(np.fft.rfft(parts, self._length(), -1)) ** 2
        return np.asarray(found if self.squared else np.sqrt(found)).astype(x.dtype)


@op("tf_mfcc")
class Mfcc(Operation):
    """Mel-frequency cepstral coefficients: DCT of log energies of mel bands.

    spectrogram: float [channels, windows, coefficients], squared magnitudes -> [channels, windows, count].
    rate: sample rate; low, high: frequency range in hertz; bands: number of mel bands.  Source: TensorFlow Mfcc.
    """

    rate: int
    low: float
    high: float
    bands: int
    count: int

    def infer(self, x: Shape) -> Shape:
        if x.rank != 3 or self.rate < 1 or not 0 <= self.low < self.high or not 0 < self.count <= self.bands:
            raise ShapeError(f"a spectrogram, a sample rate and an ascending frequency range are required, got {x}")
        return x.with_dims((*x.dims[:2], self.count))

    def compute(self, x: Array) -> Array:
        size = x.shape[2]
        if size < 2:
            raise ShapeError(f"a spectrogram must have at least 2 coefficients, got {size}")
        require_memory((size + self.count, self.bands), 8)
        with reading("spectrogram"):
            energy = np.sqrt(x.astype(np.float64)) @ self._bands(size)
        log = np.log(np.maximum(energy, 1e-12))
        places = np.arange(self.bands)
        turn = np.cos(np.arange(self.count)[:, None] * (places + 0.5) * math.pi / self.bands)
        return np.asarray(log @ turn.T * math.sqrt(2 / self.bands)).astype(x.dtype)

    def _bands(self, size: int) -> Array:
        """Returns the weights [coefficients, bands] of triangular filters."""

        def mel(hertz: float) -> float:
            return 1127 * math.log1p(hertz / 700)

        low, high = mel(self.low), mel(self.high)
        centers = low + (high - low) / (self.bands + 1) * np.arange(1, self.bands + 2)
        each = 0.5 * self.rate / (size - 1)
        first, last = int(1.5 + self.low / each), int(self.high / each)
        weights = np.zeros((size, self.bands))
        for k in range(first, min(last, size - 1) + 1):
            here = mel(k * each)
            band = int(np.searchsorted(centers, here, "right")) - 1
            begin = low if band < 0 else centers[band]
            end = centers[min(band + 1, self.bands)]
            share = (end - here) / (end - begin)
            if band >= 0:
                weights[k, band] += share
            if band + 1 < self.bands:
                weights[k, band + 1] += 1 - share
        return weights
