"""Support vector machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeVar

import numpy as np

from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.ops.activation import Sigmoid
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.builder import Builder, Operand
from mgx_core.ops.compare import Greater, LessOrEqual
from mgx_core.ops.convert import Convert
from mgx_core.ops.coupling import PairwiseCoupling
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.ops.pointwise import Add, Exp, Max, Mul, Pow, Sub, Where
from mgx_core.ops.reduce import ReduceSum
from mgx_core.ops.scores import check_labels, label_dtype, labels_of, pairs_of, rows_of, transformed, two_scores
from mgx_core.ops.trigonometry import Tanh
from mgx_core.types.argument import Array
from mgx_core.types.dim import may_equal
from mgx_core.types.shape import Shape, TupleShape

from .score_parts import labeled, linear, rounded, spread, transformed_parts, two_score_parts, wide_rows, winners

__all__: list[str] = []

T = TypeVar("T")

MOST_FACTORS: Final = 16  # of a power that is computed as products; `pow` of float64 takes as long as some dozens


@op("svm_regressor")
class SVMRegressor(Operation):
    """Returns the weighted sum of kernel values between x and the support vectors plus rho; with `one_class` its sign.

    x: number [n, f] -> float32 [n, 1]; support_vectors: [n_supports, f] row by row; coefficients: [n_supports].
    Without support vectors (n_supports 0) the coefficients are those of a linear model, [f].  kernel_params:
    gamma, coef0, degree.
    Errors: ParameterError for lists that do not fit, ShapeError for another number of features.  Source: ONNX
    ONNX-ML SVMRegressor-1.
    """

    coefficients: tuple[float, ...]
    rho: tuple[float, ...]
    support_vectors: tuple[float, ...] = ()
    n_supports: int = 0
    kernel_type: Literal["LINEAR", "POLY", "RBF", "SIGMOID"] = "LINEAR"
    kernel_params: tuple[float, ...] = ()
    one_class: bool = False
    post_transform: Literal["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"] = "NONE"

    def check(self) -> None:
        _check_kernel(self.kernel_params)
        if not self.coefficients or not self.rho:
            raise ParameterError("coefficients and rho must not be empty")
        if self.n_supports < 0 or (self.n_supports and len(self.support_vectors) % self.n_supports):
            raise ParameterError(
                f"{len(self.support_vectors)} values are not divisible by {self.n_supports} support vectors"
            )
        if self.n_supports and (len(self.coefficients) != self.n_supports or not self.support_vectors):
            raise ParameterError(f"there must be one coefficient per support vector, got {len(self.coefficients)}")

    def infer(self, x: Shape) -> Shape:
        rows, features = rows_of(x)
        wanted = len(self.support_vectors) // self.n_supports if self.n_supports else len(self.coefficients)
        if not may_equal(features, wanted):
            raise ShapeError(f"the model has {wanted} features, got {features}")
        return Shape.of(dt.float32, (rows, 1))

    def compute(self, x: Array) -> Array:
        rows = np.atleast_2d(x).astype(np.float64)
        weights = np.array(self.coefficients, np.float64)
        if self.n_supports:
            vectors = np.array(self.support_vectors, np.float64).reshape(self.n_supports, -1)
            score = _kernel(rows, vectors, self.kernel_type, self.kernel_params) @ weights + self.rho[0]
        else:
            score = rows @ weights + self.rho[0]
        if self.one_class:
            score = np.where(score > 0, 1.0, -1.0)
        return transformed(score[:, None], self.post_transform).astype(np.float32)

    def decompose(self, b: Builder, x: Operand) -> Operand | None:
        rows, weights = wide_rows(b, x), np.array(self.coefficients, np.float64)[:, None]
        if self.n_supports:
            vectors = np.array(self.support_vectors, np.float64).reshape(self.n_supports, -1)
            rows = kernel_parts(b, rows, vectors, self.kernel_type, self.kernel_params)
        score = linear(b, rows, weights, self.rho[:1])
        if self.one_class:
            above = b.add(Greater(), score, spread(b, 0.0, score))
            score = b.add(Where(), above, spread(b, 1.0, score), spread(b, -1.0, score))
        out = transformed_parts(b, score, self.post_transform)
        return None if out is None else rounded(b, out)


@op("svm_classifier")
class SVMClassifier(Operation):
    """Returns the class with the most pairwise votes, and the scores.

    x: number [n, f] -> (labels int64 or string [n], float32 [n, e]).  support_vectors: [s, f] row by row, ordered by class as
    `vectors_per_class` says; coefficients: [classes - 1, s]; rho, prob_a, prob_b: one per pair of classes.  The scores are
    probabilities if prob_a is given, else one per pair of classes (of 2 classes: [-s, s], s > 0 where the first
    wins).  Without vectors_per_class the coefficients are those of linear models, [classes, f].  kernel_params:
    gamma, coef0, degree.
    Errors: ParameterError for lists that do not fit, ShapeError for another number of features.  Source: ONNX
    ONNX-ML SVMClassifier-1.
    """

    coefficients: tuple[float, ...]
    rho: tuple[float, ...]
    support_vectors: tuple[float, ...] = ()
    vectors_per_class: tuple[int, ...] = ()
    prob_a: tuple[float, ...] = ()
    prob_b: tuple[float, ...] = ()
    labels_ints: tuple[int, ...] = ()
    labels_strings: tuple[str, ...] = ()
    kernel_type: Literal["LINEAR", "POLY", "RBF", "SIGMOID"] = "LINEAR"
    kernel_params: tuple[float, ...] = ()
    post_transform: Literal["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"] = "NONE"

    def check(self) -> None:
        classes = check_labels(self.labels_ints, self.labels_strings)
        _check_kernel(self.kernel_params)
        if not self.vectors_per_class:
            if not self.coefficients or len(self.coefficients) % classes or not self.rho:
                raise ParameterError(f"{len(self.coefficients)} coefficients are not divisible by {classes} classes")
            return
        vectors, pairs = sum(self.vectors_per_class), pairs_of(classes)
        if len(self.vectors_per_class) != classes or min(self.vectors_per_class) < 0 or classes < 2:
            raise ParameterError(f"vectors_per_class must have one entry for each of {classes} >= 2 classes")
        if not vectors or not self.support_vectors or len(self.support_vectors) % vectors:
            raise ParameterError(f"{len(self.support_vectors)} values are not divisible by {vectors} support vectors")
        if len(self.coefficients) != (classes - 1) * vectors or len(self.rho) != pairs:
            raise ParameterError(
                f"{(classes - 1) * vectors} coefficients and {pairs} rho are required, "
                f"got {len(self.coefficients)} and {len(self.rho)}"
            )
        if len(self.prob_a) != len(self.prob_b) or len(self.prob_a) not in (0, pairs):
            raise ParameterError(
                f"prob_a and prob_b must have {pairs} entries or none, got {len(self.prob_a)} and {len(self.prob_b)}"
            )

    def _classes(self) -> int:
        return len(self.labels_ints or self.labels_strings)

    def infer(self, x: Shape) -> TupleShape:
        rows, features = rows_of(x)
        classes = self._classes()
        groups = sum(self.vectors_per_class) or classes
        wanted = len(self.support_vectors if self.vectors_per_class else self.coefficients) // groups
        if not may_equal(features, wanted):
            raise ShapeError(f"the model has {wanted} features, got {features}")
        pairwise = self.vectors_per_class and not self.prob_a and classes > 2
        columns = pairs_of(classes) if pairwise else classes
        return TupleShape([Shape.of(label_dtype(self.labels_strings), (rows,)), Shape.of(dt.float32, (rows, columns))])

    def compute(self, x: Array) -> tuple[Array, Array]:
        rows = np.atleast_2d(x).astype(np.float64)
        classes = self._classes()
        if not self.vectors_per_class:
            models = np.array(self.coefficients, np.float64).reshape(classes, -1)
            scores = rows @ models.T + self.rho[0]
            won = scores.argmax(axis=1)
            out = transformed(scores, self.post_transform)
        else:
            pairwise, votes = self._pairs(rows)
            won = votes.argmax(axis=1)  # also with probabilities, whose order may differ
            if not self.prob_a and classes == 2:
                out = two_scores(pairwise[:, 0], self.post_transform, self.post_transform.startswith("SOFTMAX"))
            else:
                out = transformed(self._probabilities(pairwise) if self.prob_a else pairwise, self.post_transform)
        return labels_of(won, self.labels_ints, self.labels_strings), out.astype(np.float32)

    def decompose(self, b: Builder, x: Operand) -> tuple[Operand, Operand] | None:
        if self.labels_strings:
            return None
        rows, classes = wide_rows(b, x), self._classes()
        if not self.vectors_per_class:
            models = np.array(self.coefficients, np.float64).reshape(classes, -1)
            scores = linear(b, rows, models.T, self.rho[:1])
            won, out = winners(b, scores), transformed_parts(b, scores, self.post_transform)
        else:
            vectors = sum(self.vectors_per_class)
            support = np.array(self.support_vectors, np.float64).reshape(vectors, -1)
            values = kernel_parts(b, rows, support, self.kernel_type, self.kernel_params)
            weights, first, second = self._pair_matrices()
            scores = linear(b, values, weights, self.rho)
            zero = spread(b, 0.0, scores)
            wins = [b.add(Convert(target_type=dt.float64), b.add(o, scores, zero)) for o in (Greater(), LessOrEqual())]
            won = winners(b, b.add(Add(), linear(b, wins[0], first), linear(b, wins[1], second)))
            if self.prob_a:
                fitted = b.add(Mul(), scores, spread(b, -np.array(self.prob_a), scores))
                fitted = b.add(Sub(), fitted, spread(b, np.array(self.prob_b), scores))
                likely = b.add(self._coupling(), b.add(Sigmoid(), fitted))
                out = transformed_parts(b, likely, self.post_transform)
            elif classes == 2:
                out = two_score_parts(b, scores, self.post_transform, self.post_transform.startswith("SOFTMAX"))
            else:
                out = transformed_parts(b, scores, self.post_transform)
        return None if out is None else (labeled(b, won, self.labels_ints), rounded(b, out))

    def _pair_matrices(self) -> tuple[Array, Array, Array]:
        """Returns the weights of each pair [vectors, pairs], and the votes for scores above 0 and others [pairs, classes]."""
        classes, vectors = self._classes(), sum(self.vectors_per_class)
        given = np.array(self.coefficients, np.float64).reshape(classes - 1, vectors)
        ends = np.concatenate([[0], np.cumsum(self.vectors_per_class)])
        pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
        weights = np.zeros((vectors, len(pairs)))
        votes = np.zeros((2, len(pairs), classes))
        for n, (i, j) in enumerate(pairs):
            first, second = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
            weights[first, n], weights[second, n] = given[j - 1, first], given[i, second]
            votes[0, n, i] = votes[1, n, j] = 1
        return weights, *votes

    def _pairs(self, rows: Array) -> tuple[Array, Array]:
        """Returns scores of the pairs (0, 1), (0, 2) .. [n, pairs], positive for the first class; votes [n, classes]."""
        classes, vectors = self._classes(), sum(self.vectors_per_class)
        support = np.array(self.support_vectors, np.float64).reshape(vectors, -1)
        kernel = _kernel(rows, support, self.kernel_type, self.kernel_params)
        weights = np.array(self.coefficients, np.float64).reshape(classes - 1, vectors)
        ends = np.concatenate([[0], np.cumsum(self.vectors_per_class)])
        votes = np.zeros((len(rows), classes), np.int64)
        scores: list[Array] = []
        for i in range(classes):
            for j in range(i + 1, classes):
                first, second = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
                score = (
                    kernel[:, first] @ weights[j - 1, first]
                    + kernel[:, second] @ weights[i, second]
                    + self.rho[len(scores)]
                )
                scores.append(score)
                votes[:, i] += score > 0
                votes[:, j] += score <= 0
        return np.stack(scores, axis=1), votes

    def _probabilities(self, pairwise: Array) -> Array:
        with np.errstate(over="ignore"):
            wins = 1 / (1 + np.exp(pairwise * np.array(self.prob_a) + np.array(self.prob_b)))
        return self._coupling().compute(wins)

    def _coupling(self) -> PairwiseCoupling:
        return PairwiseCoupling(classes=self._classes())


def _kernel(x: Array, y: Array, kind: str, params: tuple[float, ...]) -> Array:
    """Returns the kernel values of all pairs of rows: [n, f], [m, f] -> [n, m]."""
    gamma, coef0, degree = params or (0.0, 0.0, 0.0)
    if kind == "RBF":
        distance = (x * x).sum(axis=1)[:, None] - 2 * (x @ y.T) + (y * y).sum(axis=1)
        return np.asarray(np.exp(-gamma * np.maximum(distance, 0)))
    dot = x @ y.T
    if kind == "POLY":
        inner = gamma * dot + coef0
        with np.errstate(all="ignore"):
            return _product_power(inner, degree, np.multiply) if _is_product(degree) else np.asarray(inner**degree)
    return np.asarray(np.tanh(gamma * dot + coef0)) if kind == "SIGMOID" else dot


def kernel_parts(b: Builder, x: Operand, y: Array, kind: str, params: tuple[float, ...]) -> Operand:
    """Returns `_kernel` as instructions."""
    gamma, coef0, degree = params or (0.0, 0.0, 0.0)
    dot = linear(b, x, y.T)
    if kind == "LINEAR":
        return dot
    if kind == "RBF":
        own = b.add(Multibroadcast(out_lens=dot.shape.dims), b.add(ReduceSum(axes=(1,)), b.add(Mul(), x, x)))
        twice = b.add(Mul(), dot, spread(b, 2.0, dot))
        distance = b.add(Add(), b.add(Sub(), own, twice), spread(b, (y * y).sum(axis=1), dot))
        near = b.add(Max(), distance, spread(b, 0.0, dot))
        return b.add(Exp(), b.add(Mul(), near, spread(b, -gamma, dot)))
    inner = b.add(Add(), b.add(Mul(), dot, spread(b, gamma, dot)), spread(b, coef0, dot))
    return _power(b, inner, degree) if kind == "POLY" else b.add(Tanh(), inner)


def _power(b: Builder, x: Operand, degree: float) -> Operand:
    """Returns x to a power: as products where that is a small whole number, as the degree of a kernel mostly is."""
    if _is_product(degree):
        return _product_power(x, degree, lambda left, right: b.add(Mul(), left, right))
    return b.add(Pow(), x, spread(b, degree, x))


def _is_product(degree: float) -> bool:
    """Returns True for a power that products compute faster than `pow` does."""
    return degree in range(1, MOST_FACTORS + 1)


def _product_power(x: T, degree: float, times: Callable[[T, T], T]) -> T:
    """Returns x to a whole power: the square for each bit after the first, and times x where it is set."""
    out = x
    for bit in f"{int(degree):b}"[1:]:
        out = times(out, out)
        out = times(out, x) if bit == "1" else out
    return out


def _check_kernel(params: tuple[float, ...]) -> None:
    if len(params) not in (0, 3):
        raise ParameterError(f"kernel_params must be gamma, coef0 and degree, got {len(params)} values")
