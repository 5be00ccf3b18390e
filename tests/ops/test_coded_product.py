"""Products with coded weights, compared with products of the decoded weights."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_core import Shape
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.ops.coded_product import DequantDot

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("points", [True, False])
def test_compute(bits: int, points: bool) -> None:
    k, n, block = 70, 5, 32
    codes = RNG.integers(0, 1 << bits, (n, 96)).astype(np.uint8)
    scale = RNG.uniform(0.01, 0.1, (n, 3)).astype(np.float32)
    zero = RNG.integers(0, 1 << bits, (n, 3)).astype(np.uint8) if points else None
    a = RNG.normal(size=(2, 3, k)).astype(np.float32)
    packed = codes[:, 0::2] | codes[:, 1::2] << 4 if bits == 4 else codes
    op = DequantDot(bits=bits, block_size=block)
    found = op.evaluate([a, packed, scale] + ([] if zero is None else [zero]))
    whole = np.repeat(zero.astype(float) if zero is not None else np.full((n, 3), 1 << bits - 1), block, 1)
    weights = ((codes - whole) * np.repeat(scale.astype(float), block, 1))[:, :k]
    np.testing.assert_allclose(found, a @ weights.T, rtol=1e-4, atol=1e-4)


def test_refusals() -> None:
    with pytest.raises(ParameterError, match="even for 4 bits"):
        DequantDot(bits=4, block_size=5)
    a, codes = Shape("float32", [1, 8]), Shape("uint8", [2, 4])
    with pytest.raises(ShapeError, match="take 4 bytes"):
        DequantDot(block_size=8).result([a, Shape("uint8", [2, 3]), Shape("float32", [2, 1])])
    with pytest.raises(ShapeError, match=r"must be \[2, 1\]"):
        DequantDot(block_size=8).result([a, codes, Shape("float32", [2, 2])])
