"""Ensembles of decision trees: the three forms that ONNX has become one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core.ops.forest import MODES

from ..converter import converts
from ..node import Node
from .classical import ML, labels

AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@converts("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(n: Node, x: Instruction) -> Instruction:
    votes = _votes(n, "target")
    return n.add(
        "tree_ensemble",
        x,
        n_targets=n.attr("n_targets", 1 + max(votes["vote_targetids"], default=0)),
        aggregate_function=n.attr("aggregate_function", "SUM"),
        **_numbered(n, votes),
    )


@converts("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(n: Node, x: Instruction) -> Any:
    names = labels(n, "classlabels_int64s")
    classes = len(names["labels_ints"] or names["labels_strings"])
    made = n.add("tree_ensemble_classifier", x, n_targets=classes, **_numbered(n, _votes(n, "class")), **names)
    return n.items(made)


def _votes(n: Node, prefix: str) -> dict[str, Any]:
    """Votes as the older forms list them; `vote_leafids` holds pairs of tree and node yet."""
    trees, nodes = n.attr(f"{prefix}_treeids", []), n.attr(f"{prefix}_nodeids", [])
    targets, weights = n.attr(f"{prefix}_ids", []), _floats(n, f"{prefix}_weights")
    if not len(trees) == len(nodes) == len(targets) == len(weights):
        n.fail(
            f"{prefix}_treeids, {prefix}_nodeids, {prefix}_ids and {prefix}_weights must have one length, got "
            f"{len(trees)}, {len(nodes)}, {len(targets)} and {len(weights)}"
        )
    return {"vote_leafids": list(zip(trees, nodes, strict=True)), "vote_targetids": targets, "vote_weights": weights}


def _floats(n: Node, name: str) -> list[float]:
    """Returns a list of floats, or the tensor of doubles that may stand for it."""
    tensor = n.attr(f"{name}_as_tensor", None)
    return list(n.attr(name, []) if tensor is None else tensor.reshape(-1).astype(np.float64).tolist())


def _numbered(n: Node, votes: dict[str, Any]) -> dict[str, Any]:
    """Returns nodes named by tree and id as nodes and leaves numbered through all trees."""
    trees, ids = n.attr("nodes_treeids", []), n.attr("nodes_nodeids", [])
    columns: dict[str, Sequence[Any]] = {
        name: n.attr(f"nodes_{name}", []) for name in ("modes", "featureids", "truenodeids", "falsenodeids")
    }
    columns["values"] = _floats(n, "nodes_values")
    missing = n.attr("nodes_missing_value_tracks_true", []) or [0] * len(ids)
    for name, column in (("treeids", trees), ("missing_value_tracks_true", missing), *columns.items()):
        if len(column) != len(ids):
            n.fail(f"nodes_{name} must have one entry for each of the {len(ids)} nodes, got {len(column)}")
    number: dict[tuple[int, int], int] = {}
    inner: list[int] = []
    leaves = 0
    for i, key in enumerate(zip(trees, ids, strict=True)):
        if key in number:
            n.fail(f"tree {key[0]} has two nodes {key[1]}")
        if columns["modes"][i] == "LEAF":
            leaves += 1
            number[key] = -leaves
        elif columns["modes"][i] in MODES[:-1]:
            number[key] = len(inner)
            inner.append(i)
        else:
            n.fail(f"nodes_modes must be LEAF or one of {', '.join(MODES[:-1])}, got {columns['modes'][i]!r}")
    sides: dict[str, list[int]] = {"truenodeids": [], "falsenodeids": []}
    children = set()
    for i in inner:
        for name, side in sides.items():
            child = trees[i], columns[name][i]
            if child not in number:
                n.fail(f"node {ids[i]} of tree {trees[i]} leads to node {child[1]}, which that tree lacks")
            children.add(child)
            side.append(number[child])
    roots: dict[int, int] = {}
    for key, at in number.items():
        if key not in children:
            roots.setdefault(key[0], at)
    if len(roots) != len(set(trees)):
        n.fail("a tree has no root: all its nodes are reached from others")
    voters = [number.get(key, 0) for key in votes["vote_leafids"]]
    for voter, key in zip(voters, votes["vote_leafids"], strict=True):
        if voter >= 0:
            n.fail(f"node {key[1]} of tree {key[0]} has a weight, but is not a leaf")
    return {
        "tree_roots": list(roots.values()),
        "nodes_featureids": [columns["featureids"][i] for i in inner],
        "nodes_modes": [MODES.index(columns["modes"][i]) for i in inner],
        "nodes_splits": [columns["values"][i] for i in inner],
        "nodes_truenodeids": sides["truenodeids"],
        "nodes_falsenodeids": sides["falsenodeids"],
        "nodes_missing_value_tracks_true": [missing[i] for i in inner],
        "vote_leafids": [-1 - v for v in voters],
        "vote_targetids": votes["vote_targetids"],
        "vote_weights": votes["vote_weights"],
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
                n.fail(f"nodes_{side}nodeids holds {child}, of {len(modes)} nodes and {len(weights)} leaves")
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
    """Returns the sets of the membership nodes, joined, and their sizes; in the file NaN ends each."""
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
            f"membership_values must hold a set for each of the {count} nodes of mode BRANCH_MEMBER, got {len(sets)}"
        )
    return [v for members in sets for v in members], [len(s) for s in sets]
