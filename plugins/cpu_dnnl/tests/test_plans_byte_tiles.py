"""Products of bytes in tile registers or by dot products: exact sums, and work epilogue them within one unit of the definition."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_cpu_dnnl.int8_depthwise import has_avx512_vnni
from mgx_cpu_dnnl.jit.gemm_epilogue import Product
from mgx_cpu_dnnl.native_library import native
from mgx_cpu_dnnl.target import CpuTarget
from mgx_cpu_dnnl.tile_panels import pack_panels

TILED = native().multiplies_tiles()
pytestmark = pytest.mark.skipif(
    not TILED and not has_avx512_vnni(), reason="the processor has neither tile registers nor dot products for bytes"
)
HOW = "tiles" if TILED else "dots"


@pytest.mark.pairs
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("zero", [None, 0, 100])
@pytest.mark.parametrize(
    ("a", "n"),
    [
        ((9, 64), 64),
        ((3, 40, 70), 33),
        ((32, 24), 130),
        ((512, 70), 16),
        ((49, 1000), 1030),
        ((33, 2048), 320),
        ((100, 65), 1),
    ],
)
def test_sums_of_products_are_exact(
    both: Any, drawn: Any, a: tuple[int, ...], n: int, zero: int | None, kind: Any
) -> None:
    r = np.random.default_rng(n)
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape(dt.of(np.dtype(kind)), list(a)))
    w = main.add_literal(drawn(r, np.int8, (a[-1], n)))
    points = [] if zero is None else [main.add_literal(np.array(zero, kind))]
    main.add_return([main.add(mgx.op("quant_dot"), x, w, *points)])
    got, wanted, steps = both(program, {"x": drawn(r, kind, a)}, threads=2)
    assert any(s.startswith(f"matmul {HOW}") for s in steps)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("a", [(33, 24), (65, 31), (34, 25), (33, 40), (64, 24)])
def test_nothing_is_read_past_the_rows(both: Any, drawn: Any, at_the_end_of_a_page: Any, a: tuple[int, int]) -> None:
    """A load of 64 bytes from the end of a short row covers several rows."""
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape(dt.uint8, list(a)))
    w = main.add_literal(drawn(np.random.default_rng(0), np.int8, (a[1], 16)))
    main.add_return([main.add(mgx.op("quant_dot"), x, w)])
    got, wanted, _ = both(program, {"x": at_the_end_of_a_page(drawn(np.random.default_rng(1), np.uint8, a))})
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.skipif(not TILED, reason="the processor has no tile registers for bytes")
def test_a_process_that_only_loads_code_has_the_tile_registers(tmp_path: Any) -> None:
    """Linux kills a process that uses them without having requested permission."""
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape(dt.uint8, [64, 128]))
    main.add_return([main.add(mgx.op("quant_dot"), x, main.add_literal(np.ones((128, 96), np.int8)))])
    program.compile(CpuTarget())
    program.save(tmp_path / "a.mxr")
    text = f"""
import numpy as np, mgx_core as mgx
program = mgx.load({str(tmp_path / "a.mxr")!r})
assert (np.asarray(program.run({{"x": np.ones((64, 128), np.uint8)}})[0]) == 128).all()
assert program.executable.notes == []
"""
    subprocess.run([sys.executable, "-c", text], check=True)


@pytest.mark.parametrize("x", [(1, 64, 8, 8), (2, 24, 7, 7), (3, 100, 5), (1, 30, 2, 3, 4)])
def test_sums_of_convolutions_are_exact(both: Any, drawn: Any, x: tuple[int, ...]) -> None:
    r = np.random.default_rng(1)
    program = mgx.Program()
    main = program.get_main_module()
    given = main.add_parameter("x", mgx.Shape(dt.uint8, list(x)))
    w = main.add_literal(drawn(r, np.int8, (70, x[1], *(1 for _ in x[2:]))))
    axes = len(x) - 2
    op = mgx.op("quant_convolution", stride=(1,) * axes, dilation=(1,) * axes, padding=(0,) * axes)
    main.add_return([main.add(op, given, w, main.add_literal(np.uint8(7)))])
    got, wanted, steps = both(program, {"x": drawn(r, np.uint8, x)})
    assert any(s.startswith(f"conv {HOW}") for s in steps)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("zero", [0, 5])
@pytest.mark.parametrize("n", [64, 100])
def test_epilogues_end_within_one_unit(both: Any, drawn: Any, n: int, zero: int, kind: Any) -> None:
    """A bias, rounding, a sum with other bytes, relu and rounding; oneDNN's tile kernels run before and after."""
    r = np.random.default_rng(2)
    program = mgx.Program()
    main = program.get_main_module()

    def add(name: str, *inputs: Any, **attributes: Any) -> Any:
        return main.add(mgx.op(name, **attributes), *inputs)

    def scaled(name: str, x: Any, scale: float, point: int) -> Any:
        return add(name, x, main.add_literal(np.float32(scale)), main.add_literal(np.array(point, kind)))

    def convolved(x: Any, lens: tuple[int, ...], scale: float) -> Any:
        numbers = r.uniform(0.5 * scale, scale, lens[0]).astype(np.float32)
        w = add(
            "dequantizelinear",
            main.add_literal(r.integers(-127, 128, lens, np.int8)),
            main.add_literal(numbers),
            axis=0,
        )
        side = lens[-1] // 2
        made = add("convolution", x, w, padding=(side, side, side, side))
        bias = main.add_literal(r.normal(0, 1, (1, lens[0], 1, 1)).astype(np.float32))
        return add("add", made, add("multibroadcast", bias, out_lens=tuple(made.shape.lens())))

    x = main.add_parameter("x", mgx.Shape(dt.of(np.dtype(kind)), [1, 32, 9, 9]))
    wide = scaled("dequantizelinear", x, 0.05, zero)
    first = scaled("quantizelinear", convolved(wide, (48, 32, 3, 3), 0.01), 0.8, zero)
    other = scaled("quantizelinear", convolved(wide, (n, 32, 1, 1), 0.02), 0.5, zero)
    inner = convolved(scaled("dequantizelinear", first, 0.8, zero), (n, 48, 1, 1), 0.01)
    inner = scaled("dequantizelinear", scaled("quantizelinear", inner, 0.9, 3), 0.9, 3)
    total = add("relu", add("add", inner, scaled("dequantizelinear", other, 0.5, zero)))
    last = scaled("dequantizelinear", scaled("quantizelinear", total, 1.1, zero), 1.1, zero)
    main.add_return([scaled("quantizelinear", convolved(last, (24, n, 3, 3), 0.01), 12.0, zero)])
    got, wanted, steps = both(program, {"x": drawn(r, kind, (1, 32, 9, 9))})
    assert sum(s.startswith(f"conv {HOW}") for s in steps) == 2
    apart = np.abs(got.astype(np.int64) - wanted.astype(np.int64))
    assert np.ptp(wanted.astype(np.int64)) > 60
    # if a sum is half way between two units, the last one may differ, and the last convolution sums such units
    assert apart.max() <= 2
    assert (apart > 0).mean() < 0.02


