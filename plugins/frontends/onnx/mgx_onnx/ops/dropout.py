"""Dropout in training mode."""

from __future__ import annotations

import numpy as np

from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.ops.scalar import convert, widen
from mgx_core.types.argument import Array
from mgx_core.types.shape import Shape, TupleShape

__all__ = ["Dropout"]


@op("dropout", random=True)
class Dropout(Operation):
    """Zeroes elements with a probability and scales the others by 1 / (1 - probability).

    x: float [..], ratio: float scalar in [0, 1), training: bool scalar (false: nothing is dropped) -> (same shape, bool
    mask of what was kept).  The same `seed` drops the same elements.
    Errors: ParameterError at run time for a ratio outside [0, 1).  Source: ONNX Dropout-22.
    """

    seed: int | None = None

    def infer(self, x: Shape, ratio: Shape, training: Shape) -> TupleShape:
        if not x.dtype.is_float or not ratio.dtype.is_float or training.dtype is not dt.bool_:
            got = f"{x.dtype}, {ratio.dtype} and {training.dtype}"
            raise ShapeError(f"x and ratio must be of float types and training bool, got {got}")
        return TupleShape([x.as_standard(), x.with_dtype(dt.bool_)])

    def compute(self, x: Array, ratio: Array, training: Array) -> tuple[Array, Array]:
        probability = float(widen(ratio).reshape(-1)[0])
        if not training.reshape(-1)[0] or probability == 0:
            return x, np.ones(x.shape, np.bool_)
        if not 0 <= probability < 1:
            raise ParameterError(f"ratio must lie in [0, 1), got {probability}")
        state = np.random.RandomState(None if self.seed is None else self.seed % (1 << 32))
        kept = np.asarray(state.uniform(0, 1, x.shape) >= probability)
        scaled = widen(x) * widen(x).dtype.type(1 / (1 - probability))
        return convert(np.where(kept, scaled, 0).astype(scaled.dtype), dt.of(x.dtype)), kept
