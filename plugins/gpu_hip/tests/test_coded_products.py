"""Products with quantized weights, compared with the reference."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.ops.coded_product import DequantDot
from mgx_gpu_hip.codegen.coded_tiles import lane_bytes, tiled_codes, tiled_numbers
from mgx_gpu_hip.codegen.source import DeviceTraits, Tensor
from mgx_gpu_hip.compile.compiler import wave_of
from mgx_gpu_hip.runtime.device import Properties
from mgx_gpu_hip.target import GpuTarget

CASES = [  # rows, k, n, bits, block, zero points
    ((1,), 256, 40, 4, 128, True),
    ((3, 5), 300, 33, 4, 64, False),
    ((2,), 2048, 24, 4, 128, False),
    ((9,), 96, 17, 4, 32, True),
    ((4,), 200, 19, 8, 200, True),
    ((1,), 640, 130, 8, 128, False),
    ((2,), 33, 9, 4, 16, True),
    ((2,), 16, 8, 4, 32, False),
    ((1,), 2048, 40, 4, 128, False),  # several parts of k per wave
    ((1, 11), 512, 48, 4, 64, True),
    ((1,), 1536, 50, 8, 256, True),
    ((3,), 192, 33, 4, 32, True),
]


def drawn_weights(
    rng: np.random.Generator, n: int, k: int, bits: int, block: int, zeros: bool, largest: float
) -> list[Any]:
    """Returns codes, scales from 0.01 to `largest` and optionally zero points of n columns in blocks along k."""
    blocks = -(-k // block)
    width = k if bits == 8 else blocks * block // 2
    weights: list[Any] = [
        rng.integers(0, 256, (n, width)).astype(np.uint8),
        rng.uniform(0.01, largest, (n, blocks)).astype(np.float32),
    ]
    if zeros:
        weights.append(rng.integers(0, 1 << bits, (n, blocks)).astype(np.uint8))
    return weights


@pytest.mark.pairs
@pytest.mark.parametrize("device", [0, 1], ids=["wave32", "wave64"])
@pytest.mark.parametrize("of", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("case", range(len(CASES)))
def test_few_rows(case: int, of: str, device: int) -> None:
    rng = np.random.default_rng(case)
    rows, k, n, bits, block, zeros = CASES[case]
    kind = dt.of(of)
    given = rng.standard_normal((*rows, k)).astype(kind.numpy)
    weights = drawn_weights(rng, n, k, bits, block, zeros, 0.1)
    op = DequantDot(bits=bits, block_size=block)
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape(kind, [*rows, k]))
    m.add_return([m.add(op, x, *(m.add_literal(a) for a in weights))])
    program.compile(GpuTarget("host", device))
    got = program.run({"x": given})[0].to_numpy().astype(np.float64)
    wanted = op.compute(given.astype(np.float32), *weights).astype(np.float64)
    (instance,) = program.executable.instances()
    assert [s.name.split("_")[0] for s in instance.runner.schedule.steps] == ["coded"]
    np.testing.assert_allclose(got, wanted, rtol=0, atol=np.abs(wanted).max() * max(2 * kind.epsilon, 2e-6))


def test_zero_points_are_any_bytes() -> None:
    """Zero points of codes of 4 bits beyond their range, which is 16, on matrix units."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((1, 256)).astype(np.float16)
    codes, scale, _ = drawn_weights(rng, 48, 256, 4, 128, True, 0.01)
    points = (np.arange(96).reshape(48, 2) * 5 % 256).astype(np.uint8)
    op = DequantDot(bits=4, block_size=128)
    program = mgx.Program()
    m = program.get_main_module()
    given = m.add_parameter("x", mgx.Shape("half", [1, 256]))
    m.add_return([m.add(op, given, *map(m.add_literal, (codes, scale, points)))])
    program.compile(GpuTarget("host", 1))
    got = program.run({"x": x})[0].to_numpy().astype(np.float64)
    wanted = op.compute(x.astype(np.float32), codes, scale, points).astype(np.float64)
    np.testing.assert_allclose(got, wanted, rtol=2e-3, atol=np.abs(wanted).max() * 2e-4)


FINISHED = [  # rows, k, n, bits, block, zero points
    ((1,), 256, 40, 4, 128, True),
    ((3, 5), 300, 33, 4, 64, False),
    ((1, 1), 640, 130, 8, 128, False),
    ((9,), 96, 17, 4, 32, True),
]


