"""Binds symbolic extents of shapes to the extents of values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..errors import ShapeError
from .argument import Value
from .dim import Dim, Sym, bounds, linear, solve, solved, substitute, symbols_of
from .shape import AnyShape, Shape, TupleShape

__all__ = ["bind_all", "bind_symbols", "check_symbols", "symbol_places"]


def symbol_places(shape: Shape) -> list[tuple[int, str]]:
    """Returns the axes whose extent is a single symbol, with that symbol."""
    dims = enumerate(shape.dims) if shape.ranked else ()
    lone = [(axis, d.symbol) for axis, d in dims if isinstance(d, Sym)]
    return [(axis, s.name) for axis, s in lone if s is not None]


def _extents(value: Any) -> tuple[int, ...] | None:
    """Returns the extents of a tensor on the host or on a device; None for other values."""
    if isinstance(value, np.ndarray):
        lens: tuple[int, ...] = value.shape
        return lens
    there = getattr(value, "device_shape", None)
    return None if there is None else tuple(map(int, there.lens()))


def bind_symbols(shape: AnyShape, value: Value, known: dict[str, int]) -> None:
    """Binds symbols that are an extent by themselves to the extents of a value of that shape."""
    if isinstance(shape, Shape):
        places = symbol_places(shape)
        lens = _extents(value) if places else None
        if lens is not None and shape.rank == len(lens):
            for axis, name in places:
                known[name] = lens[axis]
    elif isinstance(shape, TupleShape) and isinstance(value, tuple):
        for s, v in zip(shape.items, value, strict=False):
            bind_symbols(s, v, known)


def bind_all(shapes: Iterable[AnyShape], values: Iterable[Value], known: dict[str, int]) -> None:
    """Binds symbols to the extents of all parameters: first lone symbols, then those that linear extents determine."""
    extents: list[tuple[Dim, Dim]] = []
    for shape, value in zip(shapes, values, strict=True):
        if not shape.dynamic():
            continue
        bind_symbols(shape, value, known)
        lens = _extents(value)
        if isinstance(shape, Shape) and shape.ranked and lens is not None:
            extents += zip(shape.dims, lens, strict=False)
    if extents:
        solve(extents, known)


def check_symbols(shape: AnyShape, value: Value, known: Mapping[str, int], what: str) -> None:
    """Errors: ShapeError if an extent of `value` contradicts the known values or bounds of its symbols."""
    lens = _extents(value)
    if isinstance(shape, Shape) and shape.ranked and lens is not None:
        for axis, (d, n) in enumerate(zip(shape.dims, lens, strict=True)):
            try:
                wanted = substitute(d, known) if isinstance(d, Sym) else n
            except ShapeError as error:
                of = ", ".join(f"{s} = {known[s.name]}" for s in sorted(symbols_of(d), key=str) if s.name in known)
                raise ShapeError(f"{what}: axis {axis} ({d}) has no value for {of}: {error.message}") from None
            if not isinstance(wanted, Sym):
                if wanted != n:
                    raise ShapeError(f"{what}: axis {axis} ({d}) must be {wanted} as elsewhere, got {n}")
                continue
            (low, high), parts = bounds(wanted), linear(wanted)
            if not low <= n <= high and (parts is None or parts[0].symbol is None):
                raise ShapeError(f"{what}: axis {axis} ({d}) must be {wanted}, which is {low} to {high}, got {n}")
            if parts is not None and solved(parts, n) is None:
                least, most = bounds(parts[0])
                raise ShapeError(f"{what}: axis {axis} ({d}) is {n} for no {parts[0]} from {least} to {most}")
