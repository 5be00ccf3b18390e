"""Prefix sums and products along one axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..types import dtype as dt
from ..types.argument import Array
from ..types.shape import Shape
from .axes import normalize
from .declaration import op
from .operation import Operation
from .scalar import convert, widen

__all__ = ["PrefixScanProd", "PrefixScanSum"]


@op("")
class PrefixScan(Operation):
    """Base of the prefix scans.

    x: number [.., n, ..], along: optional integer scalar known at run time (instead of `axis`) -> same shape.
    `exclusive`: result i excludes x[i]; `reverse`: scans from the end.
    Errors: ShapeError if `axis` is outside the rank of x.
    """

    __slots__ = ()

    axis: int = 0
    exclusive: bool = False
    reverse: bool = False

    def infer(self, x: Shape, along: Shape | None = None) -> Shape:
        if not x.dtype.is_number:
            raise ShapeError(f"x must be of a number type, got {x.dtype}")
        if along is None:
            normalize(self.axis, x.rank)
        elif not along.dtype.is_integer or (not along.dynamic() and along.elements() != 1):
            raise ShapeError(f"the axis must be one integer, got {along}")
        return x.as_standard()

    def scan(self, x: Array, along: Array | None, function: Callable[..., Any], neutral: int) -> Array:
        axis = normalize(self.axis if along is None else int(along.reshape(-1)[0]), x.ndim)
        wide = widen(x)
        lines = np.moveaxis(wide, axis, -1)
        if self.reverse:
            lines = lines[..., ::-1]
        out = np.empty(lines.shape, np.float64 if wide.dtype == np.float32 else wide.dtype)
        if self.exclusive:
            out[..., :1] = neutral
            function(lines[..., :-1], axis=-1, dtype=out.dtype, out=out[..., 1:])
        else:
            function(lines, axis=-1, dtype=out.dtype, out=out)
        if self.reverse:
            out = out[..., ::-1]
        return convert(np.ascontiguousarray(np.moveaxis(out, -1, axis)), dt.of(x.dtype))


@op("prefix_scan_sum", linear=(0,))
class PrefixScanSum(PrefixScan):
    """Running sum along one axis.  Source: ONNX CumSum-14."""

    def compute(self, x: Array, along: Array | None = None) -> Array:
        return self.scan(x, along, np.cumsum, 0)


@op("prefix_scan_prod")
class PrefixScanProd(PrefixScan):
    """Running product along one axis.  Source: ONNX CumProd-26."""

    def compute(self, x: Array, along: Array | None = None) -> Array:
        return self.scan(x, along, np.cumprod, 1)
