"""The operation: attributes, shape inference, reference implementation."""

import numpy as np

from mgx_core import Operation, OpSet, Shape, ShapeError, define_op


@define_op("clip_rows")
class ClipRows(Operation):
    """Rows clipped to a Euclidean norm of at most `limit`: x * min(1, limit / |x|) along the last axis.

    x: float [.., n] -> same shape.  Errors: ShapeError if x is not a float tensor with an axis.
    """

    limit: float = 1.0

    def infer(self, x: Shape) -> Shape:
        if not x.dtype.is_float or x.rank == 0:
            raise ShapeError(f"x must be a float tensor with an axis, got {x}")
        return x.as_standard()

    def compute(self, x):
        wide = x.astype(np.float64)
        length = np.sqrt(np.sum(wide * wide, axis=-1, keepdims=True))
        return (wide * np.minimum(1, self.limit / np.maximum(length, 1e-300))).astype(x.dtype)


OPS = OpSet.of(ClipRows)
