"""Support vector machines and linear models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_core import Module, No
from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ops.pointwise import Mul, Pow
from mgx_core.rules.decomposition import decomposed
from mgx_core.types.argument import shape_of
from mgx_core.types.shape import Shape, TupleShape
from mgx_onnx.ops.linear_models import LinearClassifier, LinearRegressor
from mgx_onnx.ops.svm import SVMClassifier, SVMRegressor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 3)).astype(np.float32)
KERNELS = {
    "LINEAR": lambda a, b: a @ b,
    "POLY": lambda a, b: (0.5 * (a @ b) + 0.25) ** 2,
    "RBF": lambda a, b: np.exp(-0.5 * ((a - b) ** 2).sum()),
    "SIGMOID": lambda a, b: np.tanh(0.5 * (a @ b) + 0.25),
}


def same_apart(op: Any, x: Any) -> None:
    """Checks that an op's decomposition gives the op's results."""
    parts = decomposed(op, [shape_of(x)])
    assert isinstance(parts, Module)
    whole = op.evaluate([x])
    for made, wanted in zip(
        Interpreter().run(parts, [x]), whole if isinstance(whole, tuple) else (whole,), strict=True
    ):
        assert (made.dtype, made.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(made, wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "x", [X, X.astype(np.float64), np.round(4 * X).astype(np.int64), X[0], X[:0]], ids=lambda x: str(x.shape)
)
@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_models_are_decomposed(post: Any, x: Any) -> None:
    vectors, weights = RNG.normal(size=15).tolist(), RNG.normal(size=10).tolist()
    more = {"kernel_params": (0.5, 0.25, 2.0), "post_transform": post}
    for kind in KERNELS:
        given = {"support_vectors": vectors, "kernel_type": kind, **more}
        for one in (False, True):
            same_apart(SVMRegressor(coefficients=weights[:5], rho=[0.1], n_supports=5, one_class=one, **given), x)
        two = SVMClassifier(coefficients=weights[:5], rho=[0.1], vectors_per_class=[2, 3], labels_ints=[7, 3], **given)
        same_apart(two, x)
        counts = {"vectors_per_class": [2, 1, 2], "labels_ints": [0, 1, 2]}
        three = {"coefficients": weights, "rho": [0.1, 0, -0.2], **counts, **given}
        same_apart(SVMClassifier(**three), x)
        same_apart(SVMClassifier(prob_a=[-0.5, -1.0, -0.7], prob_b=[0.1, 0.0, -0.1], **three), x)
    same_apart(SVMRegressor(coefficients=weights[:3], rho=[0.1], **more), x)
    same_apart(SVMClassifier(coefficients=weights[:6], rho=[0.1], labels_ints=[5, 2], **more), x)
    for models, ints in ((1, [4, 9]), (2, [0, 1]), (3, [5, 1, 8])):
        linear = {"coefficients": vectors[: 3 * models], "intercepts": weights[:models], "post_transform": post}
        same_apart(LinearClassifier(models=models, labels_ints=ints, **linear), x)
        same_apart(LinearRegressor(targets=models, **linear), x)


@pytest.mark.parametrize(("degree", "products"), [(1.0, 0), (2.0, 1), (3.0, 2), (7.0, 4), (2.5, None), (40.0, None)])
def test_small_powers_are_products(degree: float, products: int | None) -> None:
    model = {"coefficients": RNG.normal(size=5).tolist(), "rho": [0.1], "support_vectors": RNG.normal(size=15).tolist()}
    op = SVMRegressor(n_supports=5, kernel_type="POLY", kernel_params=(0.5, 4.0, degree), **model)
    same_apart(op, np.clip(X, -0.5, 0.5))
    parts = decomposed(op, [shape_of(X)])
    assert isinstance(parts, Module)
    powers = sum(isinstance(i.op, Pow) for i in parts)
    scaled = 1  # gamma times the products of rows
    assert (powers, sum(isinstance(i.op, Mul) for i in parts) - scaled) == (
        (0, products) if products is not None else (1, 0)
    )


def test_models_that_stay_whole() -> None:
    x = shape_of(X)
    named = LinearClassifier(coefficients=[1.0] * 3, models=1, labels_strings=["a", "b"])
    odd = LinearRegressor(coefficients=[1.0] * 3, post_transform="PROBIT")
    for op in (named, odd):
        assert isinstance(decomposed(op, [x]), No)


@pytest.mark.parametrize("kind", KERNELS)
def test_regression(kind: Any) -> None:
    vectors, weights = RNG.normal(size=(4, 3)), RNG.normal(size=4)
    model = {
        "kernel_type": kind, "kernel_params": [0.5, 0.25, 2.0], "n_supports": 4, "rho": [0.1],
        "support_vectors": vectors.reshape(-1).tolist(), "coefficients": weights.tolist(),
    }  # fmt: skip
    scores = np.array(
        [[sum(w * KERNELS[kind](x, v) for w, v in zip(weights, vectors, strict=True)) + 0.1] for x in X.astype(float)]
    )
    np.testing.assert_allclose(SVMRegressor(**model).evaluate([X]), scores, rtol=1e-5, atol=1e-6)
    assert SVMRegressor(**model, one_class=True).evaluate([X]).tolist() == np.where(scores > 0, 1, -1).tolist()


def test_pairs_vote() -> None:
    vectors, weights, rho = RNG.normal(size=(5, 3)), RNG.normal(size=(2, 5)), RNG.normal(size=3)
    counts = [2, 1, 2]
    owner = np.repeat(np.arange(3), counts)
    op = SVMClassifier(
        coefficients=weights.reshape(-1).tolist(),
        support_vectors=vectors.reshape(-1).tolist(),
        rho=rho.tolist(),
        vectors_per_class=counts,
        labels_strings=["a", "b", "c"],
    )
    names, scores = op.evaluate([X])
    for n, x in enumerate(X.astype(float)):
        votes = [0, 0, 0]
        for p, (i, j) in enumerate([(0, 1), (0, 2), (1, 2)]):
            score = rho[p] + sum(
                (weights[j - 1, v] if owner[v] == i else weights[i, v]) * (x @ vectors[v])
                for v in range(5)
                if owner[v] in (i, j)
            )
            assert scores[n, p] == pytest.approx(score, rel=1e-5)
            votes[i if score > 0 else j] += 1
        assert names[n] == "abc"[int(np.argmax(votes))]
    shape = op.result([Shape.of(dt.float32, (6, 3))])
    assert shape == TupleShape([Shape.of(dt.string, (6,)), Shape.of(dt.float32, (6, 3))])


def test_probabilities_agree_with_the_pairs() -> None:
    """Class probabilities are recovered from pairwise probabilities computed from them."""
    p = np.array([0.2, 0.5, 0.3])
    first, second = np.triu_indices(3, 1)
    logits = np.log(p[second] / p[first])
    op = SVMClassifier(
        coefficients=[0.0] * 6,
        support_vectors=[0.0] * 3,
        rho=[1.0, 1.0, 1.0],
        vectors_per_class=[1, 1, 1],
        prob_a=[0.0] * 3,
        prob_b=logits.tolist(),
        labels_ints=[0, 1, 2],
    )
    np.testing.assert_allclose(op.evaluate([np.zeros((2, 1), np.float32)])[1], [p, p], atol=2e-3)


def test_models_that_do_not_fit() -> None:
    good: dict[str, Any] = {
        "coefficients": [1.0] * 3, "support_vectors": [1.0] * 6, "rho": [0.0], "vectors_per_class": [2, 1], "labels_ints": [0, 1],
    }  # fmt: skip
    SVMClassifier(**good)
    for change in (
        {"coefficients": [1.0] * 4},
        {"support_vectors": [1.0] * 7},
        {"rho": [0.0, 1.0]},
        {"vectors_per_class": [3]},
        {"labels_ints": []},
        {"prob_a": [1.0]},
        {"kernel_params": [1.0]},
    ):
        with pytest.raises(ParameterError):
            SVMClassifier(**{**good, **change})
    with pytest.raises(ShapeError, match="2 features"):
        SVMClassifier(**good).result([Shape.of(dt.float32, (1, 3))])
    with pytest.raises(ParameterError, match="coefficient"):
        SVMRegressor(coefficients=[1.0], rho=[0.0], n_supports=2, support_vectors=[1.0, 2.0])


def test_linear() -> None:
    weights, bias = RNG.normal(size=(2, 3)), [0.5, -0.5]
    scores = X.astype(float) @ weights.T + bias
    flat = weights.reshape(-1).tolist()
    out = LinearRegressor(coefficients=flat, intercepts=bias, targets=2).evaluate([X])
    np.testing.assert_allclose(out, scores, rtol=1e-5)
    out = LinearRegressor(coefficients=flat, intercepts=bias, targets=2, post_transform="LOGISTIC").evaluate([X])
    np.testing.assert_allclose(out, 1 / (1 + np.exp(-scores)), rtol=1e-5)
    names, out = LinearClassifier(coefficients=flat, intercepts=bias, models=2, labels_ints=[4, 9]).evaluate([X])
    assert names.tolist() == np.where(scores[:, 1] > scores[:, 0], 9, 4).tolist()
    np.testing.assert_allclose(out, scores, rtol=1e-5)
    names, out = LinearClassifier(coefficients=flat[:3], models=1, labels_strings=["n", "p"]).evaluate([X])
    one = X.astype(float) @ weights[0]
    assert names.tolist() == np.where(one > 0, "p", "n").tolist()
    np.testing.assert_allclose(out, np.stack([1 - one, one], 1), rtol=1e-5)
    with pytest.raises(ParameterError, match="models"):
        LinearClassifier(coefficients=flat, models=2, labels_ints=[1, 2, 3])
    with pytest.raises(ParameterError, match="intercept"):
        LinearRegressor(coefficients=flat, intercepts=[1.0], targets=2)
    with pytest.raises(ShapeError, match="3 features"):
        LinearRegressor(coefficients=flat, targets=2).result([Shape.of(dt.float32, (6, 4))])
