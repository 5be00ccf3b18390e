"""Products passed to a library: shared weights, and padding of rows to whole vectors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_gpu_hip.emitter import GpuEmitter
from mgx_gpu_hip.plans import PLANS
from mgx_gpu_hip.plans.offer import output_like
from mgx_gpu_hip.plans.products import library_product
from mgx_gpu_hip.steps import KernelStep, LibraryStep
from mgx_gpu_hip.target import GpuTarget
from mgx_gpu_hip.tuning import TimedPlan

UNPADDED = 12.0  # microseconds of a product whose rows are not whole vectors


class Tuner:
    """Scripted times on a device: `us` for products with rows of whole vectors."""

    def __init__(self, us: float) -> None:
        self.us = us

    def gemm(self, problem: Any, compiled: bool, exhaustive: bool) -> TimedPlan:
        plan = SimpleNamespace(name=str(problem), problem=problem, workspace=0, choice={"library": "stand-in"})
        return TimedPlan.of(plan, UNPADDED if problem.k % 8 else self.us)


def emitted(batch: int, k: int, n: int, us: float) -> tuple[GpuEmitter, list[Any], Any]:
    """Returns the emitter and its steps for [batch, 4, k] times weights [k, n] that are broadcast over the batch."""
    context = GpuTarget().get_context()
    context.compile_for("sm_90")
    context.__dict__.update(libraries=object(), tuner=Tuner(us))
    e = GpuEmitter(PLANS, context)
    weights = e.literal(np.arange(k * n, dtype=np.float32).reshape(k, n).astype(np.float16))
    repeated = weights.view_at(0, Shape(dt.float16, [batch, k, n], [0, n, 1]))
    made = library_product(e, e.input(Shape(dt.float16, [batch, 4, k]), 0), repeated)
    assert made.lens == [batch, 4, n]
    return e, e.steps, weights.buffer.array


@pytest.mark.parametrize("n", [32, 37])
def test_weights_that_all_products_share_are_one_matrix(n: int) -> None:
    """Also if their columns are padded: copies for each product would be a constant of full size, and products of few rows."""
    _, (step,), weights = emitted(5, 16, n, 1.0)
    assert isinstance(step, LibraryStep)
    assert (step.plan.problem.folded.m, step.plan.problem.folded.batch) == (20, 1)
    held = step.operands["b"].buffer.array
    assert held.size == 16 * (-(-n // 8) * 8)
    np.testing.assert_array_equal(held.reshape(16, -1)[:, :n], weights)


def test_rows_are_made_longer_where_that_is_faster() -> None:
    _, (copy, product), weights = emitted(5, 19, 32, 4.0)
    assert isinstance(copy, KernelStep)
    assert copy.outputs[0].lens == [5, 4, 24]
    assert product.plan.problem.k == 24
    tall = product.operands["b"].buffer.array.reshape(24, 32)
    np.testing.assert_array_equal(tall[:19], weights)
    assert not tall[19:].any()


def test_rows_stay_where_a_copy_costs_more_than_it_gains() -> None:
    _, (step,), _ = emitted(5, 19, 32, UNPADDED - 1.0)
    assert step.plan.problem.k == 19


@pytest.mark.parametrize(("us", "taken"), [(2000.0, False), (1.0, True)])
def test_small_matrices_are_left_to_the_generated_kernel_where_it_is_faster(us: float, taken: bool) -> None:
    """393,216 transposed matrices of 8 x 8 took cuBLASLt 2.2 ms on an H200, where their bytes take 0.03."""
    if taken:
        emitted(1000, 8, 8, us)
    else:
        with pytest.raises(Refused, match="small matrices"):
            emitted(1000, 8, 8, us)


@pytest.mark.parametrize("rows", [785, 784, 40])
def test_copies_keep_contiguous_columns_where_rows_are_whole_vectors(rows: int) -> None:
    """Keys [b, n, h, c], transposed: 256 products of 40 x 40 over 785 tokens took 62 us on an H200 with rows of 785."""
    context = GpuTarget().get_context()
    context.compile_for("sm_90")
    vars(context).update(libraries=object(), tuner=Tuner(4.0))
    e = GpuEmitter(PLANS, context)
    memory = e.input(Shape(dt.float16, [2, rows, 3 * 8 * 40]), 0)
    turn, keep = (rows * 960, 40, 1, 960), (rows * 960, 40, 960, 1)
    keys = memory.view_at(320, Shape(dt.float16, [2, 8, 40, rows], turn))
    values = memory.view_at(640, Shape(dt.float16, [2, 8, rows, 40], keep))
    library_product(e, keys, values)
    first, second, product = e.steps
    assert first.outputs[0].strides == [8 * rows * 40, rows * 40, 1, 40]
    assert second.outputs[0].strides == [8 * rows * 40, rows * 40, 40, 1]
    assert product.plan.problem.a.transposed
    assert product.plan.problem.a.align % 16 == product.plan.problem.b.align % 16 == 0


def test_copies_turn_columns_that_are_not_whole_vectors() -> None:
    context = GpuTarget().get_context()
    context.compile_for("sm_90")
    vars(context).update(libraries=object(), tuner=Tuner(4.0))
    e = GpuEmitter(PLANS, context)
    memory = e.input(Shape(dt.float16, [2, 64, 8 * 39]), 0)
    keys = memory.view_at(0, Shape(dt.float16, [2, 8, 39, 64], (64 * 312, 39, 1, 312)))
    library_product(e, keys, e.input(Shape(dt.float16, [2, 8, 64, 40]), 1))
    assert e.steps[0].outputs[0].strides[-1] == 1 and not e.steps[-1].plan.problem.a.transposed


@pytest.mark.parametrize("read", ["product", "sum"])
def test_results_that_products_read_are_row_major_where_batches_have_two_strides(read: str) -> None:
    """CoaT's softmax over tokens followed the order of its keys, [b, n, h, c], and was copied for the product after it."""
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape(dt.float16, (2, 50, 960)))
    parts = main.add_instruction(mgx.op("reshape", dims=[2, 50, 24, 40]), [x])
    heads = main.add_instruction(mgx.op("transpose", permutation=[0, 2, 1, 3]), [parts])
    keys = main.add_instruction(mgx.op("slice", axes=[1], starts=[8], ends=[16]), [heads])
    values = main.add_instruction(mgx.op("slice", axes=[1], starts=[16], ends=[24]), [heads])
    weights = main.add_instruction(mgx.op("softmax", axis=2), [keys])
    if read == "product":
        turned = main.add_instruction(mgx.op("transpose", permutation=[0, 1, 3, 2]), [weights])
        main.add_return([main.add_instruction(mgx.op("dot"), [turned, values])])
    else:
        main.add_return([weights, main.add_instruction(mgx.op("softmax", axis=2), [weights])])
    program.compile(mgx.get_target("gpu"), target="sm_90", offload_copy=False)
    step = next(s for s in program.executable.instances()[-1].plan.steps if "softmax" in s.name)
    (made,) = step.outputs
    assert (made.strides == [8 * 2000, 2000, 40, 1]) == (read == "product")


