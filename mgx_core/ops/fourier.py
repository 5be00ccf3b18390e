"""Fourier transforms."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..errors import ParameterError, ShapeError
from ..types.argument import Array
from ..types.dim import Dim, bounds, fresh, may_equal
from ..types.dtype import float32, of
from ..types.memory_limit import require_memory
from ..types.shape import Shape
from .axes import normalize
from .broadcast import Multibroadcast
from .builder import Builder, Operand
from .concat import Concat
from .convert import Convert
from .declaration import op
from .index import Gather
from .linear import Dot
from .movement import Reverse, Transpose
from .operation import Operation
from .pad import Pad
from .pointwise import Mul
from .reshape import Reshape, Squeeze
from .scalar import convert, widen
from .signal import number, value
from .slice import Slice

__all__ = ["Dft", "Stft", "products"]

# inverse transforms of lengths below this use the definition: the product is exact where a fast transform leaves 2e-7 instead of
# zero, and ONNX's own test of length 10 requires 1e-7
SHORTEST: Final = 16
# elements of a matrix from which two products with smaller ones take less time than one, on a device with launches, too
LARGEST: Final = 1 << 18
LONGEST: Final = 1024  # up to this length the product is no slower than a fast transform on the host
FACTORS: Final = 256  # greatest sum of two factors of a longer length for which the same holds for two products


def parts(x: Shape, least: int) -> Dim:
    """Returns 1 for real or 2 for complex x.  Errors: ShapeError for other last extents or lower ranks."""
    if not x.dtype.is_float or x.rank < least or not (may_equal(x.dims[-1], 1) or may_equal(x.dims[-1], 2)):
        raise ShapeError(f"the signal must be float [.., n, 1 or 2] of rank {least} or more, got {x}")
    return x.dims[-1]


def joined(x: Array) -> Array:
    """Returns real and imaginary parts on the last axis as complex numbers (a single real part remains real)."""
    wide = widen(x)
    if x.shape[-1] == 1:
        return wide[..., 0]
    return np.ascontiguousarray(wide).view(np.result_type(wide.dtype, np.complex64))[..., 0]


def separate(x: Array) -> Array:
    """Returns the real and imaginary parts of complex numbers on a new last axis; a view if they are row-major."""
    return np.ascontiguousarray(x).view(x.real.dtype).reshape(*x.shape, 2)


@op("dft", slow=True)
class Dft(Operation):
    """Discrete Fourier transform along one axis; the last axis holds real and imaginary parts.

    x: float [.., n, .., 1 or 2] -> [.., m, .., 2].  dft_length (attribute 0: n; or an integer known at run time) pads
    or cuts n; `onesided` forward keeps m = length // 2 + 1 of a real x; `onesided` `inverse` maps such a half to
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
        require_memory((n if a == at else d for a, d in enumerate(x.shape)), 16)
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

    def decompose(self, b: Builder, x: Operand, *operands: Operand | None) -> Operand | None:
        """Decomposes into products with constant matrices: one up to length `LONGEST`, two for longer ones with small factors."""
        if any(o is not None for o in operands):
            return None
        return products(b, self, x, LONGEST, LARGEST)


def products(
    b: Builder, op: Dft, x: Operand, longest: int, largest: int, kept: tuple[int, int] | None = None
) -> Operand | None:
    """Returns a transform by products with constant matrices; None for unknown extents, or a length without small factors.

    kept: begin and end of the results to compute along the axis, by default all; longest: length up to which one product takes
    no more time than a fast transform on the host; largest: elements of a matrix from which two products with smaller ones
    take less.
    """
    at, rank, dims = op.along(x.shape.rank, op.axis), x.shape.rank, x.shape.dims
    n, length, kind = dims[at], op.infer(x.shape).dims[at], dims[-1]
    if not isinstance(n, int) or not isinstance(length, int) or not isinstance(kind, int):
        return None
    total = length if op.inverse or not op.onesided else int(op.dft_length) or n
    half = op.inverse and op.onesided
    if (op.inverse and total < SHORTEST) or total < 1 or not few_terms(total, longest) or not n or rank < 3:
        return None
    given = total // 2 + 1 if half else total
    used = min(n, given)
    if used < n:
        x = b.add(Slice(axes=(at,), starts=(0,), ends=(used,)), x)
    order = (*(a for a in range(rank - 1) if a != at), at, rank - 1)
    x = x if at == rank - 2 else b.add(Transpose(permutation=order), x)
    if total > longest:
        x = x if used == given else b.add(Pad(pads=(*[0] * (2 * rank - 2), given - used, 0)), x)
        x = mirrored(b, x, total) if half else x
    front = [0] * (rank - 2)
    rows = b.add(Reshape(dims=(*front, -1)), x)  # with -1, zeros copy extents of empty tensors, too
    begin, end = kept or (0, length)
    whole = (begin, end) == (0, length)
    if total <= longest and (half or used < total or not whole):
        columns = matrix(used, kind, total, length, op.inverse, half).reshape(used * kind, length, -1)
        made = transformed(b, rows, columns[:, begin:end].reshape(used * kind, -1))
        length = end - begin
    else:
        made = spectrum(b, rows, kind, total, length, op.inverse, largest)
    made = b.add(Reshape(dims=(*front, length, -1)), made)
    if length != end - begin:
        made = b.add(Slice(axes=(rank - 2,), starts=(begin,), ends=(end,)), made)
    if total > longest and half:
        made = b.add(Slice(axes=(rank - 1,), starts=(0,), ends=(1,)), made)
    back = tuple(int(p) for p in np.argsort(order))
    return made if at == rank - 2 else b.add(Transpose(permutation=back), made)