@pytest.mark.parametrize(("of", "device"), [("float32", 1), ("float16", 0), ("bfloat16", 1)])
@pytest.mark.parametrize("case", range(len(FINISHED)))
def test_the_epilogue_is_in_the_same_launch(case: int, of: str, device: int) -> None:
    rng = np.random.default_rng(case)
    rows, k, n, bits, block, zeros = FINISHED[case]
    kind = dt.of(of)
    x, r = (rng.standard_normal((*rows, size)).astype(kind.numpy) for size in (k, n))
    bias = rng.standard_normal(n).astype(kind.numpy)
    weights = drawn_weights(rng, n, k, bits, block, zeros, 0.02)
    op = DequantDot(bits=bits, block_size=block)
    program = mgx.Program()
    m = program.get_main_module()
    given, other = (m.add_parameter(w, mgx.Shape(kind, v.shape)) for w, v in (("x", x), ("r", r)))
    y = m.add(op, given, *(m.add_literal(a) for a in weights))
    y = m.add(mgx.op("add"), y, m.add(mgx.op("multibroadcast", out_lens=[*rows, n]), m.add_literal(bias)))
    y = m.add(mgx.op("tanh"), y)
    m.add_return([m.add(mgx.op("mul"), y, other), y])
    program.compile(GpuTarget("host", device), validate=True)
    made = [v.to_numpy().astype(np.float64) for v in program.run({"x": x, "r": r})]
    sums = op.compute(x.astype(np.float32), *weights).astype(np.float64)
    first = np.tanh(sums + bias.astype(np.float64))
    (instance,) = program.executable.instances()
    assert [s.name.split("_")[0] for s in instance.runner.schedule.steps] == ["coded"]
    for got, wanted in zip(made, (first * r.astype(np.float64), first), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=np.abs(wanted).max() * max(4 * kind.epsilon, 2e-5))


def test_products_of_one_row_share_a_launch() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((1, 256)).astype(np.float16)
    program = mgx.Program()
    m = program.get_main_module()
    given = [m.add_parameter(name, mgx.Shape("half", [1, 256])) for name in "xy"]
    op = DequantDot(bits=4, block_size=128)
    sides = [
        (rng.integers(0, 256, (n, 128)).astype(np.uint8), rng.uniform(0.01, 0.1, (n, 2)).astype(np.float32))
        for n in (40, 24)
    ]
    m.add_return([m.add(op, g, *(m.add_literal(a) for a in side)) for g, side in zip(given, sides, strict=True)])
    program.compile(GpuTarget("host", 1), validate=True)
    results = program.run({"x": x, "y": x})
    (instance,) = program.executable.instances()
    assert len(instance.runner.schedule.steps) == 1
    for got, side in zip(results, sides, strict=True):
        wanted = op.compute(x.astype(np.float32), *side)
        np.testing.assert_allclose(got.to_numpy(), wanted, rtol=0, atol=np.abs(wanted).max() * 2e-3)


@pytest.mark.parametrize(("of", "device"), [("float32", 0), ("float16", 0), ("float16", 1), ("bfloat16", 1)])
@pytest.mark.parametrize("rows", [1, 3])
def test_gated_halves_are_one_launch(of: str, device: int, rows: int) -> None:
    """SwiGLU of two products with codes: the products are joined, and the kernel combines their sums."""
    rng = np.random.default_rng(rows)
    kind, n, k = dt.of(of), 88, 256
    x = rng.standard_normal((rows, k)).astype(kind.numpy)
    op = DequantDot(bits=4, block_size=128)
    sides = [drawn_weights(rng, n, k, 4, 128, False, 0.02) for _ in range(2)]
    program = mgx.Program()
    m = program.get_main_module()
    given = m.add_parameter("x", mgx.Shape(kind, [rows, k]))
    gate, up = (m.add(op, given, *(m.add_literal(a) for a in side)) for side in sides)
    m.add_return([m.add(mgx.op("mul"), m.add(mgx.op("mul"), gate, m.add(mgx.op("sigmoid"), gate)), up)])
    program.compile(GpuTarget("host", device), validate=True)
    got = program.run({"x": x})[0].to_numpy().astype(np.float64)
    g, u = (op.compute(x.astype(np.float32), *side).astype(np.float64) for side in sides)
    wanted = g / (1 + np.exp(-g)) * u
    (instance,) = program.executable.instances()
    assert [s.name.split("_")[0] for s in instance.runner.schedule.steps] == ["coded"]
    np.testing.assert_allclose(got, wanted, rtol=0, atol=np.abs(wanted).max() * max(4 * kind.epsilon, 2e-5))


