"""Ensembles of decision trees, evaluated for all rows and trees at once, one level at a time."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal, NamedTuple

import numpy as np

from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.dim import compare
from mgx_core.types.dtype import DType
from mgx_core.types.shape import Shape, TupleShape

from .scores import check_labels, label_dtype, labels_of, rows_of, transformed, two_scores

__all__ = ["MODES"]

MODES: Final = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
MEMBER: Final = 6
MAX_TARGETS: Final = 1 << 24
CELLS: Final = 1 << 20  # rows x trees that are followed at a time


@op("tree_ensemble")
class TreeEnsemble(Operation):
    """Each row's path through every tree ends in a leaf; the leaves' votes are aggregated per target.

    x: number [n, f] -> dtype [n, n_targets].  Nodes are numbered over all trees; `tree_roots`, `nodes_truenodeids` and
    `nodes_falsenodeids` hold a node k as k and a leaf l as -1 - l.  A node compares feature `nodes_featureids` by `nodes_modes`
    (index into MODES) with `nodes_splits`, or looks it up among `members`, of which the i-th node of that mode has
    `member_counts[i]`. Missing values (NaN) go to the true side where `nodes_missing_value_tracks_true` is 1.  A
    leaf may vote several times: vote i of leaf `vote_leafids[i]` adds `vote_weights[i]` to target
    `vote_targetids[i]`.  `base_values` (one per target, or none) are added at the end.
    Errors: ParameterError for lists that do not fit or trees that are none; ShapeError for too few features.
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
        _forest(self)

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
        """float64 scores [n, n_targets] and which of them got a vote."""
        rows = x.reshape(1, -1) if x.ndim == 1 else x
        rows = rows.astype(np.float64)  # exact, so that float32 features are compared with float32 splits unrounded
        if rows.shape[1] <= max(self.nodes_featureids, default=-1):
            raise ShapeError(f"the trees use {1 + max(self.nodes_featureids)} features, got {rows.shape[1]}")
        forest = _forest(self)
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
    Where all votes are for the first of two classes (and there is at most one base value), the score is that of
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
        if not self._binary():
            TreeEnsemble.check_base_values(self)

    def infer(self, x: Shape) -> TupleShape:  # type: ignore[override]
        scores = TreeEnsemble.infer(self, x)
        return TupleShape([Shape.of(label_dtype(self.labels_strings), scores.dims[:1]), scores])

    def _binary(self) -> bool:
        return (
            self.n_targets == 2
            and len(self.base_values) < 2
            and not any(self.vote_targetids)
            and bool(self.vote_weights)
        )

    def compute(self, x: Array) -> tuple[Array, Array]:  # type: ignore[override]
        scores, _ = self.aggregated(x)
        if self._binary():
            score = scores[:, 0] + (self.base_values[0] if self.base_values else 0)
            positive = min(self.vote_weights) >= 0
            winners = (score > (0.5 if positive else 0)).astype(np.int64)
            out = two_scores(score, self.post_transform, positive)
        else:
            if self.base_values:
                scores = scores + np.asarray(self.base_values)
            winners = scores.astype(self.dtype.numpy).argmax(axis=1)  # equal up to rounding: the first wins
            out = transformed(scores, self.post_transform)
        return labels_of(winners, self.labels_ints, self.labels_strings), out.astype(self.dtype.numpy)


class _Forest(NamedTuple):
    """The ensemble as arrays, checked: ids in range, every path ends."""

    roots: Array
    feature: Array
    mode: Array
    split: Array
    true: Array
    false: Array
    missing: Array
    member_start: Array
    members: Array
    leaf_start: Array  # votes of leaf l are leaf_start[l] .. leaf_start[l + 1]
    target: Array
    weight: Array

    def leaves(self, x: Array) -> Array:
        """Returns the leaf that each row [n, f] reaches in each tree: [n, trees]."""
        at = np.broadcast_to(self.roots, (len(x), len(self.roots))).copy()
        row, tree = np.nonzero(at >= 0)
        while row.size:
            node = at[row, tree]
            value = x[row, self.feature[node]]
            goes = self._compare(node, value)
            following = np.where(goes, self.true[node], self.false[node])
            at[row, tree] = following
            inner = following >= 0
            row, tree = row[inner], tree[inner]
        return -1 - at

    def _compare(self, node: Array, value: Array) -> Array:
        mode, split = self.mode[node], self.split[node]
        goes = np.zeros(len(node), np.bool_)
        tests = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
        for m, test in enumerate(tests):
            mine = mode == m
            if mine.any():
                goes[mine] = test(value[mine], split[mine])
        for k in np.unique(node[mode == MEMBER]):
            mine = node == k
            goes[mine] = np.isin(value[mine], self.members[self.member_start[k] : self.member_start[k + 1]])
        return np.asarray(np.where(np.isnan(value), self.missing[node], goes))

    def votes(self, leaves: Array, targets: int, aggregate: str) -> tuple[Array, Array]:
        first, count = self.leaf_start[leaves], self.leaf_start[leaves + 1] - self.leaf_start[leaves]
        counts = count.reshape(-1)
        offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        vote = np.repeat(first.reshape(-1), counts) + offset
        row = np.repeat(np.repeat(np.arange(len(leaves)), leaves.shape[1]), counts)
        cell = row * targets + self.target[vote]
        size = len(leaves) * targets
        voted = np.zeros(size, np.bool_)
        voted[cell] = True
        if aggregate in ("SUM", "AVERAGE"):
            scores = np.bincount(cell, self.weight[vote], size).astype(np.float64)
        else:
            scores = np.full(size, np.inf if aggregate == "MIN" else -np.inf)
            (np.minimum if aggregate == "MIN" else np.maximum).at(scores, cell, self.weight[vote])
            scores[~voted] = 0
        return scores.reshape(-1, targets), voted.reshape(-1, targets)


