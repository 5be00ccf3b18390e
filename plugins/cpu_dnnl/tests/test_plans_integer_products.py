"""Products of bytes with epilogues: the steps, and results within one unit of the reference."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_cpu_dnnl.native_library import native
from mgx_cpu_dnnl.target import CpuTarget

rng = np.random.default_rng(8)
pytestmark = pytest.mark.skipif(
    not native().onednn_sums_bytes(), reason="this processor accumulates products of bytes in 16 bits"
)


class Builder:
    """Builds a program of quantized ops."""

    def __init__(self) -> None:
        self.program = mgx.Program()
        self.main = self.program.get_main_module()

    def add(self, name: str, *inputs: Any, **attributes: Any) -> Any:
        return self.main.add(mgx.op(name, **attributes), *inputs)

    def given(self, name: str, *dims: int) -> Any:
        return self.main.add_parameter(name, mgx.Shape(dt.uint8, list(dims)))

    def scales(self, scale: float, zero: int) -> list[Any]:
        return [self.main.add_literal(np.float32(scale)), self.main.add_literal(np.uint8(zero))]

    def wide(self, x: Any, scale: float, zero: int) -> Any:
        return self.add("dequantizelinear", x, *self.scales(scale, zero))

    def narrow(self, x: Any, scale: float, zero: int) -> Any:
        return self.add("quantizelinear", x, *self.scales(scale, zero))

    def convolved(self, x: Any, scale: float) -> Any:
        """A convolution of 16 channels to 24 with windows of one pixel; scale: of the weights."""
        w = self.main.add_literal(rng.integers(-127, 128, (24, 16, 1, 1), np.int8))
        scales = self.main.add_literal(np.full(24, scale, np.float32))
        return self.add("convolution", self.wide(x, 0.05, 128), self.add("dequantizelinear", w, scales, axis=0))

    def compared(self, feed: dict[str, Any], out: Any) -> list[str]:
        """Returns the names of the steps, after checking that the result is within one unit of the reference."""
        self.main.add_return([out])
        self.mine = mine = self.program.clone()
        right = self.program
        mine.compile(CpuTarget())
        right.compile(mgx.get_target("ref"), optimize=False)
        got, wanted = (np.asarray(p.run(feed)[0]).astype(np.int64) for p in (mine, right))
        assert np.ptp(wanted) > 20
        assert np.abs(got - wanted).max() <= 1
        return [s.name.split()[0] for s in mine.executable.instances()[-1].runner.schedule.steps]


def test_a_residual_addition_is_done_by_the_convolution() -> None:
    b = Builder()
    x = b.given("x", 1, 32, 8, 8)
    weights = [b.main.add_literal(rng.integers(-127, 128, (32, 32, 1, 1), np.int8)) for _ in range(2)]
    kinds = [b.main.add_literal(np.full(32, 0.01, np.float32)) for _ in range(2)]
    first, second = (b.add("dequantizelinear", w, s, axis=0) for w, s in zip(weights, kinds, strict=True))
    skip = b.narrow(b.add("convolution", b.wide(x, 0.05, 128), first), 0.1, 120)
    inner = b.narrow(b.add("convolution", b.wide(skip, 0.1, 120), second), 0.7, 130)
    total = b.add("relu", b.add("add", b.wide(inner, 0.7, 130), b.wide(skip, 0.1, 120)))
    steps = b.compared({"x": rng.integers(0, 256, (1, 32, 8, 8), np.uint8)}, b.narrow(total, 0.7, 3))
    assert [s for s in steps if s in ("conv", "loop")] == ["conv", "conv"]


def test_each_of_two_products_that_are_added_ends_in_its_own_work() -> None:
    """No int32 sums are stored and converted by steps of their own."""
    b = Builder()
    x = b.given("x", 1, 16, 6, 6)
    parts = [b.convolved(x, scale) for scale in (0.01, 0.02)]
    steps = b.compared({"x": rng.integers(0, 256, (1, 16, 6, 6), np.uint8)}, b.narrow(b.add("add", *parts), 0.3, 120))
    assert {s for s in steps if s != "copy"} == {"conv"}


def test_a_rounded_product_is_added_by_the_later_one() -> None:
    """The branch of a residual network that changes the number of channels: its bytes are not converted to floats by a
    separate step.
    """
    b = Builder()
    x = b.given("x", 1, 16, 6, 6)
    parts = []
    for n in range(2):
        made = b.narrow(b.convolved(x, 0.01 + 0.01 * n), 0.2, 119 + n)
        parts.append(b.wide(made, 0.2, 119 + n))
    steps = b.compared({"x": rng.integers(0, 256, (1, 16, 6, 6), np.uint8)}, b.narrow(b.add("add", *parts), 0.3, 120))
    assert [s for s in steps if s != "copy"] == ["conv", "conv"]


def test_transposed_left_operands_are_copied_to_row_major() -> None:
    """oneDNN's kernel for transposed left operands takes 60 times as long."""
    b = Builder()
    x = b.given("x", 64, 40)
    w = b.main.add_literal(rng.integers(-127, 128, (64, 32), np.int8))
    wide = b.add("dequantizelinear", w, b.main.add_literal(np.full(32, 0.01, np.float32)), axis=1)
    across = b.add("transpose", b.wide(x, 0.05, 128), permutation=[1, 0])
    steps = b.compared({"x": rng.integers(0, 256, (64, 40), np.uint8)}, b.narrow(b.add("dot", across, wide), 0.3, 120))
    assert steps == ["copy", "matmul"]


