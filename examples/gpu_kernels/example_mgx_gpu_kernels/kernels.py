"""The plan for the target `gpu`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mgx_core import Kernel, Kernels, Shape
from mgx_core.types.dtype import float32
from mgx_gpu_hip.hip_kernels import hip_kernel

from .ops import LeakySum

__all__ = ["PLANS"]

PLANS = Kernels("gpu")
TEXT = Path(__file__).with_name("leaky_sum.hip")


def rows_and_length(x: Shape) -> tuple[int, int]:
    n = x.lens()[-1]
    return x.elements() // max(1, n), n


@PLANS.plan(LeakySum, dtypes=[float32])
def by_hip(op: LeakySum, inputs: Sequence[Shape], context: Any) -> Kernel:
    return hip_kernel(
        "leaky sum in HIP",
        op,
        TEXT.read_text(),
        grid=lambda shapes: -(-rows_and_length(shapes[0])[0] // 256),
        args=lambda shapes: [*rows_and_length(shapes[0]), op.rate],
    )
