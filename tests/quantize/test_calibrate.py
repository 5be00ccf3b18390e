"""The calibration program: which tensors it observes, and with which options it is compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.ops.linear import Dot
from mgx_core.ops.reduce import ReduceMax
from mgx_core.ops.slice import Slice
from mgx_core.quantize import QuantizeReport, calibrate
from mgx_core.types.dim import symbol

WIDTH = 16


def products(count: int) -> mgx.Program:
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("float32", [4, WIDTH]))
    for k in range(count):
        w = main.add_literal(np.random.default_rng(k).standard_normal((WIDTH, WIDTH)).astype(np.float32))
        x = main.add(mgx.op("relu"), main.add(mgx.op("dot"), x, w))
    main.add_return([x])
    return program


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[mgx.Module, mgx.CompileOptions]]:
    """Returns the modules that calibration compiles, with the options."""
    seen: list[tuple[mgx.Module, mgx.CompileOptions]] = []
    compile_module = calibrate.compile_module

    def noted(module: mgx.Module, target: Any, options: mgx.CompileOptions) -> Any:
        seen.append((module.clone(), options))
        return compile_module(module, target, options)

    monkeypatch.setattr(calibrate, "compile_module", noted)
    return seen


def test_a_tensor_is_observed_before_its_second_product(compiled: Any) -> None:
    batch = {"x": np.ones((4, WIDTH), np.float32)}
    mgx.quantize_int8(products(5), mgx.get_target("ref"), [batch])
    ((module, _),) = compiled
    order = [type(i.op) for i in module if isinstance(i.op, (Dot, ReduceMax))]
    assert order == [Dot, ReduceMax] * 4 + [ReduceMax]  # the last product's own result is not observed


def test_threads_are_those_that_the_environment_sets(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGX_THREADS", "1")
    mgx.quantize_int8(products(1), mgx.get_target("ref"), [{"x": np.ones((4, WIDTH), np.float32)}])
    ((_, options),) = compiled
    assert options.threads == 1


def test_a_tensor_without_elements_gives_no_statistics() -> None:
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("float32", [4, 0]))
    y = main.add_parameter("y", mgx.Shape("float32", [4, WIDTH]))
    w = main.add_literal(np.eye(WIDTH, dtype=np.float32))
    none = main.add_literal(np.ones((0, 3), np.float32))
    main.add_return([main.add(mgx.op("dot"), x, none), main.add(mgx.op("dot"), y, w)])
    given = {"x": np.ones((4, 0), np.float32), "y": np.ones((4, WIDTH), np.float32)}
    mgx.quantize_int8(program, mgx.get_target("ref"), [given])
    program.compile(mgx.get_target("ref"))
    empty, same = program.run(given)
    assert empty.to_numpy().tolist() == [[0, 0, 0]] * 4
    np.testing.assert_allclose(same.to_numpy(), given["y"], atol=0.02)


def images(count: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(3)
    return [{"x": rng.standard_normal((1, 4, 40, 60)).astype(np.float32)} for _ in range(count)]


def residual_blocks() -> mgx.Program:
    """Two residual blocks, whose sums are read by a relu followed by a convolution, and by the next sum."""
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("float32", [1, 4, 40, 60]))
    for k in range(3):
        w = np.random.default_rng(k).standard_normal((4, 4, 1, 1)).astype(np.float32)
        x = main.add(
            mgx.op("relu"), main.add(mgx.op("add"), main.add(mgx.op("convolution"), x, main.add_literal(w)), x)
        )
    main.add_return([x])
    return program


def test_sums_before_a_function_with_observed_results_are_not_quantized(compiled: Any) -> None:
    """They would have to be stored in addition to the results."""
    mgx.quantize_int8(residual_blocks(), mgx.get_target("ref"), images(1))
    ((module, _),) = compiled
    assert [i.inputs[0].op.name for i in module if isinstance(i.op, ReduceMax)] == ["@param", "relu", "relu"]


@pytest.mark.parametrize("count", [1, 100])
def test_many_batches_give_smaller_samples_each(compiled: Any, count: int) -> None:
    """Both as a list and as an iterable that reports its length."""
    mgx.quantize_int8(residual_blocks(), mgx.get_target("ref"), images(count))
    ((module, _),) = compiled
    sizes = {i.shape.elements() for i in module.outputs if isinstance(i.op, Slice)}
    limit = calibrate.SAMPLE if count == 1 else calibrate.SAMPLES // count
    assert sizes
    assert all(limit / 2 < size <= limit for size in sizes)


def test_rows_of_many_channels_are_sampled_from_several_places() -> None:
    steps = calibrate.sample_steps([1, 197, 768], 2, max(calibrate.SAMPLES // 100, calibrate.ROWS * 768))
    assert -(-197 // steps[1]) >= calibrate.ROWS - 1


def test_samples_are_centered(compiled: Any) -> None:
    """If samples were taken from the first position on, borders would be more frequent in them than in the tensor."""
    mgx.quantize_int8(residual_blocks(), mgx.get_target("ref"), images(100))
    ((module, _),) = compiled
    places = [range(*n) for i in module.outputs if isinstance(i.op, Slice) for n in zip(
        i.op.starts, i.op.ends, i.op.steps, strict=True)]  # fmt: skip
    assert places
    assert all(abs(p[0] - (p.stop - 1 - p[-1])) <= 1 and p[0] < p.step for p in places)


def test_batches_of_other_lengths_calibrate_a_product_that_sums_over_the_length() -> None:
    program = mgx.Program()
    main = program.get_main_module()
    length = symbol("length")
    x = main.add_parameter("x", mgx.Shape("float32", [length, WIDTH]))
    scores = main.add(mgx.op("dot"), x, main.add(mgx.op("transpose", permutation=[1, 0]), x))
    main.add_return([main.add(mgx.op("dot"), scores, x)])
    data = [{"x": np.random.default_rng(n).standard_normal((n, WIDTH)).astype(np.float32)} for n in (3, 5, 1, 4)]
    report = QuantizeReport()
    mgx.quantize_int8(program, mgx.get_target("ref"), data, attention=True, report=report)
    assert [layer.kept for layer in report.layers] == ["", ""]
    program.compile(mgx.get_target("ref"))
    for batch in data:
        exact = batch["x"] @ batch["x"].T @ batch["x"]
        np.testing.assert_allclose(program.run(batch)[0], exact, atol=0.05 * np.abs(exact).max())
