"""Decision tree ensembles: regressor and classifier ops."""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from ..errors import ParameterError, ShapeError
from ..types import dtype as dt
from ..types.argument import Array
from ..types.dim import compare
from ..types.dtype import DType
from ..types.shape import Shape, TupleShape
from .declaration import op
from .forest import forest_of
from .operation import Operation
from .scores import check_labels, label_dtype, labels_of, rows_of, transformed, two_scores

__all__ = ["TreeEnsemble", "TreeEnsembleClassifier"]

MAX_TARGETS: Final = 1 << 24
CELLS: Final = 1 << 20  # the most rows x trees that are traversed at a time


@op("tree_ensemble")
class TreeEnsemble(Operation):
    """Each row's path through every tree ends in a leaf; the leaves' votes are aggregated per target.

    x: number [n, f] -> dtype [n, n_targets].  Nodes are numbered over all trees; `tree_roots`, `nodes_truenodeids` and
    `nodes_falsenodeids` hold a node k as k and a leaf l as -1 - l.  A node compares feature `nodes_featureids` by `nodes_modes`
    (0 <=, 1 <, 2 >=, 3 >, 4 ==, 5 !=, 6 member) with `nodes_splits`, or looks it up among `members`, of which the i-th node
    of that mode has `member_counts[i]`.  Missing values (NaN) go to the true side where `nodes_missing_value_tracks_true` is 1.
    A leaf may vote several times: vote i of leaf `vote_leafids[i]` adds `vote_weights[i]` to target
    `vote_targetids[i]`.  `base_values` (one per target, or none) are added at the end.
    Errors: ParameterError for inconsistent lists or nodes that do not form trees; ShapeError for too few features.
    Source: ONNX-ML TreeEnsemble-5.
    """

    n_targets: int
    tree_roots: tuple[int, ...]
    nodes_featureids: tuple[int, ...] = ()
    nodes_modes: tuple[int, ...] = ()
    nodes_splits: tuple[float, ...] = ()
    nodes_truenodeids: tuple[int, ...] = ()
    nodes_falsenodeids: tuple[int, ...] = ()
    nodes_missing_value_tracks_true: tuple[int, ...] = ()
    members: tuple[float, ...] = ()
    member_counts: tuple[int, ...] = ()
    vote_leafids: tuple[int, ...] = ()
    vote_targetids: tuple[int, ...] = ()
    vote_weights: tuple[float, ...] = ()
    base_values: tuple[float, ...] = ()
    aggregate_function: Literal["SUM", "AVERAGE", "MIN", "MAX"] = "SUM"
    post_transform: Literal["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"] = "NONE"
    dtype: DType = dt.float32

    def check(self) -> None:
        if not 1 <= self.n_targets <= MAX_TARGETS:
            raise ParameterError(f"n_targets must lie in [1, {MAX_TARGETS}], got {self.n_targets}")
        if self.base_values and len(self.base_values) != self.n_targets:
            self.check_base_values()
        forest_of(self)

    def check_base_values(self) -> None:
        raise ParameterError(
            f"base_values must have one entry per target ({self.n_targets}), got {len(self.base_values)}"
        )

    def infer(self, x: Shape) -> Shape:
        rows, features = rows_of(x)
        needed = 1 + max(self.nodes_featureids, default=-1)
        if compare(features, "<", needed):
            raise ShapeError(f"the trees use {needed} features, got {features}")
        return Shape.of(self.dtype, (rows, self.n_targets))

    def compute(self, x: Array) -> Array:
        scores, _ = self.aggregated(x)
        if self.base_values:
            scores = scores + np.asarray(self.base_values)
        return transformed(scores, self.post_transform).astype(self.dtype.numpy)

    def aggregated(self, x: Array) -> tuple[Array, Array]:
        """Returns float64 scores [n, n_targets] and which of them got a vote."""
        rows = x.reshape(1, -1) if x.ndim == 1 else x
        rows = rows.astype(np.float64)  # exact, so that float32 features are compared with float32 splits unrounded
        if rows.shape[1] <= max(self.nodes_featureids, default=-1):
            raise ShapeError(f"the trees use {1 + max(self.nodes_featureids)} features, got {rows.shape[1]}")
        forest = forest_of(self)
        scores = np.zeros((len(rows), self.n_targets))
        voted = np.zeros(scores.shape, np.bool_)
        step = max(1, CELLS // max(1, len(self.tree_roots)))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            leaves = forest.leaves(rows[part])
            scores[part], voted[part] = forest.votes(leaves, self.n_targets, self.aggregate_function)
        if self.aggregate_function == "AVERAGE":
            scores /= max(1, len(self.tree_roots))
        return scores, voted


@op("tree_ensemble_classifier")
class TreeEnsembleClassifier(TreeEnsemble):
    """The class with the highest score, and the scores of all classes.

    x: number [n, f] -> (labels int64 or string [n], float32 [n, e]).  Targets are classes; attributes as of tree_ensemble.
    If all votes are for the first of two classes (and there is at most one base value), the score is that of
    the second class; the first gets the complement if all weights are positive (the score is a probability, the
    threshold 0.5), else the negative.
    Errors: as tree_ensemble.  Source: ONNX-ML TreeEnsembleClassifier-5.
    """

    labels_ints: tuple[int, ...] = ()
    labels_strings: tuple[str, ...] = ()

    def check(self) -> None:
        if check_labels(self.labels_ints, self.labels_strings) != self.n_targets:
            raise ParameterError(f"there must be one label per target ({self.n_targets})")
        TreeEnsemble.check(self)

    def check_base_values(self) -> None:
        if not self.binary:
            TreeEnsemble.check_base_values(self)

    def infer(self, x: Shape) -> TupleShape:  # type: ignore[override]
        scores = TreeEnsemble.infer(self, x)
        return TupleShape([Shape.of(label_dtype(self.labels_strings), scores.dims[:1]), scores])

    @property
    def binary(self) -> bool:
        """Returns True if all votes are for the first of two classes."""
        return (
            self.n_targets == 2
            and len(self.base_values) < 2
            and not any(self.vote_targetids)
            and bool(self.vote_weights)
        )

    def compute(self, x: Array) -> tuple[Array, Array]:  # type: ignore[override]
        scores, _ = self.aggregated(x)
        if self.binary:
            score = scores[:, 0] + (self.base_values[0] if self.base_values else 0)
            positive = min(self.vote_weights) >= 0
            # rounded, as for more classes: five votes of float32(0.1) do not exceed a half
            winners = (score.astype(self.dtype.numpy) > (0.5 if positive else 0)).astype(np.int64)
            out = two_scores(score, self.post_transform, positive)
        else:
            if self.base_values:
                scores = scores + np.asarray(self.base_values)
            winners = scores.astype(self.dtype.numpy).argmax(axis=1)  # equal up to rounding: the first wins
            out = transformed(scores, self.post_transform)
        return labels_of(winners, self.labels_ints, self.labels_strings), out.astype(self.dtype.numpy)
