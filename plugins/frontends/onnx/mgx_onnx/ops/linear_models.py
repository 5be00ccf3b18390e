"""Linear models: coefficient matrix, intercepts, score transform."""

from __future__ import annotations

from typing import Literal

import numpy as np

from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.ops.builder import Builder, Operand
from mgx_core.ops.compare import Greater
from mgx_core.ops.convert import Convert
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.ops.reshape import Reshape
from mgx_core.ops.scores import check_labels, label_dtype, labels_of, rows_of, transformed, two_scores
from mgx_core.types.argument import Array
from mgx_core.types.dim import Dim, may_equal
from mgx_core.types.shape import Shape, TupleShape

from .score_parts import (
    labeled,
    linear,
    rounded,
    spread,
    transformed_parts,
    two_score_parts,
    wide_rows,
    winners,
)

__all__: list[str] = []


@op("linear_regressor")
class LinearRegressor(Operation):
    """Computes a linear regression for each target.

    x: number [n, f] -> float32 [n, targets]; coefficients: [targets, f] row by row; intercepts: [targets] or none.
    Errors: ParameterError for lists that do not fit `targets`, ShapeError for another number of features.
    Source: ONNX-ML LinearRegressor-1.
    """

    coefficients: tuple[float, ...]
    intercepts: tuple[float, ...] = ()
    targets: int = 1
    post_transform: Literal["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"] = "NONE"

    def check(self) -> None:
        _check_sizes(self.targets, self.coefficients, self.intercepts)

    def infer(self, x: Shape) -> Shape:
        return Shape.of(dt.float32, (_rows(x, self.coefficients, self.targets), self.targets))

    def compute(self, x: Array) -> Array:
        scores = _scores(x, self.coefficients, self.intercepts, self.targets)
        return transformed(scores, self.post_transform).astype(np.float32)

    def decompose(self, b: Builder, x: Operand) -> Operand | None:
        scores = linear(b, wide_rows(b, x), _matrix(self.coefficients, self.targets), self.intercepts)
        out = transformed_parts(b, scores, self.post_transform)
        return None if out is None else rounded(b, out)


@op("linear_classifier")
class LinearClassifier(Operation):
    """Returns the class with the highest linear score, and the scores.

    x: number [n, f] -> (labels int64 or string [n], float32 [n, e]).  coefficients: [e, f] row by row; intercepts: [e] or none.
    One row of coefficients for two classes scores the second, which wins above 0 and leaves 1 - score to the first.
    Errors: ParameterError for lists that do not fit, ShapeError for another number of features.
    Source: ONNX-ML LinearClassifier-1.
    """

    coefficients: tuple[float, ...]
    intercepts: tuple[float, ...] = ()
    labels_ints: tuple[int, ...] = ()
    labels_strings: tuple[str, ...] = ()
    models: int
    post_transform: Literal["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"] = "NONE"

    def check(self) -> None:
        classes = check_labels(self.labels_ints, self.labels_strings)
        if self.models != classes and not (self.models == 1 and classes == 2):
            raise ParameterError(f"{classes} classes require as many models (or 1 for 2 classes), got {self.models}")
        _check_sizes(self.models, self.coefficients, self.intercepts)

    def infer(self, x: Shape) -> TupleShape:
        rows = _rows(x, self.coefficients, self.models)
        classes = len(self.labels_ints or self.labels_strings)
        return TupleShape([Shape.of(label_dtype(self.labels_strings), (rows,)), Shape.of(dt.float32, (rows, classes))])

    def compute(self, x: Array) -> tuple[Array, Array]:
        scores = _scores(x, self.coefficients, self.intercepts, self.models)
        if self.models == 1 and len(self.labels_ints or self.labels_strings) == 2:
            won = (scores[:, 0] > 0).astype(np.int64)
            scores = two_scores(scores[:, 0], self.post_transform, True)
        else:
            won = scores.argmax(axis=1)
            scores = transformed(scores, self.post_transform)
        return labels_of(won, self.labels_ints, self.labels_strings), scores.astype(np.float32)

    def decompose(self, b: Builder, x: Operand) -> tuple[Operand, Operand] | None:
        if self.labels_strings:
            return None
        scores = linear(b, wide_rows(b, x), _matrix(self.coefficients, self.models), self.intercepts)
        if self.models == 1 and len(self.labels_ints) == 2:
            second = b.add(Convert(target_type=dt.int64), b.add(Greater(), scores, spread(b, 0.0, scores)))
            won = b.add(Reshape(dims=scores.shape.dims[:1]), second)
            out = two_score_parts(b, scores, self.post_transform, True)
        else:
            won, out = winners(b, scores), transformed_parts(b, scores, self.post_transform)
        return None if out is None else (labeled(b, won, self.labels_ints), rounded(b, out))


def _check_sizes(targets: int, coefficients: tuple[float, ...], intercepts: tuple[float, ...]) -> None:
    if targets < 1 or not coefficients or len(coefficients) % targets:
        raise ParameterError(f"{len(coefficients)} coefficients are not divisible by {targets} targets")
    if intercepts and len(intercepts) != targets:
        raise ParameterError(f"there must be one intercept per target ({targets}), got {len(intercepts)}")


def _rows(x: Shape, coefficients: tuple[float, ...], targets: int) -> Dim:
    rows, features = rows_of(x)
    if not may_equal(features, len(coefficients) // targets):
        raise ShapeError(f"the model has {len(coefficients) // targets} features, got {features}")
    return rows


def _scores(x: Array, coefficients: tuple[float, ...], intercepts: tuple[float, ...], targets: int) -> Array:
    """Returns float64 [n, targets]."""
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    out = rows.astype(np.float64) @ _matrix(coefficients, targets)
    return out + np.array(intercepts, np.float64) if intercepts else out


def _matrix(coefficients: tuple[float, ...], targets: int) -> Array:
    """Returns float64 [f, targets]."""
    return np.array(coefficients, np.float64).reshape(targets, -1).T