def test_epilogues_equal_after_rewriting_number_their_operands_equally() -> None:
    """acc s + y and y + acc s share code, though they read s and y in a different order."""
    made = []
    for product_first in (True, False):
        body = mgx.Module("work")
        acc, s, y = (
            body.add_parameter(name, mgx.Shape(kind, [35, 64]))
            for name, kind in (("a", "int32"), ("s", "float32"), ("y", "uint8"))
        )
        wide = [body.add(mgx.op("convert", target_type=dt.float32), x) for x in (acc, y)]
        pair = [body.add(mgx.op("mul"), wide[0], s), wide[1]]
        total = body.add(mgx.op("add"), *(pair if product_first else pair[::-1]))
        rounded = body.add(mgx.op("nearbyint"), total)
        bounds = [
            body.add(mgx.op("multibroadcast", out_lens=(35, 64)), body.add_literal(np.float32(v))) for v in (0, 255)
        ]
        bounded = body.add(mgx.op("clip"), rounded, *bounds)
        body.add_return([body.add(mgx.op("convert", target_type=dt.uint8), bounded)])
        left, result = mgx.Shape(dt.uint8, [35, 40]), mgx.Shape(dt.uint8, [35, 64])
        others = [mgx.Shape("float32", [35, 64], [0, 1]), result]
        epilogue = Product(left, 64, [result], body, 0, others, 1).epilogue((dt.uint8,), dt.int32)
        assert not isinstance(epilogue, mgx.No)
        epilogue.combine(True)
        made.append((epilogue.key_parts, [(x.parameter, step) for x, step, _ in epilogue.loads]))
    assert made[0][0] == made[1][0]
    assert made[0][1] == made[1][1]


@pytest.mark.parametrize("large", [1e5, 1e7, 3e38])
def test_sums_are_not_combined_without_fast_math(both: Any, large: float) -> None:
    """Adding and subtracting a large number rounds: to integers with 1e7, to 0 with 3e38."""
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape(dt.uint8, [26, 42]))
    r = np.random.default_rng(6)
    product = main.add(mgx.op("quant_dot"), x, main.add_literal(r.integers(-127, 128, (42, 64)).astype(np.int8)))

    def number(value: float) -> Any:
        return main.add(mgx.op("multibroadcast", out_lens=(26, 64)), main.add_literal(np.array([value], np.float32)))

    total = main.add(mgx.op("mul"), main.add(mgx.op("convert", target_type=dt.float32), product), number(1e-3))
    total = main.add(mgx.op("sub"), main.add(mgx.op("add"), total, number(large)), number(large))
    points = main.add_literal(np.float32(0.05)), main.add_literal(np.uint8(90))
    main.add_return([main.add(mgx.op("quantizelinear"), total, *points)])
    got, wanted, steps = both(program, {"x": r.integers(0, 256, (26, 42), np.uint8)}, fast_math=False)
    assert any(s.startswith(f"matmul {HOW}") for s in steps)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.skipif(not TILED, reason="the processor has no tile registers for bytes")
