"""Kernels that exceed a launch limit are declined at emission, with the limit and the value."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from kernel_trial import generate, tensor, traits

import mgx_core as mgx
from mgx_core import DeviceError, Kernels, No, Operation, Shape, TupleShape
from mgx_core.errors import Refused
from mgx_core.ops.index import Gather
from mgx_core.ops.linear import Dot
from mgx_core.ops.reduce import Argmax, ReduceSum
from mgx_core.ops.scan import PrefixScanSum
from mgx_core.ops.topk import Topk
from mgx_gpu_hip.codegen.limits import require_limits
from mgx_gpu_hip.codegen.source import Arg, Buffer, Chained, DeviceTraits, KernelLaunch, KernelSource, Number, Tensor
from mgx_gpu_hip.guarded import GuardedTarget
from mgx_gpu_hip.hip_kernels import hip_kernel
from mgx_gpu_hip.target import GpuTarget


def source(
    grid: tuple[int, int, int] = (1, 1, 1), block: tuple[int, int, int] = (64, 1, 1), shared: int = 0, *args: Arg
) -> KernelSource:
    return KernelSource("k", "", (KernelLaunch("k", grid, block, args, shared),), 0, 0)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (source(block=(64, 32, 1)), "a block of 2048 threads, the device has at most 1024"),
        (source(block=(64, 0, 1)), "a block of 0 threads"),
        (source(shared=70000), "70000 bytes of shared memory, the device has at most 65536"),
        (source((1, 65536, 1)), "a grid of .1, 65536, 1. blocks, at most .2147483647, 65535, 65535. are allowed"),
        (source((2**31, 1, 1)), "a grid of .2147483648, 1, 1. blocks, at most"),
        (source((2**26, 1, 1)), ".*along an axis fewer than 2.32 threads are allowed"),
        (source((1, 1, 1), (64, 1, 1), 0, Number("u32", 2**32)), "an argument 4294967296, which is no u32"),
        (source((1, 1, 1), (64, 1, 1), 0, Number("i32", -(2**31) - 1)), "an argument -2147483649, which is no i32"),
        (
            source((1, 1, 1), (64, 1, 1), 0, *[Buffer("input", 0)] * 511, *[Number("u32", 0)] * 3),
            "4100 bytes of parameters, at most 4096 are allowed",
        ),
    ],
)
def test_launches_beyond_all_devices_are_rejected(made: KernelSource, said: str) -> None:
    with pytest.raises(Refused, match=f"k has {said}"):
        require_limits(made, DeviceTraits(shared_most=65536))


def test_the_largest_launches_are_allowed() -> None:
    numbers = Chained(), Number("u32", 2**32 - 1), Number("i32", -(2**31)), Number("float", 1e30)
    for grid, block in (((2**26 - 1, 65535, 65535), (64, 1, 1)), ((2**31 - 1, 1, 1), (1, 1024, 1))):
        require_limits(source(grid, block, 65536, *numbers), DeviceTraits(shared_most=65536))


@pytest.mark.parametrize("lens", [(70000, 1), (1, 5_000_000)])
def test_products_of_many_matrices_and_rows_are_launched(lens: tuple[int, int]) -> None:
    a, b, y = (tensor("int32", (lens[0], *matrix)) for matrix in ((lens[1], 4), (4, 4), (lens[1], 4)))
    made = generate(Dot(), [a, b], [y], traits())
    assert isinstance(made, KernelSource), made
    require_limits(made, traits())


@pytest.mark.parametrize(
    ("op", "lens"),
    [
        (ReduceSum(axes=(0,)), (2**32 + 1,)),
        (ReduceSum(axes=(0,)), (2**32, 8)),
        (Argmax(axis=0), (2**31,)),
        (PrefixScanSum(axis=0), (2**32 - 1,)),
        (Topk(k=1, axis=0), (2**32 + 1,)),
        (Gather(axis=0), (2**32 + 1,)),
    ],
)
def test_axes_that_no_loop_counts_are_refused(op: Operation, lens: tuple[int, ...]) -> None:
    x = Shape("int8", lens)
    shapes = [x, Shape("int64", (1,))] if isinstance(op, Gather) else [x]
    made = op.infer(*shapes)
    items = made.items if isinstance(made, TupleShape) else (made,)
    found = generate(op, [Tensor.of(s) for s in shapes], [Tensor.of(s) for s in items], traits())
    assert isinstance(found, No) and re.search(r"(an axis|a reduction) of \d{10} elements", found.why), found


def test_rows_that_are_read_in_vectors_may_be_longer() -> None:
    shapes = Shape("int8", (2**33,)), Shape("int8", (1,))
    assert isinstance(generate(ReduceSum(axes=(0,)), *([Tensor.of(s)] for s in shapes), traits()), KernelSource)


def run(target: GpuTarget, **launch: Any) -> Any:
    """Runs a cumulative sum by another package's kernel with these launch parameters."""
    text = "KERNEL(64) wrong(const float* x, const void* axis, float* y) { y[threadIdx.x] = 7; }"
    plans = Kernels("gpu")
    plans.plan(PrefixScanSum)(
        lambda op, inputs, context: hip_kernel("wrong", op, text, args=lambda shapes: [], **launch)
    )
    found = plans + target.kernels(None)
    target.kernels = lambda context: found  # type: ignore[method-assign]
    program = mgx.Program()
    m = program.get_main_module()
    m.add_return([m.add(mgx.op("prefix_scan_sum", axis=0), m.add_parameter("x", Shape("float32", [64])))])
    program.compile(target)
    return program, program.run({"x": np.zeros(64, np.float32)})[0].to_numpy()


def test_the_next_kernel_is_used_and_the_refusal_is_listed() -> None:
    program, got = run(GpuTarget("host", 1), grid=lambda shapes: (1, 70000), block=64)
    (placed,) = program.executable.instances()[0].placements
    assert not got.any() and placed.place == "target" and "wrong has a grid of (1, 70000, 1)" in str(placed.refused)


def test_more_threads_than_a_kernel_was_compiled_for_are_found() -> None:
    wanted = r"kernel 'wrong' of package \w+ for .* is launched with 128 threads per block, but was compiled for 64"
    with pytest.raises(DeviceError, match=wanted):
        run(GuardedTarget(1), grid=lambda shapes: 1, block=128)
