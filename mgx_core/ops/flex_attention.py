"""Attention with user-defined modules that modify scores and probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ParameterError, ShapeError
from ..types.argument import Array, Value
from ..types.dtype import DType, float32, float64, of
from ..types.shape import Shape
from .attention_parts import grouped_dims, inlined, probabilities, scores_of, scores_parts, values_of, values_parts
from .convert import Convert
from .declaration import op
from .operation import Operation, Run
from .scalar import convert, widen
from .softmax import Softmax

__all__ = ["FlexAttention"]


@op("flex_attention")
class FlexAttention(Operation):
    """prob_mod(softmax(score_mod(scale q k^T))) v, for grouped heads, with sub-modules for the two in between.

    q [b, h, s, d], k [b, g, t, d], v [b, g, t, e] -> [b, h, s, e].  modules: score_mod if `score_mod`, then prob_mod if
    `prob_mod`; each maps one tensor [b, h, s, t] of dtype `precision` (default: float32; float64 for float64) to
    another.
    Errors: ShapeError for operands or modules that do not fit.  Source: ONNX FlexAttention-1 (ai.onnx.preview).
    """

    scale: float | None = None
    score_mod: bool = False
    prob_mod: bool = False
    precision: DType | None = None

    def softmax_dtype(self, q: DType) -> DType:
        """Returns the dtype of the softmax and of the modules' operands."""
        return self.precision or (float64 if q is float64 else float32)

    def infer(self, q: Shape, k: Shape, v: Shape, *, modules: Sequence[Any] = ()) -> Shape:
        scores = grouped_dims(q, k, v)
        if len(modules) != self.score_mod + self.prob_mod:
            raise ShapeError(f"{self.score_mod + self.prob_mod} modules are required, got {len(modules)}")
        for module in modules:
            results = module.output_shapes()
            if len(module.parameters) != 1 or len(results) != 1:
                raise ShapeError(f"module {module.name!r} must take one tensor and return one")
            wanted = self.softmax_dtype(q.dtype)
            if not isinstance(results[0], Shape) or results[0].dtype is not wanted:
                raise ShapeError(f"module {module.name!r} must return a {wanted} tensor, got {results[0]}")
        return q.with_dims((*scores[:3], v.dims[3]))

    def compute(self, q: Array, k: Array, v: Array, *, modules: Sequence[Any] = (), run: Run | None = None) -> Value:
        to = of(q.dtype)
        precision = self.softmax_dtype(to)
        scale = 1 / math.sqrt(max(q.shape[-1], 1)) if self.scale is None else self.scale
        scores = convert(scores_of(widen(q), widen(k), scale), precision)
        pending = list(modules)

        def through(x: Array) -> Array:
            if run is None:
                raise ParameterError("flex_attention with modules requires `run`")
            (out,) = run(pending.pop(0), [x])
            if out.shape != x.shape or out.dtype != x.dtype:
                raise ShapeError(f"a module changed {x.dtype}{list(x.shape)} to {out.dtype}{list(out.shape)}")
            return np.asarray(out)

        if self.score_mod:
            scores = through(scores)
        weights = convert(probabilities(widen(scores)), precision)
        if self.prob_mod:
            weights = through(weights)
        wide = widen(convert(weights, to))
        return convert(values_of(wide, widen(v).astype(wide.dtype, copy=False)), to)

    def decompose(self, b: Any, q: Any, k: Any, v: Any) -> Any:
        precision = self.softmax_dtype(q.shape.dtype)
        if any(x.shape.dynamic() for x in (q, k, v)):
            return None
        modules = list(b.at.modules)
        weights = b.add(Convert(target_type=precision), scores_parts(b, q, k, self.scale))
        if self.score_mod:
            weights = inlined(b, modules.pop(0), weights)
        weights = b.add(Softmax(axis=3), weights)
        if self.prob_mod:
            weights = inlined(b, modules.pop(0), weights)
        return values_parts(b, weights, v, q.shape.dtype)
