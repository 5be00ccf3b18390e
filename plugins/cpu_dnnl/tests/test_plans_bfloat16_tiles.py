"""Products and convolutions of bfloat16 in AMX tiles; on other processors with AVX-512, the tile registers are emulated."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_loops import new_engine

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_cpu_dnnl.jit import byte_gemm_loops
from mgx_cpu_dnnl.jit.engine import Engine
from mgx_cpu_dnnl.native_library import native
from mgx_cpu_dnnl.plans import packed_products
from mgx_cpu_dnnl.shared import KernelCache, shared
from mgx_cpu_dnnl.tile_panels import pack_panels

BF16 = dt.bfloat16.numpy
HERE = Path(__file__).parent
FEATURES = native().cpu_features()
TILES = "amx_bf16" in FEATURES
ABLE = {"avx512f", "avx512bw"} <= set(FEATURES) and shutil.which("g++") is not None
pytestmark = pytest.mark.skipif(not TILES and not ABLE, reason="needs AMX, or AVX-512 and g++ to emulate it")


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Loads the micro-kernels of AMX compiled for registers in memory."""
    if not ABLE:
        pytest.skip("needs AVX-512 and g++")
    library = tmp_path_factory.mktemp("tiles") / "emulated_tiles.so"
    flags = [
        "-O1",
        "-std=c++17",
        "-shared",
        "-fPIC",
        "-mavx512f",
        "-mavx512bw",
        "-mamx-tile",
        "-mamx-int8",
        "-mamx-bf16",
    ]
    source = HERE / "emulated_tiles.cpp"
    subprocess.run(["g++", *flags, f"-I{HERE.parent / 'src'}", str(source), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


@pytest.fixture(scope="module")
def compiling() -> Engine:
    """An engine that compiles all loops: prebuilt ones use tile registers, and cached ones may have other sources."""
    return new_engine("host")


@pytest.fixture(autouse=True)
def tile_registers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes plans take AMX for granted."""
    if TILES:
        yield
        return
    request.getfixturevalue("emulated")
    packed_products._extents.cache_clear()
    monkeypatch.setattr(byte_gemm_loops, "PREFIX", "emulated_byte")
    monkeypatch.setattr(native(), "cpu_features", lambda: [*FEATURES, "amx_bf16"])
    monkeypatch.setitem(vars(shared()), "engine", request.getfixturevalue("compiling"))
    monkeypatch.setattr(shared(), "kernels", KernelCache())
    yield
    packed_products._extents.cache_clear()


def numbers(seed: int, *lens: int) -> Any:
    return np.random.default_rng(seed).standard_normal(lens).astype(BF16)


def weights_of(seed: int, k: int, n: int) -> Any:
    return (numbers(seed, k, n).astype(np.float32) / k**0.5).astype(BF16)


def assert_near(found: Any, a: Any, b: Any, bias: Any = 0, before: Any = 0) -> None:
    """Compares results with relu(a b + bias) + before, up to the rounding of the result and of its sums."""
    exact = np.maximum(a.astype(np.float64) @ b.astype(np.float64) + bias, 0) + before
    slack = 2.0**-24 * (a.shape[-1] + 4) * (np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64) + np.abs(bias))
    got = found.astype(np.float64)
    assert (np.abs(got - exact) <= 2.0**-8 * np.abs(exact) + slack).all()


# rows, depth and columns: partial tiles of each; weights that are read from the nearest cache and others; blocks of rows, with
# weights that stay in the L2 cache and others
SIZES = [
    (8, 8, 1), (16, 32, 16), (33, 64, 64), (50, 40, 33), (131, 96, 100), (49, 1152, 200), (1000, 24, 72), (197, 192, 576),
    (70, 3072, 130), (700, 500, 96), (600, 2080, 128),
]  # fmt: skip


@pytest.mark.parametrize(("m", "k", "n"), SIZES)
@pytest.mark.parametrize("threads", [1, 3])
def test_products(compiled: Any, m: int, k: int, n: int, threads: int) -> None:
    a, b, bias = numbers(1, m, k), weights_of(2, k, n), numbers(3, n)

    def build(module: mgx.Module) -> mgx.Instruction:
        x = module.add_parameter("x", mgx.Shape("bfloat16", [m, k]))
        y = module.add(mgx.op("dot"), x, module.add_literal(b))
        spread = module.add(mgx.op("multibroadcast", out_lens=(m, n)), module.add_literal(bias))
        return module.add(mgx.op("relu"), module.add(mgx.op("add"), y, spread))

    program, steps = compiled(build, threads=threads)
    assert steps == ["gemm tiles"]
    assert_near(program.run({"x": a})[0].to_numpy(), a, b, bias.astype(np.float64))


@pytest.mark.parametrize(("k", "n"), [(16, 96), (40, 24), (64, 64)])
def test_convolutions_of_pixels(compiled: Any, k: int, n: int) -> None:
    """A bias per channel, relu, and a residual."""
    pixels = numbers(1, 9 * 11, k)
    b, bias, before = weights_of(2, k, n), numbers(3, n), numbers(4, 9 * 11, n)

    def build(module: mgx.Module) -> mgx.Instruction:
        def image(name: str, channels: int) -> mgx.Instruction:
            x = module.add_parameter(name, mgx.Shape("bfloat16", [1, 9, 11, channels]))
            return module.add(mgx.op("transpose", permutation=(0, 3, 1, 2)), x)

        w = module.add_literal(np.ascontiguousarray(b.T)[:, :, None, None])
        y = module.add(mgx.op("convolution"), image("x", k), w)
        lens = (1, n, 9, 11)
        spread = module.add(mgx.op("multibroadcast", out_lens=lens), module.add_literal(bias[None, :, None, None]))
        y = module.add(mgx.op("relu"), module.add(mgx.op("add"), y, spread))
        y = module.add(mgx.op("add"), y, image("r", n))
        return module.add(mgx.op("transpose", permutation=(0, 2, 3, 1)), y)

    program, steps = compiled(build)
    assert steps == ["gemm tiles"]
    (found,) = program.run({"x": pixels.reshape(1, 9, 11, k), "r": before.reshape(1, 9, 11, n)})
    assert_near(found.to_numpy().reshape(-1, n), pixels, b, bias.astype(np.float64), before.astype(np.float64))


@pytest.mark.parametrize(("k", "n"), [(40, 64), (40, 600), (64, 64)])
def test_rows_of_odd_numbers_keep_to_themselves(compiled: Any, k: int, n: int) -> None:
    """Infinities and NaN of a row must not reach others, though a tile reads the beginning of the next row with it."""
    a, b = numbers(1, 70, k), weights_of(2, k, n)
    a[5, 3], a[40, 0], a[69, k - 1] = np.inf, np.nan, -np.inf

    def build(module: mgx.Module) -> mgx.Instruction:
        x = module.add_parameter("x", mgx.Shape("bfloat16", [70, k]))
        return module.add(mgx.op("dot"), x, module.add_literal(b))

    program, steps = compiled(build)
    assert steps == ["gemm tiles"]
    found = program.run({"x": a})[0].to_numpy().astype(np.float32)
    assert np.isfinite(found).all(1).tolist() == [row not in (5, 40, 69) for row in range(70)]
    assert np.isnan(found[40]).all()
    assert (np.isinf(found[5]) == (b[3].astype(np.float32) != 0)).all()


@pytest.mark.parametrize("k", [24, 40, 64])
def test_nothing_is_read_past_the_rows(compiled: Any, at_the_end_of_a_page: Any, k: int) -> None:
    a, b = numbers(1, 37, k), weights_of(2, k, 48)

    def build(module: mgx.Module) -> mgx.Instruction:
        x = module.add_parameter("x", mgx.Shape("bfloat16", [37, k]))
        return module.add(mgx.op("relu"), module.add(mgx.op("dot"), x, module.add_literal(b)))

    program, _ = compiled(build)
    assert_near(program.run({"x": at_the_end_of_a_page(a)})[0].to_numpy(), a, b)


def test_few_rows_and_shallow_products_are_left_to_others(compiled: Any) -> None:
    for m, k in ((7, 64), (3, 64), (100, 6)):
        b = weights_of(1, k, 64)

        def build(module: mgx.Module, m: int = m, k: int = k, b: Any = b) -> mgx.Instruction:
            x = module.add_parameter("x", mgx.Shape("bfloat16", [m, k]))
            return module.add(mgx.op("dot"), x, module.add_literal(b))

        _, steps = compiled(build)
        assert "gemm tiles" not in steps


@pytest.mark.parametrize(("count", "size", "pitch"), [(3, 50, 52), (2, 64, 64), (5, 66, 128), (1, 1, 4), (4, 200, 200)])
def test_copied_rows_end_at_their_pitch(emulated: ctypes.CDLL, count: int, size: int, pitch: int) -> None:
    """Dot products of bytes pad rows to four bytes, tiles to 64."""
    left = np.random.default_rng(0).integers(1, 256, (count, size + 3), np.uint8)
    rows = np.full(count * pitch + 64, 255, np.uint8)
    given = [left.ctypes.data, size + 3, count, size, rows.ctypes.data, pitch]
    emulated.emulated_byte_rows_1(*map(ctypes.c_int64, given))
    copied = rows[: count * pitch].reshape(count, pitch)
    np.testing.assert_array_equal(copied[:, :size], left[:, :size])
    assert not copied[:, size:].any()
    assert (rows[count * pitch :] == 255).all()


def test_panels_hold_each_weight_once() -> None:
    w = np.arange(70 * 81, dtype=np.uint16).reshape(70, 81).view(BF16)
    packed = pack_panels(w, 64).view(np.uint16)
    assert packed.ctypes.data % 64 == 0
    assert packed.size == 3 * 32 * 6 * 16
    full, rest = packed[: 3 * 32 * 64].reshape(3, 4, 16, 16, 2), packed[3 * 32 * 64 :].reshape(3, 2, 16, 16, 2)
    assert full[1, 2, 3, 5, 1] == 81 * (32 + 2 * 3 + 1) + 37
    assert rest[0, 1, 15, 0, 1] == 81 * 31 + 80
    assert not rest[2, :, 3:].any()
