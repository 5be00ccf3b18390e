"""Regions of interest: roialign and max_roi_pool."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..errors import ParameterError, ShapeError
from ..types.argument import Array
from ..types.dim import may_equal
from ..types.dtype import of
from ..types.shape import Shape
from .declaration import op
from .operation import Operation
from .scalar import convert, widen

__all__ = ["MaxRoiPool", "Roialign"]

MAX_POINTS = 1024  # along one axis of a cell
Points = tuple[Array, Array, int]


def regions(x: Shape, rois: Shape, columns: int) -> None:
    """Errors: ShapeError unless x is float [n, c, h, w] and rois of its type [r, columns]."""
    if x.rank != 4 or not x.dtype.is_float:
        raise ShapeError(f"x must be float [n, c, h, w], got {x}")
    if rois.rank != 2 or not may_equal(rois.dims[1], columns) or rois.dtype is not x.dtype:
        raise ShapeError(f"rois must be {x.dtype} [r, {columns}], got {rois}")


def image_numbers(numbers: Array, batch: int) -> list[int]:
    """Returns the image index of each region.  Errors: ParameterError for an image that x does not have."""
    found = [int(n) for n in numbers]
    if found and (min(found) < 0 or max(found) >= batch):
        raise ParameterError(f"regions name images {min(found)} to {max(found)}, x has {batch}")
    return found


@op("roialign")
class Roialign(Operation):
    """Resamples each region of an image to one size.

    x: float [n, c, h, w]; rois [r, 4] of x's type: x1, y1, x2, y2; batch_indices: integer [r] -> [r, c, output_height,
    output_width].  Every cell is the mean (or the largest weighted neighbor) of sampling_ratio**2 points between pixels
    (0: about one per pixel).  Errors: ShapeError for other shapes, ParameterError for an image index out of range or more
    than 1024**2 points.
    Source: ONNX RoiAlign-22.
    """

    coordinate_transformation_mode: Literal["half_pixel", "output_half_pixel"] = "half_pixel"
    mode: Literal["avg", "max"] = "avg"
    output_height: int = 1
    output_width: int = 1
    sampling_ratio: int = 0
    spatial_scale: float = 1.0

    def check(self) -> None:
        if self.output_height < 1 or self.output_width < 1 or not 0 <= self.sampling_ratio <= MAX_POINTS:
            raise ParameterError(
                f"roialign needs a positive output and a sampling_ratio of 0 to {MAX_POINTS}, got {self.output_height} x "
                f"{self.output_width}, {self.sampling_ratio}"
            )

    def infer(self, x: Shape, rois: Shape, batch_indices: Shape) -> Shape:
        regions(x, rois, 4)
        if (
            batch_indices.rank != 1
            or not batch_indices.dtype.is_integer
            or not may_equal(batch_indices.dims[0], rois.dims[0])
        ):
            raise ShapeError(f"batch_indices must be integers [{rois.dims[0]}], got {batch_indices}")
        return x.with_dims((rois.dims[0], x.dims[1], self.output_height, self.output_width))

    def compute(self, x: Array, rois: Array, batch_indices: Array) -> Array:
        wide, boxes = widen(x), widen(rois).astype(np.float64) * self.spatial_scale
        images = image_numbers(batch_indices, x.shape[0])
        aligned = self.coordinate_transformation_mode == "half_pixel"
        boxes = boxes - 0.5 if aligned else boxes
        out = np.zeros((len(images), x.shape[1], self.output_height, self.output_width), wide.dtype)
        if not out.size or 0 in x.shape[2:]:
            return convert(out, of(x.dtype))
        for r, image in enumerate(images):
            x1, y1, x2, y2 = (float(v) for v in boxes[r])
            if not all(map(np.isfinite, (x1, y1, x2, y2, x2 - x1, y2 - y1))):
                raise ParameterError(f"region {r} is {boxes[r].tolist()}, which is not finite")
            height, width = (y2 - y1, x2 - x1) if aligned else (max(y2 - y1, 1.0), max(x2 - x1, 1.0))
            if not self.sampling_ratio and (height <= 0 or width <= 0):
                continue  # there are no sampling points
            rows = self.points(y1, height, self.output_height, x.shape[2])
            columns = self.points(x1, width, self.output_width, x.shape[3])
            out[r] = (
                self.mean(wide[image], rows, columns)
                if self.mode == "avg"
                else self.largest(wide[image], rows, columns)
            )
        return convert(out, of(x.dtype))

    def points(self, start: float, length: float, cells: int, size: int) -> Points:
        """Returns the two neighbors of the sampling points along an axis and their weights: both [2, cells, points].

        The third result is the number of points of a cell; of those outside the image, which have weight 0, only some next to
        it are returned, since a region may be vast.
        """
        cell = length / cells
        count = self.sampling_ratio or int(min(max(1, np.ceil(cell)), 2**53))
        step, first, used = cell / count, np.zeros(cells), count
        if step > 0:
            base = start + np.arange(cells) * cell
            first = np.clip(np.floor((-1 - base) / step) - 2, 0, count - 1)
            last = np.clip(np.ceil((size - base) / step) + 2, first + 1, count)
            used = int((last - first).max())
            first = np.minimum(first, count - used)
        at = start + (np.arange(cells)[:, None] + (first[:, None] + np.arange(used) + 0.5) / count) * cell
        inside = (at >= -1) & (at <= size)
        at = np.clip(at, 0, size - 1)
        low = np.floor(at).astype(np.int64)
        part = at - low
        weight = np.stack([1 - part, part]) * inside
        return np.stack([low, np.minimum(low + 1, size - 1)]), weight, count

    def mean(self, image: Array, rows: Points, columns: Points) -> Array:
        left, top = mixing(rows, image.dtype)
        right, side = mixing(columns, image.dtype)
        crop = image[:, top : top + left.shape[1], side : side + right.shape[1]]
        return np.asarray(left @ crop @ right.T)

    def largest(self, image: Array, rows: Points, columns: Points) -> Array:
        best: Array | None = None
        for i, u in zip(*rows[:2], strict=True):
            for j, v in zip(*columns[:2], strict=True):
                values = image[:, i[:, :, None, None], j[None, None]] * (u[:, :, None, None] * v[None, None]).astype(
                    image.dtype
                )
                most = values.max((2, 4))
                best = most if best is None else np.maximum(best, most)
        assert best is not None
        return best


def mixing(points: Points, dtype: np.dtype[np.generic]) -> tuple[Array, int]:
    """Returns the matrix [cells, pixels] that averages sampling points, over the pixels in use, and the first of these."""
    index, weight, count = points
    first, last = int(index.min()), int(index.max())
    matrix = np.zeros((index.shape[1], last - first + 1))
    cells = np.broadcast_to(np.arange(index.shape[1])[None, :, None], index.shape)
    np.add.at(matrix, (cells, index - first), weight / count)
    return matrix.astype(dtype), first


@op("max_roi_pool", exact=True)
class MaxRoiPool(Operation):
    """Max pooling over the cells of a grid in each region.

    x: float [n, c, h, w]; rois [r, 5] of x's type: image, x1, y1, x2, y2 -> [r, c, *pooled_shape]; empty cells are 0.
    Errors: ShapeError for other shapes, ParameterError for an image index out of range.  Source: ONNX MaxRoiPool-22.
    """

    pooled_shape: tuple[int, ...]
    spatial_scale: float = 1.0

    def check(self) -> None:
        if len(self.pooled_shape) != 2 or min(self.pooled_shape) < 1:
            raise ParameterError(f"pooled_shape must be two positive numbers, got {list(self.pooled_shape)}")

    def infer(self, x: Shape, rois: Shape) -> Shape:
        regions(x, rois, 5)
        return x.with_dims((rois.dims[0], x.dims[1], *self.pooled_shape))

    def compute(self, x: Array, rois: Array) -> Array:
        wide, boxes = widen(x), widen(rois)
        images = image_numbers(boxes[:, 0], x.shape[0])
        scaled = boxes[:, 1:].astype(np.float64) * self.spatial_scale
        places = np.floor(np.abs(scaled) + 0.5) * np.sign(scaled)
        out = np.zeros((len(images), x.shape[1], *self.pooled_shape), wide.dtype)
        for r, image in enumerate(images):
            x1, y1, x2, y2 = places[r]
            rows = cells(y1, y2, self.pooled_shape[0], x.shape[2])
            columns = cells(x1, x2, self.pooled_shape[1], x.shape[3])
            for i, row in enumerate(rows):
                for j, column in enumerate(columns):
                    cell = wide[image][:, row, column]
                    if cell.shape[1] and cell.shape[2]:
                        out[r, :, i, j] = cell.max((1, 2))
        return convert(out, of(x.dtype))


def cells(start: float, end: float, count: int, size: int) -> list[slice]:
    """Returns the pixels of each of `count` cells between two pixels, both inclusive."""
    step = max(end - start + 1, 1) / count
    edges = np.arange(count)
    lows = np.clip(np.floor(edges * step) + start, 0, size).astype(int)
    highs = np.clip(np.ceil((edges + 1) * step) + start, 0, size).astype(int)
    return [slice(low, high) for low, high in zip(lows, highs, strict=True)]