def few_terms(total: int, longest: int = LONGEST) -> bool:
    """Tells whether products with constant matrices take no more time than a fast transform of length `total` on the host."""
    return total <= longest or any(total % d == 0 and d + total // d <= FACTORS for d in range(2, FACTORS))


def mirrored(b: Builder, x: Operand, total: int) -> Operand:
    """Returns the spectrum [.., total, kind] of a real signal of which x [.., total // 2 + 1, kind] is the first half."""
    axis, known, dims = x.shape.rank - 2, total // 2 + 1, x.shape.dims
    other = b.add(Slice(axes=(axis,), starts=(1,), ends=(total - known + 1,)), x)
    other = b.add(Reverse(axes=(axis,)), other)
    if dims[-1] == 2:
        sign = b.literal(np.array([1, -1], x.shape.dtype.numpy))
        other = b.add(Mul(), other, b.add(Multibroadcast(out_lens=other.shape.dims), sign))
    return b.add(Concat(axis=axis), x, other)


def matrix(n: int, kind: int, total: int, length: int, inverse: bool, half: bool) -> Array:
    """Returns the matrix [n kind, length parts] of a transform of length `total`, for n inputs and `length` outputs.

    Rows and columns hold the parts of a number one after the other: kind 1 for reals, 2 for complex ones; parts likewise 1 if
    `half`, where rows are the first half of a spectrum whose other half mirrors it, else 2.
    """
    angle = np.outer(np.arange(n), np.arange(length)) % total * (2 * np.pi / total) * (1 if inverse else -1)
    if half:
        twice = np.where((np.arange(n) == 0) | (2 * np.arange(n) == total), 1.0, 2.0)[:, None]
        made = np.stack([np.cos(angle) * twice, -np.sin(angle) * twice], 1)[:, :kind].reshape(n * kind, -1)
    else:
        made = factors(angle, kind)
    return made / (total if inverse else 1)


def factors(angle: Array, kind: int) -> Array:
    """Returns the matrices [.., n kind, m 2] that multiply real (kind 1) or complex numbers by exp(i angle), angle [.., n, m]."""
    real, imaginary = np.cos(angle), np.sin(angle)
    cells = np.stack([np.stack([real, imaginary], -1), np.stack([-imaginary, real], -1)], -3)[..., :kind, :, :]
    return cells.reshape(*angle.shape[:-2], angle.shape[-2] * kind, -1)


def transformed(b: Builder, rows: Operand, by: Array) -> Operand:
    """Returns the product of rows with a matrix, or with one per element of their batch.

    Rounding the matrix to floats of two bytes changes results no more than the rounding of the rows did; narrower floats are
    converted to float32.
    """
    dtype = rows.shape.dtype
    wide = dtype if dtype.size >= 2 else float32
    rows = rows if wide is dtype else b.add(Convert(target_type=wide), rows)
    factor = b.literal(by.astype(wide.numpy))
    batch = rows.shape.dims[:-2]
    if batch and by.ndim == 2:
        factor = b.add(Multibroadcast(out_lens=(*batch, *by.shape)), factor)
    made = b.add(Dot(), rows, factor)
    return made if wide is dtype else b.add(Convert(target_type=dtype), made)


def spectrum(b: Builder, rows: Operand, kind: int, total: int, length: int, inverse: bool, largest: int) -> Operand:
    """Returns the first `length` numbers of the transforms of rows [.., total kind], as [.., length 2]: by one product or two.

    kind: 1 for real rows, 2 for complex ones.
    """
    divisors = [d for d in range(2, total) if total % d == 0]
    if not divisors or total * kind * length * 2 < largest:
        return transformed(b, rows, matrix(total, kind, total, length, inverse, False))
    dtype = rows.shape.dtype
    first = min(divisors, key=lambda d: d * kind + 2 * (total // d))
    wide = rows if dtype.size >= 4 else b.add(Convert(target_type=float32), rows)
    made = in_two_steps(b, wide, kind, first, total, length, inverse)
    return made if dtype.size >= 4 else b.add(Convert(target_type=dtype), made)


def in_two_steps(b: Builder, rows: Operand, kind: int, first: int, total: int, length: int, inverse: bool) -> Operand:
    """Returns the transforms of `spectrum` by two products (Cooley and Tukey): for `first` and for total / first numbers.

    Number second a + c is summed over a, to k' < first, then over c, to k = k' + first k''.  The factors between the sums,
    exp(-2 pi i c k' / total), are part of the matrices of the first product, one for each c.
    """
    second, sign = total // first, 1 if inverse else -1
    kept = -(-length // first)  # numbers k'' that any result needs
    front, rank = rows.shape.dims[:-1], rows.shape.rank - 1
    split = b.add(Reshape(dims=(*([0] * rank), first, second, -1)), rows)
    split = b.add(Transpose(permutation=(rank + 1, *range(rank), rank, rank + 2)), split)
    split = b.add(Reshape(dims=(second, -1, first * kind)), split)
    turns = np.outer(np.arange(first), np.arange(first)) * second + np.arange(second)[:, None, None] * np.arange(first)
    made = transformed(b, split, factors(turns % total * (2 * np.pi / total) * sign, kind))
    made = b.add(Reshape(dims=(second, -1, first, 2)), made)
    made = b.add(Transpose(permutation=(1, 2, 0, 3)), made)
    made = transformed(
        b,
        b.add(Reshape(dims=(-1, second * 2)), made),
        matrix(second, 2, second, kept, inverse, False) * (1 / first if inverse else 1),
    )
    made = b.add(Reshape(dims=(-1, first, kept, 2)), made)
    made, empty = b.add(Transpose(permutation=(0, 2, 1, 3)), made), any(bounds(n)[0] < 1 for n in front)  # perhaps
    made = b.add(Reshape(dims=(*front, first * kept * 2), allowzero=empty), made)
    return b.add(Slice(axes=(rank,), starts=(0,), ends=(length * 2,)), made) if length < first * kept else made


@op("stft", slow=True)
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

    def decompose(
        self,
        b: Builder,
        signal: Operand,
        frame_step: Operand | None = None,
        window: Operand | None = None,
        frame_length: Operand | None = None,
    ) -> Operand | None:
        """Decomposes into a gather of frames and their transforms, as `Dft` does; for real signals."""
        length: Dim = self.frame_length or (signal.shape.dims[1] if window is None else window.shape.dims[0])
        n, kind = signal.shape.dims[1:]
        if frame_step is not None or frame_length is not None or kind != 1:
            return None
        if not isinstance(length, int) or not isinstance(n, int) or not few_terms(length):
            return None
        starts = np.arange((n - length) // self.frame_step + 1) * self.frame_step
        rows = b.add(Squeeze(axes=(2,)), signal)
        frames = b.add(Gather(axis=1), rows, b.literal(starts[:, None] + np.arange(length)))
        if window is not None:
            wide = (
                window
                if window.shape.dtype is signal.shape.dtype
                else b.add(Convert(target_type=signal.shape.dtype), window)
            )
            frames = b.add(Mul(), frames, b.add(Multibroadcast(out_lens=frames.shape.dims), wide))
        bins = length // 2 + 1 if self.onesided else length
        made = spectrum(b, frames, 1, length, bins, False, LARGEST)
        return b.add(Reshape(dims=(0, 0, bins, -1)), made)


def _frame_fits(length: int, signal: int) -> None:
    """Raises ShapeError for a frame that is empty or longer than the signal."""
    if not 0 < length <= signal:
        raise ShapeError(f"a frame of {length} does not fit a signal of {signal}")
