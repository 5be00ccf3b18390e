"""Ranges of tensors, from batches that are seen one at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from ..errors import ParameterError
from ..types.argument import Array
from .config import Range

__all__ = ["Observer"]

BINS = 2048


@dataclass
class Observer:
    """Statistics of one tensor: its range, and a histogram of magnitudes where the method needs one.

    name: of its source, for errors.
    """

    name: str
    low: float = math.inf
    high: float = -math.inf
    counts: Array = field(default_factory=lambda: np.zeros(BINS))
    top: float = 0.0

    def see_range(self, low: float, high: float) -> None:
        """Takes the range of one batch.  Errors: ParameterError if it is not finite."""
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ParameterError(f"calibration: {self.name} holds values that are not finite ({low} to {high})")
        self.low, self.high = min(self.low, low), max(self.high, high)

    def see(self, values: Array) -> None:
        """Takes the values of one batch.  Errors: ParameterError if one is not finite."""
        if not values.size:
            return
        self.see_range(float(values.min()), float(values.max()))
        size = np.abs(values).astype(np.float32, copy=False)
        most = float(size.max())
        while most > self.top:
            if not self.top:
                self.top = most
            else:  # twice the width: two bins become one
                self.counts = np.concatenate([self.counts.reshape(-1, 2).sum(1), np.zeros(BINS // 2)])
                self.top *= 2
        if self.top:
            self.counts += np.histogram(size, BINS, (0.0, self.top))[0]

    def range(self, method: Range, percentile: float, levels: int) -> tuple[float, float]:
        """The range that is kept, which holds 0.  Errors: ParameterError if nothing was seen."""
        if self.low > self.high:
            raise ParameterError(f"calibration: nothing was seen of {self.name}")
        low, high = min(self.low, 0.0), max(self.high, 0.0)
        if method == "max" or not self.top:
            return low, high
        most = self.limit(method, percentile, levels)
        return max(low, -most), min(high, most)

    def limit(self, method: Range, percentile: float, levels: int) -> float:
        """The magnitude at which values are clipped."""
        width = self.top / BINS
        if method == "percentile":
            share = np.cumsum(self.counts) / self.counts.sum()
            return float((np.searchsorted(share, percentile / 100) + 1) * width)
        middles = (np.arange(BINS) + 0.5) * width
        best, found = math.inf, self.top
        for kept in range(BINS // 16, BINS + 1, BINS // 64):
            limit = kept * width
            cost = self._error(middles, limit, levels) if method == "mse" else self._divergence(kept, levels)
            if cost < best:
                best, found = cost, limit
        return found

    def _error(self, middles: Array, limit: float, levels: int) -> float:
        step = limit / levels
        rounded = np.minimum(np.rint(middles / step), levels) * step
        return float((self.counts * (middles - rounded) ** 2).sum())

    def _divergence(self, kept: int, levels: int) -> float:
        given = self.counts[:kept].copy()
        given[-1] += self.counts[kept:].sum()
        groups = np.minimum(np.arange(kept) * levels // kept, levels - 1)
        filled = self.counts[:kept] > 0
        sums = np.bincount(groups, self.counts[:kept], levels)
        shares = np.bincount(groups, filled, levels)
        guess = np.where(filled, (sums / np.maximum(shares, 1))[groups], 0.0)
        p, q = given / max(given.sum(), 1e-30), guess / max(guess.sum(), 1e-30)
        both = (p > 0) & (q > 0)
        return float((p[both] * np.log(p[both] / q[both])).sum() + p[(p > 0) & (q <= 0)].sum() * 20)
