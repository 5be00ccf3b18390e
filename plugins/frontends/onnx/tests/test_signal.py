"""Fourier transforms, window functions and mel weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_core import MgxError

RNG = np.random.default_rng(14)


def rand(*dims: int) -> Any:
    return RNG.uniform(-1, 1, dims).astype(np.float32)


def complex_of(x: Any) -> Any:
    return x[..., 0] + 1j * x[..., 1]


@pytest.mark.parametrize("fixed", [[], [1, 2]])
@pytest.mark.parametrize("length", [None, 5, 12])
@pytest.mark.parametrize("onesided", [0, 1])
def test_dft(run: Any, fixed: Any, length: int | None, onesided: int) -> None:
    x = rand(2, 8, 3, 1)
    size = None if length is None else np.array(length)
    places = [k for k in fixed if k == 2 or length is not None]
    (out,) = run("DFT", x, size, np.array(1), opset=20, fixed=places, onesided=onesided)
    wanted = (np.fft.rfft if onesided else np.fft.fft)(x[..., 0], length, axis=1)
    assert out.dtype == np.float32
    np.testing.assert_allclose(complex_of(out), wanted, rtol=1e-4, atol=1e-5)
    if length is None:
        (old,) = run("DFT", x, opset=17, axis=1, onesided=onesided)
        np.testing.assert_array_equal(old, out)


def test_inverse_transforms_undo(run: Any) -> None:
    x = rand(2, 9, 2)
    (there,) = run("DFT", x, opset=20)
    np.testing.assert_allclose(run("DFT", there, opset=20, inverse=1)[0], x, rtol=1e-4, atol=1e-5)
    real = rand(2, 8, 1)
    (half,) = run("DFT", real, opset=20, onesided=1)
    np.testing.assert_allclose(run("DFT", half, opset=20, onesided=1, inverse=1)[0], real, rtol=1e-4, atol=1e-5)
    flat = rand(3, 8)
    (spectrum,) = run("Rfft", flat, domain="com.microsoft", signal_ndim=1, normalized=0, onesided=1)
    np.testing.assert_allclose(complex_of(spectrum), np.fft.rfft(flat), rtol=1e-4, atol=1e-5)
    (back,) = run("Irfft", spectrum, domain="com.microsoft", signal_ndim=1, normalized=0, onesided=1)
    np.testing.assert_allclose(back, flat, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        ([(2, 4, 2)], dict(onesided=1), "needs a real signal"),
        ([(2, 4, 3)], dict(), "1 or 2"),
        ([(2, 4, 1), None, np.array(2)], dict(), "holds the real and imaginary parts"),
        ([(2, 4, 1), np.array(0)], dict(fixed=[1]), "dft_length must be at least 1"),
    ],
)
def test_dft_refuses(run: Any, inputs: Any, attributes: Any, message: str) -> None:
    with pytest.raises(MgxError, match=message):
        run("DFT", *(rand(*i) if isinstance(i, tuple) else i for i in inputs), opset=20, **attributes)


@pytest.mark.parametrize("fixed", [[], [1, 3]])
@pytest.mark.parametrize("onesided", [0, 1])
def test_stft(run: Any, fixed: Any, onesided: int) -> None:
    signal, window = rand(2, 20, 1), rand(6)
    (out,) = run("STFT", signal, np.array(4), window, np.array(6), opset=17, fixed=fixed, onesided=onesided)
    frames = np.stack([signal[:, i : i + 6, 0] * window for i in range(0, 15, 4)], 1)
    wanted = (np.fft.rfft if onesided else np.fft.fft)(frames)
    np.testing.assert_allclose(complex_of(out), wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(MgxError, match="frame"):
        run("STFT", signal, np.array(4), None, np.array(21), opset=17)


@pytest.mark.parametrize("op_type", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("fixed", [[], [0]])
def test_windows(agree: Any, op_type: str, periodic: int, fixed: Any) -> None:
    agree(op_type, np.array(10), opset=17, periodic=periodic, fixed=fixed)
    agree(op_type, np.array(9), opset=17, periodic=periodic, fixed=fixed, output_datatype=11)


def test_windows_of_odd_sizes(run: Any) -> None:
    assert run("HannWindow", np.array(0), opset=17)[0].shape == (0,)
    assert run("HannWindow", np.array(1), opset=17, periodic=0)[0].tolist() == [0]
    with pytest.raises(MgxError, match="size must be at least 0"):
        run("HannWindow", np.array(-1), opset=17)


@pytest.mark.parametrize("fixed", [[], [0, 1, 2, 3, 4]])
def test_mel_weights(agree: Any, fixed: Any) -> None:
    numbers = [np.array(8), np.array(64), np.array(8000), np.float32(20), np.float32(3800)]
    agree("MelWeightMatrix", *(np.asarray(n) for n in numbers), opset=17, fixed=fixed)


def test_stft_of_a_real_signal_without_its_last_axis(run: Any) -> None:
    signal = np.linspace(-1, 1, 40, dtype=np.float32).reshape(2, 20)
    window = np.hanning(6).astype(np.float32)
    (out,) = run("STFT", signal, np.array(4), window, opset=17)
    (wanted,) = run("STFT", signal[..., None], np.array(4), window, opset=17)
    np.testing.assert_array_equal(out, wanted)
