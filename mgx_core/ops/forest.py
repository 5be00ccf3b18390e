"""Decision tree ensembles as arrays, and their vectorized traversal."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from ..errors import ParameterError
from ..named_tuples import NamedTuple
from ..types.argument import Array

__all__ = ["MODES", "Forest", "forest_of"]

MODES: Final = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
MEMBER: Final = 6


class Forest(NamedTuple):
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
def forest_of(ensemble: Any) -> Forest:
    """Returns the arrays of a `TreeEnsemble`.  Errors: ParameterError for inconsistent lists, or nodes that do not form trees."""
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
    feature, mode = _ids(ensemble.nodes_featureids), _ids(ensemble.nodes_modes)
    leaf, target = _ids(ensemble.vote_leafids), _ids(ensemble.vote_targetids)
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
    return Forest(
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
    """Errors: ParameterError if the nodes form a cycle."""
    waiting = np.zeros(len(true), np.int64)  # the number of branches that lead to each node
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
