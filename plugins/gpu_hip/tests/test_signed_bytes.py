"""Products of uint8 rewritten to int8: within one unit in the last place."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import No
from mgx_core import dtype as dt
from mgx_gpu_hip.context import GpuContext
from mgx_gpu_hip.target import GpuTarget

K, N, ROWS = 48, 40, 6


def network(zero: Any, signed: bool, moved: bool, residual: bool, constant: bool = True) -> mgx.Program:
    """x is quantized to bytes, transposed, multiplied with bytes, and dequantized."""
    rng = np.random.default_rng(4)
    program = mgx.Program()
    m = program.get_main_module()
    kind = np.int8 if signed else np.uint8
    x = m.add_parameter("x", mgx.Shape("float", [ROWS, K]))
    scale, t = m.add_literal(np.float32(0.02)), m.add_literal((rng.random(N) * 0.01 + 0.001).astype(np.float32))
    zeros = [m.add_literal(np.asarray(zero, kind))]
    w = rng.integers(-127, 128, (K, N), np.int8)
    right = m.add_literal(w) if constant else m.add_parameter("w", mgx.Shape("int8", [K, N]))
    q = m.add(mgx.op("quantizelinear"), x, scale, *zeros)
    if moved:
        q = m.add(mgx.op("reshape", dims=[ROWS // 2, 2, K]), q)
    wide = m.add(mgx.op("dequantizelinear"), q, scale, *zeros)
    weights = m.add(mgx.op("dequantizelinear", axis=1), right, t)
    if moved:
        weights = m.add(mgx.op("multibroadcast", out_lens=[ROWS // 2, K, N]), weights)
    y = m.add(mgx.op("dot"), wide, weights)
    if residual:
        axis = 2 if moved else 1
        y = m.add(mgx.op("add"), y, m.add(mgx.op("slice", axes=[axis], starts=[0], ends=[N]), wide))
    m.add_return([y])
    return program


@pytest.mark.pairs
@pytest.mark.parametrize("device", [0, 1], ids=["wave32", "wave64"])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize(("zero", "signed"), [(0, False), (7, False), (128, False), (255, False), (-5, True)])
def test_products_of_unsigned_bytes(zero: int, signed: bool, moved: bool, residual: bool, device: int) -> None:
    program = network(zero, signed, moved, residual)
    plain = program.clone()
    plain.compile(mgx.get_target("ref"), optimize=False)
    feed = {"x": np.random.default_rng(1).standard_normal((ROWS, K)).astype(np.float32) * 3}
    feed["x"][0] = [1e9, -1e9] * (K // 2)  # the ends of the range
    wanted = plain.run(feed)[0].to_numpy()
    program.compile(GpuTarget("host", device))
    assert "-> uint8" not in str(program)
    assert zero != 128 or moved or residual or " add(" not in str(program)
    np.testing.assert_allclose(program.run(feed)[0].to_numpy(), wanted, rtol=0, atol=3e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("case", ["computed weights", "without fast_math"])
def test_products_that_keep_their_unsigned_bytes(case: str) -> None:
    program = network(7, False, False, False, case != "computed weights")
    plain = program.clone()
    plain.compile(mgx.get_target("ref"), optimize=False)
    rng = np.random.default_rng(1)
    feed = {"x": rng.standard_normal((ROWS, K)).astype(np.float32)}
    if case == "computed weights":
        feed["w"] = rng.integers(-127, 128, (K, N), np.int8)
    wanted = plain.run(feed)[0].to_numpy()
    program.compile(GpuTarget("host", 0), fast_math=case == "computed weights")
    np.testing.assert_allclose(program.run(feed)[0].to_numpy(), wanted, rtol=0, atol=3e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("fast_math", [True, False])
def test_bytes_as_arguments(fast_math: bool) -> None:
    """The caller's unsigned bytes are reduced by 128 where the product reads them, unless sums must not be rounded
    differently.
    """
    rng = np.random.default_rng(4)
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("uint8", [ROWS, K]))
    w = m.add_literal(rng.integers(-127, 128, (K, N), np.int8))
    sums = m.add(mgx.op("quant_dot"), x, w, m.add_literal(np.uint8(3)))
    m.add_return([m.add(mgx.op("convert", target_type="float"), sums)])
    plain = program.clone()
    plain.compile(mgx.get_target("ref"))
    feed = {"x": rng.integers(0, 256, (ROWS, K), np.uint8)}
    wanted = plain.run(feed)[0].to_numpy()
    program.compile(GpuTarget("host", 0), fast_math=fast_math)
    assert (f"-> int8[{ROWS}, {K}]" in str(program)) is fast_math
    np.testing.assert_array_equal(program.run(feed)[0].to_numpy(), wanted)


class Recorder:
    """The tuner of a device whose library is queried for products and has none."""

    measures, budget = True, 16

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def prefetching(self, dry_run: Any) -> Any:
        return contextlib.nullcontext()

    def prepare(self) -> None:
        """Does nothing: there are no plans to build."""

    def narrow(self, problem: Any, exhaustive: bool) -> No:
        self.asked.append(problem)
        return No("nothing")

    def done(self, open_extents: bool = False) -> None:
        pass


def test_the_library_adds_the_zero_point_of_the_bytes_that_it_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    """It rounds and clamps its results itself."""
    rng = np.random.default_rng(4)
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("int8", [16, 32]))
    scales = [m.add_literal(np.float32(s)) for s in (0.02, 0.01, 0.5)]
    zero = m.add_literal(np.uint8(7))
    w = m.add_literal(rng.integers(-127, 128, (32, 48), np.int8))
    wide, weights = (m.add(mgx.op("dequantizelinear"), t, s) for t, s in ((x, scales[0]), (w, scales[1])))
    y = m.add(mgx.op("relu"), m.add(mgx.op("dot"), wide, weights))
    narrow = m.add(mgx.op("quantizelinear"), y, scales[2], zero)
    again = m.add(mgx.op("dequantizelinear"), m.add_literal(rng.integers(-127, 128, (48, 32), np.int8)), scales[1])
    m.add_return([m.add(mgx.op("dot"), m.add(mgx.op("dequantizelinear"), narrow, scales[2], zero), again)])
    tuner = Recorder()
    monkeypatch.setattr(GpuContext, "tuner", tuner)
    program.compile(GpuTarget("host", 0))
    (problem,) = (p for p in tuner.asked if p.types[2] is dt.int8)
    assert problem.steps[-1][0] == "add" and problem.steps[-1][2] == 7.0 - 128
