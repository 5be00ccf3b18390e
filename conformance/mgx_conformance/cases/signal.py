"""Cases of Fourier transforms, window functions, and random numbers (which are judged by their distribution)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from mgx_core import dtype
from mgx_core.ops.scalar import widen

from ..known import OPS
from .case import FLOATS, LAYOUTS, Case, Family, data, given

__all__ = ["family"]

family = Family("signal")
make = OPS.make
F = dtype.float32


@family.cases("dft")
def dft(name: str) -> Iterable[Case]:
    for kind in (F, FLOATS[1], FLOATS[3]):
        yield Case(make(name), (data(kind, 2, 8, 1),), "real", LAYOUTS[:3])
        yield Case(make(name), (data(kind, 2, 7, 2),), "complex-odd")
        yield Case(make(name, onesided=True), (data(kind, 2, 8, 1),), "onesided")
        yield Case(make(name, inverse=True), (data(kind, 2, 8, 2),), "inverse")
    yield Case(make(name, axis=1, dft_length=12), (data(F, 1, 8, 3, 1),), "padded")
    yield Case(make(name), (data(F, 2, 8, 1), given(5)), "cut-while-running")
    yield Case(make(name), (data(F, 1, 509, 1),), "prime")


@family.cases("stft")
def stft(name: str) -> Iterable[Case]:
    signal, window = data(F, 2, 32, 1), data(F, 8, low=0.1)
    yield Case(make(name, frame_step=4, frame_length=8), (signal,), "plain", LAYOUTS[:3])
    yield Case(make(name, frame_step=4), (signal, None, window), "window")
    yield Case(make(name, onesided=False), (signal, given(5), window, given(8)), "while-running")


@family.cases("hann_window", "hamming_window", "blackman_window")
def window(name: str) -> Iterable[Case]:
    for periodic in (True, False):
        for kind in FLOATS:
            word = "periodic" if periodic else "symmetric"
            yield Case(make(name, periodic=periodic, dtype=kind), (given(10),), f"{word}-{kind}")


@family.cases("mel_weight_matrix")
def mel(name: str) -> Iterable[Case]:
    yield Case(make(name), (given(8), given(64), given(16000), given(20.0, F), given(8000.0, F)), "")


# random numbers ---------------------------------------------------------------------------------------------------------


def distributed(mean: float, deviation: float, low: float, high: float) -> Callable[[list[Any], list[Any]], None]:
    """Judges a sample by its range and its first two moments, at six standard errors."""

    def judge(got: list[Any], operands: list[Any]) -> None:
        (sample,), like = got, operands[1]
        assert isinstance(sample, np.ndarray)
        assert (sample.dtype, sample.shape) == (like.dtype, like.shape)
        x = widen(sample).astype(np.float64)
        assert low <= x.min(), x.min()
        assert x.max() <= high, x.max()
        error = deviation / np.sqrt(x.size)
        assert abs(x.mean() - mean) <= 6 * error, f"mean {x.mean()}, {mean} required within {6 * error}"
        assert abs(x.std() - deviation) <= 6 * error, f"deviation {x.std()}, {deviation} required within {6 * error}"

    return judge


@family.cases("random_uniform", "random_normal")
def random(name: str) -> Iterable[Case]:
    uniform = name == "random_uniform"
    judge = distributed(0.5, 12**-0.5, 0, 1) if uniform else distributed(0, 1, -7, 7)
    for kind in (F, FLOATS[1]):
        yield Case(make(name), (given([7], dtype.uint64), data(kind, 40, 250)), "", judge=judge)


@family.cases("random_seed")
def seed(name: str) -> Iterable[Case]:
    def judge(got: list[Any], operands: list[Any]) -> None:
        assert isinstance(got[0], np.ndarray)
        assert (got[0].dtype, got[0].shape) == (np.dtype(np.uint64), (1,))

    yield Case(make(name), (), "", judge=judge)


@family.cases("multinomial")
def multinomial(name: str) -> Iterable[Case]:
    totals = given(np.cumsum(np.array([[1, 2, 3, 4], [4, 1, 1, 2]], np.float32), axis=1))
    yield Case(make(name), (totals, given(np.linspace(0.01, 0.97, 9, dtype=np.float32)[None])), "")


@family.cases("dropout")
def dropout(name: str) -> Iterable[Case]:
    def judge(got: list[Any], operands: list[Any]) -> None:
        out, mask = got
        x = operands[0]
        assert out.dtype == x.dtype
        assert mask.dtype == np.bool_
        assert abs(mask.mean() - 0.6) < 6 * (0.24 / mask.size) ** 0.5
        kept = x.astype(np.float64) / 0.6
        assert np.all(out[~mask] == 0)
        assert np.allclose(out[mask], kept[mask], rtol=4 * np.finfo(np.float32).eps)

    x = data(F, 50, 100, low=0.5)
    yield Case(make(name, seed=3), (x, given(0.4, F), given(True)), "training", judge=judge)
    yield Case(make(name, seed=3), (data(F, 5, 7), given(0.4, F), given(False)), "inference")
