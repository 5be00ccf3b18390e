"""Pooling of few channels: pointwise ops on shifted images; results equal the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.errors import ShapeError
from mgx_core.ops.pooling import Pooling
from mgx_cpu_dnnl.target import CpuTarget

rng = np.random.default_rng(4)


def pooled(x: Any, steps: list[str] | None = None, dims: list[tuple[int, int]] | None = None, **attributes: Any) -> Any:
    """Returns the result of a pooling on the target, and appends the names of its steps to a list."""
    program = mgx.Program()
    main = program.get_main_module()
    given = mgx.Shape("float32", list(x.shape)) if dims is None else mgx.Shape("float32", dyn_dims=dims)
    main.add_return([main.add(mgx.op("pooling", **attributes), main.add_parameter("x", given))])
    program.compile(CpuTarget(), validate=True)
    (got,) = program.run({"x": x})
    if steps is not None:
        steps += [s.name.split()[0] for s in program.executable.instances()[0].runner.schedule.steps]
    return got.to_numpy()


def wanted(x: Any, **attributes: Any) -> Any:
    op = mgx.op("pooling", **attributes)
    assert isinstance(op, Pooling)
    return op.evaluate([x])


@pytest.mark.parametrize("mode", ["max", "average"])
@pytest.mark.parametrize(
    ("lens", "attributes"),
    [
        ((2, 1, 20, 30), {"lengths": (3, 3), "padding": (1, 1)}),
        ((1, 3, 17, 23), {"lengths": (5, 2), "padding": (2, 0, 1, 1)}),
        ((2, 4, 19, 21), {"lengths": (3, 3), "stride": (2, 2), "padding": (1, 1)}),
        ((1, 8, 12, 12), {"lengths": (2, 2), "stride": (2, 2)}),
        ((1, 2, 15, 16), {"lengths": (3, 2), "dilations": (2, 3), "padding": (1, 1)}),
        ((1, 2, 9, 11), {"lengths": (2, 2), "stride": (2, 2), "padding_mode": "same_upper"}),
        ((3, 1, 40), {"lengths": (7,), "padding": (3,)}),
        ((1, 2, 6, 8, 10), {"lengths": (2, 3, 3), "padding": (0, 1, 1)}),
    ],
)
def test_windows_are_joined_from_shifted_images(lens: tuple[int, ...], attributes: dict[str, Any], mode: str) -> None:
    x, steps = rng.standard_normal(lens).astype(np.float32), list[str]()
    attributes = {"mode": mode, "count_include_pad": True, **attributes}
    np.testing.assert_allclose(pooled(x, steps, **attributes), wanted(x, **attributes), rtol=1e-5, atol=1e-6)
    assert set(steps) <= {"pad", "loop", "copy"}, steps


def test_maxima_keep_nan_and_infinities() -> None:
    x = rng.choice(np.array([-np.inf, np.inf, 0, 1, np.nan], np.float32), (1, 2, 16, 16), p=[0.5, 0.1, 0.2, 0.1, 0.1])
    np.testing.assert_array_equal(
        pooled(x, mode="max", lengths=(3, 3), padding=(1, 1)), wanted(x, mode="max", lengths=(3, 3), padding=(1, 1))
    )


@pytest.mark.parametrize("mode", ["max", "average"])
def test_open_extents(mode: str) -> None:
    attributes = {"mode": mode, "lengths": (3, 5), "padding": (1, 2), "count_include_pad": True}
    x, steps = rng.standard_normal((2, 1, 14, 18)).astype(np.float32), list[str]()
    got = pooled(x, steps, [(1, 4), (1, 1), (8, 64), (8, 64)], **attributes)
    np.testing.assert_allclose(got, wanted(x, **attributes), rtol=1e-5, atol=1e-6)
    assert set(steps) <= {"pad", "loop"}, steps


@pytest.mark.parametrize("mode", ["max", "average"])
def test_open_extents_may_be_too_small_for_a_window(mode: str) -> None:
    x = np.zeros((1, 1, 2, 12), np.float32)
    with pytest.raises(ShapeError, match="a window over 4 elements does not fit on an axis of 2"):
        pooled(x, None, [(1, 1), (1, 1), (1, 32), (1, 32)], mode=mode, lengths=(4, 3))


@pytest.mark.parametrize(
    ("lens", "attributes"),
    [
        ((1, 9, 12, 12), {"mode": "max", "lengths": (3, 3)}),  # more channels
        ((1, 5, 12, 12), {"mode": "max", "lengths": (3, 3), "stride": (2, 2)}),  # non-contiguous slices
        ((1, 1, 40, 40), {"mode": "max", "lengths": (17, 17)}),  # large windows
        # windows at the edges average fewer elements
        ((1, 1, 12, 12), {"mode": "average", "lengths": (3, 3), "padding": (1, 1)}),
        ((1, 1, 12, 13), {"mode": "average", "lengths": (2, 2), "stride": (2, 2), "ceil_mode": True}),
    ],
)
def test_other_windows_stay(lens: tuple[int, ...], attributes: dict[str, Any]) -> None:
    x, steps = rng.standard_normal(lens).astype(np.float32), list[str]()
    np.testing.assert_allclose(pooled(x, steps, **attributes), wanted(x, **attributes), rtol=1e-5, atol=1e-6)
    assert "loop" not in steps, steps