@lru_cache(maxsize=32)
def _forest(ensemble: TreeEnsemble) -> _Forest:
    nodes, votes = len(ensemble.nodes_featureids), len(ensemble.vote_leafids)
    for name in (
        "nodes_modes",
        "nodes_splits",
        "nodes_truenodeids",
        "nodes_falsenodeids",
        "nodes_missing_value_tracks_true",
    ):
        length = len(getattr(ensemble, name))
        if length != nodes and not (name.endswith("tracks_true") and not length):
            raise ParameterError(f"{name} must have one entry for each of the {nodes} nodes, got {length}")
    if len(ensemble.vote_targetids) != votes or len(ensemble.vote_weights) != votes:
        raise ParameterError(
            f"vote_leafids, vote_targetids and vote_weights must have one length, got {votes}, {len(ensemble.vote_targetids)} "
            f"and {len(ensemble.vote_weights)}"
        )
    true, false, roots = _ids(ensemble.nodes_truenodeids), _ids(ensemble.nodes_falsenodeids), _ids(ensemble.tree_roots)
    feature, mode, leaf, target = (
        _ids(ensemble.nodes_featureids),
        _ids(ensemble.nodes_modes),
        _ids(ensemble.vote_leafids),
        _ids(ensemble.vote_targetids),
    )
    ends = np.concatenate([true, false, roots])
    most = 2 * (nodes + votes + 1)  # leaves; some may have no vote
    leaves = 1 + max(-1 - int(ends.min(initial=0)), int(leaf.max(initial=-1)))
    _check("node", ends, -most, nodes)
    _check("feature", feature, 0, 1 << 31)
    _check("mode", mode, 0, len(MODES))
    _check("leaf", leaf, 0, most)
    _check("target", target, 0, ensemble.n_targets)
    order = np.argsort(leaf, kind="stable")
    _check_paths(true, false)
    is_member = mode == MEMBER
    counts = _ids(ensemble.member_counts)
    if len(counts) != is_member.sum() or counts.min(initial=0) < 0 or counts.sum() != len(ensemble.members):
        raise ParameterError(
            f"member_counts must have one entry for each of the {is_member.sum()} nodes of mode BRANCH_MEMBER and sum to "
            f"{len(ensemble.members)}, got {list(ensemble.member_counts)}"
        )
    per_node = np.zeros(nodes, np.int64)
    per_node[is_member] = counts
    return _Forest(
        roots, feature, mode, np.array(ensemble.nodes_splits, np.float64), true, false,
        np.array(ensemble.nodes_missing_value_tracks_true or (0,) * nodes) != 0,
        np.concatenate([[0], np.cumsum(per_node)]), np.array(ensemble.members, np.float64),
        np.concatenate([[0], np.cumsum(np.bincount(leaf, minlength=leaves))]),
        target[order], np.array(ensemble.vote_weights, np.float64)[order],
    )  # fmt: skip


def _ids(values: tuple[int, ...]) -> Array:
    try:
        return np.array(values, np.int64)
    except OverflowError:
        raise ParameterError("ids must fit 64 bits") from None


def _check(what: str, ids: Array, low: int, high: int) -> None:
    bad = ids[(ids < low) | (ids >= high)]
    if bad.size:
        raise ParameterError(f"{what} ids must lie in [{low}, {high - 1}], got {bad[0]}")


def _check_paths(true: Array, false: Array) -> None:
    """Errors: ParameterError if some path returns to a node that it has passed."""
    waiting = np.zeros(len(true), np.int64)  # how many branches lead to each node
    for children in (true, false):
        np.add.at(waiting, children[children >= 0], 1)
    ready, done = np.flatnonzero(waiting == 0), 0
    while ready.size:
        done += ready.size
        children = np.concatenate([true[ready], false[ready]])
        children = children[children >= 0]
        np.subtract.at(waiting, children, 1)
        ready = np.unique(children[waiting[children] == 0])
    if done < len(true):
        raise ParameterError("the nodes do not form trees: following the branches leads back to a node")
