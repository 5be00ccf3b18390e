"""Decoders of connectionist temporal classification (CTC)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mgx_core import Shape, TupleShape
from mgx_core import dtype as dt
from mgx_core.errors import ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.dim import Dim, fresh

__all__: list[str] = []


def _labels(count: Dim) -> list[Shape]:
    return [Shape.of(dt.int64, d) for d in ((count, 2), (count,), (2,))]


def _sparse(rows: list[list[int]]) -> tuple[Array, Array, Array]:
    places = [(k, j) for k, row in enumerate(rows) for j in range(len(row))]
    values = np.array([v for row in rows for v in row], np.int64)
    extents = np.array([len(rows), max(map(len, rows), default=0)], np.int64)
    return np.array(places, np.int64).reshape(-1, 2), values, extents


def _checked(x: Shape, lengths: Shape) -> None:
    if x.rank != 3 or lengths.rank != 1:
        raise ShapeError(f"scores [steps, n, classes] and lengths [n] are required, got {x} and {lengths}")


def _within(lengths: Array, steps: int) -> list[int]:
    found: list[int] = lengths.tolist()
    if any(not 0 <= v <= steps for v in found):
        raise ShapeError(f"lengths must lie in 0..{steps}, got {found}")
    return found


@op("tf_ctc_greedy")
class CtcGreedy(Operation):
    """Greedy CTC decoding: the best label of each step, without blanks; repeated labels are optionally merged.

    x: float [steps, n, classes], lengths: int [n] -> labels as indices int64 [k, 2], values int64 [k], extents int64 [2]; the
    negative sum of the best scores [n, 1].  Errors: ShapeError for lengths out of range.  Source: TensorFlow CTCGreedyDecoder.
    """

    blank: int
    merge: bool = False

    def infer(self, x: Shape, lengths: Shape) -> TupleShape:
        _checked(x, lengths)
        return TupleShape([*_labels(fresh("labels")), x.with_dims((x.dims[1], 1))])

    def compute(self, x: Array, lengths: Array) -> tuple[Array, ...]:
        best, top = x.argmax(2), x.max(2)
        rows, scores = [], np.zeros((x.shape[1], 1), x.dtype)
        for k, length in enumerate(_within(lengths, len(x))):
            row = best[:length, k].tolist()
            scores[k] = -top[:length, k].sum()
            rows.append(
                [v for t, v in enumerate(row) if v != self.blank and not (self.merge and t and row[t - 1] == v)]
            )
        return (*_sparse(rows), scores)


@op("tf_ctc_beam")
class CtcBeam(Operation):
    """CTC prefix beam search: the most probable label sequences; the last class is the blank.

    x: float [steps, n, classes], lengths: int [n] -> for each path labels as indices, values and extents; then log
    probabilities [n, paths].  Errors: ShapeError for lengths out of range.  Source: TensorFlow CTCBeamSearchDecoder.
    """

    width: int
    paths: int
    merge: bool = True

    def infer(self, x: Shape, lengths: Shape) -> TupleShape:
        _checked(x, lengths)
        parts = [s for _ in range(self.paths) for s in _labels(fresh("labels"))]
        return TupleShape([*parts, x.with_dims((x.dims[1], self.paths))])

    def compute(self, x: Array, lengths: Array) -> tuple[Array, ...]:
        wide = x.astype(np.float64)
        top = wide.max(2, keepdims=True)
        log = wide - top - np.log(np.exp(wide - top).sum(2, keepdims=True))
        rows: list[list[list[int]]] = [[] for _ in range(self.paths)]
        scores = np.full((x.shape[1], self.paths), -np.inf, x.dtype)
        for k, length in enumerate(_within(lengths, len(x))):
            found = self._search(log[:length, k])
            for path in range(self.paths):
                labels, score = found[path] if path < len(found) else ((), -math.inf)
                if self.merge:
                    labels = tuple(v for t, v in enumerate(labels) if not t or labels[t - 1] != v)
                rows[path].append(list(labels))
                scores[k, path] = score
        return (*(part for row in rows for part in _sparse(row)), scores)

    def _search(self, log: Array) -> list[tuple[Any, float]]:
        """Returns prefixes with log probabilities, most probable first."""
        blank = log.shape[1] - 1
        prefixes: list[tuple[int, ...]] = [()]
        in_blank, in_label = np.zeros(1), np.full(1, -np.inf)  # log P of ending in blank, in label
        for step in log:
            total = np.logaddexp(in_blank, in_label)
            last = np.array([p[-1] if p else blank for p in prefixes])
            longer = total[:, None] + step[:blank]
            repeats = np.flatnonzero(last < blank)  # a label after itself is a new one only if a blank is between
            longer[repeats, last[repeats]] = in_blank[repeats] + step[last[repeats]]
            in_blank, in_label = total + step[blank], in_label + step[last]
            places = {p: k for k, p in enumerate(prefixes)}
            for k, prefix in enumerate(prefixes):
                parent = places.get(prefix[:-1]) if prefix else None
                if parent is not None:  # one way to a prefix that is in the beam, too
                    in_label[k] = np.logaddexp(in_label[k], longer[parent, prefix[-1]])
                    longer[parent, prefix[-1]] = -np.inf
            scores = np.concatenate([np.logaddexp(in_blank, in_label)[:, None], longer], 1).reshape(-1)
            best = np.argsort(-scores, kind="stable")[: self.width]
            best = best[scores[best] > -np.inf]
            parents, labels = np.divmod(best, blank + 1)  # label 0: the prefix itself
            same = labels == 0
            in_blank, in_label = (
                np.where(same, in_blank[parents], -np.inf),
                np.where(same, in_label[parents], scores[best]),
            )
            prefixes = [
                (*prefixes[k], label - 1) if label else prefixes[k]
                for k, label in zip(parents.tolist(), labels.tolist(), strict=True)
            ]
        total = np.logaddexp(in_blank, in_label)
        return [(prefixes[k], float(total[k])) for k in np.argsort(-total, kind="stable")[: self.paths]]
