"""Resampling an image to other extents, axis by axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np

from ..errors import ParameterError, ShapeError
from ..named_tuples import NamedTuple
from ..types.argument import Array
from ..types.dim import Dim, Sym, bounds, fresh, may_equal
from ..types.dtype import DType, float32, float64, of
from ..types.memory_limit import require_memory
from ..types.shape import Shape
from ..types.traced_int import TracedInt, int_or_traced
from .axes import normalize_all
from .builder import Builder, Operand
from .convert import Convert
from .declaration import op
from .operation import Operation
from .sample import cubic_weights
from .scalar import convert, widen

__all__ = ["MOST_SUMMED", "Axis", "Resize", "interpolation_type"]

# the taps of a dense weighted sum, including those of weight 0, where an infinity or NaN makes the result NaN
MOST_SUMMED: Final = 4
EXACT: Final = 1 << 24  # all integers up to this one are float32 numbers
MOST_FACTOR: Final = 1 << 10  # of an extent by which a factor multiplies it exactly


class Axis(NamedTuple):
    """One axis to be resized: its extents before and after, the factor, and the cropped region."""

    size: int
    out: int
    scale: float
    start: float
    end: float


def interpolation_type(dtype: DType) -> DType:
    """Returns the type in which integers are interpolated."""
    return float32 if dtype.size < 4 else float64


@op("resize")
class Resize(Operation):
    """Resamples x along `axes` (default: all) to other extents.

    x: any number type -> the same type.  The new extents: `sizes`, or floor(extent * scale) from `scales`; both as
    attributes or as run-time vectors (float32 scales, int64 sizes; roi: starts then ends, for tf_crop_and_resize).
    With both attributes, `sizes` are the extents and `scales` the coordinate factors, independent of the ratio of the extents.
    Errors: ShapeError if they do not fit x's rank, ParameterError for bad factors.  Source: ONNX Resize-19.
    """

    scales: tuple[float, ...] = ()
    sizes: tuple[Dim, ...] = ()
    nearest_mode: Literal["round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple"] = "floor"
    mode: Literal["nearest", "linear", "cubic"] = "nearest"
    coordinate_transformation_mode: Literal[
        "half_pixel",
        "half_pixel_symmetric",
        "pytorch_half_pixel",
        "align_corners",
        "asymmetric",
        "tf_half_pixel_for_nn",
        "tf_crop_and_resize",
    ] = "half_pixel"
    cubic_coeff_a: float = -0.75
    exclude_outside: bool = False
    extrapolation_value: float = 0.0
    antialias: bool = False
    roi: tuple[float, ...] = ()
    axes: tuple[int, ...] = ()
    keep_aspect_ratio_policy: Literal["stretch", "not_larger", "not_smaller"] = "stretch"

    @property
    def exact(self) -> bool:
        return self.mode == "nearest"

    @property
    def moves(self) -> bool:
        return self.mode == "nearest" and self.coordinate_transformation_mode != "tf_crop_and_resize"

    def check(self) -> None:
        check_scales(self.scales)

    def infer(
        self, x: Shape, scales: Shape | None = None, sizes: Shape | None = None, roi: Shape | None = None
    ) -> Shape:
        if not (x.dtype.is_number or x.dtype.kind == "b" or (x.dtype.kind == "s" and self.mode == "nearest")):
            raise ShapeError(f"x must be of a number type, got {x.dtype}")
        axes = self.resized(x.rank)
        if (scales is not None) + (sizes is not None) + bool(self.scales or self.sizes) != 1:
            raise ShapeError("resize needs scales or sizes, as attributes or as one operand")
        for name, given, count in (
            ("scales", scales, len(axes)),
            ("sizes", sizes, len(axes)),
            ("roi", roi, 2 * len(axes)),
        ):
            if given is not None and (given.rank != 1 or not may_equal(given.dims[0], count)):
                raise ShapeError(f"{name} must be a vector of {count} numbers, got {given}")
        if sizes is not None and not sizes.dtype.is_integer:
            raise ShapeError(f"sizes must be integers, got {sizes.dtype}")
        if scales is not None and not scales.dtype.is_float:
            raise ShapeError(f"scales must be floats, got {scales.dtype}")
        if scales is not None or sizes is not None:
            return x.with_dims(fresh("resized") if i in axes else d for i, d in enumerate(x.dims))
        out = list(x.dims)
        for axis, d in zip(axes, self.targets([x.dims[a] for a in axes], self.scales, self.sizes), strict=True):
            out[axis] = d
        return x.with_dims(out)

    def resized(self, rank: int) -> tuple[int, ...]:
        """Returns the axes that scales and sizes refer to."""
        return normalize_all(self.axes, rank) if self.axes else tuple(range(rank))

    def targets(self, dims: Sequence[Dim], scales: Sequence[float], sizes: Sequence[Dim]) -> list[Dim]:
        """Returns the new extents of the resized axes."""
        for given in (scales or sizes, sizes or scales):
            if len(given) != len(dims):
                raise ShapeError(f"{len(given)} scales or sizes given for {len(dims)} axes")
        if any(not isinstance(s, Sym) and s < 0 for s in sizes):
            raise ShapeError(f"sizes must not be negative, got {list(sizes)}")
        if scales and not sizes:
            return [scaled(d, s) for d, s in zip(dims, scales, strict=True)]
        if scales or self.keep_aspect_ratio_policy == "stretch":
            return list(sizes)
        if any(isinstance(d, Sym) for d in (*dims, *sizes)):
            return [fresh("resized") for _ in dims]
        factor = self.aspect([int(d) for d in dims], [int(s) for s in sizes])
        return [math.floor(factor * int(d) + 0.5) for d in dims]

    def aspect(self, dims: Sequence[int], sizes: Sequence[int]) -> float:
        """Returns the one factor for all axes that keeps the aspect ratio."""
        choose = min if self.keep_aspect_ratio_policy == "not_larger" else max
        if 0 in dims:
            raise ShapeError(f"extents {list(dims)} have no aspect ratio to keep")
        return choose(s / d for s, d in zip(sizes, dims, strict=True))

    def compute(
        self, x: Array, scales: Array | None = None, sizes: Array | None = None, roi: Array | None = None
    ) -> Array:
        axes = self.resized(x.ndim)
        dims = [x.shape[a] for a in axes]
        factors = [float(s) for s in (self.scales if scales is None else widen(scales))]
        wanted: list[Dim] = [int(s) for s in (self.sizes if sizes is None else sizes)]
        if scales is not None or sizes is not None:
            factors, wanted = (factors, []) if scales is not None else ([], wanted)
        check_scales(factors)
        targets = [int(t) for t in self.targets(dims, factors, wanted)]
        if not factors:
            if self.keep_aspect_ratio_policy == "stretch":
                factors = [t / d if d else 1.0 for t, d in zip(targets, dims, strict=True)]
            else:
                factors = [self.aspect(dims, [int(s) for s in wanted])] * len(dims)
        sides = dict(zip(axes, targets, strict=True))
        require_memory((sides.get(a, n) for a, n in enumerate(x.shape)), max(x.itemsize, 4))
        box = [float(v) for v in (self.roi if roi is None else widen(roi))] or [0.0] * len(axes) + [1.0] * len(axes)
        if len(box) != 2 * len(axes):
            raise ShapeError(f"roi needs {2 * len(axes)} numbers, got {len(box)}")
        out = x if x.dtype == object else widen(x)
        if self.mode != "nearest" and out.dtype.kind not in "fc":
            out = out.astype(interpolation_type(of(out.dtype)).numpy)
        outside: Array | None = None
        for k, axis in enumerate(axes):
            plan = Axis(dims[k], targets[k], factors[k], box[k], box[k + len(axes)])
            if plan.size == 0 and plan.out:
                raise ShapeError(f"axis {axis} has no elements to make {plan.out} from")
            cropped = self.coordinate_transformation_mode == "tf_crop_and_resize"
            whole = not cropped or (plan.start, plan.end) == (0, 1)
            if plan.out == 0 or (plan.size == plan.out and plan.scale == 1.0 and whole):
                out = out.take(range(plan.out), axis) if plan.out != plan.size else out
                continue
            at = self.source(plan)
            out = self.along(out, axis, at, plan)
            if cropped:
                beyond = ((at < 0) | (at > plan.size - 1)).reshape([-1 if a == axis else 1 for a in range(x.ndim)])
                outside = beyond if outside is None else outside | beyond
        if outside is not None and outside.any():
            out = np.where(outside, out.dtype.type(self.extrapolation_value), out)
        return out if x.dtype == object else convert(out, of(x.dtype))

    def decompose(self, b: Builder, x: Operand, *operands: Operand | None) -> Operand | None:
        dtype = x.shape.dtype
        if self.mode == "nearest" or dtype.is_float:
            return None
        wide = b.add(Convert(target_type=interpolation_type(dtype)), x)
        return b.add(Convert(target_type=dtype), b.add(self, wide, *(b.absent() if o is None else o for o in operands)))

    def source(self, axis: Axis) -> Array:
        """Returns the position of each new element on the old axis; in float32 for `nearest`, so that ties are detected."""
        kind: Any = np.float32 if self.mode == "nearest" else np.float64
        i = np.arange(axis.out, dtype=np.float64)
        match self.coordinate_transformation_mode:
            case "half_pixel" | "half_pixel_symmetric" | "pytorch_half_pixel":
                at = ((i + 0.5) / axis.scale).astype(kind) - kind(0.5)
                if self.coordinate_transformation_mode == "half_pixel_symmetric":
                    at = at + kind(axis.size / 2 * (1 - axis.out / (axis.scale * axis.size)))
                elif self.coordinate_transformation_mode == "pytorch_half_pixel" and axis.out <= 1:
                    at = np.zeros(axis.out, kind)
                return np.asarray(at)
            case "align_corners":
                ends = axis.size * axis.scale - 1  # not rounded, as in the standard's own tests
                return (i * (axis.size - 1) / ends if axis.out > 1 else np.zeros(axis.out)).astype(kind)
            case "asymmetric":
                return (i / axis.scale).astype(kind)
            case "tf_half_pixel_for_nn":
                return ((i + 0.5) / axis.scale).astype(kind)
        last = axis.size - 1
        if axis.out > 1:
            return (axis.start * last + i * (axis.end - axis.start) * last / (axis.out - 1)).astype(kind)
        return np.full(axis.out, 0.5 * (axis.start + axis.end) * last, kind)

    def along(self, x: Array, axis: int, at: Array, plan: Axis) -> Array:
        """Returns x resampled at the positions `at` of one axis."""
        if self.mode == "nearest":
            return np.take(x, np.clip(self.nearest(at, plan.scale), 0, plan.size - 1), axis)
        index, weight = self.taps(at, plan)
        lead = [1] * axis + [-1] + [1] * (x.ndim - axis - 1)
        if index.shape[1] <= MOST_SUMMED:
            total = np.take(x, index[:, 0], axis) * weight[:, 0].astype(x.dtype).reshape(lead)
            for t in range(1, index.shape[1]):
                total += np.take(x, index[:, t], axis) * weight[:, t].astype(x.dtype).reshape(lead)
            return np.asarray(total)
        if x.dtype.kind in "fc" and not np.isfinite(x).all():  # 0 * inf would contribute NaN from outside the filter
            total = np.zeros_like(np.take(x, index[:, 0], axis))
            for t in range(index.shape[1]):
                factor = weight[:, t].astype(x.dtype).reshape(lead)
                total += np.where(factor == 0, 0, np.take(x, index[:, t], axis)) * factor
            return np.asarray(total)
        matrix = np.zeros((plan.out, plan.size))
        np.add.at(matrix, (np.arange(plan.out)[:, None], index), weight)
        return np.moveaxis(np.moveaxis(x, axis, -1) @ matrix.T.astype(x.dtype), -1, axis)

    def taps(self, at: Array, plan: Axis) -> tuple[Array, Array]:
        """Returns the source indices (clamped to the axis) and weights of each result element."""
        index, weight = self.weights(at, plan.scale)
        if self.exclude_outside:
            weight = np.where((index < 0) | (index >= plan.size), 0, weight)
            weight = weight / weight.sum(-1, keepdims=True)
        return np.clip(index, 0, plan.size - 1), weight

    def nearest(self, at: Array, scale: float) -> Array:
        match self.nearest_mode:
            case "round_prefer_floor":
                found = np.ceil(at - at.dtype.type(0.5))
            case "round_prefer_ceil":
                found = np.floor(at + at.dtype.type(0.5))
            case "floor":
                found = np.floor(at)
            case "ceil":
                found = np.ceil(at)
            case _:
                found = np.ceil(at) if scale < 1 else np.floor(at)
        return np.asarray(found.astype(np.int64))

    def weights(self, at: Array, scale: float) -> tuple[Array, Array]:
        """Returns the neighbors of each position and their weights, [out, taps]; antialias stretches it when shrinking."""
        reach = 1 if self.mode == "linear" else 2
        narrow = min(scale, 1.0) if self.antialias else 1.0
        low = np.floor(at)[:, None]
        first = math.floor(-reach / narrow) + 1
        steps = np.arange(first, 2 - first) if narrow < 1 else np.arange(1 - reach, reach + 1)
        distance = (low + steps - at[:, None]) * narrow
        weight = (
            np.maximum(1 - np.abs(distance), 0)
            if self.mode == "linear"
            else cubic_weights(distance, self.cubic_coeff_a)
        )
        if narrow < 1:
            weight = weight / weight.sum(-1, keepdims=True)
        return (low + steps).astype(np.int64), weight


def scaled(d: Dim, scale: float) -> Dim:
    """Returns floor(d * scale), in float32 as ONNX's own shape inference."""
    top, bottom = float(scale).as_integer_ratio()  # bottom is a power of two
    if isinstance(d, Sym):
        if 1 / scale == int(1 / scale):
            return d // int(1 / scale)
        if top <= MOST_FACTOR:
            return d * top // bottom
        return fresh("resized", 0, math.floor(bounds(d)[1] * scale))
    if type(d) is TracedInt and top <= MOST_FACTOR and d * top <= EXACT:
        return int_or_traced(d * top // bottom)
    return int(np.floor(np.float32(d) * np.float32(scale)))


def check_scales(scales: Sequence[float]) -> None:
    """Errors: ParameterError unless all factors are positive and finite."""
    if any(not (s > 0 and math.isfinite(s)) for s in scales):
        raise ParameterError(f"scales must be positive, got {list(scales)}")
