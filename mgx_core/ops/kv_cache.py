"""Key-value caches of decoders."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ShapeError
from ..types.argument import Array
from ..types.dim import Dim, may_equal
from ..types.dtype import int64
from ..types.shape import Shape
from .broadcast import Multibroadcast
from .builder import Builder, Operand
from .compare import GreaterOrEqual, Less, LogicalAnd
from .convert import Convert
from .declaration import op
from .index import Gather, Gathernd
from .movement import Transpose
from .operation import Operation
from .pad import Pad
from .pointwise import Max, Min, Sub, Where
from .reshape import Reshape
from .slice import Slice

__all__ = ["ConcatPastPresent"]


@op("concat_past_present", exact=True)
class ConcatPastPresent(Operation):
    """Appends new keys or values to a cache.

    present [b, g, s, d], seqlens_k integer [b] (tokens of each sample after this step, less one), past [b, g, c, d]
    -> [b, g, n, d], n the attribute `length` (default: c).
    A sample's s new rows are written to its last positions; from 0 on if it has fewer than s tokens.  Other rows
    keep the cache's values, whether a sample has tokens there or not, and are zero beyond the cache (onnxruntime sets all rows
    without tokens to zero, except where `past` and the result share a buffer).
    kv_num_heads: g if given, checked.
    Errors: ShapeError for operands that do not fit, or more tokens than the cache can hold.
    Source: GroupQueryAttention of com.microsoft.
    """

    kv_num_heads: int = 0
    length: Dim | None = None

    def infer(self, present: Shape, seqlens_k: Shape, past: Shape) -> Shape:
        if present.rank != 4 or past.rank != 4 or present.dtype is not past.dtype:
            raise ShapeError(f"present and past must be [b, g, s, d] of one dtype, got {present} and {past}")
        for i in (0, 1, 3):
            if not may_equal(present.dims[i], past.dims[i]):
                raise ShapeError(f"present and past may differ on axis 2 only, got {present} and {past}")
        if self.kv_num_heads and not may_equal(present.dims[1], self.kv_num_heads):
            raise ShapeError(f"kv_num_heads is {self.kv_num_heads}, present has {present.dims[1]} heads")
        if not seqlens_k.dtype.is_integer or seqlens_k.rank != 1 or not may_equal(seqlens_k.dims[0], present.dims[0]):
            raise ShapeError(f"seqlens_k must be an integer vector of {present.dims[0]}, got {seqlens_k}")
        length = past.dims[2] if self.length is None else self.length
        return present.with_dims((present.dims[0], present.dims[1], length, present.dims[3]))

    def compute(self, present: Array, seqlens_k: Array, past: Array) -> Array:
        s, c = present.shape[2], past.shape[2]
        totals = [max(last, -1) + 1 for last in seqlens_k.tolist()]
        most = max(totals, default=0)
        length = c if self.length is None else int(self.length)
        if most > length:
            raise ShapeError(f"a sample has {most} tokens, the cache holds {length}")
        out = np.zeros((*present.shape[:2], length, present.shape[3]), present.dtype)
        out[:, :, : min(c, length)] = past[:, :, :length]
        for b, tokens in enumerate(totals):
            start = max(tokens - s, 0)
            rows = min(s, length - start)
            out[b, :, start : start + rows] = present[b, :, :rows]
        return out

    def decompose(self, b: Builder, present: Operand, seqlens_k: Operand, past: Operand) -> Any:
        if present.shape.dynamic() or past.shape.dynamic():
            return None
        if self.length is not None and not isinstance(self.length, int):
            return None
        n, g, s, d = present.shape.lens()
        c = past.shape.lens()[2]
        length = c if self.length is None else int(self.length)
        if not (length and s):
            return None
        dims = (n, g, length, d)
        if length > c:
            past = b.add(Pad(pads=(0, 0, 0, 0, 0, 0, length - c, 0)), past)
        elif length < c:
            past = b.add(Slice(axes=(2,), starts=(0,), ends=(length,)), past)

        def wide(value: Any, lens: tuple[Dim, ...]) -> Operand:
            made = value if not isinstance(value, (int, np.ndarray)) else b.literal(np.asarray(value, np.int64))
            return b.add(Multibroadcast(out_lens=lens), made)

        last = b.add(Max(), b.add(Convert(target_type=int64), seqlens_k), wide(0, (n,)))
        last = b.add(Gather(axis=0), b.literal(np.arange(length)), last)  # raises ShapeError for tokens that do not fit
        start = b.add(Max(), b.add(Sub(), last, wide(s - 1, (n,))), wide(0, (n,)))
        start = wide(b.add(Reshape(dims=(n, 1)), start), (n, length))
        # the index of the new token that each position receives
        row = b.add(Sub(), wide(np.arange(length), (n, length)), start)
        inside = b.add(LogicalAnd(), b.add(GreaterOrEqual(), row, wide(0, row.shape.dims)),
                       b.add(Less(), row, wide(s, row.shape.dims)))  # fmt: skip
        if s == 1:
            new = wide(present, dims)
        else:
            row = b.add(Min(), b.add(Max(), row, wide(0, row.shape.dims)), wide(s - 1, row.shape.dims))
            turned = b.add(Transpose(permutation=(0, 2, 1, 3)), present)
            new = b.add(Gathernd(batch_dims=1), turned, b.add(Reshape(dims=(n, length, 1)), row))
            new = b.add(Transpose(permutation=(0, 2, 1, 3)), new)
        return b.add(Where(), wide(b.add(Reshape(dims=(n, 1, length, 1)), inside), dims), new, past)
