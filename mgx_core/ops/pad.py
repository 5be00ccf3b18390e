"""Padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ..errors import ShapeError
from ..types import dtype as dt
from ..types.argument import Array
from ..types.dim import Dim, bounds, compare, fresh
from ..types.memory_limit import require_memory
from ..types.shape import Shape
from .axes import normalize_all
from .builder import Builder, Operand
from .declaration import op
from .extents import merge, scalar_operand, vector_length, whole
from .index import Gather
from .operation import Operation
from .scalar import convert
from .window import padded

__all__ = ["FixedPad", "Pad"]


@op("pad", exact=True)
class Pad(Operation):
    """Pads by given widths: all begins, then all ends; negative widths crop.

    x: any [..] -> same rank.  pads (one begin and one end per axis), value and axes may be run-time inputs; the input
    `axes` names the axes that pads apply to.  mode: a constant, the mirror image without the edge element, the edge
    element, or the opposite side.
    Errors: ShapeError for a wrong number of pads, crops beyond the extent, or nothing to mirror.  Source: ONNX
    Pad-19.
    """

    pads: tuple[Dim, ...] = ()
    mode: Literal["constant", "reflect", "edge", "wrap"] = "constant"
    value: float = 0.0

    def infer(
        self, x: Shape, pads: Shape | None = None, value: Shape | None = None, axes: Shape | None = None
    ) -> Shape:
        if value is not None and scalar_operand(value, "value").dtype is not x.dtype:
            raise ShapeError(f"value must have type {x.dtype}, got {value.dtype}")
        if pads is None and axes is None:
            count = len(self.pads)
            if count != 2 * x.rank:
                raise ShapeError(f"two pads per axis are required, got {count} for rank {x.rank}")
            out = [d + b + e for d, b, e in zip(x.dims, self.pads[: x.rank], self.pads[x.rank :], strict=True)]
            if any(bounds(d)[1] < 0 for d in out):
                raise ShapeError(f"pads {list(self.pads)} crop more than {x} has")
            return x.with_dims(out)
        if pads is None:
            raise ShapeError("run-time axes need run-time pads")
        length = vector_length(pads, "pads")
        if axes is None:
            merge(length, 2 * x.rank, "the number of pads and twice the rank")
        else:
            merge(length, vector_length(axes, "axes") * 2, "the number of pads and twice the number of axes")
        return x.with_dims(fresh("n") for _ in x.dims)

    def compute(
        self, x: Array, pads: Array | None = None, value: Array | None = None, axes: Array | None = None
    ) -> Array:
        widths = [int(p) for p in self.pads] if pads is None else whole(pads)
        on = normalize_all(range(x.ndim) if axes is None else whole(axes), x.ndim)
        if len(widths) != 2 * len(on):
            raise ShapeError(f"two pads per axis are required, got {len(widths)} for {len(on)} axes")
        begins, ends = [0] * x.ndim, [0] * x.ndim
        for i, axis in enumerate(on):
            begins[axis], ends[axis] = widths[i], widths[i + len(on)]
        for n, b, e in zip(x.shape, begins, ends, strict=True):
            if n + b + e < 0:
                raise ShapeError(f"pads {widths} crop more than {list(x.shape)} has")
        require_memory((n + b + e for n, b, e in zip(x.shape, begins, ends, strict=True)), x.itemsize)
        if self.mode != "constant":
            return self._from_inside(x, begins, ends)
        if value is not None:
            border = value.reshape(-1)[0]
        elif x.dtype == object:
            border = ""
        else:
            border = convert(np.asarray(self.value), dt.of(x.dtype))[()]
        return padded(x, begins, ends, border)

    def _from_inside(self, x: Array, begins: Sequence[int], ends: Sequence[int]) -> Array:
        for axis, (begin, end) in enumerate(zip(begins, ends, strict=True)):
            if begin == end == 0:
                continue
            x = np.take(x, self._sources(x.shape[axis], begin, end), axis)
        return x

    def _sources(self, length: int, begin: int, end: int) -> Array:
        """Returns source indices of the elements of a padded axis, which is cropped first, then extended."""
        inner = range(length)[max(-begin, 0) : max(length + min(end, 0), 0)]
        return self._repeated(len(inner), max(begin, 0), max(end, 0)) + inner.start

    def _repeated(self, n: int, begin: int, end: int) -> Array:
        """Returns indices into `n` elements, extended by the given counts before and after."""
        if n == 0 and begin + end:
            raise ShapeError(f"the axis is empty: mode {self.mode!r} has nothing to repeat")
        at = np.arange(-begin, n + end)
        if self.mode == "edge":
            return np.clip(at, 0, max(n - 1, 0))
        if self.mode == "wrap":
            return np.asarray(at % max(n, 1))
        period = max(2 * (n - 1), 1)
        at = at % period
        return np.minimum(at, period - at) if n > 1 else np.zeros_like(at)

    def decompose(self, b: Builder, x: Operand, *operands: Operand | None) -> Operand | None:
        if operands or self.mode == "constant" or x.shape.dynamic():
            return None
        rank = x.shape.rank
        for axis in range(rank):
            begin, end = int(self.pads[axis]), int(self.pads[axis + rank])
            if begin or end:
                x = b.add(Gather(axis=axis), x, b.literal(self._sources(x.shape.lens()[axis], begin, end)))
        return x


@op("fixed_pad", exact=True)
class FixedPad(Operation):
    """Pads with zeros after the last element of each axis, up to static extents.

    x: any [..] -> output_lens.  Errors: ShapeError if x is larger.  Source: MIGraphX fixed_pad.
    """

    output_lens: tuple[Dim, ...]

    def infer(self, x: Shape) -> Shape:
        if len(self.output_lens) != x.rank:
            raise ShapeError(f"output_lens must have one extent per axis, got {list(self.output_lens)} for {x}")
        for d, n in zip(x.dims, self.output_lens, strict=True):
            if compare(d, ">", n):
                raise ShapeError(f"{x} is larger than {list(self.output_lens)}")
        return x.with_dims(self.output_lens)

    def compute(self, x: Array) -> Array:
        lens = [int(n) for n in self.output_lens]
        if any(n > m for n, m in zip(x.shape, lens, strict=True)):
            raise ShapeError(f"{list(x.shape)} is larger than {lens}")
        out = np.zeros(lens, x.dtype)
        out[tuple(slice(n) for n in x.shape)] = x
        return out

    def decompose(self, b: Builder, x: Operand) -> Operand | None:
        missing = tuple(n - d for n, d in zip(self.output_lens, x.shape.dims, strict=True))
        return b.add(Pad(pads=(*(0,) * x.shape.rank, *missing)), x)
