"""Image resampling by weight matrices (bicubic, area, kernels), with extents that may be run-time values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import numpy as np

from mgx_core import Instruction, Shape
from mgx_core import dtype as dt
from mgx_core.errors import ShapeError
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.builder import Builder, Operand
from mgx_core.ops.declaration import op
from mgx_core.ops.linear import Dot
from mgx_core.ops.movement import Transpose
from mgx_core.ops.operation import Operation
from mgx_core.ops.reshape import Reshape
from mgx_core.types.argument import Array
from mgx_core.types.dim import Dim, fresh
from mgx_core.types.memory_limit import require_memory

__all__ = ["KERNELS", "area_weights", "cubic_weights", "kernel_weights"]


def cubic_weights(size: int, out: int, corners: bool, half: bool) -> Array:
    """Returns the weights [out, size] of bicubic resampling, with distances rounded to 1/1024 like TensorFlow's lookup table."""
    scale = (size - 1) / (out - 1) if corners and out > 1 else size / out
    a = -0.5 if half else -0.75
    weights = np.zeros((out, size))
    for i in range(out):
        at = np.float32((i + 0.5) * scale - 0.5) if half else np.float32(i * scale)
        low = int(np.floor(at))
        near = np.rint((at - low) * 1024) / 1024
        found = [_cubic(a, d) for d in (1 + near, near, 1 - near, 2 - near)]
        places = np.arange(low - 1, low + 3)
        if half:  # samples outside the image are dropped and the weights renormalized
            inside = (places >= 0) & (places < size)
            total = float(np.sum(np.where(inside, found, 0)))
            found = [f / total if on and abs(total) > 1e-6 else 0.0 for f, on in zip(found, inside, strict=True)]
        for place, weight in zip(np.clip(places, 0, size - 1), found, strict=True):
            weights[i, place] += weight
    return weights


def _cubic(a: float, x: float) -> float:
    """Returns the cubic convolution kernel at a distance."""
    if x <= 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a


def area_weights(size: int, out: int, corners: bool) -> Array:
    """Returns the weights [out, size] of area averaging."""
    scale = (size - 1) / (out - 1) if corners and out > 1 else size / out
    weights = np.zeros((out, size))
    for i in range(out):
        low, high = i * scale, (i + 1) * scale
        for j in range(int(low), int(np.ceil(high))):
            weights[i, min(j, size - 1)] += min(j + 1, high) - max(j, low)
    return weights / scale


def _keys(x: Any) -> Any:
    return np.where(x >= 2, 0, np.where(x >= 1, ((-0.5 * x + 2.5) * x - 4) * x + 2, ((1.5 * x - 2.5) * x) * x + 1))


def _mitchell(x: Any) -> Any:
    outer = (((-7 / 18) * x + 2) * x - 10 / 3) * x + 16 / 9
    return np.where(x >= 2, 0, np.where(x >= 1, outer, ((7 / 6) * x - 2) * x * x + 8 / 9))


def _lanczos(radius: float) -> Callable[[Any], Any]:
    return lambda x: np.where(x > radius, 0, np.sinc(x) * np.sinc(x / radius))


def _gaussian(x: Any) -> Any:
    return np.where(x >= 1.5, 0, np.exp(-x * x / (2 * 0.5 * 0.5)))


# radius and function by name
KERNELS: Final[dict[str, tuple[float, Callable[[Any], Any]]]] = {
    "lanczos1": (1, _lanczos(1)),
    "lanczos3": (3, _lanczos(3)),
    "lanczos5": (5, _lanczos(5)),
    "gaussian": (1.5, _gaussian),
    "box": (1, lambda x: np.where(x < 0.5, 1.0, np.where(x == 0.5, 0.5, 0.0))),
    "triangle": (1, lambda x: np.maximum(1 - x, 0)),
    "keyscubic": (2, _keys),
    "mitchellcubic": (2, _mitchell),
}


def kernel_weights(size: int, out: int, scale: float, move: float, kernel: str, antialias: bool) -> Array:
    """Returns the weights [out, size] of a kernel sampled at scaled and translated pixel positions."""
    radius, function = KERNELS[kernel]
    inverse = np.float32(1) / np.float32(scale)  # rounded as in TensorFlow: a pixel may be exactly on the kernel's edge
    stretch = max(float(inverse), 1.0) if antialias else 1.0
    weights = np.zeros((out, size))
    for i in range(out):
        at = float(np.float32(i + 0.5) * inverse - np.float32(move) * inverse)
        if at < 0 or at > size:
            continue
        low = max(int(np.ceil(at - radius * stretch - 0.5)), 0)
        high = min(int(np.floor(at + radius * stretch - 0.5)), size - 1)
        places = np.arange(low, high + 1)
        found = function(np.abs((places + 0.5 - at) / stretch))
        total = found.sum()
        if abs(total) >= 1000 * np.finfo(np.float32).tiny:
            weights[i, low : high + 1] = found / total
    return weights


