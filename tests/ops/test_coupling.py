"""Class probabilities from those of pairs of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.ops.coupling import PairwiseCoupling
from mgx_core.types.dim import symbol
from mgx_core.types.shape import Shape

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_consistent_pairs_give_the_probabilities_they_came_from(classes: int, dtype: Any) -> None:
    p = RNG.dirichlet(np.full(classes, 5.0), 20)
    first, second = np.triu_indices(classes, 1)
    pairs = p[:, first] / (p[:, first] + p[:, second])
    found = PairwiseCoupling(classes=classes).evaluate([pairs.astype(dtype)])
    assert found.dtype == dtype
    np.testing.assert_allclose(found, p, atol=0.02)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-6)


def test_inconsistent_pairs_minimize_the_sum_of_squares() -> None:
    classes, (first, second) = 3, np.triu_indices(3, 1)
    pairs = RNG.uniform(0.1, 0.9, (30, 3))
    found = PairwiseCoupling(classes=classes).evaluate([pairs])

    def squares(p: Any) -> Any:
        return (((1 - pairs) * p[:, first] - pairs * p[:, second]) ** 2).sum(axis=1)

    for p in RNG.dirichlet(np.ones(classes), 100):
        assert (squares(found) <= squares(np.tile(p, (30, 1))) + 1e-3).all()


def test_certain_and_unknown_pairs() -> None:
    op = PairwiseCoupling(classes=3)
    certain, unknown = op.evaluate([np.array([[1.0, 1.0, 0.0], [0.5, np.nan, 0.5]])])
    assert certain[0] > 0.99
    assert unknown.tolist() == [1 / 3] * 3
    assert op.evaluate([np.zeros((0, 3))]).shape == (0, 3)


def test_shapes() -> None:
    op, n = PairwiseCoupling(classes=4), symbol("n")
    assert op.result([Shape.of(dt.float32, (n, 6))]) == Shape.of(dt.float32, (n, 4))
    for wrong in (Shape.of(dt.float32, (2, 4)), Shape.of(dt.float32, (6,)), Shape.of(dt.int32, (2, 6))):
        with pytest.raises(ShapeError, match="r must"):
            op.result([wrong])
    with pytest.raises(ParameterError, match="at least 2 classes"):
        PairwiseCoupling(classes=1)
