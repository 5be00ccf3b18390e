"""Class probabilities from those of pairs of classes."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..errors import ParameterError, ShapeError
from ..types import dtype as dt
from ..types.argument import Array
from ..types.dim import may_equal
from ..types.shape import Shape
from .declaration import op
from .operation import Operation
from .scalar import convert
from .scores import pairs_of

__all__ = ["PairwiseCoupling", "most_sweeps"]

LEAST: Final = 1e-7  # the least distance of pairwise probabilities from 0 and 1
NEAR: Final = 0.005  # times 1 / classes: the distance of the gradient from its minimum at which the search stops


@op("pairwise_coupling")
class PairwiseCoupling(Operation):
    """The probabilities p of `classes` classes from r_ij = P(i | i or j), the probabilities of pairs i < j.

    r: float32 or float64 [n, classes (classes - 1) / 2], pairs in the order (0, 1), (0, 2) .. (1, 2) .. -> [n, classes].
    Minimizes sum (r_ji p_i - r_ij p_j)^2 subject to sum p = 1 in float64, with LIBSVM's stopping criterion and limits of r, since
    models are compared with it.  A row with NaN returns equal probabilities.
    Errors: ParameterError for fewer than 2 classes, ShapeError for another number of pairs.
    Source: Wu, Lin and Weng, Probability estimates for multi-class classification by pairwise coupling (2004), algorithm 2.
    """

    classes: int

    def check(self) -> None:
        if self.classes < 2:
            raise ParameterError(f"there must be at least 2 classes, got {self.classes}")

    def infer(self, r: Shape) -> Shape:
        if r.rank != 2 or not may_equal(r.dims[1], pairs_of(self.classes)):
            raise ShapeError(
                f"r must have dims [n, {pairs_of(self.classes)}] for {self.classes} classes, got {list(r.dims)}"
            )
        if r.dtype not in (dt.float32, dt.float64):
            raise ShapeError(f"r must be of type float32 or float64, got {r.dtype}")
        return Shape.of(r.dtype, (r.dims[0], self.classes))

    def compute(self, r: Array) -> Array:
        wins = np.clip(r.astype(np.float64), LEAST, 1 - LEAST)
        both = np.zeros((len(r), self.classes, self.classes))
        first, second = np.triu_indices(self.classes, 1)
        both[:, first, second], both[:, second, first] = wins, 1 - wins
        return convert(_coupled(both), dt.of(r.dtype))


def most_sweeps(classes: int) -> int:
    """Returns the most sweeps over all classes before the search stops."""
    return max(100, classes)


def _coupled(r: Array) -> Array:
    """Returns class probabilities [n, k] from pairwise ones, r[n, i, j] = P(i | i or j)."""
    rows, classes, _ = r.shape
    q = -np.swapaxes(r, 1, 2) * r
    diagonal = np.arange(classes)
    q[:, diagonal, diagonal] = (np.swapaxes(r, 1, 2) ** 2).sum(axis=-1)
    p = np.full((rows, classes), 1 / classes)
    active = np.arange(rows)
    for _ in range(most_sweeps(classes)):
        here, at = q[active], p[active]
        gradient = np.einsum("nij,nj->ni", here, at)
        value = (at * gradient).sum(axis=1)
        moving = np.abs(gradient - value[:, None]).max(axis=1, initial=0) >= NEAR / classes
        if not moving.any():
            break
        active, here, at, gradient, value = active[moving], here[moving], at[moving], gradient[moving], value[moving]
        for t in range(classes):
            step = (value - gradient[:, t]) / here[:, t, t]
            value = (value + step * (step * here[:, t, t] + 2 * gradient[:, t])) / (1 + step) ** 2
            at[:, t] += step
            gradient = (gradient + step[:, None] * here[:, t]) / (1 + step)[:, None]
            at = at / (1 + step)[:, None]
        p[active] = at
    return p
