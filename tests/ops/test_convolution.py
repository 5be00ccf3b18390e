"""Convolutions, compared with a direct sum; shape inference, im2col and its adjoint."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mgx_core import dtype as dt
from mgx_core.errors import MgxError
from mgx_core.ir.interpreter import evaluate_module
from mgx_core.ir.module import Module
from mgx_core.ops.columns import Col2im, Im2col
from mgx_core.ops.convolution import Convolution, ConvolutionBackwards, ConvolutionWeights, convolve
from mgx_core.ops.quantized_product import QuantConvolution
from mgx_core.ops.sample import DeformConv
from mgx_core.rules.decomposition import decomposed
from mgx_core.types.dim import symbol
from mgx_core.types.shape import Shape

RNG = np.random.default_rng(1)


def rand(*dims: int) -> Any:
    return RNG.uniform(-1, 1, dims)


def direct(x: Any, w: Any, stride: Any, begins: Any, dilation: Any, group: int, out: Any) -> Any:
    """The definition: a sum over taps and channels for each output element."""
    n, m = x.shape[0], w.shape[0]
    inner, kernels = w.shape[1], m // group
    result = np.zeros((n, m, *out))
    for place in itertools.product(*map(range, out)):
        for tap in itertools.product(*map(range, w.shape[2:])):
            at = [p * s - b + t * d for p, s, b, t, d in zip(place, stride, begins, tap, dilation, strict=True)]
            if all(0 <= a < size for a, size in zip(at, x.shape[2:], strict=True)):
                for j in range(m):
                    g = j // kernels
                    values = x[(slice(None), slice(g * inner, (g + 1) * inner), *at)]
                    result[(slice(None), j, *place)] += values @ w[(j, slice(None), *tap)]
    return result


CASES = [
    ((2, 3, 8), (4, 3, 3), dict(), (0,)),
    ((1, 4, 6, 7), (6, 2, 3, 2), dict(group=2, padding=(1, 0, 2, 1), stride=(2, 1)), (1, 0)),
    ((2, 4, 6, 5), (8, 1, 3, 3), dict(group=4, padding=(1, 1), dilation=(1, 2)), (1, 1)),
    ((1, 2, 5, 4, 3), (3, 2, 2, 2, 2), dict(padding=(1, 0, 0)), (1, 0, 0)),
    ((3, 4, 5, 5), (2, 4, 1, 1), dict(stride=(2, 3)), (0, 0)),
]


@pytest.mark.parametrize(("x", "w", "attributes", "begins"), CASES)
@pytest.mark.parametrize("kind", [np.float32, np.float64, ml_dtypes.bfloat16])
def test_convolution(x: Any, w: Any, attributes: Any, begins: Any, kind: Any) -> None:
    a, b = rand(*x).astype(kind), rand(*w).astype(kind)
    op = Convolution(**attributes)
    shape = op.result([Shape(dt.of(a.dtype), x), Shape(dt.of(b.dtype), w)])
    out = op.evaluate([a, b])
    assert (out.shape, out.dtype) == (tuple(shape), a.dtype)
    rank = len(x) - 2
    ones = (1,) * rank
    stride, dilation = attributes.get("stride", ones), attributes.get("dilation", ones)
    wanted = direct(
        a.astype(float), b.astype(float), stride, begins, dilation, attributes.get("group", 1), out.shape[2:]
    )
    close = 2**-7 if kind is ml_dtypes.bfloat16 else 1e-5
    np.testing.assert_allclose(out.astype(float), wanted, rtol=close, atol=close)


def test_whole_numbers_are_exact_in_float64() -> None:
    x = RNG.integers(-128, 127, (1, 300, 4, 4), dtype=np.int8)
    w = RNG.integers(-128, 127, (5, 300, 3, 3), dtype=np.int8)
    exact = convolve(x, w, (1, 1), (1, 1), (1, 1), 1, np.int64)
    np.testing.assert_array_equal(convolve(x, w, (1, 1), (1, 1), (1, 1), 1, np.float64), exact)


def test_images_without_elements() -> None:
    for given, attributes, out in (
        ((1, 4, 0, 5), dict(padding_mode="same_upper", stride=(2, 2)), (1, 2, 0, 3)),
        ((1, 4, 0, 5), dict(padding=(2, 1), stride=(1, 2)), (1, 2, 2, 3)),
    ):
        x, w = np.zeros(given, np.float32), np.ones((2, 4, 3, 3), np.float32)
        op = Convolution(**attributes)
        assert op.result([Shape("float", given), Shape("float", w.shape)]) == Shape("float", out)
        np.testing.assert_array_equal(op.evaluate([x, w]), np.zeros(out))
        whole = QuantConvolution(**attributes).evaluate([x.astype(np.uint8), w.astype(np.int8), np.uint8(3)])
        np.testing.assert_array_equal(whole, np.zeros(out))
        assert whole.dtype == np.int32


def test_symbolic_extents() -> None:
    n, h = symbol("n", 1, 8), symbol("h", 8, 512)
    x = Shape("float", (n, 3, h, 64))
    w = Shape("float", (16, 3, 3, 3))
    out = Convolution(padding=(1, 1), stride=(2, 2)).result([x, w])
    assert out == Shape("float", (n, 16, (h - 1) // 2 + 1, 32))
    same = Convolution(stride=(2, 2), padding_mode="same_upper").result([x, w])
    assert same == Shape("float", (n, 16, (h + 1) // 2, 32))
    back = ConvolutionBackwards(stride=(2, 2)).result([x, Shape("float", (3, 8, 2, 2))])
    assert back == Shape("float", (n, 8, 2 * h, 128))


@pytest.mark.parametrize(
    ("attributes", "x", "w", "message"),
    [
        (dict(), (1, 3, 5), (2, 3, 3, 3), "one rank"),
        (dict(), (1, 4, 5, 5), (2, 3, 3, 3), "is for 3 channels, x has 4"),
        (dict(group=2), (1, 4, 5, 5), (3, 2, 3, 3), "do not divide into 2 groups"),
        (dict(group=0), (1, 4, 5, 5), (3, 4, 3, 3), "group must be at least 1"),
        (dict(stride=(1,)), (1, 3, 5, 5), (2, 3, 3, 3), "stride needs 2 numbers"),
        (dict(stride=(0, 1)), (1, 3, 5, 5), (2, 3, 3, 3), "stride must be at least 1"),
        (dict(padding=(1, 1, 1)), (1, 3, 5, 5), (2, 3, 3, 3), "padding needs 2 or 4"),
        (dict(dilation=(3, 3)), (1, 3, 5, 5), (2, 3, 3, 3), "a window over 7 elements does not fit on an axis of 5"),
    ],
)
def test_refusals(attributes: Any, x: Any, w: Any, message: str) -> None:
    with pytest.raises(MgxError, match=message):
        Convolution(**attributes).result([Shape("float", x), Shape("float", w)])


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize(("stride", "padding", "dilation"), [((1, 1), (0, 0), (1, 1)), ((2, 3), (1, 0, 0, 1), (1, 2))])
def test_backwards_is_the_adjoint(group: int, stride: Any, padding: Any, dilation: Any) -> None:
    y = rand(2, 4, 3, 4)
    w = rand(4, 6 // group, 3, 2)
    given = dict(stride=stride, padding=padding, dilation=dilation, group=group)
    back = ConvolutionBackwards(**given).evaluate([y, w])
    x = rand(*back.shape)
    forth = Convolution(**given).evaluate([x, w])
    assert forth.shape == y.shape
    assert np.sum(forth * y) == pytest.approx(np.sum(back * x), rel=1e-9)


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize(("stride", "padding", "dilation"), [((1, 1), (0, 0), (1, 1)), ((2, 3), (1, 0, 0, 1), (1, 2))])
def test_gradient_of_weights_is_the_adjoint(group: int, stride: Any, padding: Any, dilation: Any) -> None:
    x, w = rand(2, 6, 8, 9), rand(4, 6 // group, 3, 2)
    given = dict(stride=stride, padding=padding, dilation=dilation, group=group)
    forth = Convolution(**given).evaluate([x, w])
    grad = rand(*forth.shape)
    op = ConvolutionWeights(lengths=(3, 2), **given)
    back = op.evaluate([x, grad])
    assert np.sum(forth * grad) == pytest.approx(np.sum(back * w), rel=1e-9)
    parts = decomposed(op, [Shape("double", v.shape) for v in (x, grad)])
    assert isinstance(parts, Module)
    (made,) = evaluate_module(parts, [x, grad])
    assert np.allclose(np.asarray(made), back, rtol=1e-9)


@pytest.mark.parametrize(
    ("attributes", "gradient", "message"),
    [
        (dict(lengths=(3, 3)), (1, 2, 4, 3), r"\[3, 3\] windows of 1 images need as many gradients"),
        (dict(lengths=(3, 3)), (2, 2, 3, 3), "of 1 images need as many gradients"),
        (dict(lengths=(3,)), (1, 2, 3, 3), "one rank"),
        (dict(lengths=(3, 3)), (1, 2, 3), "one type and rank"),
        (dict(lengths=(3, 3), group=2), (1, 3, 3, 3), "do not divide into 2 groups"),
        (dict(lengths=(3, 3), group=0), (1, 3, 3, 3), "group must be at least 1"),
    ],
)
def test_refusals_of_gradients_of_weights(attributes: Any, gradient: Any, message: str) -> None:
    with pytest.raises(MgxError, match=message):
        ConvolutionWeights(**attributes).result([Shape("float", (1, 4, 5, 5)), Shape("float", gradient)])


def test_backwards_same_padding_and_output_padding() -> None:
    x, w = Shape("float", (1, 2, 5)), Shape("float", (2, 3, 1))
    for mode in ("same_lower", "same_upper"):
        op = ConvolutionBackwards(stride=(3,), padding_mode=mode)
        assert op.result([x, w]) == Shape("float", (1, 3, 15))
        assert op.evaluate([rand(1, 2, 5), rand(2, 3, 1)]).shape == (1, 3, 15)
    more = ConvolutionBackwards(stride=(3,), output_padding=(2,))
    assert more.result([x, w]) == Shape("float", (1, 3, 15))
    assert more.evaluate([rand(1, 2, 5), rand(2, 3, 1)])[..., -2:].tolist() == [[[0, 0]] * 3]


def test_im2col_makes_convolution_a_product_and_col2im_is_its_adjoint() -> None:
    x, w = rand(2, 3, 6, 5), rand(4, 3, 3, 2)
    given = dict(padding=(1, 0), stride=(2, 1), dilation=(1, 2))
    op = Im2col(lengths=(3, 2), **given)
    columns = op.evaluate([x])
    assert tuple(op.result([Shape("double", x.shape)])) == columns.shape
    flat = Convolution(**given).evaluate([x, w])
    np.testing.assert_allclose((w.reshape(4, -1) @ columns).reshape(flat.shape), flat, rtol=1e-9)
    y = rand(*columns.shape)
    image = Col2im(image_shape=(6, 5), block_shape=(3, 2), **given).evaluate([y])
    assert np.sum(columns * y) == pytest.approx(np.sum(image * x), rel=1e-9)
    late = Col2im(**given).evaluate([y, np.array([6, 5]), np.array([3, 2])])
    np.testing.assert_array_equal(late, image)
    with pytest.raises(MgxError, match="windows"):
        Col2im(image_shape=(7, 9), block_shape=(3, 2), **given).result([Shape("double", y.shape)])


def test_deformable_convolution_without_offsets_is_a_convolution() -> None:
    x, w, bias = rand(2, 4, 6, 5), rand(6, 2, 3, 2), rand(6)
    given = dict(padding=(1, 0), stride=(1, 2), group=2)
    plain = Convolution(**given).evaluate([x, w]) + bias[:, None, None]
    out = plain.shape[2:]
    op = DeformConv(offset_group=2, **given)
    moved = op.evaluate([x, w, np.zeros((2, 24, *out)), bias, np.ones((2, 12, *out))])
    np.testing.assert_allclose(moved, plain, rtol=1e-9)
    right = np.zeros((2, 24, *out))
    right.reshape(2, 2, 6, 2, *out)[:, :, :, 1] = 1
    shifted = np.zeros_like(x)
    shifted[..., :-1] = x[..., 1:]
    wanted = Convolution(**given).evaluate([shifted, w])[..., :-1]
    np.testing.assert_allclose(op.evaluate([x, w, right])[..., :-1], wanted, rtol=1e-9)
    with pytest.raises(MgxError, match="offset must have dims"):
        op.result([Shape("double", d) for d in (x.shape, w.shape, (2, 12, *out))])


@pytest.mark.parametrize("stride", [1, 2])
def test_an_empty_axis_has_no_window_of_one_element(stride: int) -> None:
    x, w = np.zeros((1, 3, 0, 5), np.float32), np.ones((2, 3, 1, 1), np.float32)
    found = Convolution(stride=(stride, stride)).evaluate([x, w])
    assert isinstance(found, np.ndarray) and found.shape == (1, 2, 0, 5 if stride == 1 else 3)
    with pytest.raises(MgxError, match="a window over 2 elements does not fit on an axis of 0"):
        Convolution().evaluate([x, np.ones((2, 3, 2, 1), np.float32)])
