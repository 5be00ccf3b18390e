"""Fourier transforms."""

from __future__ import annotations

import numpy as np

from ..errors import ParameterError, ShapeError
from ..types.argument import Array
from ..types.dim import Dim, fresh, may_equal
from ..types.dtype import of
from ..types.memory_limit import require_room
from ..types.shape import Shape
from .axes import normalize
from .declaration import op
from .operation import Operation
from .scalar import convert, widen
from .signal import number, value

__all__ = ["Dft", "Stft"]


def parts(x: Shape, least: int) -> Dim:
    """1 for real or 2 for complex x.  Errors: ShapeError for other last extents or lower ranks."""
    if not x.dtype.is_float or x.rank < least or not (may_equal(x.dims[-1], 1) or may_equal(x.dims[-1], 2)):
        raise ShapeError(f"the signal must be float [.., n, 1 or 2] of rank {least} or more, got {x}")
    return x.dims[-1]


def joined(x: Array) -> Array:
    """Real and imaginary parts on the last axis as complex numbers (a lone real part stays real)."""
    wide = widen(x)
    if x.shape[-1] == 1:
        return wide[..., 0]
    return np.ascontiguousarray(wide).view(np.result_type(wide.dtype, np.complex64))[..., 0]


def separate(x: Array) -> Array:
    """Complex numbers as real and imaginary parts on a new last axis, on the same memory where they lie row-major."""
    return np.ascontiguousarray(x).view(x.real.dtype).reshape(*x.shape, 2)


@op("dft")
class Dft(Operation):
    """Discrete Fourier transform along one axis; the last axis holds real and imaginary parts.

    x: float [.., n, .., 1 or 2] -> [.., m, .., 2].  dft_length (attribute 0: n; or an integer known at run time) pads
    or cuts n; `onesided` forward keeps m = length // 2 + 1 of a real x; `onesided` `inverse` takes such a half and gives
    reals [.., length, .., 1], length 2 (n - 1) by default.  axis: attribute, or an integer known at run time.
    Errors: ShapeError if x or the axis does not fit.  Source: ONNX DFT-20.
    """

    axis: int = -2
    inverse: bool = False
    onesided: bool = False
    dft_length: Dim = 0

    def infer(self, x: Shape, dft_length: Shape | None = None, axis: Shape | None = None) -> Shape:
        kind = parts(x, 2)
        number(dft_length, "dft_length")
        number(axis, "axis")
        if self.onesided and not self.inverse and not may_equal(kind, 1):
            raise ShapeError(f"a one-sided transform needs a real signal, got {x}")
        last = 1 if self.onesided and self.inverse else 2
        if axis is not None:
            return x.with_dims((*(fresh("spectrum") for _ in x.dims[:-1]), last))
        at = self.along(x.rank, self.axis)
        dims = list(x.dims)
        n: Dim = dims[at] if self.dft_length == 0 else self.dft_length
        if self.onesided and self.inverse and self.dft_length == 0:
            n = (dims[at] - 1) * 2
        if dft_length is not None:
            n = fresh("length")
        dims[at] = n // 2 + 1 if self.onesided and not self.inverse else n
        dims[-1] = last
        return x.with_dims(dims)

    def along(self, rank: int, axis: int) -> int:
        at = normalize(axis, rank)
        if at == rank - 1:
            raise ShapeError(f"axis {axis} holds the real and imaginary parts of a signal of rank {rank}")
        return at

    def compute(self, x: Array, dft_length: Array | None = None, axis: Array | None = None) -> Array:
        at = self.along(x.ndim, self.axis if axis is None else int(np.asarray(axis).reshape(-1)[0]))
        n = x.shape[at]
        if dft_length is not None:
            n = value(dft_length, "dft_length", 1)
        elif self.dft_length != 0:
            n = int(self.dft_length)
        elif self.onesided and self.inverse:
            n = (n - 1) * 2
        require_room((n if a == at else d for a, d in enumerate(x.shape)), 16)
        signal = joined(x)
        if n == 0 or signal.size == 0:
            length = n // 2 + 1 if self.onesided and not self.inverse else n
            dims = [length if a == at else d for a, d in enumerate(signal.shape)]
            return np.zeros((*dims, 1 if self.onesided and self.inverse else 2), x.dtype)
        if self.onesided and self.inverse:
            return convert(np.fft.irfft(signal, n, at)[..., None], of(x.dtype))
        if self.onesided:
            if np.iscomplexobj(signal):
                raise ShapeError("a one-sided transform needs a real signal, got a complex one")
            return convert(separate(np.fft.rfft(signal, n, at)), of(x.dtype))
        return convert(separate(np.fft.ifft(signal, n, at) if self.inverse else np.fft.fft(signal, n, at)), of(x.dtype))


