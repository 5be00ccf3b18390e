"""Samples of reductions: sums, norms and softmax of rows, and means over images."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

import mgx_core as mgx
from mgx_core.ops.reduce import ReduceMax, ReduceMean, ReduceMin, ReduceSum
from mgx_core.ops.softmax import Logsoftmax, Softmax

from .network import ACTIVATIONS, Network, Value

__all__ = ["EXTENTS", "norms", "softmaxes", "squeezes", "sums"]

LONG: Final = (1 << 16, (1 << 16) + 32, (1 << 16) + 16, (1 << 16) + 8)  # rows that are reduced in pieces
# code is specialized for extents divisible by 4, 2 or 1 vectors, for both vector widths; then others, short and long
EXTENTS: Final = (256, 96, 48, 24, 12, 200)


def sums() -> Iterator[mgx.Program]:
    """Sums and maxima of rows, and sums of scaled rows."""
    for extent, kind in product(EXTENTS, (ReduceSum, ReduceMean, ReduceMax)):
        n = Network()
        row = n.add(kind.name, n.input(64, extent), axes=(1,))
        scaled = n.add(kind.name, n.each("mul", n.input(64, extent), n.weights(extent)), axes=(1,))
        multiplied = n.add(kind.name, n.each("mul", n.input(2, 8, extent), n.input(2, 8, extent)), axes=(2,))
        yield n.finished(row, scaled, multiplied)
    for extent in LONG:  # the range of a value, of which dynamic quantization computes its scale
        n = Network()
        kinds = (ReduceMax, ReduceMin, ReduceSum)
        yield n.finished(*(n.add(kind.name, n.input(extent), axes=(0,)) for kind in kinds))


def norms() -> Iterator[mgx.Program]:
    """Norms of rows, alone or after residuals, which are outputs as well."""
    for extent, rows in product(EXTENTS, (8, 1)):
        for norm in (Network.layer_norm, Network.rms_norm):
            n = Network()

            def row() -> Value:
                return n.input(1, rows, extent)  # noqa: B023

            ahead, shifted = n.each("add", row(), row()), n.each("add", row(), n.weights(extent))
            three = n.each("add", n.each("add", row(), row()), row())
            biased = n.each("add", n.each("add", row(), n.weights(extent)), row())
            later = n.each("add", row(), n.each("add", row(), n.weights(extent)))
            alone = [row(), n.each("add", row(), row()), n.each("add", n.each("add", row(), row()), row())]
            alone += [n.each("add", n.each("add", row(), n.weights(extent)), row())]
            alone += [n.each("add", row(), n.weights(extent))]
            kept = [ahead, shifted, three, biased, later]
            yield n.finished(*(norm(n, x) for x in (*alone, *kept)), *kept)
        n = Network()
        position = n.each("add", n.input(2, rows, extent), n.weights(rows, extent))
        yield n.finished(n.layer_norm(n.input(2, rows, extent)), position, n.layer_norm(position))
    for extent in EXTENTS:
        n = Network()
        yield n.finished(n.normalized(n.input(8, extent)), n.normalized(n.input(1, 4, extent)))
        yield _added_norms(extent)
        yield _counts(extent)


def _added_norms(extent: int) -> mgx.Program:
    """Norms whose results are added, and a norm of scaled embeddings."""
    n = Network()

    def row() -> Value:
        return n.input(1, 8, extent)

    embedded = n.each("add", n.each("mul", row(), 8.0), row())
    added = [n.each("add", row(), norm(n, row())) for norm in (Network.layer_norm, Network.rms_norm)]
    return n.finished(*added, embedded, n.layer_norm(embedded))


def _counts(extent: int) -> mgx.Program:
    """Sums of masks."""
    n = Network()
    masks = [n.input(*lens, type="int64") for lens in ((extent,), (8, extent))]
    return n.finished(*(n.add("reduce_sum", x, axes=(x.shape.rank - 1,)) for x in masks))


def softmaxes() -> Iterator[mgx.Program]:
    """Softmax and log-softmax along rows and columns."""
    for extent, kind, rows in product(EXTENTS, (Softmax, Logsoftmax), (8, 1)):
        n = Network()
        row, image = n.add(kind.name, n.input(rows, extent), axis=1), n.add(kind.name, n.input(1, extent, 8, 8), axis=1)
        yield n.finished(row, image, n.add(kind.name, n.input(2, extent, 16), axis=1))


def squeezes() -> Iterator[mgx.Program]:
    """Means over images after an activation, and images scaled by channel (squeeze and excitation)."""
    for activation in ACTIVATIONS.values():
        for side, channels in product((7, 14, 80), (256, 96, 48, 24)):
            n = Network()
            image = activation(n, n.convolution(n.input(1, 16, side, side), channels, 3))
            mean = n.add("reduce_mean", image, axes=(2, 3))
            deep = activation(n, n.convolution(n.input(1, channels, side, side), channels, 3, group=channels))
            gate = n.each("sigmoid", n.convolution(n.add("reduce_mean", deep, axes=(2, 3)), channels))
            yield n.finished(mean, n.convolution(n.each("mul", deep, gate), 16))
    for side, channels, kind in product((7, 14, 80), (256, 96, 48, 24), (ReduceMean, ReduceMax)):
        n = Network()
        tokens = n.add(kind.name, n.input(1, side * side, channels), axes=(1,))
        yield n.finished(n.add(kind.name, n.input(1, channels, side, side), axes=(2, 3)), tokens)
