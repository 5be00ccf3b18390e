"""Rounding to 8-bit integers in kernels: equal to the reference at ties, bounds, infinities and NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.errors import DeviceError
from mgx_gpu_hip.compile.compilers import compiler_for
from mgx_gpu_hip.target import GpuTarget

SCALES = [1.0, 0.25, 0.037, 3.3e-5, 1.7e4, 2e-35, 3e33]  # the last two divide
ZEROS = {"int8": [None, -128, 7], "uint8": [None, 128, 3]}


def numbers(scale: float) -> np.ndarray[Any, Any]:
    """Returns ties and adjacent numbers, in and around the range of bytes, and distant numbers."""
    halves = np.arange(-600, 601, dtype=np.float32) / 2 * np.float32(scale)
    around = [np.nextafter(halves, np.float32(way)) for way in (-np.inf, np.inf)]
    drawn = np.random.default_rng(0).standard_normal(2000).astype(np.float32) * np.float32(scale * 60)
    far = np.array([0, -0.0, np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-40, -1e-40], np.float32)
    return np.concatenate([halves, *around, drawn, far])


def run(x: np.ndarray[Any, Any], scale: float, of: str, zero: int | None, device: int) -> tuple[Any, str]:
    """Returns the results of the emulated device and of the reference, and the kernel's source."""
    program = mgx.Program()
    m = program.get_main_module()
    given = [m.add_parameter("x", mgx.Shape(dt.float32, x.shape)), m.add_literal(np.array(scale, np.float32))]
    if zero is not None:
        given.append(m.add_literal(np.array(zero, of)))
    m.add_return([m.add(mgx.op("quantizelinear", out_type=dt.of(of)), *given)])
    wanted = program.clone()
    wanted.compile(mgx.get_target("ref"))
    program.compile(GpuTarget("host", device))
    got = np.asarray(program.run({"x": x})[0])
    (step,) = program.executable.instances()[0].runner.schedule.steps
    return (got, np.asarray(wanted.run({"x": x})[0])), step.source.text


@pytest.mark.pairs
@pytest.mark.parametrize("device", [0, 1], ids=["wave32", "wave64"])
@pytest.mark.parametrize("of", ["int8", "uint8"])
@pytest.mark.parametrize("scale", SCALES)
def test_bytes_are_those_of_the_definition(scale: float, of: str, device: int) -> None:
    with np.errstate(all="ignore"):
        x = numbers(scale)
        for zero in ZEROS[of]:
            (got, wanted), text = run(x, scale, of, zero, device)
            there = ~np.isnan(x)
            np.testing.assert_array_equal(got[there], wanted[there])
            assert not got[~there].any()
            assert "m::nearest" in text and "m::round" not in text


@pytest.mark.parametrize("of", ["float8_e4m3fn", "float8_e5m2"])
def test_8_bit_floats_saturate_in_their_conversion(of: str) -> None:
    """Clipping before a conversion that saturates took four instructions per element."""
    with np.errstate(all="ignore"):
        for scale in (1.0, 0.037, 1.7e4):
            x = np.concatenate(
                [numbers(scale), np.array([447, 448, 449, 463, 464, 465, 480, 57344, 61440, 65536]) * scale]
            )
            (got, wanted), text = run(x.astype(np.float32), scale, of, None, 1)
            np.testing.assert_array_equal(got.astype(np.float32), wanted.astype(np.float32))
            assert "saturated<" in text


def test_bounds_wider_than_the_byte_saturate_where_they_are_stored() -> None:
    """A cast of the rounded number would wrap around."""
    x = np.array([-300.0, -129.0, 2.5, 127.5, 300.0], np.float32)
    program = mgx.Program()
    m = program.get_main_module()
    low, high = (m.add_literal(np.full(x.shape, n, np.float32)) for n in (-200, 200))
    value = m.add(
        mgx.op("clip"), m.add(mgx.op("nearbyint"), m.add_parameter("x", mgx.Shape(dt.float32, x.shape))), low, high
    )
    m.add_return([m.add(mgx.op("convert", target_type=dt.int8), value)])
    program.compile(GpuTarget("host", 0))
    np.testing.assert_array_equal(np.asarray(program.run({"x": x})[0]), np.array([-128, -128, 2, 127, 127], np.int8))


@pytest.mark.parametrize("arch", ["gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100", "sm_80", "sm_90"])
def test_every_architecture_has_code(arch: str) -> None:
    try:
        compiler = compiler_for(arch)
    except DeviceError as why:
        pytest.skip(str(why))
    body = "y[0] = m::nearest_quotient(x[0], 3.f, 1.f / 3.f, -128.f, 127.f) + m::nearest(x[1], -8.f, 7.f, -1);"
    body += " y[1] = saturated<f8e4m3_t>(x[2], -448.f, 448.f).x + saturated<f8e5m2z_t>(x[2], -57344.f, 57344.f).x;"
    body += " y[2] = (i32)(100.f * coarse::tanh(x[3]));"
    text = f"KERNEL(64) rounded(const float* x, i32* y) {{ {body} }}"
    assert compiler.compile(text, [], arch)[:4] == b"\x7fELF"
