"""Byte look-up tables on the cpu target: every byte, any length, and directly into the memory of a concatenation."""

from __future__ import annotations

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.ops.quantized import ByteMap
from mgx_cpu_dnnl.native_library import native
from mgx_cpu_dnnl.target import CpuTarget

TABLE = np.random.default_rng(3).permutation(256).astype(np.uint8)


def names(program: mgx.Program) -> list[str]:
    return [s.name.split()[0] for s in program.executable.instances()[-1].runner.schedule.steps]


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("length", [1, 63, 64, 65, 300, 70000])
def test_every_byte_of_any_length(kind: str, length: int) -> None:
    x = np.arange(length).astype(np.uint8).view(kind)
    program = mgx.Program()
    m = program.get_main_module()
    m.add_return([m.add(ByteMap(), m.add_parameter("x", mgx.Shape(dt.of(x.dtype), [length])), m.add_literal(TABLE))])
    program.compile(CpuTarget())
    (got,) = program.run({"x": x})
    np.testing.assert_array_equal(np.asarray(got), ByteMap().compute(x, TABLE))
    assert names(program) == ["table"]


def test_loops_agree() -> None:
    if "avx512_vbmi" not in native().cpu_features():
        pytest.skip("the processor cannot permute bytes in registers")
    import ctypes

    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    x = np.random.default_rng(4).integers(0, 256, (5, 100), np.uint8)
    found = []
    for loop in ("map_bytes", "map_bytes_vbmi"):
        out = np.zeros((5, 120), np.uint8)
        buffers = np.array([a.ctypes.data for a in (x, TABLE, out)], np.uint64)
        numbers = np.array([70, 100, 120], np.int64)
        call(native().native_loop(loop))(buffers.ctypes.data, numbers.ctypes.data, 1, 4, None)
        found.append(out)
    np.testing.assert_array_equal(*found)
    np.testing.assert_array_equal(found[0][1:4, :70], TABLE[x[1:4, :70]])
    assert not found[0][0].any() and not found[0][4].any() and not found[0][:, 70:].any()


@pytest.mark.parametrize("length", [1, 31, 32, 33, 300, 4099])
def test_tables_without_avx512_hold_every_byte(length: int) -> None:
    import ctypes

    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    x, out = np.arange(length).astype(np.uint8), np.zeros(length + 1, np.uint8)
    buffers = np.array([a.ctypes.data for a in (x, TABLE, out)], np.uint64)
    numbers = np.zeros(3, np.int64)
    call(native().native_loop("map_bytes"))(buffers.ctypes.data, numbers.ctypes.data, 0, length, None)
    np.testing.assert_array_equal(out[:length], TABLE[x])
    assert out[length] == 0


def test_operands_of_a_concatenation_are_written_in_place() -> None:
    """Channels-last bytes, as convolutions return them, and one operand that is not a table look-up."""
    lens = [1, 24, 9, 9]
    program = mgx.Program()
    m = program.get_main_module()
    given = {n: np.random.default_rng(5).integers(0, 255, lens, np.uint8) for n in "abc"}
    x, y, z = (m.add_parameter(n, mgx.Shape(dt.uint8, lens)) for n in "abc")
    turned = [m.add(mgx.op("transpose", permutation=[0, 2, 3, 1]), v) for v in (x, y, z)]
    tables = [
        m.add(ByteMap(), turned[0], m.add_literal(TABLE)),
        m.add(ByteMap(), turned[1], m.add_literal(TABLE[::-1].copy())),
    ]
    m.add_return([m.add(mgx.op("concat", axis=3), tables[0], turned[2], tables[1])])
    program.compile(CpuTarget())
    (got,) = program.run(given)
    a, b, c = (given[n].transpose(0, 2, 3, 1) for n in "abc")
    np.testing.assert_array_equal(np.asarray(got), np.concatenate([TABLE[a], c, TABLE[::-1][b]], 3))
    # the operand that is not a table look-up, and the result
    assert sorted(names(program)) == ["copy", "copy", "table", "table"]


@pytest.mark.parametrize("optimize", [True, False])
def test_work_becomes_a_table_only_when_optimized(optimize: bool) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x, step = m.add_parameter("x", mgx.Shape(dt.int8, [300])), m.add_literal(np.float32(0.1))
    work = m.add(mgx.op("tanh"), m.add(mgx.op("dequantizelinear"), x, step))
    m.add_return([m.add(mgx.op("quantizelinear", out_type="int8"), work, step)])
    program.compile(CpuTarget(), optimize=optimize)
    assert ("table" in names(program)) == optimize


def test_broadcast_bytes_are_mapped_once_and_results_keep_the_layout_of_the_other_operand() -> None:
    """A statistic per pixel, next to channels-last values."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape(dt.uint8, [2, 5, 5, 24]))
    one = m.add_parameter("one", mgx.Shape(dt.uint8, [2, 1, 5, 5]))
    channels = m.add(mgx.op("transpose", permutation=[0, 3, 1, 2]), x)
    wide = m.add(mgx.op("multibroadcast", out_lens=[2, 24, 5, 5]), one)
    total = m.add(mgx.op("max"), m.add(ByteMap(), wide, m.add_literal(TABLE)), channels)
    m.add_return([m.add(mgx.op("transpose", permutation=[0, 2, 3, 1]), total)])
    program.compile(CpuTarget())
    r = np.random.default_rng(0)
    feed = {"x": r.integers(0, 256, (2, 5, 5, 24), np.uint8), "one": r.integers(0, 256, (2, 1, 5, 5), np.uint8)}
    (got,) = program.run(feed)
    wanted = np.maximum(TABLE[feed["one"]].transpose(0, 2, 3, 1), feed["x"])
    np.testing.assert_array_equal(np.asarray(got), wanted)
    assert names(program) == ["table", "loop"]


def test_scales_of_ranges_are_exact() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape(dt.float32, [20000]))
    steps, one, zero = (m.add_literal(np.array(v, np.float32)) for v in (255, 1, 0))
    high = m.add(mgx.op("max"), m.add(mgx.op("reshape", dims=[]), m.add(mgx.op("reduce_max", axes=[0]), x)), zero)
    low = m.add(mgx.op("min"), m.add(mgx.op("reshape", dims=[]), m.add(mgx.op("reduce_min", axes=[0]), x)), zero)
    span = m.add(mgx.op("div"), m.add(mgx.op("sub"), high, low), steps)
    m.add_return([m.add(mgx.op("where"), m.add(mgx.op("equal"), high, low), one, span)])
    program.compile(mgx.get_target("cpu"))
    for seed in range(20):
        a = np.random.default_rng(seed).standard_normal(20000).astype(np.float32)
        assert np.asarray(program.run({"x": a})[0]) == (a.max() - a.min()) / np.float32(255)
