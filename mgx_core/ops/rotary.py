"""Rotary position embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ShapeError
from ..types.argument import Array
from ..types.dim import compare, may_equal
from ..types.dtype import int64, of
from ..types.shape import Shape
from .broadcast import Multibroadcast
from .builder import Builder, Operand
from .compare import Less
from .concat import Concat
from .convert import Convert
from .declaration import op
from .index import Gather
from .operation import Operation
from .pointwise import Add, Max, Min, Mul, Sub, Where
from .reshape import Reshape
from .scalar import convert, widen
from .slice import Slice

__all__ = ["GqaRotaryEmbedding", "RotaryEmbedding", "rotated"]


def rotated(x: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    """Rotates the first n elements of each vector of x [b, h, s, d] by the angles of cos and sin [b or 1, s, n / 2]."""
    half = cos.shape[-1]
    turned, rest = x[..., : 2 * half], x[..., 2 * half :]
    if interleaved:
        one, other = turned[..., 0::2], turned[..., 1::2]
    else:
        one, other = turned[..., :half], turned[..., half:]
    c, s = cos[:, None], sin[:, None]
    parts = (c * one - s * other, s * one + c * other)
    if interleaved:
        whole = np.stack(parts, axis=-1).reshape(turned.shape)
    else:
        whole = np.concatenate(parts, axis=-1)
    return np.concatenate((whole, rest), axis=-1) if rest.shape[-1] else whole


def _check(x: Shape, cos: Shape, sin: Shape) -> None:
    if x.rank != 4 or not x.dtype.is_float:
        raise ShapeError(f"x must be a float tensor [batch, heads, length, size], got {x}")
    if cos.dtype is not x.dtype or sin.dtype is not x.dtype:
        raise ShapeError(f"the caches must have x's dtype {x.dtype}, got {cos.dtype} and {sin.dtype}")
    if cos.rank != sin.rank or not all(map(may_equal, cos.dims, sin.dims)):
        raise ShapeError(f"cos and sin must have the same dims, got {list(cos.dims)} and {list(sin.dims)}")
    if compare(cos.dims[-1] * 2, ">", x.dims[3]):
        raise ShapeError(f"caches for {cos.dims[-1] * 2} elements are wider than the head size {x.dims[3]}")


def _angles(cache: Array, positions: Array) -> Array:
    if positions.size and (positions.min() < 0 or positions.max() >= len(cache)):
        raise ShapeError(f"positions must lie in 0..{len(cache) - 1}, got {positions.min()} to {positions.max()}")
    return widen(cache)[positions]


@op("rotary_embedding")
class RotaryEmbedding(Operation):
    """Rotates pairs of elements of each vector by angles that depend on its position.

    x [b, h, s, d]; cos, sin [m, n / 2] with positions integer [b, s] (or [1]: the first of s consecutive ones), or
    [b, s, n / 2] without -> [b, h, s, d]; the first n <= d elements are rotated.  interleaved: pairs are neighbors,
    else an element of the first half and one of the second.
    Errors: ShapeError for operands that do not fit or positions outside the caches.  Source: ONNX RotaryEmbedding-23.
    """

    interleaved: bool = False

    def infer(self, x: Shape, cos: Shape, sin: Shape, positions: Shape | None = None) -> Shape:
        _check(x, cos, sin)
        b, _, s, _ = x.dims
        if positions is None:
            if cos.rank != 3 or not (may_equal(cos.dims[0], b) and may_equal(cos.dims[1], s)):
                raise ShapeError(f"without positions the caches must be [{b}, {s}, n / 2], got {cos}")
        elif cos.rank != 2:
            raise ShapeError(f"with positions the caches must be [positions, n / 2], got {cos}")
        elif positions.dtype.is_integer and positions.dims == (1,):
            pass
        elif not positions.dtype.is_integer or positions.rank != 2 or not all(map(may_equal, positions.dims, (b, s))):
            raise ShapeError(f"positions must be integers [{b}, {s}], got {positions}")
        return x.as_standard()

    def compute(self, x: Array, cos: Array, sin: Array, positions: Array | None = None) -> Array:
        if positions is None:
            cosines, sines = widen(cos), widen(sin)
        else:
            if positions.ndim == 1:
                positions = positions.astype(np.int64) + np.arange(x.shape[2])[None, :]
            cosines, sines = _angles(cos, positions), _angles(sin, positions)
        out = rotated(widen(x), cosines, sines, self.interleaved)
        return convert(out, of(x.dtype))

    def decompose(self, b: Builder, x: Operand, cos: Operand, sin: Operand, positions: Any = None) -> Any:
        if x.shape.dynamic() or x.shape.dtype.bits < 16 or (positions is not None and positions.shape.rank != 2):
            return None
        n, h, s, d = x.shape.lens()
        if positions is not None:
            cos, sin = b.add(Gather(axis=0), cos, positions), b.add(Gather(axis=0), sin, positions)
        half = int(cos.shape.dims[-1])
        c, e = (b.add(Reshape(dims=(n, 1, s, half)), v) for v in (cos, sin))
        c, e = (b.add(Multibroadcast(out_lens=(n, h, s, half)), v) for v in (c, e))

        def cut(v: Operand, axis: int, start: int, end: int) -> Operand:
            return b.add(Slice(axes=(axis,), starts=(start,), ends=(end,)), v)

        turned = cut(x, 3, 0, 2 * half)
        if self.interleaved:
            pairs = b.add(Reshape(dims=(n, h, s, half, 2)), turned)
            flat = [b.add(Reshape(dims=(n, h, s, half)), cut(pairs, 4, i, i + 1)) for i in range(2)]
        else:
            flat = [cut(turned, 3, i * half, (i + 1) * half) for i in range(2)]
        real = b.add(Sub(), b.add(Mul(), c, flat[0]), b.add(Mul(), e, flat[1]))
        other = b.add(Add(), b.add(Mul(), e, flat[0]), b.add(Mul(), c, flat[1]))
        if self.interleaved:
            columns = [b.add(Reshape(dims=(n, h, s, half, 1)), v) for v in (real, other)]
            parts = [b.add(Reshape(dims=(n, h, s, 2 * half)), b.add(Concat(axis=4), *columns))]
        else:
            parts = [real, other]
        if 2 * half < d:
            parts.append(cut(x, 3, 2 * half, d))
        return parts[0] if len(parts) == 1 else b.add(Concat(axis=3), *parts)


@op("gqa_rotary_embedding")
class GqaRotaryEmbedding(Operation):
    """Rotary embedding of new tokens at positions derived from each sample's number of tokens.

    x [b, h, s, d]; seqlens_k integer [b], the number of tokens less one; cos, sin [m, n / 2] -> [b, h, s, d].
    A sample's s new tokens are its last ones; if it has fewer than s, they start at position 0 (positions past the
    caches, which only padding has, use the last angle).
    Errors: ShapeError for operands that do not fit.  Source: GroupQueryAttention of com.microsoft.
    """

    interleaved: bool = False

    def infer(self, x: Shape, seqlens_k: Shape, cos: Shape, sin: Shape) -> Shape:
        _check(x, cos, sin)
        if cos.rank != 2:
            raise ShapeError(f"the caches must be [positions, n / 2], got {cos}")
        if not seqlens_k.dtype.is_integer or seqlens_k.rank != 1 or not may_equal(seqlens_k.dims[0], x.dims[0]):
            raise ShapeError(f"seqlens_k must be an integer vector of {x.dims[0]}, got {seqlens_k}")
        return x.as_standard()

    def compute(self, x: Array, seqlens_k: Array, cos: Array, sin: Array) -> Array:
        s = x.shape[2]
        total = seqlens_k.astype(np.int64) + 1
        if total.size and (total.min() < 0 or total.max() > len(cos)):
            raise ShapeError(f"seqlens_k must lie in -1..{len(cos) - 1}, got {seqlens_k.tolist()}")
        positions = np.maximum(total - s, 0)[:, None] + np.arange(s)[None, :]
        positions = np.minimum(positions, len(cos) - 1)
        out = rotated(widen(x), _angles(cos, positions), _angles(sin, positions), self.interleaved)
        return convert(out, of(x.dtype))

    def decompose(self, b: Builder, x: Operand, seqlens_k: Operand, cos: Operand, sin: Operand) -> Any:
        if x.shape.dynamic() or cos.shape.dynamic():
            return None
        n, _, s, _ = x.shape.lens()
        rows = cos.shape.lens()[0]

        def wide(value: Any) -> Operand:
            made = value if not isinstance(value, (int, np.ndarray)) else b.literal(np.asarray(value, np.int64))
            return b.add(Multibroadcast(out_lens=(n, s)), made)

        tokens = b.add(Reshape(dims=(n, 1)), b.add(Convert(target_type=int64), seqlens_k))
        total = b.add(Add(), wide(tokens), wide(1))
        at = b.add(Add(), b.add(Max(), b.add(Sub(), total, wide(s)), wide(0)), wide(np.arange(s)))
        # padding uses the last angle; too many tokens, or a negative number, must still be refused
        at = b.add(Min(), at, b.add(Sub(), b.add(Max(), total, wide(rows)), wide(1)))
        at = b.add(Where(), b.add(Less(), total, wide(0)), wide(rows), at)
        return b.add(RotaryEmbedding(interleaved=self.interleaved), x, cos, sin, at)
