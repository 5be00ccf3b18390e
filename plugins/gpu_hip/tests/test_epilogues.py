"""Matching of groups to library epilogues."""

from __future__ import annotations

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import No, dtype
from mgx_core.errors import Refused
from mgx_core.ops.control import PointwiseGroup
from mgx_core.ops.linear import Dot
from mgx_gpu_hip.emitter import GpuEmitter
from mgx_gpu_hip.library.epilogue import Activation
from mgx_gpu_hip.plans import PLANS
from mgx_gpu_hip.plans.epilogues import _read as chain_of
from mgx_gpu_hip.plans.epilogues import read_group
from mgx_gpu_hip.target import GpuTarget


@pytest.mark.parametrize("active", [False, True])
def test_a_bias_after_an_activation_is_not_merged_with_one_before_it(active: bool) -> None:
    m = mgx.Module("main")
    x, residual = (m.add_parameter(name, mgx.Shape("float32", [2, 8])) for name in ("x", "r"))
    biases = [m.add_parameter(f"b{n}", mgx.Shape("float32", [2, 8])) for n in range(2)]
    product = m.add(mgx.op("dot"), x, m.add_literal(np.eye(8, dtype=np.float32)))
    body = mgx.Module("body")
    y, r, *summands = (body.add_parameter(f"p{n}", mgx.Shape("float32", [2, 8])) for n in range(4))
    y = body.add(mgx.op("add"), y, summands[0])
    y = body.add(mgx.op("relu"), y) if active else y
    body.add_return([body.add(mgx.op("add"), body.add(mgx.op("add"), y, r), summands[1])])
    tail = m.add(PointwiseGroup(), product, residual, *biases, modules=[body])
    e = GpuEmitter(PLANS, GpuTarget("host", 1).get_context())
    constant = e.literal(np.arange(8, dtype=np.float32))
    repeated = constant.view_at(0, mgx.Shape("float32", [2, 8], [0, 1]))
    env = {residual: e.allocate(dtype.float32, [2, 8]), **dict.fromkeys(biases, repeated)}
    found = chain_of(e, tail, product, product, env)
    assert isinstance(found, No) == active
    if not isinstance(found, No):
        assert found.steps == ["bias", "residual"]
        assert e.constant(found.operands["bias"]).tolist() == [[2.0 * n for n in range(8)]] * 2


def test_a_product_without_elements_is_refused_before_its_constants_are_added_up() -> None:
    """A constant that is broadcast over no rows has no elements."""
    group = mgx.Module("group")
    shapes = [mgx.Shape("bfloat16", lens) for lens in ([0, 3, 8], [0, 8, 4], [0, 3, 4], [0, 3, 4])]
    a, b, *biases = (group.add_parameter(f"x{n}", shape) for n, shape in enumerate(shapes))
    body = mgx.Module("body")
    y, one, two = (body.add_parameter(f"p{n}", shapes[2]) for n in range(3))
    body.add_return([body.add(mgx.op("add"), body.add(mgx.op("add"), y, one), two)])
    group.add_return([group.add(PointwiseGroup(), group.add(mgx.op("dot"), a, b), *biases, modules=[body])])
    context = GpuTarget().get_context()
    context.compile_for("sm_90")
    context.__dict__.update(libraries=object())
    e = GpuEmitter(PLANS, context)
    constant = e.literal(np.ones(4, dtype.bfloat16.numpy)).view_at(0, mgx.Shape("bfloat16", [0, 3, 4], [0, 0, 1]))
    with pytest.raises(Refused, match="an extent is 0"):
        read_group(e, group, [e.input(shapes[0], 0), e.input(shapes[1], 1), constant, constant], Dot)