def test_unsigned_right_operands_are_multiplied_by_the_library() -> None:
    b = Builder()
    x, y = b.given("x", 2, 3, 40, 32), b.given("y", 2, 3, 40, 32)
    turned = b.add("transpose", b.wide(y, 0.03, 117), permutation=(0, 1, 3, 2))
    product = b.add("dot", b.wide(x, 0.05, 130), turned)
    feed = {n: rng.integers(0, 256, (2, 3, 40, 32), np.uint8) for n in "xy"}
    steps = b.compared(feed, b.narrow(product, 0.6, 100))
    assert "matmul" in steps
    assert "product" not in steps


def test_a_sum_that_cannot_be_in_place_reads_its_operand() -> None:
    """The other operand is read again later."""
    b = Builder()
    x = b.given("x", 1, 16, 5, 5)
    w = b.add("dequantizelinear", b.main.add_literal(rng.integers(-9, 10, (16, 16, 3, 3), np.int8)), b.main.add_literal(np.float32(0.1)))  # fmt: skip
    skip = b.narrow(b.add("convolution", b.wide(x, 0.05, 128), w, padding=(1, 1, 1, 1)), 0.3, 120)
    inner = b.add("convolution", b.wide(skip, 0.3, 120), w, padding=(1, 1, 1, 1))
    total = b.narrow(b.add("add", inner, b.wide(skip, 0.3, 120)), 2.0, 100)
    joined = b.add("concat", b.wide(total, 2.0, 100), b.wide(skip, 0.3, 120), axis=1)
    steps = b.compared({"x": rng.integers(0, 256, (1, 16, 5, 5), np.uint8)}, b.narrow(joined, 2.5, 100))
    assert steps.count("conv") == 2


def test_a_chain_of_sums_of_products_is_stored_in_bytes() -> None:
    """Like skip connections of a WaveNet: each convolution adds the preceding sum in its epilogue."""
    b = Builder()
    x, total = b.wide(b.given("x", 1, 16, 50), 0.05, 128), None
    for n in range(4):
        parts = []
        for _ in range(2):
            w = b.main.add_literal(rng.integers(-127, 128, (16, 16, 1), np.int8))
            wide = b.add("dequantizelinear", w, b.main.add_literal(rng.uniform(0.004, 0.008, 16).astype(np.float32)), axis=0)  # fmt: skip
            parts.append(b.wide(b.narrow(b.add("convolution", x, wide), 0.0837, 120), 0.0837, 120))  # few sums are ties
        x = b.wide(b.narrow(b.add("add", x, parts[0]), 0.1, 128), 0.1, 128)
        total = parts[1] if total is None else b.add("add", total, parts[1])
        total = b.wide(b.narrow(total, 0.1, 110 + n), 0.1, 110 + n)
    out = b.narrow(b.add("add", x, total), 0.23, 128)
    steps = b.compared({"x": rng.integers(0, 256, (1, 16, 50), np.uint8)}, out)
    assert steps.count("conv") == 8
    assert steps.count("loop") <= 1  # oneDNN leaves the last sum to one


