"""Max pooling with argmax, and morphological dilation, of images [n, h, w, c]."""

from __future__ import annotations

import numpy as np

from mgx_core import Shape, TupleShape
from mgx_core import dtype as dt
from mgx_core.errors import ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.dim import Dim, ceil_div

__all__: list[str] = []


def counts(dims: tuple[Dim, ...], lengths: tuple[int, ...], stride: tuple[int, ...], same: bool) -> list[Dim]:
    """Returns the number of windows along each axis."""
    pairs = zip(dims, lengths, stride, strict=True)
    return [ceil_div(d, s) if same else (d - k) // s + 1 for d, k, s in pairs]


def before(d: int, k: int, s: int, same: bool) -> int:
    """Returns the leading padding of an axis."""
    return max((-(-d // s) - 1) * s + k - d, 0) // 2 if same else 0


@op("tf_max_pool_with_argmax", exact=True)
class MaxPoolWithArgmax(Operation):
    """The maximum of each window and its linear index in the image, or in the batch with `include_batch`.

    x: number [n, h, w, c] -> [n, oh, ow, c], int64 [n, oh, ow, c].
    Errors: ShapeError for another rank.  Source: TensorFlow MaxPoolWithArgmax.
    """

    lengths: tuple[int, ...]
    stride: tuple[int, ...]
    same: bool = False
    include_batch: bool = False

    def infer(self, x: Shape) -> TupleShape:
        if x.rank != 4:
            raise ShapeError(f"an image [n, h, w, c] is required, got {x}")
        out = x.with_dims((x.dims[0], *counts(x.dims[1:3], self.lengths, self.stride, self.same), x.dims[3]))
        return TupleShape([out, out.with_dtype(dt.int64)])

    def compute(self, x: Array) -> tuple[Array, Array]:
        n, h, w, c = x.shape
        oh, ow = (int(v) for v in counts((h, w), self.lengths, self.stride, self.same))
        top, left = (before(d, k, s, self.same) for d, k, s in zip((h, w), self.lengths, self.stride, strict=True))
        places = (
            np.arange(n * h * w * c).reshape(x.shape)
            if self.include_batch
            else np.broadcast_to(np.arange(h * w * c).reshape(1, h, w, c), x.shape)
        )
        values, found = np.empty((n, oh, ow, c), x.dtype), np.empty((n, oh, ow, c), np.int64)
        for i, j in np.ndindex(oh, ow):
            a, b = i * self.stride[0] - top, j * self.stride[1] - left
            rows, columns = slice(max(a, 0), a + self.lengths[0]), slice(max(b, 0), b + self.lengths[1])
            part = x[:, rows, columns].reshape(n, -1, c)
            best = part.argmax(1)[:, None]
            values[:, i, j] = np.take_along_axis(part, best, 1)[:, 0]
            found[:, i, j] = np.take_along_axis(places[:, rows, columns].reshape(n, -1, c), best, 1)[:, 0]
        return values, found


@op("tf_dilation2d")
class Dilation2d(Operation):
    """Grayscale dilation: the maximum over each window of x plus the structuring element.

    x: number [n, h, w, c], w: [kh, kw, c] -> [n, oh, ow, c].
    Errors: ShapeError for other ranks.  Source: TensorFlow Dilation2D.
    """

    stride: tuple[int, ...]
    rate: tuple[int, ...]
    same: bool = False

    def infer(self, x: Shape, w: Shape) -> Shape:
        if x.rank != 4 or w.rank != 3:
            raise ShapeError(f"an image [n, h, w, c] and kernels [kh, kw, c] are required, got {x} and {w}")
        if not isinstance(w.dims[0], int) or not isinstance(w.dims[1], int):
            raise ShapeError(f"kernels of known extents are required, got {w}")
        spans = ((w.dims[0] - 1) * self.rate[0] + 1, (w.dims[1] - 1) * self.rate[1] + 1)
        return x.with_dims((x.dims[0], *counts(x.dims[1:3], spans, self.stride, self.same), x.dims[3]))

    def compute(self, x: Array, w: Array) -> Array:
        n, h, wide, c = x.shape
        spans = tuple((k - 1) * r + 1 for k, r in zip(w.shape[:2], self.rate, strict=True))
        oh, ow = (int(v) for v in counts((h, wide), spans, self.stride, self.same))
        top, left = (before(d, k, s, self.same) for d, k, s in zip((h, wide), spans, self.stride, strict=True))
        out = np.full((n, oh, ow, c), -np.inf, x.dtype)
        for i, j, a, b in np.ndindex(oh, ow, *w.shape[:2]):
            row, column = i * self.stride[0] - top + a * self.rate[0], j * self.stride[1] - left + b * self.rate[1]
            if 0 <= row < h and 0 <= column < wide:
                out[:, i, j] = np.maximum(out[:, i, j], x[:, row, column] + w[a, b])
        return out