@pytest.mark.parametrize("epilogue", [False, True])
def test_results_keep_their_columns_innermost_where_batches_have_two_strides(epilogue: bool) -> None:
    """Linear attention over an image multiplies activations of its channels, [b, h w, heads, size], by heads."""
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape(dt.float16, (2, 50, 16, 40)))
    heads = main.add_instruction(mgx.op("transpose", permutation=[0, 2, 3, 1]), [x])
    rows = main.add_instruction(mgx.op("relu"), [heads])
    y = main.add_parameter("y", mgx.Shape(dt.float16, (2, 16, 8, 40)))
    made = main.add_instruction(mgx.op("dot"), [y, rows])
    main.add_return([main.add_instruction(mgx.op("exp"), [made]) if epilogue else made])
    program.compile(mgx.get_target("gpu"), target="sm_90", offload_copy=False)
    step = next(s for s in program.executable.instances()[-1].plan.steps if "relu" in s.name)
    assert step.outputs[0].strides == [16 * 2000, 2000, 1, 40]


@pytest.mark.parametrize("several", [False, True])
def test_results_that_products_read_transposed_have_matrices_at_one_distance(several: bool) -> None:
    """Linear attention multiplies features [batch, tokens, heads, size] by heads."""
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape(dt.float16, (2, 50, 8, 40)))
    features = main.add_instruction(mgx.op("elu"), [x])
    y = main.add_parameter("y", mgx.Shape(dt.float16, (2, 8, 50, 16)))
    results = [main.add_instruction(mgx.op("exp"), [features])] if several else []
    turned = main.add_instruction(mgx.op("transpose", permutation=[0, 2, 3, 1]), [features])
    main.add_return([main.add_instruction(mgx.op("dot"), [turned, y]), *results])
    program.compile(mgx.get_target("gpu"), target="sm_90", offload_copy=False)
    step = next(s for s in program.executable.instances()[-1].plan.steps if "elu" in s.name)
    assert step.outputs[0].strides == [16000, 40, 2000, 1]


