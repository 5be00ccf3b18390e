"""Tree ensembles: converts ONNX's three forms to one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core.ops.forest import MODES
from mgx_core.types.argument import Array

from ..converter import converts
from ..node import Node
from .classical import ML, classified, labels

AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
LEAF, UNKNOWN = -1, -2
KINDS = {"LEAF": LEAF, **{mode: k for k, mode in enumerate(MODES[:-1])}}


@converts("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(n: Node, x: Instruction) -> Instruction:
    votes = _votes(n, "target")
    return n.add(
        "tree_ensemble",
        x,
        n_targets=n.attr("n_targets", 1 + max(votes["targets"], default=0)),
        aggregate_function=n.attr("aggregate_function", "SUM"),
        **_numbered(n, votes),
    )


@converts("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(n: Node, x: Instruction) -> Any:
    names = labels(n, "classlabels_int64s")
    classes = len(names["labels_ints"] or names["labels_strings"])
    attributes = {"n_targets": classes, **_numbered(n, _votes(n, "class")), **names}
    return classified(n, "tree_ensemble_classifier", x, attributes)


def _votes(n: Node, prefix: str) -> dict[str, Any]:
    """Returns votes in the older forms' representation: leaves by tree and node."""
    trees, nodes = n.attr(f"{prefix}_treeids", []), n.attr(f"{prefix}_nodeids", [])
    targets, weights = n.attr(f"{prefix}_ids", []), _floats(n, f"{prefix}_weights")
    if not len(trees) == len(nodes) == len(targets) == len(weights):
        n.fail(
            f"{prefix}_treeids, {prefix}_nodeids, {prefix}_ids and {prefix}_weights must have one length, got "
            f"{len(trees)}, {len(nodes)}, {len(targets)} and {len(weights)}"
        )
    return {"trees": trees, "nodes": nodes, "targets": targets, "weights": weights}


def _floats(n: Node, name: str) -> list[float]:
    """Returns a float list attribute, or its double tensor alternative (*_as_tensor)."""
    tensor = n.attr(f"{name}_as_tensor", None)
    return list(n.attr(name, []) if tensor is None else tensor.reshape(-1).astype(np.float64).tolist())


class _Places:
    """Maps (tree, node id) to positions; a sorted array, since ensembles have millions of nodes.

    twice: the position of a node with a duplicate key; None if there is none.
    """

    def __init__(self, trees: Sequence[int], ids: Sequence[int]) -> None:
        self._trees, self._ids = (np.unique(np.array(v, np.int64)) for v in (trees, ids))
        codes = self._codes(trees, ids)
        self._order = np.argsort(codes, kind="stable")
        self._sorted = codes[self._order]
        again = self._order[1:][self._sorted[1:] == self._sorted[:-1]]
        self.twice = int(again.min()) if again.size else None

    def find(self, trees: Sequence[int] | Array, ids: Sequence[int] | Array) -> Array:
        """Returns positions; -1 for unknown nodes."""
        codes = self._codes(trees, ids)
        at = np.searchsorted(self._sorted, codes)
        there = np.append(self._sorted, -1)[at] == codes
        return np.where(there & (codes >= 0), np.append(self._order, -1)[at], -1)

    def _codes(self, trees: Sequence[int] | Array, ids: Sequence[int] | Array) -> Array:
        """Returns a single code per pair; -1 if the tree or the id is unknown."""
        known = np.ones(len(ids), np.bool_)
        ranks = []
        for table, given in ((self._trees, trees), (self._ids, ids)):
            values = np.array(given, np.int64)
            rank = np.searchsorted(table, values)
            known &= (rank < len(table)) & (np.append(table, 0)[rank] == values)
            ranks.append(rank)
        return np.where(known, ranks[0] * len(self._ids) + ranks[1], -1)


