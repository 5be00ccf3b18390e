"""The kernel of Fourier transforms, compared with numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_trial import generate, run, tensor, traits

from mgx_core import No
from mgx_core.ops.fourier import Dft
from mgx_gpu_hip.codegen.source import KernelSource

CLOSE = {"float64": 1e-14, "float32": 6e-7, "float16": 1e-3, "bfloat16": 8e-3}
KINDS = [
    ({"onesided": True}, 1),
    ({}, 1),
    ({}, 2),
    ({"inverse": True}, 1),
    ({"inverse": True}, 2),
    ({"inverse": True, "onesided": True}, 1),
    ({"inverse": True, "onesided": True}, 2),
]
kinds = pytest.mark.parametrize(
    ("given", "parts"), KINDS, ids=["half", "real", "complex", "back_real", "back", "half_back_real", "half_back"]
)
waves = pytest.mark.parametrize("wave", [32, 64])


def check(op: Dft, dims: tuple[int, ...], of: str = "float32", wave: int = 32, **layouts: Any) -> KernelSource:
    """Checks the kernel for random operands; layouts: strides of the operand (`x`) and of the result (`y`)."""
    x = np.random.default_rng(sum(dims)).standard_normal(dims).astype(tensor(of, dims).dtype.numpy)
    wanted = op.compute(x.astype(np.float64))
    a, b = tensor(of, dims, layouts.get("x")), tensor(of, wanted.shape, layouts.get("y"))
    source = generate(op, [a], [b], traits(wave))
    assert isinstance(source, KernelSource), source
    (got,) = run(source, [x], [a], [b], wave)
    largest = np.abs(wanted).max()
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=0, atol=CLOSE[of] * largest)
    return source


def of_length(n: int, given: dict[str, Any], parts: int) -> tuple[Dft, int]:
    """Returns a transform of n numbers, and how many are given."""
    half = given.get("inverse") and given.get("onesided")
    return Dft(**given, **({"dft_length": n} if half else {})), n // 2 + 1 if half else n


@waves
@kinds
@pytest.mark.parametrize("n", [64, 98, 75, 600])
def test_lengths(n: int, given: dict[str, Any], parts: int, wave: int) -> None:
    op, taken = of_length(n, given, parts)
    assert len(check(op, (3, taken, parts), wave=wave).launches) == 1


@kinds
@pytest.mark.parametrize("of", ["float64", "float16", "bfloat16"])
def test_types(of: str, given: dict[str, Any], parts: int) -> None:
    op, taken = of_length(96, given, parts)
    check(op, (2, 5, taken, parts), of)


@waves
@kinds
def test_transforms_along_other_axes(given: dict[str, Any], parts: int, wave: int) -> None:
    """Adjacent transforms share a block, so that it reads and writes whole lines of memory."""
    op, taken = of_length(32, given, parts)
    source = check(op.replace(axis=1), (2, taken, 21, parts), wave=wave)
    assert source.launches[0].grid[0] == 3  # 42 transforms


@waves
@kinds
@pytest.mark.parametrize("n", [80, 75])
def test_layouts(n: int, given: dict[str, Any], parts: int, wave: int) -> None:
    """Rows at odd distances, parts apart from each other, and planes of parts."""
    op, taken = of_length(n, given, parts)
    outputs, made = op.infer(tensor("float32", (2, taken, parts)).shape).dims[1:]
    apart = {"x": (taken * parts * 3 + 1, parts * 3, 3), "y": (outputs * made * 3 + 2, made * 3, 3)}
    check(op, (2, taken, parts), wave=wave, **apart)
    planes = {"x": (taken * parts, 1, taken), "y": (outputs * made, 1, outputs)}
    check(op, (2, taken, parts), wave=wave, **planes)


@pytest.mark.parametrize("given", [1, 33, 63, 64, 100])
@pytest.mark.parametrize("parts", [1, 2])
def test_missing_numbers_are_zero_and_others_unread(given: int, parts: int) -> None:
    check(Dft(dft_length=64), (3, given, parts))
    if parts == 1:
        check(Dft(dft_length=64, onesided=True), (3, given, parts))
    check(Dft(dft_length=64, onesided=True, inverse=True), (3, given, parts))
    check(Dft(dft_length=75, onesided=True, inverse=True), (3, given, parts))


@waves
def test_long_transforms(wave: int) -> None:
    check(Dft(onesided=True), (2, 8192, 1), wave=wave)
    check(Dft(inverse=True), (2, 2187, 2), wave=wave)
    source = generate(Dft(), [tensor("float32", (2, 8192, 2))], [tensor("float32", (2, 8192, 2))], traits(wave))
    assert isinstance(source, No) and "bytes of shared memory" in source.why


@pytest.mark.parametrize(("n", "why"), [(48, "is a product"), (1100, "prime factors above 7, got 1100")])
def test_lengths_that_products_compute(n: int, why: str) -> None:
    source = generate(Dft(), [tensor("float32", (2, n, 2))], [tensor("float32", (2, n, 2))], traits())
    assert isinstance(source, No) and why in source.why


def test_the_imaginary_parts_of_real_numbers_are_ignored() -> None:
    """Those of the first and of the middle number of the spectrum of a real signal."""
    op = Dft(inverse=True, onesided=True, dft_length=64)
    x = np.random.default_rng(1).standard_normal((1, 33, 2)).astype(np.float32)
    a, b = tensor("float32", x.shape), tensor("float32", (1, 64, 1))
    results = []
    for imaginary in (0, 5):
        x[:, [0, 32], 1] = imaginary
        results += run(generate(op, [a], [b], traits()), [x], [a], [b])
    np.testing.assert_array_equal(*results)


def test_no_transforms() -> None:
    source = generate(Dft(), [tensor("float32", (0, 64, 2))], [tensor("float32", (0, 64, 2))], traits())
    assert isinstance(source, KernelSource) and not source.launches
