"""Zero points of weights, and several per operand: oneDNN computes the products, and results equal the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dim
from mgx_cpu_dnnl.native_library import native
from mgx_cpu_dnnl.target import CpuTarget

pytestmark = pytest.mark.skipif(
    not native().onednn_sums_bytes(), reason="this processor accumulates products of bytes in 16 bits"
)


def steps_of(op: Any, operands: Sequence[Any], dims: Sequence[Any] | None = None) -> list[str]:
    """Returns the kinds of steps of a product whose later operands are constant, after comparing its result with the
    reference.
    """
    first, *others = operands
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape(str(first.dtype), list(dims or first.shape)))
    given = [main.add_absent() if o is None else main.add_literal(o) for o in others]
    main.add_return([main.add(op, x, *given)])
    program.compile(CpuTarget())
    got = np.asarray(program.run({"x": first})[0])
    wanted = op.evaluate([first, *others])
    assert np.ptp(wanted) > 1000
    np.testing.assert_array_equal(got, wanted)
    return [s.name.split()[0] for s in program.executable.instances()[-1].runner.schedule.steps]


def drawn(dtype: str, *dims: int) -> Any:
    about = np.iinfo(dtype)
    return np.random.default_rng(sum(dims)).integers(about.min, about.max + 1, dims).astype(dtype)


@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("points", [(), (8,)])
@pytest.mark.parametrize("first", ["uint8", "int8"])
def test_weights_of_convolutions(groups: int, points: tuple[int, ...], first: str) -> None:
    op = mgx.op("quant_convolution", padding=(1, 0, 2, 1), stride=(2, 1), group=groups)
    zeros = [np.array(3, first), drawn("int8", *points) if points else np.array(-11, np.int8)]
    steps = steps_of(op, [drawn(first, 2, 8, 9, 7), drawn("int8", 8, 8 // groups, 3, 3), *zeros])
    assert steps.count("conv") == 2
    assert "convolution" not in steps


def test_weights_of_convolutions_of_any_batch() -> None:
    op = mgx.op("quant_convolution", padding=(1, 1), group=2)
    operands = [drawn("uint8", 3, 4, 9), drawn("int8", 6, 2, 3), None, drawn("int8", 6)]
    assert "conv" in steps_of(op, operands, [dim.symbol("n", 1, 8), 4, 9])


@pytest.mark.parametrize("count", [1, 6])
def test_weights_of_convolutions_with_any_number_of_zero_points(count: int) -> None:
    """Whether there is one or one per kernel is known only at run time."""
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("uint8", [3, 4, 9]))
    point = main.add_parameter("point", mgx.Shape("int8", [dim.symbol("n", 1, 8)]))
    op = mgx.op("quant_convolution", padding=(1, 1), group=2)
    given = [drawn("uint8", 3, 4, 9), drawn("int8", 6, 2, 3), drawn("int8", count)]
    main.add_return([main.add(op, x, main.add_literal(given[1]), main.add_absent(), point)])
    program.compile(CpuTarget())
    (got,) = program.run({"x": given[0], "point": given[2]})
    np.testing.assert_array_equal(np.asarray(got), op.evaluate([*given[:2], None, given[2]]))


@pytest.mark.parametrize("left", [(), (2, 5, 1), (5, 1)])
@pytest.mark.parametrize("right", [(), (1, 16), (16,)])
def test_rows_and_columns_of_matrix_products(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    operands = [drawn("uint8", 2, 5, 24), drawn("int8", 24, 16), drawn("uint8", *left), drawn("int8", *right)]
    steps = steps_of(mgx.op("quant_dot"), operands)
    assert "matmul" in steps
    assert "product" not in steps


def test_a_zero_point_an_element_stays_with_the_product() -> None:
    operands = [drawn("uint8", 5, 24), drawn("int8", 24, 16), drawn("uint8", 5, 24)[::-1], drawn("int8", 24, 1)]
    assert "product" in steps_of(mgx.op("quant_dot"), operands)


def test_a_quantized_layer_of_unsigned_weights_is_a_product_of_the_library() -> None:
    """As written by tools that store weights of both signs as uint8 with a zero point per kernel."""
    rng = np.random.default_rng(1)
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("uint8", [1, 16, 8, 8]))
    wide = main.add(mgx.op("dequantizelinear"), x, main.add_literal(np.float32(0.05)), main.add_literal(np.uint8(120)))
    w = [rng.integers(0, 256, (12, 16, 3, 3), np.uint8), np.full(12, 0.01, np.float32), rng.integers(100, 150, 12, np.uint8)]  # fmt: skip
    weights = main.add(mgx.op("dequantizelinear", axis=0), *(main.add_literal(v) for v in w))
    out = main.add(mgx.op("convolution", padding=(1, 1, 1, 1)), wide, weights)
    scale = [main.add_literal(np.float32(0.5)), main.add_literal(np.uint8(128))]
    main.add_return([main.add(mgx.op("quantizelinear"), out, *scale)])
    right = program.clone()
    program.compile(CpuTarget())
    right.compile(mgx.get_target("ref"), optimize=False)
    feed = {"x": rng.integers(0, 256, (1, 16, 8, 8), np.uint8)}
    got, wanted = (np.asarray(p.run(feed)[0]).astype(int) for p in (program, right))
    assert np.ptp(wanted) > 20
    assert np.abs(got - wanted).max() <= 1
    names = [s.name.split()[0] for s in program.executable.instances()[-1].runner.schedule.steps]
    assert names.count("conv") == 2
    assert "convolution" not in names
