"""Binding of symbolic extents to the extents of values."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_core.errors import ShapeError
from mgx_core.types.dim import symbol
from mgx_core.types.shape import Shape, TupleShape
from mgx_core.types.symbol_binding import bind_symbols, check_symbols


def test_binding_and_checking_symbols():
    n, m = symbol("n", 0, 9), symbol("m", 0, 9)
    known: dict[str, int] = {}
    shape = Shape("float", [n, 2, n + m, m])
    bind_symbols(TupleShape([shape]), (np.zeros((3, 2, 9, 4)),), known)
    assert known == {"n": 3, "m": 4}
    check_symbols(shape, np.zeros((3, 2, 7, 4)), known, "x")
    with pytest.raises(ShapeError, match=r"x: axis 3 \(m\) must be 4 as elsewhere, got 5"):
        check_symbols(shape, np.zeros((3, 2, 7, 5)), known, "x")
