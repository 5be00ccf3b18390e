"""Transposed convolutions with few output channels, run as convolutions; results equal the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.ir.interpreter import Interpreter
from mgx_core.types.dim import symbol


@pytest.mark.parametrize(
    ("channels", "extents", "window", "attributes"),
    [
        (1, [9, 7], [3, 3], {"stride": [2, 2], "padding": [1, 1]}),
        (3, [6, 8], [4, 4], {"stride": [2, 2], "padding": [1, 1]}),
        (2, [5, 6], [2, 3], {"stride": [3, 1], "padding": [0, 2]}),
        (5, [7, 4], [3, 2], {"stride": [1, 2], "padding": [1, 0], "dilation": [2, 1]}),
        (4, [11], [8], {"stride": [4], "padding": [2]}),
        (2, [3, 4, 5], [2, 2, 2], {"stride": [2, 2, 2], "padding": [0, 0, 0]}),
    ],
)
@pytest.mark.parametrize("fast_math", [True, False])
def test_results(
    both: Callable[..., Any],
    channels: int,
    extents: list[int],
    window: list[int],
    attributes: dict[str, Any],
    fast_math: bool,
) -> None:
    rng = np.random.default_rng(channels)
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("float32", [2, 10, *extents]))
    weights = main.add_literal(rng.standard_normal((10, channels, *window)).astype(np.float32))
    given = {"dilation": [1] * len(extents), "group": 1, **attributes}
    made = main.add(mgx.op("convolution_backwards", **given), x, weights)
    main.add_return([main.add(mgx.op("tanh"), made)])
    values = rng.standard_normal((2, 10, *extents)).astype(np.float32)
    found, wanted, steps = both(program, {"x": values}, fast_math=fast_math)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    if fast_math:
        assert not any(name.startswith("deconv ") for name in steps), steps


@pytest.mark.parametrize("dims", [["b", 10, 5, 4], ["b", 10, "h", "w"]], ids=["batch", "image"])
@pytest.mark.parametrize("least", [0, 1])
@pytest.mark.parametrize(
    "attributes",
    [
        {"stride": [4, 3], "padding": [0, 0]},
        {"stride": [2, 2], "padding": [1, 1]},
        {"stride": [2, 3], "padding": [1, 0], "output_padding": [1, 2]},
    ],
)
def test_extents_that_are_open(dims: list[Any], least: int, attributes: dict[str, Any]) -> None:
    rng = np.random.default_rng(3)
    weights = rng.standard_normal((10, 2, 4, 3)).astype(np.float32)
    results = {}
    for target in ("cpu", "ref"):
        program = mgx.Program()
        main = program.get_main_module()
        open_dims = [symbol(d, least, 64) if isinstance(d, str) else d for d in dims]
        x = main.add_parameter("x", mgx.Shape("float32", open_dims))
        op = mgx.op("convolution_backwards", dilation=[1, 1], **attributes)
        main.add_return([main.add(op, x, main.add_literal(weights))])
        program.compile(mgx.get_target(target))
        results[target] = program
    assert "convolution_backwards" in str(results["ref"]) and "convolution_backwards" not in str(results["cpu"])
    sizes = [(2, 5, 4), (1, 5, 4)] if dims[2] == 5 else [(2, 5, 4), (1, 1, 7)]
    if attributes["stride"] == [4, 3]:  # of the windows: each element has its own part of the result, and no padding
        assert "slice" not in str(results["cpu"])
        sizes += [(1, 0, 7)] if least == 0 and dims[2] != 5 else []
    for b, h, w in [*sizes, *([(0, 5, 4)] if least == 0 else [])]:
        values = {"x": rng.standard_normal((b, 10, h, w)).astype(np.float32)}
        found, wanted = (results[t].run(values)[0].to_numpy() for t in ("cpu", "ref"))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("window", "padding", "dims"), [(3, 1, (2, 4, 0, 4)), (4, 2, (1, 4, 1, 1)), (3, 1, (2, 4, 5, 4))]
)
def test_symbolic_images_that_become_empty(window: int, padding: int, dims: tuple[int, ...]) -> None:
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("float32", [symbol("b", 0, 64), 4, symbol("h", 0, 64), symbol("w", 0, 64)]))
    weights = np.random.default_rng(1).standard_normal((4, 8, window, window)).astype(np.float32)
    op = mgx.op("convolution_backwards", stride=[1, 1], dilation=[1, 1], padding=[padding, padding])
    main.add_return([main.add(op, x, main.add_literal(weights))])
    plain = main.clone()
    program.compile(mgx.get_target("cpu"))
    assert "convolution_backwards" not in str(program)
    given = np.random.default_rng(2).standard_normal(dims).astype(np.float32)
    (found,), (wanted,) = program.run({"x": given}), Interpreter().run(plain, [given])
    np.testing.assert_allclose(found.to_numpy(), wanted, rtol=1e-5, atol=1e-5)


def test_many_channels_stay(both: Callable[..., Any]) -> None:
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("float32", [1, 8, 5, 5]))
    weights = main.add_literal(np.ones((8, 32, 2, 2), np.float32))
    main.add_return(
        [main.add(mgx.op("convolution_backwards", stride=[2, 2], padding=[0, 0], dilation=[1, 1]), x, weights)]
    )
    found, wanted, steps = both(program, {"x": np.ones((1, 8, 5, 5), np.float32)})
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert any(name.startswith("deconv ") for name in steps), steps


@pytest.mark.parametrize(
    "attributes",
    [{"stride": [4, 4], "dilation": [1, 1]}, {"stride": [3, 3], "dilation": [2, 2]}],
    ids=["far", "dilated"],
)
def test_windows_with_gaps(both: Callable[..., Any], attributes: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("float32", [2, 8, 5, 6]))
    weights = main.add_literal(rng.standard_normal((8, 20, 2, 2)).astype(np.float32))
    main.add_return([main.add(mgx.op("convolution_backwards", padding=[0, 0], **attributes), x, weights)])
    found, wanted, steps = both(program, {"x": rng.standard_normal((2, 8, 5, 6)).astype(np.float32)})
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert not any(name.startswith("deconv ") for name in steps), steps


@pytest.mark.parametrize("window", [[3, 3], [1, 4]])
def test_strides_of_1(both: Callable[..., Any], window: list[int]) -> None:
    rng = np.random.default_rng(2)
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("float32", [1, 16, 6, 7]))
    weights = main.add_literal(rng.standard_normal((16, 24, *window)).astype(np.float32))
    main.add_return([main.add(mgx.op("convolution_backwards", padding=[0, 1]), x, weights)])
    found, wanted, steps = both(program, {"x": rng.standard_normal((1, 16, 6, 7)).astype(np.float32)})
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-4)
    assert not any(name.startswith("deconv ") for name in steps), steps


def test_the_epilogue_of_a_backward_pass_is_a_loop(both: Callable[..., Any]) -> None:
    """If the stride does not divide the extents, oneDNN has only the backward pass, which supports no epilogue."""
    rng = np.random.default_rng(4)
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("float32", [1, 16, 6, 7]))
    weights = main.add_literal(rng.standard_normal((16, 24, 3, 3)).astype(np.float32))
    y = main.add(mgx.op("convolution_backwards", stride=[2, 2], padding=[1, 1]), x, weights)
    bias = main.add_literal(rng.standard_normal((24, 1, 1)).astype(np.float32))
    y = main.add(mgx.op("add"), y, main.add(mgx.op("multibroadcast", out_lens=[1, 24, 11, 13]), bias))
    main.add_return([main.add(mgx.op("tanh"), y)])
    found, wanted, steps = both(program, {"x": rng.standard_normal((1, 16, 6, 7)).astype(np.float32)})
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    (at,) = (n for n, name in enumerate(steps) if name.startswith("deconv conv:"))
    assert steps[at + 1].startswith("loop"), steps


@pytest.mark.parametrize(("window", "stride", "kept"), [(16, 8, False), (4, 2, False), (3, 2, False), (9, 8, True)])
def test_signals(both: Callable[..., Any], window: int, stride: int, kept: bool) -> None:
    """With many channels too, unless most of the windows would be filled up."""
    rng = np.random.default_rng(window)
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("float32", [2, 32, 50]))
    weights = main.add_literal(rng.standard_normal((32, 48, window)).astype(np.float32))
    main.add_return([main.add(mgx.op("convolution_backwards", stride=[stride], padding=[1], dilation=[1]), x, weights)])
    found, wanted, steps = both(program, {"x": rng.standard_normal((2, 32, 50)).astype(np.float32)})
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-4)
    assert any(name.startswith("deconv ") for name in steps) == kept, steps
