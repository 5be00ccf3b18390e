"""Products with 4-bit weights: one loop for any number of rows; results equal the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_cpu_dnnl.native_library import native
from mgx_cpu_dnnl.shared import shared
from mgx_cpu_dnnl.target import CpuTarget

rng = np.random.default_rng(4)
BYTES = "avx512_vnni" in native().cpu_features()
PARTS = [(2000, 16), (1104, 32), (96, 64)] if BYTES else []  # without dot products of bytes, blocks are whole units
WIDE = shared().engine.wide
TILES = native().multiplies_tiles() and "amx_bf16" in native().cpu_features()


def products(x: Any, operands: list[Any], block: int, bits: int = 4, kept: int = 0) -> tuple[Any, Any, list[str]]:
    """Returns the products here and of the reference implementation, and the kinds of the steps.

    kept: bits of the rows.
    """
    op = mgx.op("dequant_dot", bits=bits, block_size=block, activation_bits=kept)
    program = mgx.Program()
    main = program.get_main_module()
    given = [main.add_literal(o) for o in operands]
    main.add_return([main.add(op, main.add_parameter("x", mgx.Shape("float32", list(x.shape))), *given)])
    program.compile(CpuTarget())
    steps = [s.name.split()[0] for s in program.executable.instances()[-1].runner.schedule.steps]
    with np.errstate(all="ignore"):
        return np.asarray(program.run({"x": x})[0]), op.evaluate([x, *operands]), steps


def coded(bits: int, k: int, n: int, block: int, points: bool) -> list[Any]:
    """Returns codes [n, k] with the scales and, if requested, the zero points of their blocks."""
    blocks = -(-k // block)
    codes = rng.integers(0, 256, (n, blocks * block // 2 if bits == 4 else k)).astype(np.uint8)
    scales = rng.uniform(0.01, 0.1, (n, blocks)).astype(np.float32)
    return [codes, scales, *([rng.integers(0, 1 << bits, (n, blocks)).astype(np.uint8)] if points else [])]


@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize(
    ("rows", "k", "block"),
    [(4, 1104, 32), (5, 1104, 32), (31, 2208, 96), (270, 64, 64), (2, 1000, 16), (31, 1104, 48)],
)
def test_rows_and_blocks_of_any_count(rows: int, k: int, block: int, points: bool) -> None:
    """More rows than one pass processes, rows and columns that do not fill register tiles, blocks across those of the loop."""
    n, blocks = 39, -(-k // block)
    codes = rng.integers(0, 256, (n, blocks * block // 2)).astype(np.uint8)
    operands = [codes, rng.uniform(0.01, 0.1, (n, blocks)).astype(np.float32)]
    if points:
        operands.append(rng.integers(0, 16, (n, blocks)).astype(np.uint8))
    x = rng.standard_normal((rows, k)).astype(np.float32)
    got, wanted, steps = products(x, operands, block)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())
    if TILES and rows >= 16 and block % 32 == 0:
        assert steps == ["pieces", "dequant_dot"]
    else:
        panels = WIDE and rows >= (5 if block % 32 == 0 else 3)
        assert steps == ["dequant_dot"] if panels else ["order", "dequant_dot"]


@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 9])
@pytest.mark.parametrize(("k", "n", "block"), [(1000, 39, 16), (300, 9, 300), (512, 70, 128), (5, 3, 5)])
def test_few_rows_and_codes_of_8_bits(rows: int, k: int, n: int, block: int, points: bool) -> None:
    """Blocks that end within a vector, and weights that do not fill a whole number of streams."""
    blocks = -(-k // block)
    operands = [rng.integers(0, 256, (n, k), np.uint8), rng.uniform(0.01, 0.1, (n, blocks)).astype(np.float32)]
    if points:
        operands.append(rng.integers(0, 256, (n, blocks), np.uint8))
    x = rng.standard_normal((rows, k)).astype(np.float32)
    got, wanted, steps = products(x, operands, block, 8)
    assert steps == ["dequant_dot"]
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.skipif(not WIDE, reason="the processor has no AVX-512")
@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize(
    ("bits", "rows", "k", "n", "block"),
    [
        (4, 7, 1000, 64, 16), (4, 13, 7, 33, 8), (4, 5, 21, 5, 22), (4, 40, 513, 70, 520), (4, 12, 530, 32, 6),
        (8, 3, 1000, 64, 16), (8, 64, 300, 33, 100), (8, 17, 5, 3, 5), (8, 40, 513, 70, 513), (8, 25, 40, 17, 7),
    ],
)  # fmt: skip
def test_codes_that_become_panels_of_floats(bits: int, rows: int, k: int, n: int, block: int, points: bool) -> None:
    """Blocks that end within sixteen bytes, rows that are not a multiple of these, columns that do not fill a panel."""
    operands = coded(bits, k, n, block, points)
    x = rng.standard_normal((rows, k)).astype(np.float32)
    got, wanted, steps = products(x, operands, block, bits)
    assert steps == ["dequant_dot"]
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.skipif(not TILES, reason="the processor has no tile registers for bfloat16")
@pytest.mark.parametrize("block", [32, 2080])
def test_tiles_keep_the_digits_of_floats(block: int) -> None:
    """Numbers of all magnitudes, some infinite or NaN, in blocks larger than those that the loop unpacks at once."""
    rows, n, k = 70, 17, 2080
    operands = [rng.integers(0, 256, (n, k // 2)).astype(np.uint8), np.full((n, k // block), 0.25, np.float32)]
    x = (rng.standard_normal((rows, k)) * 10.0 ** rng.integers(-12, 12, (rows, 1))).astype(np.float32)
    x[0, :] = 3e38
    x[1, 5], x[2, 6], x[3, 7] = np.inf, -np.inf, np.nan
    x[4, :] = np.nextafter(np.float32(1), np.float32(2))
    got, _, _ = products(x, operands, block)
    codes = np.stack([operands[0] & 15, operands[0] >> 4], -1).reshape(n, k).astype(np.float64) - 8
    exact = x[4:].astype(np.float64) @ (0.25 * codes.T)
    size = np.abs(x[4:]).astype(np.float64) @ (0.25 * np.abs(codes.T))
    assert (np.abs(got[4:] - exact) <= 2.0**-20 * size).all()
    assert not np.isfinite(got[1:4]).any()


def exact_product(x: Any, operands: list[Any], block: int) -> tuple[Any, Any]:
    """Returns the product in float64, and the product of magnitudes, each number replaced by the largest of its 128."""
    codes, scale, *points = operands
    numbers = np.stack([codes & 15, codes >> 4], -1).reshape(len(codes), -1).astype(np.float64)
    point = np.repeat(points[0].astype(np.float64), block, 1) if points else 8.0
    weights = ((numbers - point) * np.repeat(scale.astype(np.float64), block, 1))[:, : x.shape[1]]
    most = np.concatenate([np.full_like(u, np.abs(u).max()) for u in np.split(x[0], range(128, x.shape[1], 128))])
    return x.astype(np.float64) @ weights.T, most.astype(np.float64) @ np.abs(weights).T


@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize(("k", "block"), [*PARTS, (1000, 128), (1023, 512), (1100, 1100), (8, 32)])
def test_one_row_in_bytes_keeps_the_digits_of_the_largest_of_128_floats(k: int, block: int, points: bool) -> None:
    """Units of several blocks, blocks of several units, a partial last unit, numbers of very different magnitudes."""
    n, blocks = 39, -(-k // block)
    operands = [rng.integers(0, 256, (n, blocks * block // 2)).astype(np.uint8)]
    operands.append(rng.uniform(0.01, 0.1, (n, blocks)).astype(np.float32))
    if points:
        operands.append(rng.integers(0, 16, (n, blocks)).astype(np.uint8))
    for size in (1.0, 1e-30, 1e30):
        x = (size * (3 + rng.standard_normal((1, k)))).astype(np.float32)
        x[0, rng.integers(0, k, 3)] *= 1000
        got, _, steps = products(x, operands, block)
        exact, size = exact_product(x, operands, block)
        assert steps == ["units", "dequant_dot"]
        assert (np.abs(got - exact) <= 2.0**-22 * size).all()


@pytest.mark.parametrize("code", [0, 15])
def test_sums_of_the_largest_codes_and_numbers_do_not_overflow(code: int) -> None:
    operands = [
        np.full((5, 128), 17 * code, np.uint8),
        np.ones((5, 2), np.float32),
        np.full((5, 2), 15 - code, np.uint8),
    ]
    x = np.full((1, 256), 0.7, np.float32)
    got, wanted, _ = products(x, operands, 128)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
def test_one_row_with_a_number_that_is_not_finite(number: float) -> None:
    """Infinities and NaN equal the reference's, also where a code represents 0."""
    operands = [rng.integers(0, 256, (300, 128)).astype(np.uint8), np.full((300, 2), 0.5, np.float32)]
    x = rng.standard_normal((1, 256)).astype(np.float32)
    x[0, 200] = number
    got, wanted, _ = products(x, operands, 128)
    np.testing.assert_array_equal(got, wanted)