@pytest.mark.parametrize("zero", [82, 83])
@pytest.mark.parametrize("kind", ["quant_convolution", "quant_dot"])
def test_numbers_beside_a_tie_are_rounded_before_the_zero_point_is_added(kind: str, zero: int) -> None:
    """12.500001 rounds to 13; with 82 added it is 94.5 in float32, which rounds to 94."""
    b, window = Builder(), kind == "quant_convolution"
    lens = [1, 64, 8, 8] if window else [64, 64]
    picked = np.eye(64, dtype=np.int8)
    if window:
        picked = np.pad(picked[:, :, None, None], ((0, 0), (0, 0), (1, 1), (1, 1)))
    x, w = b.given("x", *lens), b.main.add_parameter("w", mgx.Shape(dt.int8, list(picked.shape)))
    product = b.add(kind, x, w, **({"padding": (1, 1, 1, 1)} if window else {}))
    factor = b.main.add_literal(np.nextafter(np.float32(0.5), np.float32(1)))
    scaled = b.add(
        "mul", b.add("convert", product, target_type=dt.float32), b.add("multibroadcast", factor, out_lens=lens)
    )
    feed = {"x": rng.integers(0, 256, lens, np.uint8), "w": picked}
    b.main.add_return([b.narrow(scaled, 1.0, zero)])
    b.program.compile(CpuTarget())
    got = np.asarray(b.program.run(feed)[0])
    steps = [s.name.split()[0] for s in b.program.executable.instances()[-1].runner.schedule.steps]
    assert ("conv" if window else "matmul") in steps
    assert "loop" not in steps
    np.testing.assert_array_equal(got, (feed["x"].astype(np.int64) + 1) // 2 + zero)


@pytest.mark.parametrize(("channels", "times", "window"), [(48, 2, (7, 7)), (5, 3, (3, 3)), (32, 2, (3,))])
def test_several_results_a_channel_are_depthwise(channels: int, times: int, window: tuple[int, ...]) -> None:
    b = Builder()
    lens = (2, channels, *(12 for _ in window))
    x = b.given("x", *lens)
    w = b.main.add_literal(rng.integers(-127, 128, (channels * times, 1, *window), np.int8))
    scales = b.main.add_literal(np.linspace(0.005, 0.02, channels * times, dtype=np.float32))
    weights = b.add("dequantizelinear", w, scales, axis=0)
    made = b.add("convolution", b.wide(x, 0.05, 131), weights, group=channels, padding=[w // 2 for w in window])
    b.compared({"x": rng.integers(0, 256, lens, np.uint8)}, b.narrow(made, 0.4, 120))
    names = [s.name for s in b.mine.executable.instances()[-1].runner.schedule.steps]
    assert not any("brgconv" in name for name in names), names  # which computes a vector of results per channel


NARROW = """
import numpy as np, mgx_core as mgx
from mgx_cpu_dnnl.native_library import native
known = [f for f in native().cpu_features() if "512" not in f and "amx" not in f]
native().cpu_features = lambda: known
r = np.random.default_rng(2)

def check(op, x, w, *points):
    program = mgx.Program()
    m = program.get_main_module()
    given = m.add_parameter("x", mgx.Shape(x.dtype.name, list(x.shape)))
    operands = [m.add_literal(v) for v in (w, *points)]
    m.add_return([m.add(op, given, *operands)])
    right = program.clone()
    program.compile(mgx.get_target("cpu"))
    right.compile(mgx.get_target("ref"), optimize=False)
    found, wanted = (np.asarray(p.run({"x": x})[0]) for p in (program, right))
    np.testing.assert_array_equal(found, wanted, str(op))

def drawn(kind, *lens):
    return r.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, lens).astype(kind)

for rows in (13, 14, 28):
    check(mgx.op("quant_dot"), drawn("uint8", rows, 64), drawn("int8", 64, 7), np.uint8(0), np.int8(3))
for window in ((2, 4), (4, 2), (2, 5)):
    for channels in (3, 6, 40, 64):
        x, w = drawn("uint8", 2, channels, 8, 9), drawn("int8", channels, 1, *window)
        check(mgx.op("quant_convolution", group=channels, padding=(1, 1, 0, 1)), x, w)
for end in (3, 4):
    op = mgx.op("quant_convolution", padding=(0, 0, 0, end))
    check(op, drawn("uint8", 1, 16, 7, 6), drawn("int8", 16, 16, 1, 5), np.uint8(100))
    check(op, drawn("uint8", 1, 16, 7, 6), drawn("int8", 16, 16, 1, 5))
"""


def test_products_where_the_loops_of_onednn_for_avx2_and_vnni_are_wrong() -> None:
    """oneDNN's ISA limit emulates a processor with dot products of bytes and without AVX-512."""
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2_VNNI"}
    done = subprocess.run([sys.executable, "-c", NARROW], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
