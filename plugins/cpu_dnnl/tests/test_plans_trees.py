"""Decision tree ensembles evaluated by the native loop, compared with the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt

rng = np.random.default_rng(11)
Check = Callable[..., None]
LEVELS = 4


def forest(trees: int, outputs: int, modes: int = 6, votes: int = 2) -> dict[str, Any]:
    """Full trees of LEVELS levels over three features; thresholds are between float32 numbers or equal to features."""
    inner, leaves = 2**LEVELS - 1, 2**LEVELS
    nodes = trees * inner

    def child(tree: int, at: int) -> int:
        return tree * inner + at if at < inner else -1 - (tree * leaves + at - inner)

    splits = rng.choice([0.0, 1.0, -1.0, 0.1, 0.1 + 1e-12, float(np.float32(0.1)), 1e300], nodes)
    return {
        "tree_roots": [child(t, 0) for t in range(trees)],
        "nodes_featureids": rng.integers(0, 3, nodes).tolist(),
        "nodes_modes": rng.integers(0, modes, nodes).tolist(),
        "nodes_splits": splits.tolist(),
        "nodes_truenodeids": [child(t, 2 * k + 1) for t in range(trees) for k in range(inner)],
        "nodes_falsenodeids": [child(t, 2 * k + 2) for t in range(trees) for k in range(inner)],
        "nodes_missing_value_tracks_true": rng.integers(0, 2, nodes).tolist(),
        "vote_leafids": sorted(rng.integers(0, trees * leaves, votes * trees * leaves).tolist()),
        "vote_targetids": rng.integers(0, outputs, votes * trees * leaves).tolist(),
        "vote_weights": rng.random(votes * trees * leaves).tolist(),
        "n_targets": outputs,
    }


def features(rows: int, dtype: Any = np.float32) -> Any:
    near = dtype(0.1)
    numbers = [0, -1, 1, near, np.nextafter(near, dtype(1)), np.nan, np.inf, -np.inf, np.finfo(dtype).max]
    return rng.choice(np.array(numbers, dtype), (rows, 3))


@pytest.mark.pairs
@pytest.mark.parametrize("rows", [1, 7, 8, 75])
@pytest.mark.parametrize("trees", [1, 8, 13])
def test_scores(agrees: Check, rows: int, trees: int) -> None:
    for aggregate in ("SUM", "AVERAGE", "MIN", "MAX"):
        given = forest(trees, 3)
        given["vote_weights"] = [w - 0.5 for w in given["vote_weights"]]
        op = mgx.op("tree_ensemble", aggregate_function=aggregate, **given, base_values=(0.5, -1.0, 2.0))
        agrees(op, features(rows), tolerance=1e-6)


@pytest.mark.parametrize("aggregate", ["MIN", "MAX"])
def test_extremes_of_no_votes_are_zero(agrees: Check, aggregate: str) -> None:
    given = forest(2, 3)
    given["vote_targetids"] = [0] * len(given["vote_targetids"])
    agrees(mgx.op("tree_ensemble", aggregate_function=aggregate, **given), features(9), tolerance=1e-6)


def test_features_that_are_looked_up_in_sets(agrees: Check) -> None:
    """Nodes with none, one and several members, among others; 0.1 + 1e-12 is no float32 number."""
    for dtype in (np.float32, np.float64):
        given = forest(9, 2, modes=7)
        for at, mode in enumerate((6, 6, 0, 6)):
            given["nodes_modes"][at] = mode
        sets = [rng.choice([0.0, -1.0, 1.0, 0.1 + 1e-12, np.inf, float(np.float32(0.1))], n % 5, replace=False).tolist()
                for n in range(given["nodes_modes"].count(6))]  # fmt: skip
        given |= {"members": [m for s in sets for m in s], "member_counts": [len(s) for s in sets]}
        for rows in (1, 75):
            agrees(mgx.op("tree_ensemble", **given), features(rows, dtype), tolerance=1e-6)
    given["nodes_modes"] = [6] * len(given["nodes_modes"])
    given |= {"members": [0.0] * len(given["nodes_modes"]), "member_counts": [1] * len(given["nodes_modes"])}
    agrees(mgx.op("tree_ensemble", **given), features(75), tolerance=1e-6)


def test_quantiles_of_scores(agrees: Check) -> None:
    """Scores at, outside and close to the ends of the range of probabilities; both classes of a binary classifier."""
    scores = [0.0, 1.0, -0.1, 1.1, 0.5, 0.3, 1e-300, 1e-17, 1 - 1e-15, 0.02425, 0.97575, 1e-5]
    votes = {"tree_roots": (-1,), "vote_leafids": [0] * len(scores), "vote_targetids": list(range(len(scores)))}
    given = {**votes, "vote_weights": scores, "n_targets": len(scores), "post_transform": "PROBIT"}
    agrees(mgx.op("tree_ensemble", dtype=dt.float64, **given), features(3, np.float64), tolerance=1e-14)
    given = forest(5, 3)
    for sign in (1, -1):  # all votes for the first of two classes; the score is a probability or not
        votes = {"vote_targetids": [0] * len(given["vote_leafids"]), "n_targets": 2}
        votes["vote_weights"] = [(w - 0.3 * (sign < 0)) / 20 for w in given["vote_weights"]]
        two = {**given, **votes, "labels_ints": (7, -1), "post_transform": "PROBIT"}
        agrees(mgx.op("tree_ensemble_classifier", **two), features(21), tolerance=1e-6)


@pytest.mark.pairs
@pytest.mark.parametrize("mode", range(6))
@pytest.mark.parametrize("tracks", [False, True])
@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nodes_that_all_compare_by_one_rule(agrees: Check, mode: int, tracks: bool, holes: bool, dtype: Any) -> None:
    given = forest(9, 2)
    given["nodes_modes"] = [mode] * len(given["nodes_modes"])
    if not tracks:
        del given["nodes_missing_value_tracks_true"]
    for rows in (1, 75):
        x = features(rows, dtype)
        agrees(mgx.op("tree_ensemble", **given), x if holes else np.nan_to_num(x, posinf=np.inf), tolerance=1e-6)


@pytest.mark.parametrize("scores", [dt.float32, dt.float64])
def test_features_in_float64_are_compared_unrounded(agrees: Check, scores: Any) -> None:
    """0.1 and 0.1 + 1e-12 are equal in float32."""
    for rows in (1, 75):
        x = np.where(rng.random((rows, 3)) < 0.5, 0.1 + 1e-12, features(rows, np.float64))
        agrees(mgx.op("tree_ensemble", dtype=scores, **forest(13, 3)), x, tolerance=1e-6)


def test_classes_of_features_in_float64(agrees: Check) -> None:
    op = mgx.op("tree_ensemble_classifier", labels_ints=(7, -1, 3), post_transform="SOFTMAX", **forest(5, 3))
    agrees(op, features(75, np.float64))


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "SOFTMAX_ZERO", "LOGISTIC"])
def test_classes(agrees: Check, transform: Any) -> None:
    given = forest(5, 3)
    op = mgx.op("tree_ensemble_classifier", labels_ints=(7, -1, 3), post_transform=transform, **given)
    agrees(op, features(21), tolerance=1e-6)
    for sign in (1, -1):  # all votes for the first of two classes; the score is a probability or not
        votes = {"vote_targetids": [0] * len(given["vote_leafids"]), "n_targets": 2}
        votes["vote_weights"] = [(w - 0.3 * (sign < 0)) / 20 for w in given["vote_weights"]]
        two = {**given, **votes, "labels_ints": (7, -1), "post_transform": transform, "base_values": (0.01,)}
        agrees(mgx.op("tree_ensemble_classifier", **two), features(21), tolerance=1e-6)


def test_half_of_the_votes_are_no_majority(agrees: Check) -> None:
    """The sum of five votes of float32(0.1) exceeds 0.5 before it is rounded."""
    votes = {"tree_roots": (-1,), "vote_leafids": [0] * 5, "vote_targetids": [0] * 5, "n_targets": 2}
    tenth = float(np.float32(0.1))
    for weight, wanted in ((tenth, 7), (2 * tenth, -1)):
        op = mgx.op("tree_ensemble_classifier", vote_weights=[weight] * 5, labels_ints=(7, -1), **votes)
        assert op.compute(features(3))[0].tolist() == [wanted] * 3
        agrees(op, features(3))


def test_trees_without_nodes(agrees: Check) -> None:
    leaf = {
        "tree_roots": (-1, -2),
        "vote_leafids": (1,),
        "vote_targetids": (0,),
        "vote_weights": (2.5,),
        "n_targets": 1,
    }
    agrees(mgx.op("tree_ensemble", **leaf), features(9))
    agrees(mgx.op("tree_ensemble", n_targets=2, tree_roots=(), base_values=(1.0, 2.0)), features(3))


def test_ops_that_stay_on_the_host() -> None:
    given = forest(2, 2)
    for op in (
        mgx.op("tree_ensemble", **{**given, "vote_weights": [np.inf] * len(given["vote_weights"])}),
        mgx.op("tree_ensemble_classifier", labels_strings=("a", "b"), **given),
    ):
        program, x = mgx.Program(), features(12)
        m = program.get_main_module()
        made = m.add(op, m.add_parameter("x", mgx.Shape(dt.float32, [12, 3])))
        several = isinstance(made.result, mgx.TupleShape)
        m.add_return([m.add(mgx.op("get_tuple_elem", index=1), made) if several else made])
        program.compile(mgx.get_target("cpu"))
        with np.errstate(all="ignore"):
            wanted = op.evaluate([x])
        np.testing.assert_allclose(program.run({"x": x})[0], wanted[1] if several else wanted, rtol=1e-6)


def test_too_few_features() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape(dt.float32, [4, mgx.DynamicDimension(1, 9)]))
    m.add_return([m.add(mgx.op("tree_ensemble", **forest(2, 1)), x)])
    program.compile(mgx.get_target("cpu"))
    with pytest.raises(mgx.ShapeError, match="the trees use 3 features, got 2"):
        program.run({"x": np.zeros((4, 2), np.float32)})
