"""Shapes in error messages."""

from __future__ import annotations

import pytest

from mgx_core import Shape
from mgx_core.run.binding import described
from mgx_core.types.dim import symbol


@pytest.mark.parametrize(
    ("extent", "text"),
    [
        (4, "float32[4]"),
        (symbol("n"), "float32[n]"),
        (symbol("n", 2), "float32[n] with n >= 2"),
        (symbol("n", 2, 9), "float32[n] with n in 2..9"),
        (3 * symbol("n", 0, 9) + 1, "float32[3*n+1] with 3*n+1 in 1..28"),
        (symbol("n") // 8 - 5, "float32[(n//8)-5]"),  # a value derived from an unbounded one is unbounded too
    ],
)
def test_bounds_that_there_are(extent, text):
    assert described(Shape.of("float32", (extent,))) == text
