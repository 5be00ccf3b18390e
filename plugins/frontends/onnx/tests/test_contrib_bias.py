"""Relative position biases and biased softmax of com.microsoft, which ONNX Runtime runs on GPUs only, compared with formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

RNG = np.random.default_rng(41)
MS = {"domain": "com.microsoft"}


def rand(*dims: int) -> Any:
    return RNG.normal(size=dims).astype(np.float32)


def t5_bucket(distance: int, bidirectional: bool, buckets: int, furthest: int) -> int:
    """T5's definition, one distance at a time."""
    found = 0
    if bidirectional:
        buckets //= 2
        found = buckets if distance > 0 else 0
        away = abs(distance)
    else:
        away = max(-distance, 0)
    exact = buckets // 2
    if away < exact:
        return found + away
    wide = exact + int(math.log(away / exact) / math.log(furthest / exact) * (buckets - exact))
    return found + min(wide, buckets - 1)


@pytest.mark.parametrize("bidirectional", [0, 1])
@pytest.mark.parametrize(("rows", "columns"), [(70, 70), (3, 50)])
def test_relative_position_bias(run: Any, bidirectional: int, rows: int, columns: int) -> None:
    table = rand(16, 3)  # [buckets, heads]; its elements are stored in the order of [heads, buckets]
    lengths = np.int64([rows]), np.int64([columns])
    attributes = {"is_bidirectional": bidirectional, "max_distance": 40}
    stored = table.T.reshape(table.shape)
    (got,) = run("RelativePositionBias", stored, *lengths, fixed=(1, 2), **attributes, **MS)
    buckets = [[t5_bucket(j - i, bool(bidirectional), 16, 40) for j in range(columns)] for i in range(rows)]
    np.testing.assert_array_equal(got, table[np.array(buckets)].transpose(2, 0, 1)[None])


def test_gated_relative_position_bias(run: Any) -> None:
    b, s, heads, size, d = 2, 5, 3, 4, 6
    query, query_bias, position = rand(b, s, heads * size), rand(heads * size), rand(1, heads, s, s)
    weight, bias, eco = rand(size, d), rand(d), rand(1, heads, 1, 1)
    (got,) = run("GatedRelativePositionBias", query, query_bias, position, weight, bias, eco, num_heads=heads, **MS)
    q = (query + query_bias).reshape(b, s, heads, size).transpose(0, 2, 1, 3)
    gate = 1 / (1 + np.exp(-(q @ weight + bias).reshape(b, heads, s, 2, d // 2).sum(-1)))
    update, reset = gate[..., :1], gate[..., 1:]
    np.testing.assert_allclose(got, (update * (reset * eco - 1) + 2) * position, atol=1e-5)


def test_biased_softmax(run: Any) -> None:
    def softmax(x: Any, axes: tuple[int, ...]) -> Any:
        power = np.exp(x - x.max(axes, keepdims=True))
        return power / power.sum(axes, keepdims=True)

    x, inner, outer = rand(2, 3, 4, 5), rand(2, 1, 1, 5), rand(4, 5)
    (got,) = run("BiasSoftmax", x, inner, axis=3, is_inner_broadcast=1, **MS)
    np.testing.assert_allclose(got, softmax(x + inner, (3,)), atol=1e-6)
    (got,) = run("BiasSoftmax", x, outer, axis=2, is_inner_broadcast=0, **MS)
    np.testing.assert_allclose(got, softmax(x + outer, (2, 3)), atol=1e-6)
    (got,) = run("BiasSoftmax", x, rand(2, 1, 5) * 0, axis=3, is_inner_broadcast=1, **MS)
    np.testing.assert_allclose(got, softmax(x, (3,)), atol=1e-6)
