"""Extents of the smallest type that covers two others."""

from __future__ import annotations

from mgx_core import Shape
from mgx_core.ops.type_join import join
from mgx_core.types.dim import bounds, symbol


def test_an_extent_that_covers_two_is_never_below_0() -> None:
    """3n - 3, as for a transposed convolution, is -3 for n = 0, which no input has."""
    n = symbol("n", 0, 9)
    joined = join(Shape.of("float32", [3 * n - 3]), Shape.of("float32", [n]))
    assert bounds(joined.dims[0]) == (0, 24)
