"""Convolutions of bytes whose window has one position: computed as products or sums; results equal the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dim
from mgx_cpu_dnnl.native_library import native
from mgx_cpu_dnnl.target import CpuTarget


def drawn(dtype: str, *dims: int) -> Any:
    about = np.iinfo(dtype)
    return np.random.default_rng(sum(dims)).integers(about.min, about.max + 1, dims).astype(dtype)


def kinds(op: Any, x: Any, *others: Any, dims: Any = None, requantized: bool = False) -> list[str]:
    """Returns the kinds of steps, after comparing the results with the reference."""
    program = mgx.Program()
    main = program.get_main_module()
    given = [main.add_absent() if o is None else main.add_literal(o) for o in others]
    made = main.add(op, main.add_parameter("x", mgx.Shape(str(x.dtype), list(dims or x.shape))), *given)
    if requantized:
        scale = main.add_literal(np.float32([0.0101] * others[0].shape[0]))
        made = main.add(mgx.op("dequantizelinear", axis=1), made, scale)
        made = main.add(mgx.op("relu"), made)
        made = main.add(
            mgx.op("quantizelinear"), made, main.add_literal(np.float32(1.3)), main.add_literal(np.int8(-9))
        )
    main.add_return([made])
    compiled = program.clone()
    compiled.compile(CpuTarget())
    got = np.asarray(compiled.run({"x": x})[0])
    program.compile(mgx.get_target("ref"), optimize=False)
    wanted = np.asarray(program.run({"x": x})[0])
    assert np.ptp(wanted.astype(np.float64)) > 50
    np.testing.assert_array_equal(got, wanted)
    return [s.name.split()[0] for s in compiled.executable.instances()[-1].runner.schedule.steps]


@pytest.mark.parametrize("requantized", [False, True])
@pytest.mark.parametrize("zero", [None, 0, 77])
@pytest.mark.parametrize("first", ["uint8", "int8"])
@pytest.mark.parametrize("window", [(5,), (3, 1), (2, 3), (2, 2, 2)])
def test_dense(window: tuple[int, ...], first: str, zero: int | None, requantized: bool) -> None:
    points = [] if zero is None else [np.array(zero, first)]
    given = drawn(first, 2, 10, *window), drawn("int8", 20, 10, *window), *points
    assert "conv" not in kinds(mgx.op("quant_convolution"), *given, requantized=requantized)


@pytest.mark.parametrize("requantized", [False, True])
@pytest.mark.parametrize("zero", [None, 0, 77])
@pytest.mark.parametrize("first", ["uint8", "int8"])
@pytest.mark.parametrize("window", [(9,), (17, 1), (3, 3), (2, 2, 2)])
def test_depthwise(window: tuple[int, ...], first: str, zero: int | None, requantized: bool) -> None:
    points = [] if zero is None else [np.array(zero, first)]
    given = drawn(first, 2, 40, *window), drawn("int8", 40, 1, *window), *points
    found = kinds(mgx.op("quant_convolution", group=40, stride=(2,) * len(window)), *given, requantized=requantized)
    assert "conv" not in found and "reduce" in found


@pytest.mark.skipif(not native().onednn_sums_bytes(), reason="this processor accumulates products of bytes in 16 bits")
def test_others_stay_convolutions() -> None:
    op = mgx.op("quant_convolution", padding=(1, 1, 1, 1))
    assert "conv" in kinds(op, drawn("uint8", 1, 8, 3, 3), drawn("int8", 8, 8, 3, 3))
    assert "conv" in kinds(mgx.op("quant_convolution", group=2), drawn("uint8", 1, 8, 3, 3), drawn("int8", 8, 4, 3, 3))
    wide = drawn("uint8", 1, 512, 6, 6), drawn("int8", 512, 1, 6, 6)
    assert "conv" in kinds(mgx.op("quant_convolution", group=512), *wide)
    gaps = mgx.op("quant_convolution", dilation=(2, 2))
    assert "conv" in kinds(gaps, drawn("uint8", 1, 8, 5, 5), drawn("int8", 8, 8, 3, 3))


def test_an_open_batch() -> None:
    op = mgx.op("quant_convolution", group=16)
    given = drawn("int8", 3, 16, 4), drawn("int8", 16, 1, 4)
    kinds(op, *given, dims=[dim.symbol("n", 1, 8), 16, 4])


@pytest.mark.skipif(not native().multiplies_tiles(), reason="the processor has no tile registers for bytes")
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_few_rows_of_few_weights_use_tiles(rows: int) -> None:
    assert kinds(mgx.op("quant_dot"), drawn("int8", rows, 70), drawn("int8", 70, 33), np.array(5, np.int8)) == [
        "matmul"
    ]
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("int8", [rows, 70]))
    main.add_return([main.add(mgx.op("quant_dot"), x, main.add_literal(drawn("int8", 70, 33)))])
    program.compile(CpuTarget())
    (step,) = program.executable.instances()[-1].runner.schedule.steps
    assert step.name == "matmul tiles"
