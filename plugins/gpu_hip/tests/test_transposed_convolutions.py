"""Transposed convolutions that run as convolutions; results are equal."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from built_program import BuiltProgram

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_gpu_hip.target import GpuTarget


def transposed(x: list[int], w: list[int], **attributes: Any) -> tuple[mgx.Program, dict[str, Any]]:
    rng = np.random.default_rng(len(x) + sum(w))
    program = mgx.Program()
    m = program.get_main_module()
    given = m.add_parameter("x", mgx.Shape(dt.float32, x))
    weights = m.add_literal(rng.standard_normal(w).astype(np.float32))
    m.add_return([m.add(mgx.op("convolution_backwards", **attributes), given, weights)])
    return program, {"x": rng.standard_normal(x).astype(np.float32)}


CASES: list[tuple[list[int], list[int], dict[str, Any]]] = [
    ([2, 6, 5, 4], [6, 3, 4, 4], {"stride": [2, 2], "padding": [1, 1]}),
    ([1, 4, 5, 5], [4, 7, 2, 2], {"stride": [2, 2]}),
    ([1, 4, 5, 6], [4, 3, 3, 3], {"stride": [2, 2], "padding": [1, 1], "output_padding": [1, 1]}),
    ([1, 4, 5, 6], [4, 3, 3, 3], {"stride": [2, 2], "padding": [1, 1]}),
    ([1, 4, 6, 3], [4, 2, 5, 3], {"padding": [2, 0]}),
    ([1, 4, 6, 3], [4, 2, 3, 2], {"padding": [1, 0, 0, 2], "stride": [1, 3], "output_padding": [0, 1]}),
    ([1, 6, 7], [6, 2, 4], {"stride": [3], "group": 3}),
    ([1, 4, 7, 5], [4, 3, 3, 2], {"stride": [2, 1], "dilation": [2, 3], "group": 2}),
    ([1, 3, 3, 4, 2], [3, 4, 2, 3, 2], {"stride": [2, 2, 2], "padding": [0, 1, 0]}),
    ([1, 3, 4, 4], [3, 2, 4, 4], {"stride": [2, 2], "padding_mode": "same_upper"}),
    ([1, 3, 4], [3, 2, 3], {"padding": [4], "stride": [2], "output_padding": [1]}),
]


@pytest.mark.parametrize(("x", "w", "attributes"), CASES, ids=[str(n) for n in range(len(CASES))])
def test_same_numbers_without_a_transposed_kernel(x: list[int], w: list[int], attributes: dict[str, Any]) -> None:
    program, feed = transposed(x, w, **attributes)
    plain = program.clone()
    plain.compile(mgx.get_target("ref"))
    wanted = plain.run(feed)[0].to_numpy()
    program.compile(GpuTarget("host", 0))
    got = program.run(feed)[0].to_numpy()
    (instance,) = program.executable.instances()
    names = [s.name for s in instance.runner.schedule.steps]
    assert any(re.match("convolution|depthwise", n) for n in names)
    assert not any("backwards" in n for n in names)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 6, 7, 8])
def test_biases_are_added_before_the_pixels_are_rearranged(n: int) -> None:
    """In the convolution's epilogue, not in a launch behind the copy."""
    x, w, attributes = CASES[n]
    program, feed = transposed(x, w, **attributes)
    m = program.get_main_module()
    (plain,) = m.outputs
    bias = m.add_literal(np.arange(1, plain.shape.lens()[1] + 1, dtype=np.float32))
    spread = m.add(mgx.op("broadcast", axis=1, out_lens=plain.shape.lens()), bias)
    m.replace_return([m.add(mgx.op("add"), plain, spread)])
    reference = program.clone()
    reference.compile(mgx.get_target("ref"))
    wanted = reference.run(feed)[0].to_numpy()
    program.compile(GpuTarget("host", 0))
    np.testing.assert_allclose(program.run(feed)[0].to_numpy(), wanted, rtol=0, atol=1e-5)
    (instance,) = program.executable.instances()
    names = [s.name for s in instance.runner.schedule.steps]
    assert "add" not in names[-1], names


@pytest.mark.parametrize(("x", "w", "attributes"), CASES, ids=[str(n) for n in range(len(CASES))])
def test_an_infinity_stays_in_its_windows_without_fast_math(
    x: list[int], w: list[int], attributes: dict[str, Any]
) -> None:
    program, feed = transposed(x, w, **attributes)
    feed["x"].reshape(-1)[0] = np.inf
    plain = program.clone()
    plain.compile(mgx.get_target("ref"), fast_math=False)
    program.compile(GpuTarget("host", 0), fast_math=False)
    wanted, got = plain.run(feed)[0].to_numpy(), program.run(feed)[0].to_numpy()
    assert np.isfinite(wanted).any() and not np.isnan(wanted).any()
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5)


def test_mostly_zeros_stay_transposed() -> None:
    """Windows of one element with strides of three would multiply eight zeros for each weight."""
    program, feed = transposed([1, 3, 4, 4], [3, 2, 1, 1], stride=[3, 3])
    plain = program.clone()
    plain.compile(mgx.get_target("ref"))
    program.compile(GpuTarget("host", 0))
    np.testing.assert_allclose(program.run(feed)[0].to_numpy(), plain.run(feed)[0].to_numpy(), rtol=0, atol=1e-5)
    (instance,) = program.executable.instances()
    assert any("backwards" in s.name for s in instance.runner.schedule.steps)


@pytest.mark.parametrize("activated", [False, True])
@pytest.mark.parametrize("device", [0, 1], ids=["wave64", "wave32"])
def test_skip_connections_are_concatenated_with_channels_last(activated: bool, device: int) -> None:
    """The copy that rearranges pixels wrote rows of one channel, which the concatenation read across (H200: 66 of 264 us)."""
    built = BuiltProgram(1)

    def convolved(x: Any, *lens: int, name: str = "convolution", **attributes: Any) -> Any:
        return built.add(
            name, x, built.main.add_literal(built.rng.standard_normal(lens).astype(np.float16)), **attributes
        )

    images = [
        built.add("transpose", built.argument(2, *n)[0], permutation=[0, 3, 1, 2]) for n in ((8, 10, 8), (4, 5, 16))
    ]
    skipped, small = convolved(images[0], 8, 8, 3, 3, padding=[1, 1]), images[1]
    large = convolved(small, 16, 8, 2, 2, name="convolution_backwards", stride=[2, 2])
    joined = built.add("concat", large, skipped, axis=1)
    joined = built.add("relu", joined) if activated else joined
    built.main.add_return([convolved(joined, 4, 16, 1, 1)])
    reference = built.program.clone()
    reference.compile(mgx.get_target("ref"))
    wanted = reference.run(built.feed)[0].to_numpy().astype(np.float32)
    built.program.compile(GpuTarget("host", device))
    got = built.program.run(built.feed)[0].to_numpy().astype(np.float32)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=4e-3 * np.abs(wanted).max())
    (instance,) = built.program.executable.instances()
    (concat,) = [s for s in instance.runner.schedule.steps if s.name.startswith("concat")]
    assert [x.strides[1] for x in (*concat.inputs, *concat.outputs)] == [1, 1, 1]
