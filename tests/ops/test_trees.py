"""Tree ensembles, compared with a traversal of each tree in plain Python."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import pytest

from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.ops.trees import TreeEnsemble, TreeEnsembleClassifier
from mgx_core.types.dim import symbol
from mgx_core.types.shape import Shape, TupleShape

COMPARE = (operator.le, operator.lt, operator.ge, operator.gt, operator.eq, operator.ne)


TOTAL = {
    "SUM": sum,
    "AVERAGE": lambda v: sum(v) / 5,
    "MIN": lambda v: min(v, default=0),
    "MAX": lambda v: max(v, default=0),
}


def forest(seed: int, trees: int, targets: int, depth: int = 4) -> dict[str, Any]:
    """Returns random trees of all modes; each leaf votes 0 to `targets` times."""
    rng = np.random.default_rng(seed)
    nodes: list[list[Any]] = []
    votes: list[tuple[int, int, float]] = []
    members: dict[int, list[float]] = {}
    leaves = 0

    def grow(level: int) -> int:
        nonlocal leaves
        if not level or rng.random() < 0.2:
            leaves += 1
            chosen = rng.permutation(targets)[: rng.integers(targets + 1)]
            votes.extend((leaves - 1, int(target), float(rng.normal())) for target in chosen)
            return -leaves
        node = [int(rng.integers(3)), int(rng.integers(7)), float(rng.integers(-2, 3)), 0, 0, int(rng.integers(2))]
        nodes.append(node)
        at = len(nodes) - 1
        if node[1] == 6:
            members[at] = [float(v) for v in rng.integers(-2, 3, 2)]
        node[3:5] = grow(level - 1), grow(level - 1)
        return at

    roots = [grow(depth) for _ in range(trees)]
    names = ("featureids", "modes", "splits", "truenodeids", "falsenodeids", "missing_value_tracks_true")
    columns = {f"nodes_{name}": [n[i] for n in nodes] for i, name in enumerate(names)}
    sets = [members[at] for at in sorted(members)]
    return columns | {
        "n_targets": targets,
        "tree_roots": roots,
        "members": [v for s in sets for v in s],
        "member_counts": [len(s) for s in sets],
        "vote_leafids": [v[0] for v in votes],
        "vote_targetids": [v[1] for v in votes],
        "vote_weights": [v[2] for v in votes],
    }


def walk(f: dict[str, Any], row: Any, root: int) -> int:
    at, starts = root, np.cumsum([0, *f["member_counts"]])
    while at >= 0:
        mode, value = f["nodes_modes"][at], float(row[f["nodes_featureids"][at]])
        if math.isnan(value):
            goes = bool(f["nodes_missing_value_tracks_true"][at])
        elif mode == 6:
            k = f["nodes_modes"][:at].count(6)
            goes = value in f["members"][starts[k] : starts[k + 1]]
        else:
            goes = COMPARE[mode](value, f["nodes_splits"][at])
        at = f["nodes_truenodeids" if goes else "nodes_falsenodeids"][at]
    return -1 - at


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("seed", range(4))
def test_random_forests(seed: int, aggregate: Any) -> None:
    f = forest(seed, 5, 3)
    x = np.random.default_rng(seed).integers(-2, 3, (40, 3)).astype(np.float32)
    x[::7, 1] = np.nan
    base = [0.5, -1.0, 2.0]
    expected = np.zeros((40, 3))
    for n, row in enumerate(x):
        found: list[list[float]] = [[], [], []]
        for root in f["tree_roots"]:
            leaf = walk(f, row, root)
            for at, target, weight in zip(f["vote_leafids"], f["vote_targetids"], f["vote_weights"], strict=True):
                if at == leaf:
                    found[target].append(weight)
        expected[n] = [TOTAL[aggregate](v) + b for v, b in zip(found, base, strict=True)]
    op = TreeEnsemble(**f, base_values=base, aggregate_function=aggregate)
    np.testing.assert_allclose(op.evaluate([x]), expected, rtol=1e-5, atol=1e-6)
    assert op.evaluate([x[:0]]).shape == (0, 3)


def stump(**changes: Any) -> dict[str, Any]:
    """x <= 0.5 votes for target 0, otherwise for target 1."""
    return {
        "n_targets": 2,
        "tree_roots": [0],
        "nodes_featureids": [0],
        "nodes_modes": [0],
        "nodes_splits": [0.5],
        "nodes_truenodeids": [-1],
        "nodes_falsenodeids": [-2],
        "vote_leafids": [0, 1],
        "vote_targetids": [0, 1],
        "vote_weights": [3.0, 4.0],
        **changes,
    }


def test_thresholds_meet_features_in_full_precision() -> None:
    split = float(np.float32(0.1))
    op = TreeEnsemble(**stump(nodes_splits=[split], dtype=dt.float64))
    assert op.evaluate([np.array([[0.1]], np.float32)]).tolist() == [[3, 0]]
    assert op.evaluate([np.array([[split + 1e-12]])]).tolist() == [[0, 4]]
    assert op.evaluate([np.array([0.1], np.float32)]).tolist() == [[3, 0]]


def test_classes() -> None:
    x = np.array([[0.0], [1.0]], np.float32)
    names, scores = TreeEnsembleClassifier(**stump(), labels_strings=["no", "yes"]).evaluate([x])
    assert names.tolist() == ["no", "yes"] and scores.tolist() == [[3, 0], [0, 4]]
    one = {"vote_targetids": [0, 0], "labels_ints": [5, 7]}
    names, scores = TreeEnsembleClassifier(**stump(vote_weights=[0.25, 0.75], **one)).evaluate([x])
    assert names.tolist() == [5, 7] and scores.tolist() == [[0.75, 0.25], [0.25, 0.75]]
    names, scores = TreeEnsembleClassifier(**stump(vote_weights=[-1.0, 0.25], base_values=[0.5], **one)).evaluate([x])
    assert names.tolist() == [5, 7] and scores.tolist() == [[0.5, -0.5], [-0.75, 0.75]]
    tenth = float(np.float32(0.1))  # five of them exceed 0.5 before their sum is rounded
    votes = {"vote_leafids": [0] * 5 + [1] * 6, "vote_targetids": [0] * 11, "labels_ints": [5, 7]}
    names, scores = TreeEnsembleClassifier(**stump(vote_weights=[tenth] * 11, **votes)).evaluate([x])
    assert names.tolist() == [5, 7] and scores[0].tolist() == [0.5, 0.5]
    shape = TreeEnsembleClassifier(**stump(), labels_strings=["a", "b"]).result(
        [Shape.of(dt.float32, (symbol("n"), 1))]
    )
    assert shape == TupleShape([Shape.of(dt.string, (symbol("n"),)), Shape.of(dt.float32, (symbol("n"), 2))])
    with pytest.raises(ParameterError, match="label"):
        TreeEnsembleClassifier(**stump(), labels_ints=[1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes_truenodeids": [0]}, "do not form trees"),
        ({"nodes_truenodeids": [1]}, "node ids"),
        ({"nodes_truenodeids": [-1 << 40]}, "node ids"),
        ({"tree_roots": [7]}, "node ids"),
        ({"nodes_featureids": [-1]}, "feature ids"),
        ({"nodes_modes": [7]}, "mode ids"),
        ({"nodes_modes": [6]}, "member_counts"),
        ({"nodes_splits": []}, "nodes_splits"),
        ({"vote_targetids": [0, 2]}, "target ids"),
        ({"vote_leafids": [0, 1 << 50]}, "leaf ids"),
        ({"vote_leafids": [0, 1 << 70]}, "64 bits"),
        ({"vote_weights": [1.0]}, "one length"),
        ({"n_targets": 1 << 50}, "n_targets"),
        ({"base_values": [1.0]}, "base_values"),
    ],
)
def test_invalid_forests(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        TreeEnsemble(**stump(**changes))


def test_too_few_features() -> None:
    op = TreeEnsemble(**stump(nodes_featureids=[3]))
    with pytest.raises(ShapeError, match="4 features"):
        op.result([Shape.of(dt.float32, (5, 3))])
    with pytest.raises(ShapeError, match="4 features"):
        op.evaluate([np.zeros((5, 3), np.float32)])
