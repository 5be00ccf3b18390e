"""Pooling, compared with a direct definition; shape inference, indices and their inverse."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mgx_core.errors import MgxError
from mgx_core.ops.pooling import MaxPoolIndices, MaxUnpool, Pooling
from mgx_core.types.dim import symbol
from mgx_core.types.shape import Shape

RNG = np.random.default_rng(2)
X = RNG.uniform(-1, 1, (2, 3, 7, 8))


def direct(x: Any, op: Pooling, out: Any, begins: Any, ends: Any) -> Any:
    stride, dilation = op.stride or (1, 1), op.dilations or (1, 1)
    result = np.zeros((*x.shape[:2], *out))
    for place in itertools.product(*map(range, out)):
        values, counted = [], 0
        for tap in itertools.product(*map(range, op.lengths)):
            at = [p * s - b + t * d for p, s, b, t, d in zip(place, stride, begins, tap, dilation, strict=True)]
            if all(0 <= a < n for a, n in zip(at, x.shape[2:], strict=True)):
                values.append(x[(slice(None), slice(None), *at)])
            counted += all(-b <= a < n + e for a, n, b, e in zip(at, x.shape[2:], begins, ends, strict=True))
        stack = np.stack(values)
        if op.mode == "max":
            found = stack.max(0)
        elif op.mode == "lpnorm":
            found = np.sum(np.abs(stack) ** op.lp_order, 0) ** (1 / op.lp_order)
        else:
            found = stack.sum(0) / (counted if op.count_include_pad else len(values))
        result[(slice(None), slice(None), *place)] = found
    return result


@pytest.mark.parametrize("mode", ["max", "average", "lpnorm"])
@pytest.mark.parametrize(
    ("attributes", "out", "begins", "ends"),
    [
        (dict(lengths=(3, 2)), (5, 7), (0, 0), (0, 0)),
        (dict(lengths=(3, 2), stride=(2, 3), padding=(1, 0, 0, 1)), (3, 3), (1, 0), (0, 1)),
        (dict(lengths=(2, 2), stride=(2, 3), ceil_mode=True), (4, 3), (0, 0), (0, 0)),
        (dict(lengths=(3, 3), stride=(3, 3), padding=(1, 1), ceil_mode=True), (3, 3), (1, 1), (1, 1)),
        (dict(lengths=(3, 2), stride=(3, 3), dilations=(4, 1), ceil_mode=True), (1, 3), (0, 0), (0, 0)),
        (dict(lengths=(2, 3), dilations=(3, 2), padding=(1, 1), count_include_pad=True), (6, 6), (1, 1), (1, 1)),
        (dict(lengths=(3, 3), stride=(2, 2), padding_mode="same_upper"), (4, 4), (1, 0), (1, 1)),
        (dict(lengths=(3, 3), stride=(2, 2), padding_mode="same_lower", lp_order=3), (4, 4), (1, 1), (1, 0)),
    ],
)
def test_windows(mode: Any, attributes: Any, out: Any, begins: Any, ends: Any) -> None:
    op = Pooling(mode=mode, **attributes)
    assert op.result([Shape("double", X.shape)]) == Shape("double", (2, 3, *out))
    np.testing.assert_allclose(op.evaluate([X]), direct(X, op, out, begins, ends), rtol=1e-9)


@pytest.mark.parametrize("mode", ["max", "average", "lpnorm"])
def test_no_window_covers_nothing(mode: Any) -> None:
    op = Pooling(mode=mode, lengths=(7,), stride=(2,), padding_mode="same_upper")
    assert op.evaluate([np.zeros((1, 3, 0), np.float32)]).shape == (1, 3, 0)


def test_no_window_starts_in_the_padding_at_the_end() -> None:
    op = Pooling(mode="max", lengths=(1,), stride=(2,), padding=(0, 1), ceil_mode=True)
    assert op.result([Shape("float", (1, 1, 4))]) == Shape("float", (1, 1, 2))


@pytest.mark.parametrize("mode", ["max", "average", "lpnorm"])
def test_a_window_far_larger_than_its_image(mode: Any) -> None:
    given = dict(stride=(10**7, 10**7), padding=(2, 0), dilations=(1, 2), ceil_mode=True)
    large = Pooling(mode=mode, lengths=(10**6, 10**6), **given)
    small = Pooling(mode=mode, lengths=(X.shape[2] + 4, X.shape[3]), **given)
    np.testing.assert_allclose(large.evaluate([X]), direct(X, small, (1, 1), (2, 0), (2, 0)), rtol=1e-9)
    if mode == "max":
        values, places = MaxPoolIndices(lengths=(10**6, 10**6), **given).evaluate([X])
        np.testing.assert_array_equal(values, X[..., ::2].max((2, 3), keepdims=True))
        np.testing.assert_array_equal(np.take(X.reshape(-1), places), values)


def test_the_only_window_stays_the_only_one_when_it_is_cut() -> None:
    """If it were cut to the four elements that it covers, a second window would fit after it."""
    x = np.arange(1.0, 7, dtype=np.float32).reshape(1, 1, 6)
    for length in (5, 5000):
        op = Pooling(
            mode="max", lengths=(length,), stride=(10 * length,), padding=(2, 0), dilations=(2,), ceil_mode=True
        )
        assert op.evaluate([x]).tolist() == [[[5.0]]]
    op = Pooling(mode="max", lengths=(5,), stride=(2,), padding=(2, 0), dilations=(2,), ceil_mode=True)
    assert op.fitted((6,)) is op and op.evaluate([x]).tolist() == [[[5.0]]]


def test_one_window_of_everything() -> None:
    for mode, wanted in (("max", X.max((2, 3))), ("average", X.mean((2, 3))), ("lpnorm", np.sqrt((X * X).sum((2, 3))))):
        out = Pooling(mode=mode, dyn_global=True).evaluate([X])
        np.testing.assert_allclose(out, wanted[:, :, None, None], rtol=1e-9)
    h = symbol("h", 1, 99)
    assert Pooling(mode="max", dyn_global=True).result([Shape("float", (1, 2, h))]) == Shape("float", (1, 2, 1))


def test_types() -> None:
    half = X.astype(ml_dtypes.bfloat16)
    out = Pooling(mode="average", lengths=(2, 2)).evaluate([half])
    wide = Pooling(mode="average", lengths=(2, 2)).evaluate([half.astype(np.float32)])
    np.testing.assert_array_equal(out, wide.astype(ml_dtypes.bfloat16))
    bytes_ = RNG.integers(-128, 0, (1, 1, 3, 3), dtype=np.int8)
    padded = Pooling(mode="max", lengths=(3, 3), padding=(1, 1)).evaluate([bytes_])
    assert padded[0, 0, 1, 1] == bytes_.max()
    with pytest.raises(MgxError, match="must not be of type int8"):
        Pooling(mode="average", lengths=(2, 2)).result([Shape("int8", (1, 1, 3, 3))])
    with pytest.raises(MgxError, match="does not fit"):
        Pooling(mode="max", lengths=(4, 2)).result([Shape("float", (1, 1, 3, 3))])
    with pytest.raises(MgxError, match="lp_order"):
        Pooling(mode="lpnorm", lengths=(2, 2), lp_order=0)


@pytest.mark.parametrize("order", [0, 1])
def test_index_errors_report_the_location(order: Any) -> None:
    given = dict(lengths=(3, 2), stride=(2, 1), padding=(1, 0, 1, 1))
    y, where = MaxPoolIndices(storage_order=order, **given).evaluate([X])
    np.testing.assert_array_equal(y, Pooling(mode="max", **given).evaluate([X]))
    flat = X if order == 0 else np.swapaxes(X, 2, 3)
    np.testing.assert_array_equal(flat.reshape(-1)[where], y)
    tie, first = MaxPoolIndices(lengths=(2,)).evaluate([np.zeros((1, 1, 3), np.float32)])
    assert (tie.tolist(), first.tolist()) == ([[[0, 0]]], [[[0, 1]]])


@pytest.mark.parametrize(
    "x", [np.full((1, 2, 2), -np.inf, np.float32), np.zeros((1, 2, 2), np.uint8)], ids=["-inf", "0"]
)
def test_padding_is_no_maximum(x: Any) -> None:
    _, where = MaxPoolIndices(lengths=(2,), padding=(1, 0)).evaluate([x])
    assert where.tolist() == [[[0, 0], [2, 2]]]


def test_unpooling() -> None:
    y, where = MaxPoolIndices(lengths=(2, 2), stride=(2, 2)).evaluate([X[:, :, :6]])
    op = MaxUnpool(lengths=(2, 2), stride=(2, 2))
    out = op.evaluate([y, where])
    assert out.shape == (2, 3, 6, 8)
    assert np.count_nonzero(out) == y.size
    np.testing.assert_array_equal(out.reshape(-1)[where], y)
    larger = op.evaluate([y, where, np.array([2, 3, 7, 9])])
    np.testing.assert_array_equal(larger[:, :, :6, :8], out)
    assert larger.shape == (2, 3, 7, 9)
    with pytest.raises(MgxError, match="output_shape must be at least"):
        op.evaluate([y, where, np.array([2, 3, 5, 8])])
    with pytest.raises(MgxError, match="indices must lie in"):
        op.evaluate([y, where + 9999])