@pytest.mark.parametrize("wide", [False, True])
def test_float32_sums_of_halves_are_rounded_when_they_are_stored(wide: bool) -> None:
    """float16(sums * 0.25 + r): the product was stored as float32, and read again."""
    m, half = mgx.Module("main"), dtype.float16
    x, w, residual = (m.add_parameter(name, mgx.Shape(half, [8, 8])) for name in ("x", "w", "r"))
    product = m.add(mgx.op("quant_dot"), x, w)
    body = mgx.Module("body")
    y, r = body.add_parameter("p0", product.shape), body.add_parameter("p1", residual.shape)
    scale = body.add(mgx.op("multibroadcast", out_lens=[8, 8]), body.add_literal(np.float32(0.25)))
    r = body.add(mgx.op("convert", target_type="float32"), r)
    y = body.add(mgx.op("add"), body.add(mgx.op("mul"), y, scale), r)
    body.add_return([y if wide else body.add(mgx.op("convert", target_type="float16"), y)])
    tail = m.add(PointwiseGroup(), product, residual, modules=[body])
    e = GpuEmitter(PLANS, GpuTarget("host", 1).get_context())
    held = e.allocate(half, [8, 8])
    found = chain_of(e, tail, product, product, {residual: held})
    assert isinstance(found, No) == wide  # a float16 operand of float32 results
    if not isinstance(found, No):
        assert (found.alpha, found.steps, found.operands["residual"].buffer) == (0.25, ["residual"], held.buffer)


@pytest.mark.parametrize(
    ("of", "operand"), [("float16", "constant"), ("bfloat16", "constant"), ("float16", "computed")]
)
def test_sums_of_halves_are_stored_as_float32(of: str, operand: str) -> None:
    """float32(gelu(x w + b)): the last layer of most networks was rounded to float16, and converted by another launch."""
    m, half = mgx.Module("main"), dtype.of(of)
    x, w, more = (m.add_parameter(name, mgx.Shape(half, [8, 8])) for name in ("x", "w", "b"))
    product = m.add(mgx.op("dot"), x, w)
    body = mgx.Module("body")
    y, b = body.add_parameter("p0", product.shape), body.add_parameter("p1", more.shape)
    y = body.add(mgx.op("gelu_erf"), body.add(mgx.op("add"), y, b))
    body.add_return([body.add(mgx.op("convert", target_type="float32"), y)])
    tail = m.add(PointwiseGroup(), product, more, modules=[body])
    e = GpuEmitter(PLANS, GpuTarget("host", 1).get_context())
    constant = e.literal(np.arange(8).astype(half.numpy)).view_at(0, mgx.Shape(half, [8, 8], [0, 1]))
    found = chain_of(e, tail, product, product, {more: constant if operand == "constant" else e.allocate(half, [8, 8])})
    if operand == "computed":
        assert isinstance(found, No) and "operands of the stored type float32" in found.why
        return
    assert not isinstance(found, No)
    bias = found.operands["bias"]
    assert (found.steps, bias.shape.dtype) == (["bias", Activation("gelu_erf")], dtype.float32)
    assert e.constant(bias)[0].tolist() == list(range(8))


@pytest.mark.parametrize("columns", [8, 4])
def test_a_bias_is_added_to_regrouped_rows(columns: int) -> None:
    """torch multiplies tensors as matrices, and adds the bias to the tensor; regrouped columns have no bias."""
    m, half = mgx.Module("main"), dtype.float16
    x, w = (m.add_parameter(name, mgx.Shape(half, lens)) for name, lens in (("x", [6, 8]), ("w", [8, 8])))
    product = m.add(mgx.op("dot"), x, w)
    joint = m.add(mgx.op("reshape", dims=[2, -1, columns]), product)
    more = m.add_parameter("b", mgx.Shape(half, joint.shape.lens()))
    body = mgx.Module("body")
    y, b = body.add_parameter("p0", joint.shape), body.add_parameter("p1", joint.shape)
    body.add_return([body.add(mgx.op("relu"), body.add(mgx.op("add"), y, b))])
    tail = m.add(PointwiseGroup(), joint, more, modules=[body])
    e = GpuEmitter(PLANS, GpuTarget("host", 1).get_context())
    constant = e.literal(np.arange(columns, dtype=np.float16)).view_at(
        0, mgx.Shape(half, joint.shape.lens(), [0, 0, 1])
    )
    found = chain_of(e, tail, product, joint, {more: constant})
    assert isinstance(found, No) == (columns < 8)
    if not isinstance(found, No):
        assert found.steps[0] == "bias" and found.operands["bias"] is constant