def test_one_row_of_zeros_and_of_numbers_too_small_for_a_scale() -> None:
    operands = [rng.integers(0, 256, (9, 128)).astype(np.uint8), np.full((9, 2), 0.5, np.float32)]
    got, _, _ = products(np.zeros((1, 256), np.float32), operands, 128)
    np.testing.assert_array_equal(got, np.zeros((1, 9), np.float32))
    got, wanted, _ = products(np.full((1, 256), 1e-40, np.float32), operands, 128)
    np.testing.assert_allclose(got, wanted, atol=1e-37)


@pytest.mark.pairs
@pytest.mark.parametrize("largest", [1e2, 1e4, 1e6, 1e9])
@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize("block", [32, 128] if BYTES else [128])
def test_one_row_keeps_digits_next_to_a_large_number_with_weight_0(largest: float, points: bool, block: int) -> None:
    """The float result keeps them: the contribution of the large number is 0."""
    operands = [
        rng.integers(0, 256, (40, 128)).astype(np.uint8),
        rng.uniform(0.01, 0.1, (40, 256 // block)).astype(np.float32),
    ]
    operands[0][:, 3] = 0x58
    if points:
        operands.append(np.full((40, 256 // block), 8, np.uint8))
    x = rng.standard_normal((1, 256)).astype(np.float32)
    x[0, 6] = largest
    got, _, _ = products(x, operands, block)
    exact, _ = exact_product(x, operands, block)
    x[0, 6] = 0
    _, size = exact_product(x, operands, block)
    assert (np.abs(got - exact) <= 2.0**-20 * size).all()


@pytest.mark.parametrize("point", [16, 31, 32, 100, 255])
@pytest.mark.parametrize("block", [32, 128])
def test_points_beyond_the_codes(point: int, block: int) -> None:
    operands = [rng.integers(0, 256, (40, 128)).astype(np.uint8), np.full((40, 256 // block), 0.5, np.float32)]
    operands.append(np.full((40, 256 // block), point, np.uint8))
    got, wanted, _ = products(np.full((1, 256), 0.7, np.float32), operands, block)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


@pytest.mark.parametrize("rows", [1, 3, 17, 70])
@pytest.mark.parametrize("size", [32, 128, 256])
@pytest.mark.parametrize("scale", [np.inf, 1e38])
def test_weights_that_are_not_finite(rows: int, size: int, scale: float) -> None:
    """A code of value 0 times an infinite scale is NaN, which a scaled integer sum cannot represent; huge values become inf."""
    codes = rng.integers(0, 256, (20, 500)).astype(np.uint8)
    codes[3] = 0x99
    scales = rng.uniform(0.1, 1, (20, -(-1000 // size))).astype(np.float32)
    scales[1, 0], scales[3, 1], scales[19, 2] = scale, scale, np.nan
    x = rng.standard_normal((rows, 1000)).astype(np.float32)
    x[:, size : 2 * size] = np.abs(x[:, size : 2 * size])
    if size * scales.shape[1] > 1000:
        codes = np.pad(codes, ((0, 0), (0, (size * scales.shape[1] - 1000) // 2)))
    got, wanted, _ = products(x, [codes, scales], size)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-2)


def rounded(x: Any, block: int, bits: int) -> Any:
    """Returns rows in which each part of a block, up to the number of elements in 64 bytes of codes, has a maximum of 127
    steps.
    """
    held = 512 // bits
    parts = np.pad(x, ((0, 0), (0, -x.shape[1] % held))).reshape(len(x), -1, block if held % block == 0 else held)
    most = np.abs(parts).max(-1, keepdims=True)
    factor = np.divide(np.float32(127), most, out=np.zeros_like(most), where=most > 0)
    return (np.rint(parts * factor) * (most / np.float32(127))).reshape(len(x), -1)[:, : x.shape[1]]


@pytest.mark.skipif(not BYTES, reason="the processor has no dot products of bytes")
@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(
    ("rows", "k", "n", "block"),
    [(1, 500, 70, 16), (1, 1000, 39, 32), (1, 640, 7, 64), (1, 1100, 9, 256), (1, 90, 6, 90), (2, 500, 70, 16),
     (13, 1000, 39, 32), (7, 640, 7, 64), (9, 1100, 33, 256), (70, 90, 32, 90)],
)  # fmt: skip
def test_rows_that_may_be_rounded_to_bytes(rows: int, k: int, n: int, block: int, bits: int, points: bool) -> None:
    """Rows and columns that do not fill tiles, partial units and blocks of several, more units than a panel holds."""
    operands = coded(bits, k, n, block, points)
    x = rng.standard_normal((rows, k)).astype(np.float32)
    x[0, 16:32] = 0
    got, exact, steps = products(x, operands, block, bits, 8)
    assert steps == ["round", "dequant_dot"]
    _, wanted, _ = products(rounded(x, block, bits), operands, block, bits)
    largest = np.abs(wanted).max()
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-4 * largest)
    assert 1e-4 * largest < np.abs(got - exact).max() < 0.05 * largest


@pytest.mark.skipif(not BYTES, reason="the processor has no dot products of bytes")
@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("number", [np.inf, np.nan, 1e-40])
def test_rounded_rows_with_numbers_that_have_no_scale(rows: int, number: float) -> None:
    """A non-finite number makes its row NaN, and no other; rows too small for a scale are 0."""
    operands = [rng.integers(0, 256, (40, 128)).astype(np.uint8), np.full((40, 8), 0.5, np.float32)]
    x = np.full((rows, 256), 1e-40, np.float32)
    x[0, 200] = number
    got, _, _ = products(x, operands, 32, kept=8)
    assert np.isnan(got[0]).all() == (number != 1e-40)
    np.testing.assert_array_equal(got[1:], np.zeros((rows - 1, 40), np.float32))


@pytest.mark.parametrize(("bits", "block"), [(4, 48), (8, 40), (4, 8)])
def test_blocks_that_parts_of_units_do_not_fill_keep_floats(bits: int, block: int) -> None:
    operands = [
        rng.integers(0, 256, (7, 240 * bits // 8)).astype(np.uint8),
        rng.uniform(0.1, 1, (7, 240 // block)).astype(np.float32),
    ]
    x = rng.standard_normal((6, 240)).astype(np.float32)
    got, wanted, steps = products(x, operands, block, bits, 8)
    assert "round" not in steps
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())
