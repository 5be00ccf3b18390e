"""Streaming statistics of tensors, and the ranges chosen from them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field
from typing import Any

import numpy as np

from ..errors import ParameterError
from ..records import dataclass
from ..types.argument import Array
from ..types.dtype import DType
from .config import Range
from .scales import after_rounding

__all__ = ["Observer"]

BINS = 4096  # bins, half of them below 0
ROWS = 128  # maximum sampled rows; beyond it, every second row is dropped


def nothing() -> Array:
    return np.zeros(0, np.float32)


@dataclass
class Observer:
    """Statistics of one tensor: extremes and means per channel, a histogram, and sampled rows.

    name: source name, for errors; lows, highs [c]: extremes of all values; counts: histogram of the sample, equal bins from -top
    to top; sums [c], seen: of the sample, per channel; some: sampled rows [n, c], in parts; axis: channel axis of the tensor.
    """

    name: str = ""
    lows: Array = field(default_factory=nothing)
    highs: Array = field(default_factory=nothing)
    counts: Array = field(default_factory=lambda: np.zeros(BINS))
    top: float = 0.0
    sums: Array = field(default_factory=nothing)
    seen: int = 0
    some: list[Array] = field(default_factory=list)
    axis: int = -1

    def see(self, lows: Array, highs: Array, sample: Array) -> None:
        """Adds one batch: its extremes per channel [c], and a sample of its rows [n, c].

        If the number of channels changes, all become one.
        Errors: ParameterError for non-finite values.
        """
        if not sample.size:
            return
        low, high = float(lows.min()), float(highs.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ParameterError(
                f"calibration: {self.name} must be finite, got values from {low} to {high}: leave this batch out"
            )
        first = not self.seen
        if not first and len(lows) != len(self.lows):  # products of two activations may sum over an axis that grows
            self._join_channels()
            lows, highs, sample = lows.min(keepdims=True), highs.max(keepdims=True), sample.reshape(-1, 1)
        self.lows = lows if first else np.minimum(self.lows, lows)
        self.highs = highs if first else np.maximum(self.highs, highs)
        sums = sample.sum(0, dtype=np.float64)
        self.sums = sums if first else self.sums + sums
        self.seen += len(sample)
        self.some.append(sample[:: -(-len(sample) // (ROWS // 8))].copy())
        if sum(map(len, self.some)) > ROWS:
            self.some = [self.rows[::2]]
        self._count(sample, max(-low, high))

    def _join_channels(self) -> None:
        """Makes the statistics those of a tensor of one channel with the same elements."""
        self.lows, self.highs = self.lows.min(keepdims=True), self.highs.max(keepdims=True)
        self.seen *= len(self.sums)
        self.sums = self.sums.sum(keepdims=True)
        self.some = [part.reshape(-1, 1)[:: part.shape[1]] for part in self.some]

    def _count(self, values: Array, most: float) -> None:
        while most > self.top:
            if not self.top:
                self.top = most
            else:  # doubles the bin width: pairs of bins are merged into the middle half
                quarter = np.zeros(BINS // 4)
                self.counts = np.concatenate([quarter, self.counts.reshape(-1, 2).sum(1), quarter])
                self.top *= 2
        if self.top:
            factor = BINS / 2 / self.top
            wide: Any = np.float32 if factor < 1e38 else np.float64  # numbers below the normal range
            place = values.ravel(order="K") * wide(factor)
            place += wide(BINS / 2)
            np.minimum(place, wide(BINS - 1), out=place)
            self.counts += np.bincount(place.astype(np.intp), minlength=BINS)

    def divided(self, factors: Array) -> Observer:
        """Returns the statistics of the tensor divided by positive factors [c]."""
        made = Observer(self.name, axis=self.axis)
        made.see(self.lows / factors, self.highs / factors, self.rows / factors)
        made.some, made.sums, made.seen = [self.rows / factors], self.sums / factors, self.seen
        return made

    def mapped(self, function: Callable[[Array], Array]) -> Observer:
        """Returns the statistics of an elementwise function of the tensor (extremes and histogram)."""
        made = Observer(self.name, seen=self.seen)
        ends = function(np.linspace(self.lows.min(), self.highs.max(), BINS + 1))
        made.lows, made.highs = ends.min(keepdims=True), ends.max(keepdims=True)
        made.top = float(np.abs(ends).max())
        if made.top:
            place = ((function(self.middles) / made.top + 1) * (BINS / 2)).astype(np.intp)
            made.counts = np.bincount(np.clip(place, 0, BINS - 1), self.counts, BINS)
        return made

    @property
    def rows(self) -> Array:
        """Sampled rows [n, c]."""
        return np.concatenate(self.some) if self.some else nothing()

    @property
    def means(self) -> Array:
        """Means of the sample per channel [c]."""
        return np.asarray(self.sums / max(self.seen, 1))

    @property
    def middles(self) -> Array:
        """Centers of the histogram's bins."""
        return np.asarray((np.arange(BINS) + 0.5 - BINS // 2) * (self.top / (BINS // 2)))

    def histogram(self, bins: int = 48) -> tuple[int, ...]:
        """The histogram between the sample's extremes."""
        filled = np.flatnonzero(self.counts)
        if not len(filled):
            return ()
        inside = self.counts[filled[0] : filled[-1] + 1]
        groups = np.arange(len(inside)) * bins // len(inside)
        return tuple(int(n) for n in np.bincount(groups, inside, bins))

    def range(self, method: Range, percentile: float, to: DType) -> tuple[float, float]:
        """Returns the chosen range, which includes 0.  Errors: ParameterError without data."""
        if not self.seen:
            raise ParameterError(f"calibration: {self.name} has no elements in any batch")
        low, high = min(float(self.lows.min()), 0.0), max(float(self.highs.max()), 0.0)
        if method == "max" or not self.top:
            return low, high
        if method == "percentile":
            sizes = self.counts[BINS // 2 :] + self.counts[: BINS // 2][::-1]
            share = np.cumsum(sizes) / sizes.sum()
            most = float((np.searchsorted(share, percentile / 100) + 1) * self.top / len(sizes))
            return max(low, -most), min(high, most)
        cost = self._error if method == "mse" else self._divergence
        tried = [(max(low, -most), min(high, most)) for most in self.top * np.arange(64, 3, -1) / 64]
        return min(tried, key=lambda limits: cost(limits[0], limits[1], to))

    def noise(self, low: float, high: float, to: DType) -> float:
        """Returns the SQNR in dB of quantization over a range."""
        energy = float((self.counts * self.middles**2).sum())
        error = self._error(low, high, to)
        return 10 * math.log10(energy / error) if energy and error else 200.0

    def _error(self, low: float, high: float, to: DType) -> float:
        middles = self.middles
        return float((self.counts * (middles - after_rounding(middles, low, high, to)) ** 2).sum())

    def _divergence(self, low: float, high: float, to: DType) -> float:
        """Returns the KL divergence from the original histogram.  Source: Migacz, 8-bit inference with TensorRT, 2017."""
        inside = (self.middles >= low) & (self.middles <= high)
        if not inside.any():
            return math.inf
        given = self.counts[inside]
        _, groups = np.unique(after_rounding(self.middles[inside], low, high, to), return_inverse=True)
        filled = given > 0
        guess = np.where(filled, (np.bincount(groups, given) / np.maximum(np.bincount(groups, filled), 1))[groups], 0.0)
        given = given.copy()
        at = np.flatnonzero(inside)
        given[0] += self.counts[: at[0]].sum()
        given[-1] += self.counts[at[-1] + 1 :].sum()
        p, q = given / max(given.sum(), 1e-30), guess / max(guess.sum(), 1e-30)
        both = (p > 0) & (q > 0)
        return float((p[both] * np.log(p[both] / q[both])).sum() + p[(p > 0) & (q <= 0)].sum() * 20)
