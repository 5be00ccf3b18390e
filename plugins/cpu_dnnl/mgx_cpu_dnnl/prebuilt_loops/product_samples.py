"""Samples of products with constant weights, 1 x 1 convolutions included, and their epilogues."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_cpu_dnnl.jit.engine import Engine
from mgx_cpu_dnnl.jit.product import Line, compile_product

from .network import ACTIVATIONS, Network, Value

__all__ = ["pairs", "products", "residuals"]

ROWS: Final = 48
DEPTH: Final = 64
COLUMNS: Final = (96, 88, 84, 72, 68)  # full and partial panels for both vector widths


AFTER_NORMS: Final = ("none", "relu", "silu", "gelu", "hard swish")


def products() -> Iterator[mgx.Program]:
    """Activations after products: with and without bias, many rows or one, and large depth."""
    for activation in ACTIVATIONS.values():
        for columns, bias in product(COLUMNS, (True, False)):
            n = Network()
            results = [activation(n, n.linear(n.input(1, rows, DEPTH), columns, bias)) for rows in (ROWS, 1)]
            yield n.finished(*results)
        n = Network()
        yield n.finished(activation(n, n.linear(n.input(1, ROWS, 3072), DEPTH)))


def residuals() -> Iterator[mgx.Program]:
    """Residuals added before and after an activation, factors, and both in several orders."""
    for activation, columns in product(ACTIVATIONS.values(), COLUMNS):
        n = Network()

        def made() -> Value:
            return n.linear(n.input(1, ROWS, DEPTH), columns)  # noqa: B023

        def other() -> Value:
            return n.input(1, ROWS, columns)  # noqa: B023

        before = activation(n, n.each("add", made(), other()))
        bare = activation(n, n.each("add", n.linear(n.input(1, ROWS, DEPTH), columns, False), other()))
        later = activation(n, n.each("add", other(), made()))
        behind = n.each("add", activation(n, made()), other())
        gated = n.each("mul", activation(n, made()), other())
        scaled = n.each("add", other(), n.each("mul", activation(n, made()), n.weights(columns)))
        yield n.finished(before, bare, later, behind, gated, scaled)
    for columns in COLUMNS:
        yield from (_affine(columns), _mixed(columns))


def pairs(engine: Engine) -> None:
    """Compiles products of two inputs, which oneDNN's choice of implementations keeps out of sample programs."""
    rows = Line(ROWS, DEPTH, 0, COLUMNS[0])
    for columns, step, kind in product(COLUMNS[:2], (1, ROWS), (dt.float32, dt.int32)):
        compile_product(kind, kind, (), rows, columns, Line(DEPTH, step), (), engine)


def _affine(columns: int) -> mgx.Program:
    """A residual with a folded norm's scale and shift; scales and shifts that are parameters, with activations."""
    n = Network()
    results = []
    for first in (True, False):
        two = [n.linear(n.input(1, ROWS, DEPTH), columns), n.input(1, ROWS, columns)]
        total = n.each("add", *(two if first else two[::-1]))
        results.append(n.each("add", n.each("mul", total, n.weights(columns)), n.weights(columns)))
    results.append(n.each("mul", n.linear(n.input(1, ROWS, DEPTH), columns, False), n.input(columns)))
    for name in AFTER_NORMS:
        made = n.each("mul", n.linear(n.input(1, ROWS, DEPTH), columns, False), n.input(columns))
        results.append(ACTIVATIONS[name](n, n.each("add", made, n.input(columns))))
    return n.finished(*results)


def _mixed(columns: int) -> mgx.Program:
    """Pooling as a token mixer (PoolFormer), scaled by channel, then a layer with a residual."""
    n = Network()
    image = n.input(1, columns, 8, 8)
    pooled = n.add(
        "pooling", image, mode="average", padding=(1, 1, 1, 1), stride=(1, 1), lengths=(3, 3), dilations=(1, 1)
    )
    token = n.each("add", image, n.each("mul", n.weights(columns, 1, 1), n.each("sub", pooled, image)))
    return n.finished(n.each("add", token, n.convolution(n.input(1, DEPTH, 8, 8), columns)))