@op("stft")
class Stft(Operation):
    """Fourier transforms of overlapping frames of a signal.

    signal: float [b, n, 1 or 2]; frame_step, frame_length: integers known at run time (or attributes where above 0);
    window [frame_length] -> [b, frames, bins, 2], frames = (n - frame_length) // frame_step + 1.
    Errors: ShapeError if they do not fit, ParameterError for a step below 1.  Source: ONNX STFT-17.
    """

    frame_step: int = 0
    frame_length: int = 0
    onesided: bool = True

    def infer(
        self,
        signal: Shape,
        frame_step: Shape | None = None,
        window: Shape | None = None,
        frame_length: Shape | None = None,
    ) -> Shape:
        kind = parts(signal, 3)
        number(frame_step, "frame_step")
        number(frame_length, "frame_length")
        if signal.rank != 3:
            raise ShapeError(f"the signal must be [b, n, 1 or 2], got {signal}")
        if window is not None and window.rank != 1:
            raise ShapeError(f"window must be a vector, got {window}")
        if self.onesided and not may_equal(kind, 1):
            raise ShapeError(f"a one-sided transform needs a real signal, got {signal}")
        length: Dim = signal.dims[1]
        if window is not None:
            length = window.dims[0]
        if self.frame_length:
            if window is not None and not may_equal(length, self.frame_length):
                raise ShapeError(f"window must have frame_length {self.frame_length} elements, got {window}")
            length = self.frame_length
        elif frame_length is not None and window is None:
            length = fresh("frame")
        if frame_step is None and self.frame_step < 1:
            raise ParameterError("stft needs frame_step as an attribute or an input")
        if isinstance(length, int) and isinstance(signal.dims[1], int):
            _frame_fits(length, signal.dims[1])
        frames = fresh("frames") if frame_step is not None else (signal.dims[1] - length) // self.frame_step + 1
        return signal.with_dims((signal.dims[0], frames, length // 2 + 1 if self.onesided else length, 2))

    def compute(
        self,
        signal: Array,
        frame_step: Array | None = None,
        window: Array | None = None,
        frame_length: Array | None = None,
    ) -> Array:
        step = self.frame_step if frame_step is None else value(frame_step, "frame_step", 1)
        length = self.frame_length if frame_length is None else value(frame_length, "frame_length", 1)
        length = length or (signal.shape[1] if window is None else window.shape[0])
        if window is not None and window.shape[0] != length:
            raise ShapeError(f"window must have frame_length {length} elements, got {window.shape[0]}")
        _frame_fits(length, signal.shape[1])
        x = joined(signal)
        frames = np.lib.stride_tricks.sliding_window_view(x, length, axis=1)[:, ::step]
        if window is not None:
            frames = frames * widen(window).astype(widen(signal).dtype)
        return convert(separate(np.fft.rfft(frames) if self.onesided else np.fft.fft(frames)), of(signal.dtype))


def _frame_fits(length: int, signal: int) -> None:
    """Raises ShapeError for a frame that is empty or longer than the signal."""
    if not 0 < length <= signal:
        raise ShapeError(f"a frame of {length} does not fit a signal of {signal}")