def test_products_are_scaled_into_the_order_that_heads_are_joined_in() -> None:
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape(dt.float16, (2, 8, 50, 16)))
    y = main.add_parameter("y", mgx.Shape(dt.float16, (2, 8, 16, 40)))
    z = main.add_parameter("z", mgx.Shape(dt.float16, (2, 8, 50, 1)))
    spread = main.add_instruction(mgx.op("multibroadcast", out_lens=[2, 8, 50, 40]), [z])
    made = main.add_instruction(mgx.op("mul"), [main.add_instruction(mgx.op("dot"), [x, y]), spread])
    turned = main.add_instruction(mgx.op("transpose", permutation=[0, 2, 1, 3]), [made])
    main.add_return([main.add_instruction(mgx.op("reshape", dims=[2, 50, 320]), [turned])])
    program.compile(mgx.get_target("gpu"), target="sm_90", offload_copy=False)
    steps = program.executable.instances()[-1].plan.steps
    assert steps[-1].outputs[0].strides == [16000, 40, 320, 1]
    assert not any(s.name.startswith("contiguous") for s in steps)


@pytest.mark.parametrize(("channels", "group"), [(16, 1), (12, 1), (16, 16)])
@pytest.mark.parametrize("heads", [1, 4])
def test_images_for_a_library_are_computed_with_their_channels_innermost(channels: int, group: int, heads: int) -> None:
    """A network's input is converted, and heads [batch, heads, size, h w] become an image, in the order of the convolution."""
    program = mgx.Program()
    main = program.get_main_module()
    dims = [2, channels, 6, 5] if heads == 1 else [2, heads, channels // heads, 30]
    image = main.add_parameter("x", mgx.Shape(dt.float32, dims))
    narrow = main.add_instruction(mgx.op("convert", target_type="half"), [image])
    seen = main.add_instruction(mgx.op("reshape", dims=[2, channels, 6, 5]), [narrow]) if heads > 1 else narrow
    w = main.add_literal(np.ones((16, channels // group, 1, 1), np.float16))
    main.add_return([main.add_instruction(mgx.op("convolution", group=group), [seen, w])])
    context = GpuTarget().get_context()
    context.compile_for("sm_90")
    vars(context).update(libraries=object(), tuner=Tuner(4.0))
    e = GpuEmitter(PLANS, context)
    e.current = narrow
    strides = output_like(e, dt.float16, dims, [], free=True).strides
    if (channels, group) != (16, 1):
        assert strides[-1] == 1
    elif heads == 1:
        assert strides == [480, 1, 80, 16]
    else:
        assert strides == [480, 4, 1, 16]


@pytest.mark.parametrize("beside", [False, True])
def test_values_whose_slices_products_read_are_row_major(beside: bool) -> None:
    """Chunks of heads, [b, n, heads, size], in linear attention were copied one by one.  beside: computed in a joint launch."""
    program = mgx.Program()
    main = program.get_main_module()
    heads = main.add_parameter("x", mgx.Shape(dt.float16, (2, 64, 4, 32)))
    x = main.add_instruction(mgx.op("transpose", permutation=[0, 2, 1, 3]), [heads])
    x = main.add_instruction(mgx.op("relu"), [x])
    y = main.add_parameter("y", mgx.Shape(dt.float16, (2, 4, 16, 32)))
    results = []
    for start in (0, 16):
        chunk = main.add_instruction(mgx.op("slice", axes=[2], starts=[start], ends=[start + 16]), [x])
        turned = main.add_instruction(mgx.op("transpose", permutation=[0, 1, 3, 2]), [chunk])
        results.append(main.add_instruction(mgx.op("dot"), [y, turned]))
    if beside:
        results.append(main.add_instruction(mgx.op("neg"), [main.add_parameter("z", mgx.Shape(dt.float16, (2, 8)))]))
    main.add_return(results)
    program.compile(mgx.get_target("gpu"), target="sm_90", offload_copy=False)
    step = next(s for s in program.executable.instances()[-1].plan.steps if "relu" in s.name)
    assert ("neg" in step.name) == beside
    (made,) = (v for v in step.outputs if len(v.lens) == 4)
    assert made.strides == [4 * 64 * 32, 64 * 32, 32, 1]


def test_a_squeeze_without_axes_stands_between_a_value_and_a_product() -> None:
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_instruction(mgx.op("relu"), [main.add_parameter("x", mgx.Shape(dt.float32, (1, 3, 4)))])
    row = main.add_instruction(mgx.op("slice", axes=[1], starts=[1], ends=[3]), [x])
    y = main.add_parameter("y", mgx.Shape(dt.float32, (4, 5)))
    main.add_return([main.add_instruction(mgx.op("dot"), [main.add_instruction(mgx.op("squeeze"), [row]), y])])
    program.compile(GpuTarget("host", 1))
    given = {"x": np.arange(12, dtype=np.float32).reshape(1, 3, 4), "y": np.ones((4, 5), np.float32)}
    (got,) = program.run(given)
    np.testing.assert_array_equal(np.asarray(got), given["x"][0, 1:] @ given["y"])
