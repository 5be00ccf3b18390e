"""Samples of elementwise layers and data movement: activations, binary operations, gates, masks, transposes, resizing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

import numpy as np

import mgx_core as mgx

from .network import ACTIVATIONS, Network
from .row_samples import EXTENTS

__all__ = ["coded", "elementwise", "gates", "moves", "resized"]

BINARY: Final = ("add", "sub", "mul", "div")
UNARY: Final = ("neg", "exp", "log", "sqrt", "abs", "sin", "cos")
CONVERSIONS: Final = (
    ("int64", "float"), ("int32", "float"), ("bool", "float"), ("float", "int64"), ("float", "bool"),
    ("int64", "int32"), ("int32", "int64"), ("int64", "bool"), ("bool", "int64"),
)  # fmt: skip
LEAST: Final = float(np.finfo(np.float32).min)


def elementwise() -> Iterator[mgx.Program]:
    """Activations and binary operations: on one row, on rows, with broadcasts along rows or columns."""
    for activation, extent in product(ACTIVATIONS.values(), (*EXTENTS, 1 << 14)):
        n = Network()
        sums = [n.each("add", n.input(8, extent), n.input(*lens)) for lens in ((extent,), (8, extent))]
        gated = n.each("mul", activation(n, n.input(extent)), n.input(extent))
        yield n.finished(activation(n, n.input(extent)), gated, *(activation(n, x) for x in sums))
    for extent in (*EXTENTS, 16, 1 << 14):
        n = Network()
        single = [n.each(name, n.input(extent)) for name in UNARY]
        seen = n.each("logical_and", n.input(8, extent, type="bool"), n.input(extent, type="bool"))
        colors = n.each("mul", n.each("sub", n.input(3, extent), n.input(3, 1)), n.input(3, 1))
        yield n.finished(*single, n.each("where", seen, 0.0, LEAST), colors)
    for name, extent in product(BINARY, (*EXTENTS, 32, 16, 1 << 14, 525 * 16)):
        n = Network()
        pairs = [((extent,), (extent,)), ((8, extent), (8, 1)), ((8, extent), (extent,)), ((extent,), (1,))]
        results = [n.each(name, n.input(*a), n.input(*b)) for a, b in pairs]
        parts = n.add("slice", n.input(8, 2 * extent), axes=(1,), starts=(0,), ends=(extent,))
        results += [n.each(name, n.input(8, extent), parts), n.each(name, n.input(8, extent), 3.0)]
        results += [n.each(name, n.input(1, 2, extent), n.transpose(n.input(1, extent, 2), 0, 2, 1))]
        yield n.finished(*results, n.each(name, 3.0, n.input(extent)))


def coded() -> Iterator[mgx.Program]:
    """Bytes of quantized files from and to floats, and normalized: with and without zero points, of a row and of rows."""
    for extent, zero, kind in product((*EXTENTS, 1 << 14), (0, 3), ("uint8", "int8")):
        n = Network()
        results = []
        for lens, end in product(((extent,), (8, extent)), (0, 5)):
            made = n.coded("dequantizelinear", n.input(*lens, type=kind), 0.03, zero, kind)
            scaled = n.each("add", n.each("mul", made, n.weights(extent)), n.weights(extent))
            results.append(n.coded("quantizelinear", scaled, 0.05, end, kind))
        results.append(n.coded("quantizelinear", n.input(extent), 0.05, zero, kind))
        yield n.finished(*results, n.coded("dequantizelinear", n.input(extent, type=kind), 0.05, zero, kind))


def gates() -> Iterator[mgx.Program]:
    """Gated layers: the activation of one half of a product's columns times the other half."""
    for activation, columns, bias in product(ACTIVATIONS.values(), (192, 96, 48), (True, False)):
        n = Network()
        x = n.input(1, 48, 64)
        first, second = n.linear(x, columns, bias), n.linear(x, columns, bias)
        gated = n.each("mul", activation(n, first), second)
        whole = n.linear(n.input(1, 48, 64), 2 * columns, bias)
        halves = [n.add("slice", whole, axes=(2,), starts=(at,), ends=(at + columns,)) for at in (0, columns)]
        one, other = (n.each("mul", activation(n, halves[i]), halves[1 - i]) for i in (0, 1))
        yield n.finished(n.linear(gated, 64), n.linear(one, 64), n.linear(other, 64))


def moves() -> Iterator[mgx.Program]:
    """Transposes, slices and type conversions."""
    for extent, kind in product((*EXTENTS, 32, 16), ("float", "int64", "bool")):
        n = Network()
        turned = n.transpose(n.input(extent, 56, type=kind), 1, 0)
        swapped = n.transpose(n.input(1, 4, 6, extent, type=kind), 0, 2, 1, 3)
        image = n.transpose(n.input(1, extent, 6, 6, type=kind), 0, 2, 3, 1)
        part = n.add("slice", n.input(6, 2 * extent, type=kind), axes=(1,), starts=(0,), ends=(extent,))
        column = n.add("slice", n.input(6, extent, type=kind), axes=(1,), starts=(0,), ends=(1,))
        repeated = n.spread(n.input(6, 1, type=kind), (6, extent))
        few = [n.transpose(n.input(1, k, 16, 16, type=kind), 0, 2, 3, 1) for k in (2, 3, 4)]
        few += [n.transpose(n.input(1, 16, 16, k, type=kind), 0, 3, 1, 2) for k in (2, 3, 4)]
        few += [n.transpose(n.input(2, extent, 36, type=kind), 0, 2, 1)]
        few += [n.transpose(n.input(2, 3, extent, 20, type=kind), 0, 3, 1, 2)]
        yield n.finished(*few, turned, swapped, image, part, n.reshape(column, 6), n.reshape(repeated, 6 * extent))
    for extent in (*EXTENTS, 16):
        n = Network()
        yield n.finished(
            *(n.add("convert", n.input(extent, type=a), target_type=mgx.dtype.of(b)) for a, b in CONVERSIONS)
        )


def resized() -> Iterator[mgx.Program]:
    """Resized images: one axis or both, one channel or several, channels first and last."""
    for mode, factors, channels in product(
        ("linear", "nearest"), ((2.0, 2.0), (2.0, 1.0), (1.5, 1.5), (0.5, 0.5)), (1, 16, 64)
    ):
        n = Network()
        images = [n.input(1, channels, 9, 10), n.convolution(n.input(1, channels, 9, 10), 16, 3)]
        larger = [n.add("resize", x, scales=(1.0, 1.0, *factors), mode=mode) for x in images]
        yield n.finished(larger[0], n.convolution(larger[1], 16, 3))