@pytest.mark.parametrize("dims", [(8, 8), (1, 8)], ids=["residual", "bias"])
def test_operands_of_rounded_sums_have_the_stored_type(dims: tuple[int, int]) -> None:
    """float16(sums + r) with r in float32, as folded biases are: libraries would read its memory as float16."""
    m, half = mgx.Module("main"), dtype.float16
    x, w = (m.add_parameter(name, mgx.Shape(half, [8, 8])) for name in ("x", "w"))
    residual = m.add_parameter("r", mgx.Shape("float", dims))
    product = m.add(mgx.op("quant_dot"), x, w)
    body = mgx.Module("body")
    y, r = body.add_parameter("p0", product.shape), body.add_parameter("p1", residual.shape)
    if dims[0] == 1:
        r = body.add(mgx.op("multibroadcast", out_lens=[8, 8]), r)
    body.add_return([body.add(mgx.op("convert", target_type="float16"), body.add(mgx.op("add"), y, r))])
    tail = m.add(PointwiseGroup(), product, residual, modules=[body])
    e = GpuEmitter(PLANS, GpuTarget("host", 1).get_context())
    held = e.allocate(dtype.float32, list(dims))
    found = chain_of(e, tail, product, product, {residual: held})
    assert isinstance(found, No) and "float32" in found.why, found


@pytest.mark.parametrize("more", [0.0, 1e-5, 1e6], ids=["exact", "rounded", "overflowing"])
def test_constants_that_the_stored_type_represents_are_converted(more: float) -> None:
    """float16(sums + b), where b is a float32 constant: libraries add it in float16 if its values are the same."""
    m, half = mgx.Module("main"), dtype.float16
    x, w = (m.add_parameter(name, mgx.Shape(half, [8, 8])) for name in ("x", "w"))
    values = np.arange(8, dtype=np.float32) / 4 + np.float32(more)
    bias = m.add_literal(values)
    product = m.add(mgx.op("quant_dot"), x, w)
    body = mgx.Module("body")
    y, b = body.add_parameter("p0", product.shape), body.add_parameter("p1", bias.shape)
    wide = body.add(mgx.op("multibroadcast", out_lens=[8, 8]), b)
    body.add_return([body.add(mgx.op("convert", target_type="float16"), body.add(mgx.op("add"), y, wide))])
    tail = m.add(PointwiseGroup(), product, bias, modules=[body])
    e = GpuEmitter(PLANS, GpuTarget("host", 1).get_context())
    found = chain_of(e, tail, product, product, {bias: e.literal(values)})
    assert isinstance(found, No) == bool(more), found
    if not isinstance(found, No):
        held = found.operands["bias"]
        assert (found.steps, held.shape.dtype, held.strides) == (["bias"], half, [0, 1])
        np.testing.assert_array_equal(e.constant(held), np.broadcast_to(values.astype(np.float16), (8, 8)))


def test_a_product_that_is_subtracted_is_scaled_by_minus_one() -> None:
    """Test-time training subtracts two products from its weights after each chunk."""
    m = mgx.Module("main")
    x, w, residual = (m.add_parameter(name, mgx.Shape("float32", [8, 8])) for name in ("x", "w", "r"))
    product = m.add(mgx.op("dot"), x, w)
    body = mgx.Module("body")
    y, r = (body.add_parameter(name, product.shape) for name in ("p0", "p1"))
    body.add_return([body.add(mgx.op("sub"), r, y)])
    tail = m.add(PointwiseGroup(), product, residual, modules=[body])
    e = GpuEmitter(PLANS, GpuTarget("host", 1).get_context())
    found = chain_of(e, tail, product, product, {residual: e.allocate(dtype.float32, [8, 8])})
    assert not isinstance(found, No) and (found.alpha, found.steps) == (-1.0, ["residual"])