def test_large_convolutions_of_whole_steps_are_left_to_the_library(both: Any, drawn: Any) -> None:
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape(dt.uint8, [1, 64, 24, 24]))
    w = main.add_literal(drawn(np.random.default_rng(4), np.int8, (32, 64, 1, 1)))
    main.add_return([main.add(mgx.op("quant_convolution"), x, w)])
    got, wanted, steps = both(program, {"x": drawn(np.random.default_rng(5), np.uint8, (1, 64, 24, 24))})
    assert any(s.startswith("conv ") and "tiles" not in s for s in steps)
    np.testing.assert_array_equal(got, wanted)


def test_panels_hold_each_weight_once() -> None:
    w = np.arange(70 * 81, dtype=np.int64).reshape(70, 81).astype(np.int8)
    packed = pack_panels(w, 64)
    assert packed.ctypes.data % 64 == 0
    assert packed.size == 2 * 64 * 6 * 16
    full, rest = packed[: 2 * 64 * 64].reshape(2, 4, 16, 16, 4), packed[2 * 64 * 64 :].reshape(2, 2, 16, 16, 4)
    assert full[1, 2, 1, 5, 1] == w[64 + 5, 37]
    assert rest[0, 1, 15, 0, 3] == w[63, 80]
    assert not rest[1, 1, 2:].any()


def test_panels_of_dot_products_hold_each_weight_once() -> None:
    w = np.arange(70 * 81, dtype=np.int64).reshape(70, 81).astype(np.int8)
    packed = pack_panels(w, 4)
    assert packed.size == 18 * 4 * 6 * 16
    full, rest = packed[: 18 * 4 * 64].reshape(18, 4, 16, 4), packed[18 * 4 * 64 :].reshape(18, 2, 16, 4)
    assert full[16, 2, 5, 1] == w[65, 37]
    assert rest[15, 1, 0, 3] == w[63, 80]
    assert not rest[17, :, :, 2:].any()


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("types", [(np.int8, np.int8), (np.uint8, np.int8), (np.int8, np.uint8)])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_sums_of_no_products(batch: Any, types: Any, constant: bool) -> None:
    program = mgx.Program()
    main = program.get_main_module()
    x, w = (np.zeros((*batch, *lens), kind) for lens, kind in zip(((5, 0), (0, 15)), types, strict=True))
    feeds = {"x": x} if constant else {"x": x, "w": w}
    given = [main.add_parameter(n, mgx.Shape(mgx.dtype.of(a.dtype), list(a.shape))) for n, a in feeds.items()]
    given += [main.add_literal(w)] if constant else []
    main.add_return([main.add(mgx.op("quant_dot"), *given)])
    program.compile(CpuTarget())
    np.testing.assert_array_equal(program.run(feeds)[0], np.zeros((*batch, 5, 15), np.int32))


@pytest.mark.parametrize("zero", [None, 7])
@pytest.mark.parametrize(
    ("channels", "outputs", "window", "attributes"),
    [
        (32, 48, (3, 3), {"padding": [1, 1]}), (32, 48, (3, 3), {"padding": [1, 1], "stride": [2, 2]}),
        (24, 20, (1, 1), {}), (24, 20, (1, 1), {"stride": [2, 2]}), (16, 40, (3, 2), {"padding": [2, 0, 1, 1], "dilation": [2, 1]}),
        (64, 64, (3, 3), {"padding": [1, 1], "group": 64}), (48, 48, (5, 5), {"padding": [2, 2], "group": 48, "stride": [2, 2]}),
    ],
)  # fmt: skip
def test_convolutions_of_images_of_any_extents(
    agrees_open: Any, channels: int, outputs: int, window: Any, attributes: dict[str, Any], zero: int | None
) -> None:
    r = np.random.default_rng(4)
    w = r.integers(-60, 60, (outputs, channels // attributes.get("group", 1), *window)).astype(np.int8)
    constants = [w] if zero is None else [w, np.array(zero, np.uint8)]
    sizes = [(2, 14, 19), (3, 30, 9), (5, 21, 33), (2, 60, 41)]
    agrees_open(mgx.op("quant_convolution", **attributes), ["b", channels, "h", "w"], constants, sizes, 0.0, "uint8")


def test_products_of_batches_of_any_extents(agrees_open: Any) -> None:
    """The batch is 3 first, as a constant extent of the other operand."""
    r = np.random.default_rng(4)
    w = np.broadcast_to(r.integers(-60, 60, (64, 40)).astype(np.int8), (3, 1, 64, 40))
    agrees_open(mgx.op("quant_dot"), [3, "b", "t", 64], [w], [(3, 9), (2, 30), (9, 17), (4, 64)], 0.0, "uint8")


def test_convolutions_of_volumes_of_any_extents(agrees_open: Any) -> None:
    r = np.random.default_rng(4)
    constants = [r.integers(-60, 60, (24, 16, 3, 3, 3)).astype(np.int8), np.array(7, np.uint8)]
    op = mgx.op("quant_convolution", padding=[1, 1, 1])
    agrees_open(op, [1, 16, "d", "h", "w"], constants, [(4, 9, 7), (3, 12, 9), (6, 5, 11)], 0.0, "uint8")
