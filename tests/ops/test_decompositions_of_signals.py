"""Decompositions of image windows and Fourier transforms give the results of the ops."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ops import fourier
from mgx_core.ops.columns import Im2col
from mgx_core.ops.fourier import LARGEST, LONGEST, SHORTEST, Dft, Stft
from mgx_core.rules.decomposition import decomposed
from mgx_core.types.dim import fresh

PRECISE = {"float64": 1e-13, "float32": 3e-6, "float16": 3e-3}


def spelled_out(op: Any, *given: Any) -> Any:
    """Returns the decomposition of an op applied to operands, some of which may be absent; None if it has none."""
    made = decomposed(op, [None if x is None else mgx.Shape(x.dtype, x.shape) for x in given])
    if not isinstance(made, mgx.Module):
        return None
    return Interpreter().run(made, [x for x in given if x is not None])[0]


def check(op: Any, *given: Any, tolerance: float) -> None:
    wanted = op.compute(*given)
    found = spelled_out(op, *given)
    assert found is not None
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    difference = np.abs(found.astype(np.float64) - wanted.astype(np.float64)).max()
    assert difference <= tolerance * np.abs(wanted.astype(np.float64)).max()


@pytest.mark.parametrize(
    ("dims", "given"),
    [
        ((2, 3, 9, 8), {"lengths": (3, 2)}),
        ((2, 3, 9, 8), {"lengths": (3, 2), "padding": (1, 1), "stride": (2, 1), "dilation": (2, 3)}),
        ((1, 2, 9, 11), {"lengths": (2, 4), "stride": (2, 4)}),  # adjacent, with a remainder
        ((1, 2, 20, 30), {"lengths": (9, 9), "stride": (2, 3)}),  # large
        ((2, 3, 17), {"lengths": (4,), "stride": (3,)}),
        ((1, 2, 5, 6, 7), {"lengths": (2, 3, 2), "padding": (1, 0, 1), "stride": (1, 2, 1)}),
        ((1, 1, 4, 4), {"lengths": (1, 1)}),
    ],
)
def test_windows(dims: tuple[int, ...], given: dict[str, Any]) -> None:
    x = np.random.default_rng(0).standard_normal(dims).astype(np.float32)
    check(Im2col(**given), x, tolerance=0.0)


@pytest.mark.parametrize(
    ("op", "dims"),
    [
        (Im2col(lengths=(2, 2)), (3, 4, 5)),
        (Im2col(lengths=(2, 2), stride=(2, 2)), (3, 4, 5)),
        (Im2col(lengths=(9, 9)), (1, 10, 12)),
        (Dft(axis=1), (18, 1)),
        (Dft(axis=1, dft_length=17), (20, 5, 2)),
        (Stft(frame_step=2, frame_length=4), (9, 1)),
    ],
    ids=str,
)
def test_an_open_batch(op: Any, dims: tuple[int, ...]) -> None:
    made = decomposed(op, [mgx.Shape.of(mgx.dtype.float32, [fresh("n"), *dims])])
    assert isinstance(made, mgx.Module)
    x = np.random.default_rng(0).standard_normal((3, *dims)).astype(np.float32)
    np.testing.assert_allclose(Interpreter().run(made, [x])[0], op.compute(x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", PRECISE)
@pytest.mark.parametrize(("dims", "axis"), [((2, 24), 1), ((3, 19, 5), 1), ((3, 7, 17), 2), ((21, 4, 6), 0)])
def test_transforms(dims: tuple[int, ...], axis: int, dtype: str) -> None:
    rng = np.random.default_rng(0)
    for kind, inverse, onesided, length in itertools.product((1, 2), (False, True), (False, True), (0, 16, 23, 25)):
        if onesided and not inverse and kind == 2:
            continue
        op = Dft(axis=axis, inverse=inverse, onesided=onesided, dft_length=length)
        check(op, rng.standard_normal((*dims, kind)).astype(dtype), tolerance=PRECISE[dtype])


@pytest.mark.parametrize("dtype", PRECISE)
@pytest.mark.parametrize(
    ("dims", "axis"), [((2, 24), 1), ((3, 19, 5), 1), ((2, 3, 45), 2), ((30, 4, 2), 0), ((1, 121), 1)]
)
def test_transforms_in_two_steps(dims: tuple[int, ...], axis: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fourier, "LARGEST", 0)
    rng = np.random.default_rng(0)
    for kind, inverse, onesided, length in itertools.product((1, 2), (False, True), (False, True), (0, 16, 23)):
        if not onesided or (kind == 1 and not inverse):
            op = Dft(axis=axis, inverse=inverse, onesided=onesided, dft_length=length)
            check(op, rng.standard_normal((*dims, kind)).astype(dtype), tolerance=PRECISE[dtype])


@pytest.mark.parametrize("dtype", PRECISE)
@pytest.mark.parametrize(("dims", "axis"), [((2, 1025), 1), ((1040, 3), 0), ((2, 600), 1), ((3, 2048), 1)])
def test_long_transforms(dims: tuple[int, ...], axis: int, dtype: str) -> None:
    rng = np.random.default_rng(0)
    for kind, inverse, onesided, length in itertools.product((1, 2), (False, True), (False, True), (1040, 2047)):
        if onesided and not inverse and kind == 2:
            continue
        op = Dft(axis=axis, inverse=inverse, onesided=onesided, dft_length=length)
        check(op, rng.standard_normal((*dims, kind)).astype(dtype), tolerance=PRECISE[dtype])


@pytest.mark.parametrize("limit", [0, LARGEST])
@pytest.mark.parametrize(("dims", "axis"), [((2, 0, 24), 2), ((0, 3, 24), 2), ((2, 24, 0), 1), ((0, 2, 3, 24), 3)])
def test_transforms_of_no_elements(
    dims: tuple[int, ...], axis: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fourier, "LARGEST", limit)
    for kind, inverse in itertools.product((1, 2), (False, True)):
        x = np.zeros((*dims, kind), np.float32)
        op = Dft(axis=axis, inverse=inverse)
        found = spelled_out(op, x)
        assert found is not None
        assert (found.shape, found.dtype) == (op.compute(x).shape, x.dtype)


def test_frames_in_two_steps_of_an_open_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fourier, "LARGEST", 0)
    made = decomposed(Stft(frame_step=7, frame_length=24), [mgx.Shape.of(mgx.dtype.float32, [fresh("n"), 80, 1])])
    assert isinstance(made, mgx.Module)
    x = np.random.default_rng(0).standard_normal((3, 80, 1)).astype(np.float32)
    wanted = Stft(frame_step=7, frame_length=24).compute(x)
    np.testing.assert_allclose(Interpreter().run(made, [x])[0], wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("n", "elements"), [(1000, 110_000), (1021, 4_200_000)])  # 25 * 40, and a prime number
def test_matrices_of_long_transforms_are_small_if_the_length_has_divisors(n: int, elements: int) -> None:
    made = decomposed(Dft(axis=1), [mgx.Shape("float64", [1, n, 2])])
    assert isinstance(made, mgx.Module)
    assert elements / 2 < sum(i.shape.elements() for i in made if i.is_literal) < elements


def test_cropped_elements_do_not_matter() -> None:
    x = np.ones((1, 18, 1), np.float32)
    x[0, 16] = np.nan
    check(Dft(axis=1, dft_length=16), x, tolerance=1e-6)


@pytest.mark.parametrize("dtype", PRECISE)
@pytest.mark.parametrize("n", [1, 2, 5, 8, SHORTEST - 1])
def test_short_transforms(n: int, dtype: str) -> None:
    rng = np.random.default_rng(n)
    for kind, onesided, length in itertools.product((1, 2), (False, True), (0, 3, 12)):
        if kind == 1 or not onesided:
            x = rng.standard_normal((2, n, 3, kind)).astype(dtype)
            check(Dft(axis=1, onesided=onesided, dft_length=length), x, tolerance=PRECISE[dtype])


def test_long_transforms_and_short_inverse_ones_stay() -> None:
    for length in (1031, 2 * 1031, 1 << 16):  # a prime number, twice a prime, and 256 * 256
        assert length > LONGEST
        assert spelled_out(Dft(axis=1), np.zeros((1, length, 1), np.float32)) is None
        assert spelled_out(Stft(frame_step=1, frame_length=length), np.zeros((1, length, 1), np.float32)) is None
    assert spelled_out(Dft(axis=1, inverse=True), np.zeros((1, SHORTEST - 1, 1), np.float32)) is None


@pytest.mark.parametrize("dtype", PRECISE)
@pytest.mark.parametrize("onesided", [True, False])
@pytest.mark.parametrize("windowed", [True, False])
def test_transforms_of_frames(dtype: str, onesided: bool, windowed: bool) -> None:
    rng = np.random.default_rng(0)
    signal = rng.standard_normal((2, 50, 1)).astype(dtype)
    window = rng.random(10).astype(dtype) if windowed else None
    check(Stft(frame_step=4, frame_length=10, onesided=onesided), signal, None, window, tolerance=PRECISE[dtype])


@pytest.mark.parametrize(
    ("dims", "given"),
    [
        ((2, 3, 9, 8), {"lengths": (3, 2)}),
        ((2, 3, 9, 8), {"lengths": (3, 2), "padding": (1, 1, 2, 0), "stride": (2, 1), "dilations": (2, 3)}),
        ((1, 5, 11), {"lengths": (3,), "padding": (1,), "stride": (2,), "ceil_mode": True}),
        ((1, 5, 12), {"lengths": (3,), "padding": (1, 0), "stride": (4,), "ceil_mode": True}),
        # windows that would begin in the padding at the end are left out
        ((2, 1, 6), {"lengths": (2,), "padding": (0, 2), "ceil_mode": True}),
        ((1, 2, 5, 2), {"lengths": (4, 1), "padding": (1, 1, 3, 2), "dilations": (2, 1), "ceil_mode": True}),
        ((1, 1, 7, 9), {"lengths": (4, 2), "padding_mode": "same_lower", "stride": (2, 3)}),
        ((1, 2, 5, 6, 7), {"lengths": (2, 3, 2), "padding": (1, 0, 1), "stride": (1, 2, 1)}),
        ((2, 3, 4, 5), {"dyn_global": True}),
    ],
)
@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("mode", [("average", 2), ("lpnorm", 1), ("lpnorm", 2), ("lpnorm", 3)], ids=str)
def test_windows_as_convolutions(dims: Any, given: Any, mode: tuple[str, int], counted: bool) -> None:
    op = mgx.op("pooling", mode=mode[0], lp_order=mode[1], count_include_pad=counted, **given)
    x = np.random.default_rng(3).standard_normal(dims).astype(np.float32)
    check(op, x, tolerance=1e-6)
    assert spelled_out(op, x.astype(np.float16)) is None
    assert spelled_out(op.replace(mode="max"), x) is None