@pytest.mark.parametrize(
    ("arch", "size"), [("sm_90", 16), ("sm_75", None), ("gfx90a", None), ("host32", 16), ("host64", None)]
)
def test_matrix_units_multiply_codes_where_a_device_has_them(arch: str, size: int | None) -> None:
    device = Properties("", arch, 4, wave_of(arch), 49152, 49152)
    traits = DeviceTraits(wave=device.wave, arch=device.arch, vendor=device.vendor)
    codes = Tensor(dt.uint8, (32, 1024), (1024, 1))
    assert lane_bytes(DequantDot(bits=4, block_size=128), dt.float16, 2048, codes, False, traits) == size


def _split(stored: Any, bits: int, halves: bool) -> list[int]:
    """Returns the codes in bytes; halves: codes 2 i and 2 i + 1 of a 32-bit word begin at bits `bits` * i and 16 above."""
    places = [n // 2 * bits + n % 2 * 16 if halves else n * bits for n in range(32 // bits)]
    return [int(word) >> at & (1 << bits) - 1 for word in np.ascontiguousarray(stored).view("<u4") for at in places]


@pytest.mark.parametrize(("bits", "parts", "n"), [(4, 1, 40), (8, 2, 48), (4, 2, 20)])
def test_codes_in_tiles_are_stored_where_lanes_read_them(bits: int, parts: int, n: int) -> None:
    """Codes, scales and zero columns after the last one, at the positions that the kernel computes."""
    rng = np.random.default_rng(n)
    size, of_byte = 8, 8 // bits
    piece = 4 * size * of_byte
    k, apart = 3 * piece, n // parts
    codes, scale = drawn_weights(rng, n, k, bits, piece, False, 1.0)
    tiles = tiled_codes(codes, bits, size, k // of_byte, parts)
    numbers = tiled_numbers(scale, 3, parts)
    each = -(-apart // 16)
    assert tiles.shape == (parts * each, 3, 64 * size) and numbers.shape == (parts * each, 3, 16)
    for part, column, at in ((0, 0, 0), (parts - 1, apart - 1, 2), (0, apart // 2, 1), (parts - 1, each * 16 - 1, 2)):
        tile, inside = part * each + column // 16, column % 16
        half, g = divmod(inside, 8)
        got = tiles[tile, at].reshape(2, 8, 4 * size)[half, g]
        if column < apart:
            row = part * apart + column
            np.testing.assert_array_equal(
                _split(got, bits, True), _split(codes[row, at * 4 * size : (at + 1) * 4 * size], bits, False)
            )
            assert numbers[tile, at, inside] == scale[row, at]
        else:
            assert not got.any() and numbers[tile, at, inside] == 0


class Normed(NamedTuple):
    """A program of a sum, its RMS norm and gated products of the normed row with codes, and its float64 reference."""

    program: mgx.Program
    feed: dict[str, Any]
    wanted: list[Any]

    @classmethod
    def of(cls, rows: int, k: int, gated: bool, stored: bool, n: int = 88) -> Normed:
        """gated: SwiGLU of two products instead of one product; stored: the sum is a result too, as the residual of a layer."""
        rng = np.random.default_rng(k + rows)
        program = mgx.Program()
        m = program.get_main_module()

        def add(name: str, *xs: Any, **attributes: Any) -> Any:
            return m.add(mgx.op(name, **attributes), *xs)

        feed = {name: rng.standard_normal((rows, k)).astype(np.float16) for name in "xr"}
        x, r = (m.add_parameter(name, mgx.Shape("half", [rows, k])) for name in feed)
        total = add("add", x, r)
        y = add("convert", total, target_type=dt.float32)
        square = add("reduce_mean", add("mul", y, y), axes=[1])
        factor = add("rsqrt", add("add", square, m.add_literal(np.full((rows, 1), 1e-5, np.float32))))
        y = add("convert", add("mul", y, add("multibroadcast", factor, out_lens=[rows, k])), target_type=dt.float16)
        op = DequantDot(bits=4, block_size=128)
        sides = [drawn_weights(rng, n, k, 4, 128, True, 0.02) for _ in range(1 + gated)]
        sums = [m.add(op, y, *(m.add_literal(a) for a in side)) for side in sides]
        out = add("mul", add("mul", sums[0], add("sigmoid", sums[0])), sums[1]) if gated else sums[0]
        m.add_return([out, total] if stored else [out])
        wide = (feed["x"] + feed["r"]).astype(np.float64)
        row = (wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5)).astype(np.float16).astype(np.float32)
        g, *u = (op.compute(row, *side).astype(np.float64) for side in sides)
        result = g / (1 + np.exp(-g)) * u[0] if gated else g
        return cls(program, feed, [result, wide] if stored else [result])

    def steps(self, device: int) -> list[str]:
        """Returns the words of the launches on an emulated device; compares the results with the reference."""
        self.program.compile(GpuTarget("host", device), validate=True)
        made = [v.to_numpy().astype(np.float64) for v in self.program.run(self.feed)]
        for got, wanted in zip(made, self.wanted, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=0, atol=np.abs(wanted).max() * 4 * dt.float16.epsilon)
        (instance,) = self.program.executable.instances()
        return [s.name.rpartition("_")[0] for s in instance.runner.schedule.steps]


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(("k", "gated"), [(256, True), (1024, False), (1152, True), (2048, True)])
def test_the_norm_of_one_row_is_in_the_launch_of_its_product(k: int, gated: bool, stored: bool) -> None:
    assert Normed.of(1, k, gated, stored).steps(1) == ["coded_product_made"]


def test_the_norm_of_several_rows_is_a_launch_of_its_own() -> None:
    _, product = Normed.of(2, 256, True, True).steps(1)
    assert product == "coded_product"


def test_the_norm_before_many_columns_is_a_launch_of_its_own() -> None:
    """The emulated device has four multiprocessors; 17 blocks would compute the row."""
    assert Normed.of(1, 256, False, True, 16 * 16).steps(1) == ["coded_product_made"]
    _, product = Normed.of(1, 256, False, True, 17 * 16).steps(1)
    assert product == "coded_product"


def test_without_matrix_units_the_epilogue_stays_in_the_launch_of_the_product() -> None:
    """The group with the norm is declined, but not the one within it."""
    _, product = Normed.of(1, 256, True, True).steps(0)
    assert product == "coded_product"


@pytest.mark.parametrize("of_row", [True, False], ids=["row", "sum"])
def test_an_epilogue_that_reads_the_norm_is_not_in_its_launch(of_row: bool) -> None:
    """A residual that is the normed row itself, as after post-norm, or the sum before the norm: these must be in memory."""
    rng = np.random.default_rng(6)
    n = 256
    x, r = (rng.standard_normal((1, n)).astype(np.float16) for _ in range(2))
    weights = drawn_weights(rng, n, n, 4, 128, False, 0.01)
    program = mgx.Program()
    m = program.get_main_module()
    total = m.add(mgx.op("add"), *(m.add_parameter(name, mgx.Shape("half", [1, n])) for name in "xr"))
    y = m.add(mgx.op("convert", target_type=dt.float32), total)
    square = m.add(mgx.op("reduce_mean", axes=[1]), m.add(mgx.op("mul"), y, y))
    factor = m.add(mgx.op("multibroadcast", out_lens=[1, n]), m.add(mgx.op("rsqrt"), square))
    row = m.add(mgx.op("convert", target_type=dt.float16), m.add(mgx.op("mul"), y, factor))
    op = DequantDot(bits=4, block_size=128)
    product = m.add(op, row, *map(m.add_literal, weights))
    m.add_return([m.add(mgx.op("add"), product, row if of_row else total)])
    program.compile(GpuTarget("host", 1), validate=True)
    got = program.run({"x": x, "r": r})[0].to_numpy().astype(np.float64)
    wide = (x + r).astype(np.float64)
    normed = (wide / np.sqrt((wide**2).mean())).astype(np.float16)
    wanted = op.compute(normed.astype(np.float32), *weights).astype(np.float64) + (normed if of_row else wide)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=np.abs(wanted).max() * 4 * dt.float16.epsilon)
    (instance,) = program.executable.instances()
    _, step = [s.name.rpartition("_")[0] for s in instance.runner.schedule.steps]
    assert step == "coded_product"
