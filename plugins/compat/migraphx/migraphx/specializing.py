"""Kernels for sizes of an open extent, made before the first run with them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mgx_core import DynamicDimension, ParameterError, Program, Shape
from mgx_core.types.dim import substitute, symbols_of

__all__ = ["specialize"]


def specialize(program: Program, sizes: Sequence[int]) -> None:
    """Makes the instances of a compiled program for these values of the one name that its parameters' extents are made of.

    Errors: ParameterError for another number of names, and for sizes outside of the name's range.
    """
    executable = program.executable
    assert executable is not None
    shapes = {n: s for n, s in executable.parameters.items() if isinstance(s, Shape) and s.ranked}
    found = {s.name: s for shape in shapes.values() for d in shape.dims for s in symbols_of(d)}
    if len(found) != 1 or len(shapes) != len(executable.parameters):
        names = ", ".join(sorted(found)) or "none"
        raise ParameterError(f"split_sizes needs parameters whose open extents are made of one name, got {names}")
    ((name, of),) = found.items()
    for size in sizes:
        if not of.lo <= size <= of.hi:
            raise ParameterError(f"split_sizes: {name} is {DynamicDimension(of.lo, of.hi)}, got {size}")
        values = {
            n: np.zeros([int(substitute(d, {name: size})) for d in s.dims], s.numpy_dtype) for n, s in shapes.items()
        }
        executable.dry_run(values)