def _numbered(n: Node, votes: dict[str, Any]) -> dict[str, Any]:
    """Renumbers nodes, given by tree and id, as nodes and leaves numbered across all trees."""
    trees, ids = n.attr("nodes_treeids", []), n.attr("nodes_nodeids", [])
    columns: dict[str, Sequence[Any]] = {
        name: n.attr(f"nodes_{name}", []) for name in ("modes", "featureids", "truenodeids", "falsenodeids")
    }
    columns["values"] = _floats(n, "nodes_values")
    missing = n.attr("nodes_missing_value_tracks_true", []) or [0] * len(ids)
    for name, column in (("treeids", trees), ("missing_value_tracks_true", missing), *columns.items()):
        if len(column) != len(ids):
            n.fail(f"nodes_{name} must have one entry for each of the {len(ids)} nodes, got {len(column)}")
    kinds = np.array([KINDS.get(m, UNKNOWN) for m in columns["modes"]], np.int64)
    if (kinds == UNKNOWN).any():
        got = columns["modes"][int(np.argmax(kinds == UNKNOWN))]
        n.fail(f"nodes_modes must be LEAF or one of {', '.join(MODES[:-1])}, got {got!r}")
    places = _Places(trees, ids)
    if places.twice is not None:
        n.fail(f"tree {trees[places.twice]} has several nodes {ids[places.twice]}")
    is_leaf = kinds == LEAF
    number = np.where(is_leaf, -np.cumsum(is_leaf), np.cumsum(~is_leaf) - 1)
    inner = np.flatnonzero(~is_leaf)
    sides: dict[str, Array] = {}
    reached = np.zeros(len(ids), np.bool_)
    for name in ("truenodeids", "falsenodeids"):
        children = np.array(columns[name], np.int64)[inner]
        at = places.find(np.array(trees, np.int64)[inner], children)
        if (at < 0).any():
            k = int(np.argmax(at < 0))
            i = int(inner[k])
            n.fail(f"node {ids[i]} of tree {trees[i]} refers to node {children[k]}, which does not exist in that tree")
        reached[at] = True
        sides[name] = number[at]
    first: dict[int, int] = {}
    for i in np.flatnonzero(~reached).tolist():
        first.setdefault(trees[i], int(number[i]))
    if len(first) != len(set(trees)):
        n.fail("a tree has no root: all its nodes have a parent")
    voters = places.find(votes["trees"], votes["nodes"])
    voters = np.where(voters < 0, 0, number[voters]) if len(ids) else np.zeros(len(voters), np.int64)
    if (voters >= 0).any():
        k = int(np.argmax(voters >= 0))
        n.fail(f"node {votes['nodes'][k]} of tree {votes['trees'][k]} has a weight, but is not a leaf")
    return {
        "tree_roots": list(first.values()),
        "nodes_featureids": np.array(columns["featureids"], np.int64)[inner].tolist(),
        "nodes_modes": kinds[inner].tolist(),
        "nodes_splits": np.array(columns["values"], np.float64)[inner].tolist(),
        "nodes_truenodeids": sides["truenodeids"].tolist(),
        "nodes_falsenodeids": sides["falsenodeids"].tolist(),
        "nodes_missing_value_tracks_true": np.array(missing, np.int64)[inner].tolist(),
        "vote_leafids": (-1 - voters).tolist(),
        "vote_targetids": votes["targets"],
        "vote_weights": votes["weights"],
        "base_values": _floats(n, "base_values"),
        "post_transform": n.attr("post_transform", "NONE"),
    }


@converts("TreeEnsemble", domain=ML, since=5)
def tree_ensemble(n: Node, x: Instruction) -> Instruction:
    modes = n.attr("nodes_modes").reshape(-1).tolist()
    weights = n.attr("leaf_weights").reshape(-1).astype(np.float64).tolist()
    targets = n.attr("leaf_targetids")
    aggregate, transform = n.attr("aggregate_function", 1), n.attr("post_transform", 0)
    if not 0 <= aggregate < len(AGGREGATES) or not 0 <= transform < len(TRANSFORMS):
        n.fail(f"aggregate_function must lie in [0, 3] and post_transform in [0, 4], got {aggregate} and {transform}")
    sides = {}
    for side in ("true", "false"):
        nodes, is_leaf = n.attr(f"nodes_{side}nodeids"), n.attr(f"nodes_{side}leafs")
        if len(nodes) != len(is_leaf):
            n.fail(
                f"nodes_{side}nodeids and nodes_{side}leafs must have one length, got {len(nodes)} and {len(is_leaf)}"
            )
        for child, leaf in zip(nodes, is_leaf, strict=True):
            if not 0 <= child < (len(weights) if leaf else len(modes)):
                n.fail(f"nodes_{side}nodeids contains {child}, there are {len(modes)} nodes and {len(weights)} leaves")
        sides[side] = [-1 - child if leaf else child for child, leaf in zip(nodes, is_leaf, strict=True)]
    members, counts = _members(n, modes)
    return n.add(
        "tree_ensemble",
        x,
        n_targets=n.attr("n_targets", 1 + max(targets, default=0)),
        tree_roots=n.attr("tree_roots"),
        nodes_featureids=n.attr("nodes_featureids"),
        nodes_modes=modes,
        nodes_splits=n.attr("nodes_splits").reshape(-1).astype(np.float64).tolist(),
        nodes_truenodeids=sides["true"],
        nodes_falsenodeids=sides["false"],
        nodes_missing_value_tracks_true=n.attr("nodes_missing_value_tracks_true", []),
        members=members,
        member_counts=counts,
        vote_leafids=list(range(len(weights))),
        vote_targetids=targets,
        vote_weights=weights,
        aggregate_function=AGGREGATES[aggregate],
        post_transform=TRANSFORMS[transform],
        dtype=x.shape.dtype,
    )


def _members(n: Node, modes: list[int]) -> tuple[list[float], list[int]]:
    """Returns the concatenated sets of membership nodes and their sizes; NaN terminates each set in the file."""
    tensor = n.attr("membership_values", None)
    sets: list[list[float]] = [[]]
    for value in [] if tensor is None else tensor.reshape(-1).astype(np.float64).tolist():
        if np.isnan(value):
            sets.append([])
        else:
            sets[-1].append(value)
    count = modes.count(MODES.index("BRANCH_MEMBER"))
    if len(sets) == count + 1 and not sets[-1]:
        sets.pop()
    if len(sets) != count:
        n.fail(
            f"membership_values must contain a set for each of the {count} nodes of mode BRANCH_MEMBER, got {len(sets)}"
        )
    return [v for members in sets for v in members], [len(s) for s in sets]
