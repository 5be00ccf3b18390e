"""Window functions for signals, and mel filter banks."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Final

import numpy as np

from ..errors import ParameterError, ShapeError
from ..types.argument import Array
from ..types.dim import fresh, may_equal
from ..types.dtype import DType, float32
from ..types.memory_limit import require_memory
from ..types.shape import Shape
from .declaration import op
from .operation import Operation
from .scalar import convert, widen

__all__ = ["BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix"]

MOST_BANDS: Final = 1 << 16


def number(x: Shape | None, name: str, integer: bool = True) -> None:
    """Errors: ShapeError unless x is absent, a scalar or a vector of one, of the right kind."""
    if x is None:
        return
    if (
        x.rank > 1
        or not all(may_equal(d, 1) for d in x.dims)
        or not (x.dtype.is_integer if integer else x.dtype.is_number)
    ):
        raise ShapeError(f"{name} must be one {'integer' if integer else 'number'}, got {x}")


def value(x: Array, name: str, least: int = 0) -> int:
    """Returns the integer in a run-time operand.  Errors: ParameterError if it is below `least`."""
    n = int(np.asarray(x).reshape(-1)[0])
    if n < least:
        raise ParameterError(f"{name} must be at least {least}, got {n}")
    if n > 1 << 32:
        raise ParameterError(f"{name} must be below 2**32, got {n}")
    return n


@op("")
class Window(Operation):
    """Base of the windows: a sum of cosines over `size` points, a run-time integer."""

    __slots__ = ()

    cosines: ClassVar[tuple[float, ...]] = ()
    periodic: bool = True
    dtype: DType = float32

    def infer(self, size: Shape) -> Shape:
        number(size, "size")
        if not (self.dtype.is_float or self.dtype.is_integer):
            raise ParameterError(f"a window cannot be of type {self.dtype}")
        return Shape.of(self.dtype, (fresh("window"),))

    def compute(self, size: Array) -> Array:
        return self.points(value(size, "size"))

    def points(self, size: int) -> Array:
        """Returns the window itself."""
        require_memory([size], 8)
        span = max(size if self.periodic else size - 1, 1)
        middle = span // 2 + 1  # what follows mirrors the points before
        at = 2 * math.pi * np.arange(middle) / span
        out = np.full(middle, self.cosines[0])
        for i, c in enumerate(self.cosines[1:], 1):
            out += c * np.cos(i * at)
        half = convert(out, self.dtype)
        return np.concatenate([half[:size], half[span - size + 1 : span - middle + 1][::-1]])


@op("hann_window")
class HannWindow(Window):
    """0.5 - 0.5 cos over `size` points.

    size: one integer -> [size] of `dtype`.  Source: ONNX HannWindow-17.
    """

    cosines: ClassVar[tuple[float, ...]] = (0.5, -0.5)


@op("hamming_window")
class HammingWindow(Window):
    """25/46 - 21/46 cos over `size` points.

    size: one integer -> [size] of `dtype`.  Source: ONNX HammingWindow-17.
    """

    cosines: ClassVar[tuple[float, ...]] = (25 / 46, -21 / 46)


@op("blackman_window")
class BlackmanWindow(Window):
    """0.42 - 0.5 cos + 0.08 cos of twice, over `size` points.

    size: one integer -> [size] of `dtype`.  Source: ONNX BlackmanWindow-17.
    """

    cosines: ClassVar[tuple[float, ...]] = (0.42, -0.5, 0.08)


@op("mel_weight_matrix")
class MelWeightMatrix(Operation):
    """Triangular filters that map bins of a one-sided spectrum to bands of the mel scale.

    All inputs are single numbers -> [dft_length // 2 + 1, num_mel_bins] of `dtype`.
    Errors: ParameterError for counts below 1 or frequencies out of order.  Source: ONNX MelWeightMatrix-17.
    """

    dtype: DType = float32

    def infer(
        self,
        num_mel_bins: Shape,
        dft_length: Shape,
        sample_rate: Shape,
        lower_edge_hertz: Shape,
        upper_edge_hertz: Shape,
    ) -> Shape:
        for name, x in (("num_mel_bins", num_mel_bins), ("dft_length", dft_length), ("sample_rate", sample_rate)):
            number(x, name)
        number(lower_edge_hertz, "lower_edge_hertz", integer=False)
        number(upper_edge_hertz, "upper_edge_hertz", integer=False)
        return Shape.of(self.dtype, (fresh("bins"), fresh("bands")))

    def compute(
        self,
        num_mel_bins: Array,
        dft_length: Array,
        sample_rate: Array,
        lower_edge_hertz: Array,
        upper_edge_hertz: Array,
    ) -> Array:
        bands, length = value(num_mel_bins, "num_mel_bins", 1), value(dft_length, "dft_length", 1)
        rate = value(sample_rate, "sample_rate", 1)
        low, high = (float(widen(np.asarray(x)).reshape(-1)[0]) for x in (lower_edge_hertz, upper_edge_hertz))
        if not 0 <= low < high < math.inf:
            raise ParameterError(f"frequencies must be finite and satisfy 0 <= lower < upper, got {low} and {high}")
        bins = length // 2 + 1
        if bands > MOST_BANDS:
            raise ParameterError(f"num_mel_bins must be at most {MOST_BANDS}, got {bands}")
        require_memory((bins, bands), 8)
        mel_low, mel_high = (2595 * math.log10(1 + f / 700) for f in (low, high))
        # the standard's step, which stops short of mel_high
        mels = mel_low + np.arange(bands + 2) * (mel_high - mel_low) / (bands + 2)
        hertz = 700 * (10 ** (mels / 2595) - 1)
        edges = np.floor(np.minimum((length + 1) * hertz / rate, 1 << 62)).astype(np.int64)
        # a bin between two edges falls in the band whose center is the first, and rises in the next one
        within = np.minimum(edges, bins)
        counts = within[1:] - within[:-1]
        interval = np.repeat(np.arange(bands + 1), counts)
        at: Any = np.arange(within[0], within[-1])
        left, right = edges[interval], edges[interval + 1]
        out = np.zeros((bins, bands), self.dtype.numpy)
        flat, place = out.reshape(-1), at * bands + interval
        rising = slice(0, len(at) - counts[-1])
        flat[place[rising]] = convert(((at - left) / (right - left))[rising], self.dtype)
        falling = slice(counts[0], None)
        flat[place[falling] - 1] = convert(((right - at) / (right - left))[falling], self.dtype)
        kept = int(np.searchsorted(edges[1:-1], bins))  # centers are 1, also of bands whose edges are equal
        out[edges[1 : kept + 1], np.arange(kept)] = 1
        return out