@op("tf_resample")
class Resample(Operation):
    """An image resampled with a bicubic kernel, area averaging or a sampling kernel.

    x: float32 [n, h, w, c], size: int64 [2]; scale and translation: float32 [2], for sampling kernels only
    -> float32 [n, size.., c]; `lens`: the result's extents as far as they are known.
    method: `cubic`, `area`, or a kernel's name; corners, half, antialias: the operators' attributes.
    Errors: ShapeError for other ranks, extents below 1, scales that are not positive.
    Source: TensorFlow ResizeBicubic, ResizeArea, ScaleAndTranslate.
    """

    method: Literal[
        "cubic", "area", "lanczos1", "lanczos3", "lanczos5", "gaussian", "box", "triangle", "keyscubic", "mitchellcubic"
    ]
    corners: bool = False
    half: bool = False
    antialias: bool = False
    lens: tuple[Dim, ...] = ()

    def infer(self, x: Shape, size: Shape, scale: Shape | None = None, move: Shape | None = None) -> Shape:
        if x.rank != 4 or (self.lens and len(self.lens) != 2):
            raise ShapeError(f"an image [n, h, w, c] and two extents are required, got {x} and {list(self.lens)}")
        dims = self.lens or (fresh("height", 1), fresh("width", 1))
        return Shape.of(dt.float32, (x.dims[0], *dims, x.dims[3]))

    def compute(self, x: Array, size: Array, scale: Array | None = None, move: Array | None = None) -> Array:
        for k, weights in enumerate(self._weights(x.shape, size, scale, move)):
            x = np.moveaxis(np.tensordot(weights, x, (1, k + 1)), 0, k + 1)
        return np.ascontiguousarray(x, np.float32)

    def decompose(
        self,
        b: Builder,
        x: Instruction,
        size: Instruction,
        scale: Instruction | None = None,
        move: Instruction | None = None,
    ) -> Operand | None:
        """Decomposes into two matrix products, if extents and operands are known."""
        if x.shape.dynamic() or any(i is not None and i.literal is None for i in (size, scale, move)):
            return None
        batch, height, width, channels = x.shape.lens()
        down, along = self._weights(x.shape.lens(), *(_known(i) for i in (size, scale, move)))
        rows, columns = len(down), len(along)
        wide = b.add(Multibroadcast(out_lens=(batch, rows, height)), b.literal(down))
        made = b.add(Dot(), wide, b.add(Reshape(dims=(batch, height, width * channels)), x))
        turned = b.add(Transpose(permutation=(0, 1, 3, 2)), b.add(Reshape(dims=(batch, rows, width, channels)), made))
        wide = b.add(Multibroadcast(out_lens=(batch, rows, width, columns)), b.literal(np.ascontiguousarray(along.T)))
        return b.add(Transpose(permutation=(0, 1, 3, 2)), b.add(Dot(), turned, wide))

    def _weights(
        self, lens: Sequence[int], size: Array | None, scale: Array | None = None, move: Array | None = None
    ) -> list[Array]:
        """Returns the weights of rows and of columns, each [result's extent, image's extent]."""
        found: list[Array] = []
        assert size is not None
        for k, out in enumerate(int(v) for v in size.reshape(-1)):
            length = lens[k + 1]
            if out < 1 or length < 1:
                raise ShapeError(f"an image of extents {list(lens)} cannot be resampled to {size.tolist()}")
            require_memory((out, max(length, *lens)), 8)
            if scale is None or move is None:
                way = cubic_weights if self.method == "cubic" else None
                weights = way(length, out, self.corners, self.half) if way else area_weights(length, out, self.corners)
            else:
                by = float(scale.reshape(-1)[k])
                if not by > 0:
                    raise ShapeError(f"scales must be positive, got {scale.tolist()}")
                weights = kernel_weights(length, out, by, float(move.reshape(-1)[k]), self.method, self.antialias)
            found.append(weights.astype(np.float32))
        return found


def _known(x: Instruction | None) -> Array | None:
    return None if x is None or x.literal is None else np.asarray(x.literal.value)
