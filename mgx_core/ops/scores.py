"""Post-processing of raw scores in classical models: transforms of a row, and the winning class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ..errors import ParameterError, ShapeError
from ..types import dtype as dt
from ..types.argument import Array
from ..types.dim import Dim
from ..types.dtype import DType
from ..types.shape import Shape

__all__ = [
    "NEARLY_ZERO",
    "check_labels",
    "label_dtype",
    "labels_of",
    "pairs_of",
    "rows_of",
    "transformed",
    "two_scores",
]

NEARLY_ZERO: Final = 1e-7  # scores below which SOFTMAX_ZERO returns zero


def transformed(scores: Array, post_transform: str) -> Array:
    """float64 [n, e] -> the same; each row is transformed separately."""
    with np.errstate(all="ignore"):
        match post_transform:
            case "LOGISTIC":
                return logistic(scores)
            case "SOFTMAX" | "SOFTMAX_ZERO" if scores.shape[-1]:
                weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
                if post_transform == "SOFTMAX_ZERO":
                    weights = np.where(np.abs(scores) > NEARLY_ZERO, weights, 0)
                total = weights.sum(axis=-1, keepdims=True)
                return np.asarray(np.divide(weights, total, out=np.zeros_like(weights), where=total != 0))
            case "PROBIT":
                return _probits(scores)
    return scores


def logistic(scores: Array) -> Array:
    """1 / (1 + exp(-s)), exact for large magnitudes too."""
    small = np.exp(-np.abs(scores))
    return np.asarray(np.where(scores >= 0, 1, small) / (1 + small))


def _probits(scores: Array) -> Array:
    """Returns the quantiles of the standard normal distribution: infinite for 0 and 1, NaN outside of them."""
    from statistics import NormalDist  # `statistics` imports decimal, random and more, which are not needed otherwise

    quantile, ends = NormalDist().inv_cdf, {0.0: -np.inf, 1.0: np.inf}
    found = [quantile(p) if 0 < p < 1 else ends.get(p, np.nan) for p in scores.reshape(-1).tolist()]
    return np.array(found, np.float64).reshape(scores.shape)


def two_scores(score: Array, post_transform: str, probabilities: bool) -> Array:
    """Returns the scores of both classes from that of the second: [n] -> [n, 2].

    `probabilities`: they sum to one, otherwise the first is the negative of the second.
    """
    if post_transform == "LOGISTIC":
        return np.stack([logistic(-score), logistic(score)], axis=-1)
    if probabilities or post_transform == "PROBIT":
        both = np.stack([1 - score, score], axis=-1)
        return transformed(both, "PROBIT") if post_transform == "PROBIT" else both
    return np.stack([-score, score], axis=-1)


def check_labels(ints: Sequence[int], strings: Sequence[str]) -> int:
    """Returns the number of classes.  Errors: ParameterError unless exactly one list of labels is given."""
    if bool(ints) == bool(strings):
        raise ParameterError(f"labels must be either integers or strings, got {len(ints)} and {len(strings)}")
    return len(ints) or len(strings)


def label_dtype(strings: Sequence[str]) -> DType:
    """Returns the element type of the labels."""
    return dt.string if strings else dt.int64


def labels_of(winners: Array, ints: Sequence[int], strings: Sequence[str]) -> Array:
    """Returns the labels of classes given by index."""
    table = np.array(strings, object) if strings else np.array(ints, np.int64)
    return np.asarray(table[winners])


def pairs_of(classes: int) -> int:
    """Returns the number of pairs of different classes."""
    return classes * (classes - 1) // 2


def rows_of(x: Shape) -> tuple[Dim, Dim]:
    """Returns rows and features of numeric data [n, f], or [f] as one row.  Errors: ShapeError for anything else."""
    if not (x.dtype.is_float or x.dtype.is_integer):
        raise ShapeError(f"features must be numbers, got {x.dtype}")
    if x.rank == 1:
        return 1, x.dims[0]
    if x.rank != 2:
        raise ShapeError(f"features must have dims [n, f], got {list(x.dims)}")
    return x.dims[0], x.dims[1]
