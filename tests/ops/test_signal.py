"""Fourier transforms, window functions and mel weights."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from mgx_core import dtype as dt
from mgx_core.errors import MgxError
from mgx_core.ops.fourier import Dft, Stft
from mgx_core.ops.signal import BlackmanWindow, HammingWindow, HannWindow, MelWeightMatrix
from mgx_core.types.dim import Sym, symbol
from mgx_core.types.shape import Shape

RNG = np.random.default_rng(7)


def complex_of(x: Any) -> Any:
    return x[..., 0] + 1j * x[..., 1]


def test_transform_by_its_definition() -> None:
    x = RNG.uniform(-1, 1, (2, 7, 3, 2))
    k = np.arange(7)
    kernel = np.exp(-2j * np.pi * np.outer(k, k) / 7)
    wanted = np.einsum("kn,bnc->bkc", kernel, complex_of(x))
    out = Dft(axis=1).evaluate([x])
    np.testing.assert_allclose(complex_of(out), wanted, rtol=1e-9)
    np.testing.assert_allclose(Dft(axis=-3, inverse=True).evaluate([out]), x, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("length", [4, 6, 9])
def test_lengths_cut_and_pad(length: int) -> None:
    x = RNG.uniform(-1, 1, (6, 1))
    op = Dft(axis=0, dft_length=length, onesided=True)
    out = op.evaluate([x])
    assert tuple(op.result([Shape("double", x.shape)])) == out.shape == (length // 2 + 1, 2)
    np.testing.assert_allclose(complex_of(out), np.fft.rfft(x[:, 0], length), rtol=1e-9)
    late = Dft(onesided=True).evaluate([x, np.array(length), np.array([0])])
    np.testing.assert_array_equal(late, out)
    back = Dft(axis=0, dft_length=length, onesided=True, inverse=True).evaluate([out])
    np.testing.assert_allclose(back[: min(length, 6)], x[:length], rtol=1e-9, atol=1e-12)


def test_transform_shapes() -> None:
    n = symbol("n", 2, 99)
    assert Dft().result([Shape("float", (3, n, 1))]) == Shape("float", (3, n, 2))
    assert Dft(onesided=True).result([Shape("float", (3, n, 1))]) == Shape("float", (3, n // 2 + 1, 2))
    half = Dft(onesided=True, inverse=True).result([Shape("float", (3, n, 2))])
    assert half == Shape("float", (3, 2 * n - 2, 1))
    late = Dft().result([Shape("float", (3, 8, 1)), Shape("int64", ())])
    assert isinstance(late.dims[1], Sym)
    with pytest.raises(MgxError, match="holds the real and imaginary parts"):
        Dft(axis=2).result([Shape("float", (3, 8, 1))])
    with pytest.raises(MgxError, match="1 or 2"):
        Dft().result([Shape("float", (3, 8, 3))])
    with pytest.raises(MgxError, match="real signal"):
        Dft(onesided=True).result([Shape("float", (3, 8, 2))])
    with pytest.raises(MgxError, match="dft_length must be at least 1"):
        Dft().evaluate([np.ones((3, 8, 1)), np.array(0)])


def test_transform_of_no_signals_has_the_inferred_shape() -> None:
    for op in (Dft(axis=2, onesided=True), Dft(axis=2), Dft(axis=2, onesided=True, inverse=True)):
        x = np.zeros((2, 0, 64, 2 if op.inverse else 1), np.float32)
        assert op.evaluate([x]).shape == tuple(op.infer(Shape.of(dt.float32, x.shape)).dims)


def test_half_precision_keeps_its_type() -> None:
    x = RNG.uniform(-1, 1, (1, 8, 1)).astype(np.float16)
    out = Dft().evaluate([x])
    assert out.dtype == np.float16
    np.testing.assert_allclose(complex_of(out.astype(float)), np.fft.fft(x[..., 0].astype(float)), atol=1e-2)


def test_frames() -> None:
    x, window = RNG.uniform(-1, 1, (2, 17, 1)), RNG.uniform(0, 1, 5)
    op = Stft(frame_step=3, onesided=True)
    out = op.evaluate([x, None, window])
    assert tuple(op.result([Shape("double", x.shape), None, Shape("double", (5,))])) == out.shape == (2, 5, 3, 2)
    for i in range(5):
        np.testing.assert_allclose(complex_of(out[:, i]), np.fft.rfft(x[:, 3 * i : 3 * i + 5, 0] * window), rtol=1e-9)
    whole = Stft(frame_step=1, onesided=False).evaluate([x])
    np.testing.assert_allclose(complex_of(whole[:, 0]), np.fft.fft(x[..., 0]), rtol=1e-9, atol=1e-12)
    with pytest.raises(MgxError, match="does not fit"):
        Stft(frame_step=1, frame_length=18).evaluate([x])
    with pytest.raises(MgxError, match="window must have frame_length 4"):
        Stft(frame_step=1, frame_length=4).result([Shape("double", x.shape), None, Shape("double", (5,))])
    with pytest.raises(MgxError, match="frame_step"):
        Stft().result([Shape("double", x.shape)])


def test_windows() -> None:
    for periodic, size in product((False, True), (2, 7, 8)):
        n = np.arange(size) * 2 * np.pi / (size if periodic else size - 1)
        for op, wanted in (
            (HannWindow, 0.5 - 0.5 * np.cos(n)),
            (HammingWindow, 25 / 46 - 21 / 46 * np.cos(n)),
            (BlackmanWindow, 0.42 - 0.5 * np.cos(n) + 0.08 * np.cos(2 * n)),
        ):
            out = op(periodic=periodic, dtype=dt.float64).evaluate([np.array(size)])
            np.testing.assert_allclose(out, wanted, atol=1e-12)
    for size in (0, 1):
        assert HannWindow(periodic=False).evaluate([np.array(size)]).tolist() == [0.0] * size
    assert HannWindow(dtype=dt.float16).evaluate([np.array([4])]).dtype == np.float16
    with pytest.raises(MgxError, match="size must be at least 0"):
        HannWindow().evaluate([np.array(-3)])
    with pytest.raises(MgxError, match="size must be one integer"):
        HannWindow().result([Shape("float", ())])


def test_mel_weights() -> None:
    numbers = [np.array(n) for n in (5, 64, 16000, 100.0, 7000.0)]
    out = MelWeightMatrix().evaluate(numbers)
    assert out.shape == (33, 5)
    assert out.dtype == np.float32
    assert out.max(0).tolist() == [1] * 5
    peaks = out.argmax(0)
    assert list(peaks) == sorted(peaks)
    assert (out >= 0).all()
    with pytest.raises(MgxError, match="lower < upper"):
        MelWeightMatrix().evaluate([*numbers[:3], np.array(8.0), np.array(7.0)])


def test_mel_weights_of_equal_edges_and_of_a_band_that_leaves_the_spectrum() -> None:
    out = MelWeightMatrix().evaluate([np.array(n) for n in (4, 12, 8000, 0.0, 9000.0)])
    assert out.T.tolist() == [
        [1, 0, 0, 0, 0, 0, 0],
        [0, 1, 0.5, 0, 0, 0, 0],
        [0, 0, 0.5, 1, 0.5, 0, 0],
        [0, 0, 0, 0, 0.5, 1, 0.75],
    ]


def test_mel_weights_of_a_frequency_beyond_all_integers() -> None:
    numbers = [np.array(n) for n in (2, 8, 8000, 0.0)]
    out = MelWeightMatrix().evaluate([*numbers, np.float32(1e38)])
    assert out.argmax(0).tolist() == [4, 0] and out[0].tolist() == [0, 0]
    with pytest.raises(MgxError, match="finite"):
        MelWeightMatrix().evaluate([*numbers, np.float32(np.inf)])
