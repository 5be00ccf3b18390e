"""Biases move before the pixel shuffle of a transposed convolution only if channels keep their places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ops.convolution import Convolution
from mgx_core.passes.rewrite import Rewrite
from mgx_core.rules.engine import Rewriter
from mgx_core.rules.transposed_convolutions import transposed_convolutions
from mgx_core.types.dim import symbol

RULES = transposed_convolutions("pixel-shuffles", lambda i: None)


@pytest.mark.parametrize(
    ("batch", "whole", "cut", "bias", "moved"),
    [
        (2, [2, 4, 10, 12], None, [1, 4, 1, 1], True),
        (2, [2, 4, 10, 12], {"axes": [2, 3], "starts": [1, 0], "ends": [9, 12]}, [1, 4, 1, 1], True),
        (4, [4, 4, 10, 12], {"axes": [0], "starts": [0], "ends": [2]}, [1, 4, 1, 1], True),
        (2, [2, 4, 10, 12], {"axes": [1], "starts": [-1], "ends": [-9], "steps": [-1]}, [1, 4, 1, 1], False),
        (2, [2, 4, 10, 12], {"axes": [1], "starts": [0], "ends": [1]}, [1, 1, 1, 1], False),
        (4, [4, 4, 120], None, [4, 1, 1], False),  # along the batch
        (2, [2, 4, 4, 5, 6], None, [1, 1, 4, 1, 1], False),  # along the image
    ],
)
def test_a_bias_is_added_before_the_shuffle(
    batch: int, whole: list[int], cut: dict[str, Any] | None, bias: list[int], moved: bool
) -> None:
    rng = np.random.default_rng(0)
    m = mgx.Module("main")
    x = m.add_parameter("x", mgx.Shape("float32", [batch, 3, 5, 6]))
    weights = m.add_literal(rng.standard_normal((16, 3, 3, 3)).astype(np.float32))
    made = m.add(mgx.op("convolution", padding=[1, 1]), x, weights)
    made = m.add(mgx.op("reshape", dims=[batch, 1, 2, 2, 4, 5, 6]), made)
    made = m.add(mgx.op("transpose", permutation=[0, 1, 4, 5, 2, 6, 3]), made)
    made = m.add(mgx.op("reshape", dims=whole), made)
    made = made if cut is None else m.add(mgx.op("slice", **cut), made)
    terms = m.add_literal(rng.standard_normal(bias).astype(np.float32))
    m.add_return([m.add(mgx.op("add"), made, m.add(mgx.op("multibroadcast", out_lens=made.shape.lens()), terms))])
    feed = [rng.standard_normal((batch, 3, 5, 6)).astype(np.float32)]
    (wanted,) = Interpreter().run(m, feed)
    Rewrite(RULES).apply(m)
    assert (m.outputs[0].op.name != "add") is moved
    np.testing.assert_allclose(Interpreter().run(m, feed)[0], wanted, rtol=0, atol=1e-5)


def test_extents_with_negative_lower_bounds_are_padded_little() -> None:
    """That of (n - m) / 3 + 1 is far below 0, but no extent is: half a window on both sides suffices."""
    m = mgx.Module("main")
    n, k = map(symbol, "nk")
    x = m.add_parameter("x", mgx.Shape("float32", [1, 3, n]))
    w = m.add_parameter("w", mgx.Shape("float32", [4, 3, k]))
    made = m.add(mgx.op("convolution", stride=[3]), x, w)
    weights = m.add_literal(np.random.default_rng(0).standard_normal((4, 2, 8)).astype(np.float32))
    m.add_return([m.add(mgx.op("convolution_backwards", stride=[2]), made, weights)])
    feed = [
        np.random.default_rng(seed).standard_normal(lens).astype(np.float32)
        for seed, lens in ((1, (1, 3, 17)), (2, (4, 3, 5)))
    ]
    (wanted,) = Interpreter().run(m, feed)
    Rewrite(RULES).apply(m)
    (padding,) = {i.op.padding for i in m if isinstance(i.op, Convolution) and i.op.padding and any(i.op.padding)}
    assert padding == (3, 3)
    np.testing.assert_allclose(Interpreter().run(m, feed)[0], wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(
    ("weights", "attributes"),
    [
        ([6, 4, 3, 3], {"stride": [2, 2], "padding": [0, 0], "dilation": [1, 1]}),
        ([6, 4, 3, 5], {"stride": [2, 3], "padding": [1, 2], "dilation": [1, 1], "group": 3}),
        ([6, 4, 4, 2], {"stride": [2, 2], "padding": [1, 0], "dilation": [1, 1], "output_padding": [1, 0], "group": 2}),
        ([6, 4, 3], {"stride": [1], "padding": [1], "dilation": [1]}),
    ],
)
def test_weights_may_be_computed(weights: list[int], attributes: dict[str, Any], constant: bool) -> None:
    """The kernels of StyleGAN 2 are those of a sample: modulated, and normalized."""
    rng = np.random.default_rng(0)
    m = mgx.Module("main")
    x = m.add_parameter("x", mgx.Shape("float32", [2, 6, 5, 4][: len(weights)]))
    values = rng.standard_normal(weights).astype(np.float32)
    w = m.add_literal(values) if constant else m.add_parameter("w", mgx.Shape("float32", weights))
    m.add_return([m.add(mgx.op("convolution_backwards", **attributes), x, w)])
    feed = [rng.standard_normal(x.shape.lens()).astype(np.float32), *([] if constant else [values])]
    (wanted,) = Interpreter().run(m, feed)
    Rewrite(transposed_convolutions("computed", computed=True)).apply(m)
    assert not any(i.op.name == "convolution_backwards" for i in m)
    np.testing.assert_allclose(Interpreter().run(m, feed)[0], wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("computed", "dilation", "why"),
    [(False, 1, "the weights are not constant"), (True, 2, "the weights are not constant, and dilated")],
)
def test_computed_weights_stay_transposed(computed: bool, dilation: int, why: str) -> None:
    m = mgx.Module("main")
    x, w = (m.add_parameter(n, mgx.Shape("float32", d)) for n, d in (("x", [1, 2, 5]), ("w", [2, 3, 3])))
    op = mgx.op("convolution_backwards", stride=[2], padding=[0], dilation=[dilation])
    m.add_return([m.add(op, x, w)])
    rewriter = Rewriter(transposed_convolutions("computed", computed=computed))
    rewriter.apply(m)
    assert {r.why for r in rewriter.tally.refusals} == {why}
